"""Calls of the model as the ends of steps, where nothing better says where those lie."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.modules import module as modules

from profkit.collect.boundaries import accumulation, forwards
from profkit.collect.boundaries.forwards import ForwardCalls
from profkit.collect.program.guard import Guard
from profkit.collect.recorder import prologue
from profkit.collect.recorder.profiler import profile
from profkit.run import load_run
from tests.collect.reading import read_events, steps_of

Install = Callable[[], tuple[ForwardCalls, list[str]]]


@pytest.fixture(autouse=True)
def nothing_was_compiled_or_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """By other tests of this process: an optimizer of theirs that holds gradients would keep calls from being steps."""
    gc.collect()
    trained, look = accumulation.living_optimizers(), accumulation.living_optimizers
    monkeypatch.setattr(accumulation, "living_optimizers", lambda: [one for one in look() if one not in trained])
    others, find = len(list(forwards._given_to_compiler())), forwards._given_to_compiler
    monkeypatch.setattr(forwards, "_was_compiled", lambda: False)
    monkeypatch.setattr(forwards, "_given_to_compiler", lambda: list(find())[others:])


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


def test_a_module_that_is_being_made_has_no_parts_yet(listening: Install) -> None:
    half_made = nn.Conv2d.__new__(nn.Conv2d)
    model = nn.Sequential(nn.Linear(4, 2))
    _, told = listening()
    model(torch.ones(1, 4))
    assert told == ["call"]
    assert not vars(half_made)


def test_of_several_models_the_one_called_first_counts(listening: Install) -> None:
    teacher, student = nn.Linear(4, 4), nn.Linear(4, 4)
    _, told = listening()
    for _ in range(3):
        teacher(torch.ones(1, 4))
        student(torch.ones(1, 4))
    assert told == ["call"] * 3


class _Resize(nn.Module):
    """As torchvision's transforms are made."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image[:2]


def test_modules_without_weights_are_no_models(listening: Install) -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    prepare, lossy = nn.Sequential(_Resize(), nn.Flatten()), nn.MSELoss()
    _, told = listening()
    for _ in range(3):
        batch = torch.stack([prepare(image) for image in torch.ones(5, 3, 4)]).reshape(-1, 4)
        lossy(model(batch), batch)
    assert told == ["call"] * 3


@pytest.mark.parametrize("weights", ["parameter", "buffer"])
def test_weights_deep_inside_make_a_model(listening: Install, weights: str) -> None:
    innermost = _Resize()
    if weights == "parameter":
        innermost.register_parameter("scale", nn.Parameter(torch.ones(1)))
    else:
        innermost.register_buffer("scale", torch.ones(1))
    model = nn.Sequential(nn.Sequential(nn.Flatten(), innermost))
    _, told = listening()
    model(torch.ones(3, 4))
    assert told == ["call"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_packed_weights_make_a_model(listening: Install) -> None:
    model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear})
    _, told = listening()
    model(torch.ones(1, 4))
    assert told == ["call"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_model_has_weights(listening: Install) -> None:
    model = torch.jit.trace(nn.Sequential(nn.Linear(4, 4)), torch.ones(1, 4), check_trace=False)
    _, told = listening()
    model(torch.ones(1, 4))
    assert told == ["call"]


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


@pytest.mark.parametrize("in_place", [True, False])
def test_where_a_module_is_going_to_be_compiled_nothing_is_listened_to(listening: Install, in_place: bool) -> None:
    """It would be compiled with the hook in it, and warn of it."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    if in_place:
        model.compile(backend="eager")
    compiled = None if in_place else torch.compile(model, backend="eager")
    listening()
    assert not modules._global_forward_hooks
    del compiled


def test_where_a_function_is_going_to_be_compiled_nothing_is_listened_to(listening: Install) -> None:
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    listening()
    assert not modules._global_forward_hooks
    del compiled


def test_once_the_program_calls_the_compiler_nothing_is_listened_to_any_more(listening: Install) -> None:
    original = torch.compile
    _, told = listening()
    model = nn.Linear(2, 2)
    model(torch.ones(1, 2))
    assert torch.compile is not original
    compiled = torch.compile(model, backend="eager")
    assert not modules._global_forward_hooks
    assert torch.compile is original
    assert isinstance(compiled(torch.ones(1, 2)), torch.Tensor)
    assert told == ["call"]


def test_inside_a_call_of_the_compiler_nothing_is_listened_to(
    listening: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its import makes the process grow, which ends the prologue."""
    monkeypatch.setattr(torch, "compile", lambda: listening())
    torch.compile()  # type: ignore[call-overload]
    assert not modules._global_forward_hooks


def test_a_function_that_the_compiler_passes_by_is_no_compiled_one(listening: Install) -> None:
    passed_by = torch.compiler.disable(lambda x: x + 1)
    listening()
    assert modules._global_forward_hooks
    del passed_by


@pytest.mark.usefixtures("watched_closely")
def test_an_inference_loop_has_steps_once_the_prologue_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prologue, "GROWTH_BYTES", -1)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording, torch.inference_mode():
        for _ in range(5_000_000):
            model(torch.ones(1, 8))
            if recording.is_over:
                break
        assert recording.is_over
    assert load_run(tmp_path).step_signal == "forward"
    assert sorted(steps_of(read_events(tmp_path))) == [0, 2, 3]


@pytest.mark.usefixtures("watched_closely")
def test_an_inference_loop_has_steps_in_a_rank_that_records_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prologue, "_LEAST_WAIT_S", 0)
    monkeypatch.setattr(os, "environ", {**os.environ, "RANK": "1", "WORLD_SIZE": "2"})
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    with profile(tmp_path / "run", wait=1, warmup=1, active=2, ranks=1) as recording, torch.inference_mode():
        for _ in range(5_000_000):
            model(torch.ones(1, 8))
            if recording.is_over:
                break
        assert recording.is_over
    folder = tmp_path / "run" / "rank1"
    assert (load_run(folder).step_signal, load_run(folder).is_light) == ("forward", True)
    assert sorted(steps_of(read_events(folder))) == [0, 2, 3]
    assert not any(event["name"].startswith("aten::") for event in read_events(folder))


@pytest.mark.usefixtures("watched_closely")
def test_where_gradients_accumulate_the_optimizer_ends_the_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the program grew so much in its first passes that the prologue was over before the first step was."""
    monkeypatch.setattr(prologue, "GROWTH_BYTES", -1)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with profile(tmp_path, wait=1, warmup=1, active=2):
        while not modules._global_forward_hooks:
            torch.ones(1, 8).neg()
        for _ in range(6):
            optimizer.zero_grad()
            for _ in range(20):
                model(torch.ones(1, 8)).sum().backward()
            optimizer.step()
    run = load_run(tmp_path)
    assert run.step_signal == "optimizer"
    assert len(run.reference_step_ns) >= 2
