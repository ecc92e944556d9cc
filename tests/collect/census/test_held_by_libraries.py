"""Objects of the program that only a library holds are counted too, under the names of their classes."""

from __future__ import annotations

import sched
import sys
import weakref
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from profkit.collect.census.held_by_libraries import _held_by
from profkit.collect.census.names import Census
from profkit.run.directory import LiveHolder
from profkit.source.growth import GrowthLines
from profkit.source.user_code import UserFiles


class History:
    def __init__(self) -> None:
        self.outputs: list[Tensor] = []

    def add(self) -> None:
        self.outputs.append(torch.ones(1000))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kept = [torch.ones(10)]


class Slotted:
    __slots__ = ("tensor",)

    def __init__(self) -> None:
        self.tensor = torch.ones(10)


def run_by_a_library(held: Any, steps: int = 1) -> list[dict[str, LiveHolder]]:
    """What the census finds at each step of a library's loop; the program that it calls back holds nothing itself."""
    census = Census(UserFiles(), GrowthLines(lambda file, line: False))
    loop = sched.scheduler()
    loop.trainer = SimpleNamespace(callbacks=held)
    del held
    for number in range(steps):
        loop.enter(0, number, lambda: census.take(0, sys._getframe()))
    loop.run()
    return [{holder.path: holder for holder in sample.holders} for sample in census.samples]


def test_an_unnamed_callback_is_found_with_the_line_that_makes_it_grow():
    history = History()
    history.add()
    held = [history]
    del history
    (found,) = run_by_a_library(held.pop())
    assert found["History.outputs"].tensors == 1
    assert found["History.outputs"].site is not None
    assert found["History.outputs"].site.source == "self.outputs.append(torch.ones(1000))"


def test_an_unnamed_module_is_found_in_a_list_of_a_library():
    (found,) = run_by_a_library([[Net()]])
    assert "Net.kept" in found


def test_many_objects_of_an_outer_runner_hide_nothing():
    runner = sched.scheduler()
    runner.plugins = [[object() for _ in range(64)] for _ in range(64)]
    found = []
    runner.enter(0, 0, lambda: found.extend(run_by_a_library([[Net()]])))
    runner.run()
    assert "Net.kept" in found[0]


def test_an_object_too_deep_for_an_inner_frame_is_searched_from_an_outer_one():
    held = [SimpleNamespace(callbacks=[[Net()]])]
    runner = sched.scheduler()
    runner.trainer = held[0]
    found = []
    runner.enter(0, 0, lambda kept: found.extend(run_by_a_library(kept)), (SimpleNamespace(parts=[held.pop()]),))
    runner.run()
    assert "Net.kept" in found[0]


def test_what_a_name_of_the_program_reaches_is_counted_once():
    net = Net()
    (found,) = run_by_a_library([net])
    assert [path for path in found if "kept" in path] == ["net.kept"]


def test_a_bound_method_leads_to_its_object():
    (found,) = run_by_a_library([History().add])
    assert "History.outputs" not in found  # it is empty
    net = [Net()]
    (found,) = run_by_a_library([net.pop().zero_grad])
    assert "Net.kept" in found


def test_an_object_without_weak_references_is_left_out():
    (found,) = run_by_a_library([Slotted()])
    assert "Slotted.tensor" not in found


def test_the_census_keeps_nothing_alive():
    net = Net()
    lives = weakref.ref(net)
    held = [net]
    del net
    run_by_a_library(held.pop(), steps=2)
    assert lives() is None


@pytest.mark.parametrize("add", [{1: "a"}.update, {"a"}.update, deque("a").extend])
def test_what_a_library_changes_meanwhile_is_no_failure(add):
    """Another thread may add to it, or the collector of garbage end an object whose end does."""
    held = _held_by(add.__self__)
    add({2: "b"})
    assert list(held) == ["a"]
