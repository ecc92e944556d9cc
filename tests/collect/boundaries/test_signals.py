"""Where steps end if the program does not announce it, and that no hook is left."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import SGD, Adam
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from profkit.collect.boundaries.choice import StepBoundary
from profkit.collect.boundaries.optimizer_steps import OptimizerSteps
from profkit.collect.boundaries.signals import StepSignals
from profkit.collect.program.guard import Guard
from profkit.run.directory import LoaderUse, OptimizerUse
from profkit.run.plan import EXPLICIT
from tests.collect.boundaries.listening import Listener, installed, make_optimizer
from tests.collect.reading import Event

Record = Callable[[Callable[[], Any]], list[Event]]


@pytest.fixture
def listener() -> Listener:
    return Listener()


class Numbers(Dataset[int]):
    def __init__(self, length: int = 6, fails: bool = False) -> None:
        self.length, self.fails = length, fails

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if self.fails:
            raise LookupError(index)
        return index


def test_each_step_of_the_optimizer_ends_a_step(listener):
    optimizer = make_optimizer()
    with listener.on():
        for _ in range(3):
            optimizer.step()
    assert listener.ends == [True, False, False]
    assert listener.name == "optimizer"


def test_the_step_ends_after_the_optimizers_own_range(recorded, listener):
    optimizer = make_optimizer()

    def train() -> None:
        with listener.on():
            optimizer.step()

    events = recorded(train)
    (step,) = [event for event in events if event["name"] == "Optimizer.step#SGD.step"]
    (boundary,) = [event for event in events if event["name"] == "aten::neg"]
    assert boundary["ts"] >= step["ts"] + step["dur"]
    assert listener.errors == []


def test_a_learning_rate_schedule_that_wraps_the_step_changes_nothing(listener):
    optimizer = make_optimizer()
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    with listener.on():
        for _ in range(2):
            optimizer.step()
            schedule.step()
    assert listener.ends == [True, False]


def test_hooks_of_the_programs_after_the_step_see_nothing_of_profkit(listener):
    """Whether they were there before or come later, for one optimizer or for all."""
    optimizer = make_optimizer()
    seen: list[dict[str, Any]] = []

    def see(optimizer: object, given: object, named: dict[str, Any]) -> None:
        seen.append(dict(named))

    register = optimizers.register_optimizer_step_post_hook
    handles = [register(see), optimizer.register_step_post_hook(see)]
    with listener.on():
        handles.append(optimizers.register_optimizer_step_post_hook(see))
        optimizer.step()
        assert listener.ends == [True]
    optimizer.step()
    for handle in handles:
        handle.remove()
    assert seen == [{}] * 6
    assert optimizers.register_optimizer_step_post_hook is register


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 1, 0)])
def test_listeners_leave_nothing_in_whatever_order_they_go(order):
    register = optimizers.register_optimizer_step_post_hook
    listeners = [OptimizerSteps(lambda _: None, Guard(lambda _: None), None, None) for _ in order]
    for one in listeners:
        one.install()
    for number in order:
        listeners[number].remove()
    assert optimizers.register_optimizer_step_post_hook is register
    assert not OptimizerSteps._left


def test_a_wrapper_of_the_programs_stays(listener):
    register = optimizers.register_optimizer_step_post_hook
    with listener.on():

        def own(hook: Any) -> Any:
            return register(hook)

        optimizers.register_optimizer_step_post_hook = own
    try:
        assert optimizers.register_optimizer_step_post_hook is own
    finally:
        optimizers.register_optimizer_step_post_hook = register
        OptimizerSteps._left.clear()


def test_a_hook_of_the_programs_before_the_step_changes_nothing(listener):
    optimizer = make_optimizer()
    kept: dict[str, Any] = {}
    optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: (args, kept))
    with listener.on():
        optimizer.step()
        optimizer.step()
    assert listener.ends == [True, False]
    assert kept == {}


def test_on_each_thread_the_first_optimizer_to_step_gives_the_signal():
    """A program may warm up on another thread, with another optimizer."""
    threads: list[int] = []
    errors: list[BaseException] = []
    signals = StepSignals(lambda boundary: threads.append(boundary.thread), Guard(errors.append))
    here, there = make_optimizer(), make_optimizer()
    worker = threading.Thread(target=there.step)
    with installed(signals):
        worker.start()
        worker.join()
        for optimizer in (here, there, here):
            optimizer.step()
    assert (threads, errors) == ([worker.ident, threading.get_ident(), threading.get_ident()], [])


def test_a_signal_carries_its_time_and_thread(listener):
    known: list[StepBoundary] = []
    with installed(StepSignals(known.append, Guard(listener.errors.append))):
        begun = time.perf_counter_ns()
        make_optimizer().step()
    (boundary,) = known
    assert (boundary.signal, boundary.thread, boundary.between) == ("optimizer", threading.get_ident(), None)
    assert begun < boundary.time_ns < time.perf_counter_ns()


def test_with_two_optimizers_only_the_first_ends_steps(listener):
    critic, maker = make_optimizer(), make_optimizer(Adam)
    with listener.on() as signals:
        for _ in range(2):
            critic.step()
            maker.step()
    assert listener.ends == [True, False]
    assert signals.optimizers == (OptimizerUse("SGD", None, None, 1), OptimizerUse("Adam", None, None, 1))


def test_another_optimizer_takes_over_once_the_first_is_gone(listener):
    with listener.on():
        optimizer = make_optimizer()
        optimizer.step()
        del optimizer
        make_optimizer().step()
    assert listener.ends == [True, True]


def test_the_programs_choice_of_implementation_is_noted(listener):
    with listener.on() as signals:
        make_optimizer(Adam, foreach=False).step()
    assert signals.optimizers == (OptimizerUse("Adam", False, None, 1),)


def test_a_step_that_fails_ends_no_step(listener):
    class Failing(SGD):
        def step(self, closure: Any = None) -> Any:
            raise ArithmeticError

    optimizer = make_optimizer(Failing)
    with listener.on(), pytest.raises(ArithmeticError):
        optimizer.step()
    assert listener.ends == []


def test_without_an_optimizer_each_batch_after_the_first_ends_a_step(listener, monkeypatch):
    monkeypatch.setattr("profkit.collect.boundaries.signals.has_living_optimizer", bool)
    with listener.on() as signals:
        assert [batch.tolist() for batch in DataLoader(Numbers(), batch_size=2)] == [[0, 1], [2, 3], [4, 5]]
    assert listener.ends == [True, False, False]  # three batches, and a request for a fourth
    assert listener.name == "dataloader"
    assert signals.loaders == (LoaderUse(0, 2, False, False),)


def test_batches_end_no_steps_while_an_optimizer_is_alive(listener):
    optimizer = make_optimizer()
    with listener.on() as signals:
        list(DataLoader(Numbers()))
    assert listener.ends == []
    assert signals.loaders == (LoaderUse(0, 1, False, False),)
    assert optimizer.param_groups


def test_only_batches_of_the_first_loader_end_steps(listener, monkeypatch):
    monkeypatch.setattr("profkit.collect.boundaries.signals.has_living_optimizer", bool)
    with listener.on():
        for _ in zip(DataLoader(Numbers(4)), DataLoader(Numbers(4)), strict=True):
            pass
    assert listener.ends == [True, False, False, False]


def test_an_explicit_step_wins_over_the_optimizer(listener):
    optimizer = make_optimizer()
    with listener.on():
        for _ in range(2):
            optimizer.step()
            listener.give(EXPLICIT)
    assert listener.ends == [True, True, False]  # the second is the first step by the better signal
    assert listener.name == EXPLICIT


def test_no_other_signal_counts_once_steps_are_recorded(listener):
    optimizer = make_optimizer()
    with listener.on():
        listener.give(EXPLICIT)
        listener.committed = True
        optimizer.step()
        listener.give(EXPLICIT)
    assert listener.ends == [True, False]
    assert (listener.name, listener.outdone_times) == (EXPLICIT, 0)


def test_an_explicit_step_outdoes_a_recorded_signal(listener):
    optimizer = make_optimizer()
    with listener.on():
        optimizer.step()
        listener.committed = True
        listener.give(EXPLICIT)
    assert (listener.ends, listener.outdone_times, listener.choice.outdone_by) == ([True], 1, EXPLICIT)


@pytest.mark.parametrize(("is_replacement", "times"), [(True, 1), (False, 0)])
def test_a_signal_that_the_user_chose_is_never_outdone(is_replacement, times):
    listener = Listener("optimizer", has_begun=True, is_replacement=is_replacement)
    listener.give(EXPLICIT)
    assert (listener.ends, listener.outdone_times) == ([], times)


def test_a_signal_that_is_not_heard_changes_nothing(listener):
    optimizer = make_optimizer()
    with listener.on():
        listener.deaf = True
        listener.give(EXPLICIT)
        listener.deaf = False
        optimizer.step()
    assert listener.ends == [True]
    assert listener.name == "optimizer"


def test_optimizers_are_only_noted_once_the_program_ends_its_steps_itself():
    listener = Listener(has_begun=True)
    with listener.on() as signals:
        make_optimizer().step()
        listener.give(EXPLICIT)
    assert listener.ends == [False]
    assert signals.optimizers == (OptimizerUse("SGD", None, None, 1),)


def test_nothing_is_left_of_the_hooks():
    before = dict(optimizers._global_optimizer_post_hooks), dict(vars(_BaseDataLoaderIter))
    listener = Listener()
    with listener.on():
        assert "_profile_name" in vars(_BaseDataLoaderIter)
        iterator = iter(DataLoader(Numbers()))
        next(iterator)
    assert (dict(optimizers._global_optimizer_post_hooks), dict(vars(_BaseDataLoaderIter))) == before
    assert next(iterator).tolist() == [1]


def test_an_earlier_iterator_keeps_its_name_in_the_trace(recorded, listener):
    iterator = iter(DataLoader(Numbers()))

    def ask() -> None:
        with listener.on():
            next(iterator)

    names = {event["name"] for event in recorded(ask)}
    assert "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__" in names


def test_an_error_in_the_dataset_shows_no_frame_of_profkit(listener):
    with listener.on(), pytest.raises(LookupError) as caught:
        next(iter(DataLoader(Numbers(fails=True))))
    files = {frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)}
    assert not [file for file in files if "/profkit/collect/" in file]


def test_an_error_in_the_signals_never_reaches_the_program(listener, monkeypatch):
    def break_down(*_: object) -> Any:
        raise RuntimeError("no description today")

    monkeypatch.setattr("profkit.collect.boundaries.optimizer_steps._describe_optimizer", break_down)
    monkeypatch.setattr("profkit.collect.loaders.batches._describe_loader", break_down)
    with listener.on():
        make_optimizer().step()
        assert len(list(DataLoader(Numbers(2)))) == 2
    assert {str(error) for error in listener.errors} == {"no description today"}
    assert len(listener.errors) == 4  # one step, two batches, and a request for a third


def test_the_batches_that_workers_hold_ready_are_counted_up_to_a_bound(listener):
    with listener.on() as signals:
        for workers, ahead in ((0, 0), (3, 6), (64, 8)):
            batches = iter(DataLoader(Numbers()))
            batches._num_workers, batches._prefetch_factor = workers, 2  # as in a loader with workers
            next(batches)
            assert signals.batches_ahead == ahead
