"""Calls of the model as the ends of steps, where nothing better says where those lie."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.modules import module as modules

from profkit.collect import forwards, opening
from profkit.collect.forwards import ForwardCalls
from profkit.collect.guard import Guard
from profkit.collect.profiler import profile
from profkit.collect.sampler import Sampler
from profkit.run import load_run
from tests.collect.reading import read_events, steps_of

Install = Callable[[], tuple[ForwardCalls, list[str]]]


@pytest.fixture
def listening(request: pytest.FixtureRequest) -> Install:
    def install() -> tuple[ForwardCalls, list[str]]:
        told: list[str] = []
        calls = ForwardCalls(lambda: told.append("call"), Guard(lambda error: pytest.fail(str(error))))
        request.addfinalizer(calls.remove)
        calls.install()
        return calls, told

    return install


def test_each_call_of_the_outermost_module_is_told_once(listening: Install) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2)))
    _, told = listening()
    for _ in range(3):
        model(torch.ones(1, 4))
    assert told == ["call"] * 3


def test_of_several_models_the_one_called_first_counts(listening: Install) -> None:
    teacher, student = nn.Linear(4, 4), nn.Linear(4, 4)
    _, told = listening()
    for _ in range(3):
        teacher(torch.ones(1, 4))
        student(torch.ones(1, 4))
    assert told == ["call"] * 3


def test_nothing_is_left_of_it_and_a_module_never_carries_anything(listening: Install) -> None:
    model = nn.Linear(4, 4)
    calls, told = listening()
    assert len(modules._global_forward_hooks) == 1
    assert not model._forward_hooks
    calls.install()
    calls.remove()
    calls.remove()
    assert not modules._global_forward_hooks
    model(torch.ones(1, 4))
    assert told == []


def test_where_something_was_compiled_nothing_is_listened_to(
    listening: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwards, "_was_compiled", lambda: True)
    listening()
    assert not modules._global_forward_hooks


def test_an_inference_loop_has_steps_once_the_opening_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profkit.collect.recorder.Sampler", functools.partial(Sampler, interval_s=0.0))
    monkeypatch.setattr(opening, "_GROWTH_BYTES", -1)
    monkeypatch.setattr(forwards, "_was_compiled", lambda: False)  # by another test
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording, torch.inference_mode():
        for _ in range(5_000_000):
            model(torch.ones(1, 8))
            if recording.is_over:
                break
    assert load_run(tmp_path).step_signal == "forward"
    assert sorted(steps_of(read_events(tmp_path))) == [0, 2, 3]
