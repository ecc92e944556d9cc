"""How many CPUs are busy while a batch is loaded and while it is used, by clocks that the tests set."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from profkit.collect.loaders.feeding import FeedingWatch
from profkit.collect.recorder.profiler import profile
from profkit.run.directory import Feeding, load_run


class Clocks:
    """Wall clock and CPU time of the process, advanced by a test."""

    def __init__(self) -> None:
        self.wall_ns = self.cpu_ns = 0

    def spend(self, wall_ns: int, cpu_ns: int) -> None:
        self.wall_ns += wall_ns
        self.cpu_ns += cpu_ns

    def perf_counter_ns(self) -> int:
        return self.wall_ns

    def process_time_ns(self) -> int:
        return self.cpu_ns


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks()
    monkeypatch.setattr("profkit.collect.loaders.feeding.time", clocks)
    return clocks


def feed(watch: FeedingWatch, clocks: Clocks, batches: int = 4, loading: int = 5, computing: int = 20) -> None:
    """Loading and computing each take 10 ns of the wall clock."""
    loader = object()
    for _ in range(batches):
        watch.ask(loader)
        clocks.spend(10, loading)
        watch.give(loader)
        clocks.spend(10, computing)


def test_loading_and_computing_are_told_apart(clocks):
    watch = FeedingWatch(lambda: True)
    feed(watch, clocks)
    assert watch.feeding == Feeding(loading_cpus=0.5, computing_cpus=2.0)


def test_one_unusual_step_changes_nothing(clocks):
    watch = FeedingWatch(lambda: True)
    feed(watch, clocks, 3)
    feed(watch, clocks, 1, computing=1000)
    feed(watch, clocks, 3)
    assert watch.feeding == Feeding(0.5, 2.0)


@pytest.mark.parametrize(("batches", "is_known"), [(3, False), (4, True)])
def test_at_least_three_of_each_are_needed(clocks, batches, is_known):
    watch = FeedingWatch(lambda: True)
    feed(watch, clocks, batches)
    assert (watch.feeding is not None) == is_known


def test_loading_in_which_a_recording_begins_or_ends_does_not_count(clocks):
    state = SimpleNamespace(is_undisturbed=True)
    watch = FeedingWatch(lambda: state.is_undisturbed)
    feed(watch, clocks)
    for _ in range(20):
        loader = object()
        watch.ask(loader)
        state.is_undisturbed = False
        clocks.spend(10, 0)
        watch.give(loader)
        state.is_undisturbed = True
        clocks.spend(10, 0)
    assert watch.feeding == Feeding(0.5, 2.0)


def test_a_loader_inside_a_loader_is_not_mistaken_for_the_outer_one(clocks):
    watch = FeedingWatch(lambda: True)
    outer, inner = object(), object()
    for _ in range(9):
        watch.ask(outer)
        clocks.spend(10, 1)
        feed(watch, clocks, 1, loading=3)
        watch.give(outer)
        clocks.spend(10, 7)
        watch.ask(inner)
        watch.give(inner)
    assert watch.feeding is not None
    assert watch.feeding.loading_cpus == 0.3


class Slow(TensorDataset):
    def __init__(self, clocks: Clocks, count: int) -> None:
        super().__init__(torch.ones(count, 8))
        self.clocks = clocks

    def __getitem__(self, index: int) -> Any:
        self.clocks.spend(10, 4)
        return super().__getitem__(index)


def test_a_run_carries_the_number_of_busy_cpus(tmp_path, clocks):
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with profile(tmp_path):
        for (x,) in DataLoader(Slow(clocks, 60)):
            optimizer.zero_grad()
            model(x).sum().backward()
            clocks.spend(100, 170)
            optimizer.step()
    assert load_run(tmp_path).feeding == Feeding(loading_cpus=0.4, computing_cpus=1.7)
    assert "_num_yielded" not in vars(_BaseDataLoaderIter)


def test_a_run_carries_the_time_that_it_waited_for_each_loader(tmp_path, clocks, monkeypatch):
    """With an evaluation of the same data, by another loader, in each step."""
    monkeypatch.setattr("profkit.collect.loaders.batches.time", clocks)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = Slow(clocks, 60)
    with profile(tmp_path):
        learn: DataLoader[Any] = DataLoader(data, batch_size=6)
        evaluate: DataLoader[Any] = DataLoader(data, batch_size=2)
        for (x,) in learn:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
            next(iter(evaluate))
    uses = {use.site.source: use for use in load_run(tmp_path).loaders if use.site is not None}
    learnt, evaluated = (
        uses[f"{name}: DataLoader[Any] = DataLoader(data, batch_size={size})"]
        for name, size in (("learn", 6), ("evaluate", 2))
    )
    assert learnt.asked_ns >= 3 * evaluated.asked_ns - 60 > 0
    assert learnt.asked_ns % 60 == evaluated.asked_ns % 20 == 0


def test_a_program_without_a_loader_has_no_such_numbers(tmp_path):
    with profile(tmp_path):
        nn.Linear(8, 1)(torch.ones(1, 8))
    assert load_run(tmp_path).feeding is None
