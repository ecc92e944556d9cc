"""Backward passes end the steps of programs that update their weights by hand."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from profkit.collect.boundaries import backward_passes, signals
from profkit.collect.recorder.profiler import profile
from profkit.run.directory import load_run
from tests.collect.boundaries.listening import Listener, make_optimizer
from tests.collect.reading import read_events, steps_of

ORIGINAL = Tensor.backward


@pytest.fixture
def without_optimizers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have left some."""
    monkeypatch.setattr(backward_passes, "has_living_optimizer", bool)
    monkeypatch.setattr(signals, "has_living_optimizer", bool)


def update(weight: Tensor) -> None:
    (weight * 2).sum().backward()
    with torch.no_grad():
        weight -= 0.1 * weight.grad
        weight.grad = None


@pytest.fixture
def weight() -> Tensor:
    return torch.ones(3, requires_grad=True)


@pytest.mark.usefixtures("without_optimizers")
def test_each_backward_pass_from_the_second_on_ends_a_step(weight):
    listener = Listener()
    with listener.on():
        for _ in range(4):
            update(weight)
    assert listener.ends == [True, False, False]
    assert listener.name == "backward"


@pytest.mark.usefixtures("without_optimizers")
def test_a_single_backward_pass_ends_no_step(weight):
    listener = Listener()
    with listener.on():
        update(weight)
    assert listener.ends == []


def test_with_an_optimizer_no_backward_pass_ends_a_step_and_the_method_is_left_alone_from_then_on(weight):
    listener, optimizer = Listener(), make_optimizer()
    with listener.on():
        for _ in range(4):
            update(weight)
        assert vars(Tensor)["backward"] is ORIGINAL
    assert listener.ends == []
    del optimizer


def test_an_optimizer_that_only_drops_gradients_leaves_the_steps_to_the_backward_passes(weight):
    listener, optimizer = Listener(), torch.optim.SGD([weight], lr=0.1)
    with listener.on():
        for _ in range(8):
            optimizer.zero_grad()
            (weight * 2).sum().backward()
    assert listener.ends == [True, False, False]
    assert listener.name == "backward"


def test_gradients_that_add_up_wait_for_the_optimizer(weight):
    listener, optimizer = Listener(), torch.optim.SGD([weight], lr=0.1)
    with listener.on():
        for _ in range(8):
            (weight * 2).sum().backward()
        assert vars(Tensor)["backward"] is ORIGINAL
        optimizer.step()
    assert listener.ends == [True]
    assert listener.name == "optimizer"


def test_an_optimizer_that_steps_after_all_says_more(weight):
    listener, optimizer = Listener(), torch.optim.SGD([weight], lr=0.1)
    with listener.on():
        for skipped in [True] * 6 + [False] * 3:
            optimizer.zero_grad()
            (weight * 2).sum().backward()
            if not skipped:
                optimizer.step()
    assert listener.ends == [True, False, True, False, False]  # the seventh pass ends a step before its optimizer does
    assert listener.name == "optimizer"


def test_after_a_step_of_the_optimizer_nobody_looks_for_optimizers(weight, monkeypatch):
    looks: list[None] = []
    monkeypatch.setattr(backward_passes, "has_living_optimizer", lambda: looks.append(None))
    with Listener().on():
        update(weight)
        make_optimizer().step()
        assert vars(Tensor)["backward"] is ORIGINAL
        update(weight)
    assert looks == []


def test_a_chosen_backward_pass_counts_from_the_first_one_on_whatever_optimizers_there_are(weight):
    listener, optimizer = Listener("backward"), make_optimizer()
    with listener.on():
        for _ in range(3):
            update(weight)
            optimizer.step()
    assert listener.ends == [True, False, False]


@pytest.mark.usefixtures("without_optimizers")
def test_batches_and_optimizer_steps_say_more(weight):
    listener = Listener()
    with listener.on():
        for _ in range(3):
            update(weight)
        for _ in DataLoader(TensorDataset(torch.ones(3))):
            update(weight)
        assert listener.name == "dataloader"
        make_optimizer().step()
    assert listener.name == "optimizer"


@pytest.mark.usefixtures("without_optimizers")
def test_a_backward_pass_within_another_ends_no_step(weight):
    class Recomputes(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: Tensor) -> Tensor:
            return value.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]  # one tensor
            with torch.enable_grad():
                torch.ones(3, requires_grad=True).sum().backward()
            return gradient

    listener = Listener()
    with listener.on():
        for _ in range(3):
            Recomputes.apply(weight).sum().backward()  # type: ignore[no-untyped-call]  # torch's
    assert listener.ends == [True, False, False]


@pytest.mark.usefixtures("without_optimizers")
def test_an_error_in_a_backward_pass_shows_no_frame_of_profkit(weight):
    loss = (weight * weight).sum()
    loss.backward()
    with Listener().on(), pytest.raises(RuntimeError, match="second time") as caught:
        loss.backward()
    files = {frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)}
    assert not [file for file in files if "/profkit/collect/" in file]


def test_the_class_shows_its_own_method_and_has_it_back_afterwards():
    with Listener().on():
        assert Tensor.backward is ORIGINAL
    assert vars(Tensor)["backward"] is ORIGINAL


def test_a_method_that_the_program_put_there_meanwhile_stays(monkeypatch):
    monkeypatch.setattr(Tensor, "backward", ORIGINAL)  # put back after the test
    listener = Listener()

    def replaced(self: Tensor) -> None: ...

    with listener.on():
        setattr(Tensor, "backward", replaced)  # noqa: B010  # mypy refuses to assign to a method
    assert vars(Tensor)["backward"] is replaced


@pytest.mark.usefixtures("without_optimizers")
def test_the_steps_of_a_hand_made_update_are_recorded_whole(tmp_path, weight):
    with profile(tmp_path, wait=1, active=3):
        for _ in range(12):
            update(weight)
    assert load_run(tmp_path).step_signal == "backward"
    events = read_events(tmp_path)
    assert len(steps_of(events)) == 4
