"""Which calls of functions count as the same again, in two steps of a small program."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from profkit.collect.functions import watch as watching
from profkit.collect.functions.attributes import attributes_read
from profkit.collect.functions.watch import FunctionWatch
from profkit.run.directory import RepeatedCall
from profkit.source.user_code import UserFiles

SCALE = [2.0]


def watched(*steps: Callable[[], object]) -> dict[str, RepeatedCall]:
    """What is found in two steps, by the name of the function."""
    watch = FunctionWatch(UserFiles())
    watch.begin()
    try:
        for step in steps:
            step()
            watch.end_step()
    finally:
        watch.stop()
    assert sys.getprofile() is None
    assert watch.found is not None
    return {call.callee.rpartition(".")[2]: call for call in watch.found}


def table(rows: int) -> Any:
    return np.linspace(0, 1, rows) * SCALE[0]


def test_a_table_built_for_each_sample_is_the_same_within_the_step():
    def step() -> None:
        for _ in range(4):
            table(5)

    call = watched(step, step)["table"]
    assert (call.calls, call.looked_at, call.again, call.across, call.differing) == (4, 4, 3, 1, 0)
    assert call.site.source == "table(5)"
    assert call.site.function.endswith("step")
    assert (call.defined.function, call.is_same_object) == ("table", False)


def test_once_a_step_is_the_same_as_in_the_step_before():
    call = watched(*[lambda: table(5)] * 2)["table"]
    assert (call.looked_at, call.again, call.across) == (1, 0, 1)


def test_other_arguments_or_another_value_of_the_module_are_not_the_same():
    sizes = iter((5, 6))
    assert "table" not in watched(*[lambda: table(next(sizes))] * 2)
    scales = iter((2.0, 3.0))

    def step() -> None:
        SCALE[0] = next(scales)
        table(5)

    assert "table" not in watched(step, step)
    SCALE[0] = 2.0


class Counter:
    """Its result depends on how often it was asked."""

    def __init__(self) -> None:
        self.count = 0
        self.noise = random.Random(0)

    def counted(self) -> int:
        self.count += 1
        return 7

    def drawn(self) -> float:
        return self.noise.random() * 0

    def nothing(self) -> None:
        pass

    def itself(self) -> Counter:
        return self


@pytest.mark.parametrize("name", ["counted", "drawn", "nothing", "itself"])
def test_what_changes_its_object_draws_or_is_called_for_an_effect_is_not(name):
    counter = Counter()

    def step() -> None:
        getattr(counter, name)()

    assert watched(step, step) == {}


def test_a_result_that_is_written_into_is_not_the_same():
    def step() -> None:
        table(5)[0] = 9

    assert watched(step, step)["table"].differing == 1


def filled(module: nn.Module) -> Any:
    return torch.full((3,), float(sum(parameter.sum() for parameter in module.parameters())))


def test_a_module_whose_parameters_were_updated_is_another_argument():
    module = nn.Linear(2, 2)

    def step() -> None:
        with torch.no_grad():
            filled(module)
            module.weight.mul_(1)

    assert "filled" not in watched(step, step)
    with torch.no_grad():
        assert watched(*[lambda: filled(module)] * 2)["filled"].across == 1


def test_a_parameter_that_is_looked_up_is_the_same_object_after_an_update():
    module = nn.Linear(2, 2)

    def step() -> None:
        found = module.get_parameter("weight")
        with torch.no_grad():
            found.add_(1)

    call = watched(step, step)["get_parameter"]
    assert (call.across, call.is_same_object) == (1, True)


class Reused:
    def __init__(self) -> None:
        self.buffer = torch.zeros(3)

    def fill(self) -> Any:
        self.buffer += 1
        return self.buffer


def test_a_buffer_that_is_filled_anew_is_no_lookup():
    reused = Reused()
    assert "fill" not in watched(reused.fill, reused.fill)

    def step() -> None:
        reused.fill()

    assert "fill" not in watched(step, step)


def test_results_with_gradients_are_left_to_the_other_watch():
    layer, batch = nn.Linear(2, 2), torch.ones(1, 2)

    def step() -> None:
        layer(batch)

    assert watched(step, step) == {}


class Board:
    """Its cells change, its size does not."""

    def __init__(self) -> None:
        self.size, self.cells = 4, [0]

    def beside(self, cell: int) -> list[int]:
        return [cell - self.size, cell + self.size]

    def taken(self, cell: int) -> list[int]:
        return [one for one in self.beside(cell) if self.cells[0] != one]


def test_what_a_method_does_not_read_of_its_object_may_change():
    board = Board()

    def step() -> None:
        for cell in range(40):
            board.cells[0] += 1
            board.taken(cell)

    found = watched(step, step)
    assert set(found) == {"beside"}
    assert (found["beside"].across, found["beside"].looked_at) == (32, 32)


@pytest.mark.parametrize(
    ("method", "read"),
    [
        (Board.beside, {"size"}),
        (Board.taken, None),
        (Counter.counted, None),
        (Counter.nothing, set()),
        (Counter.itself, None),
    ],
)
def test_attributes_that_a_method_reads(method, read):
    assert attributes_read(method.__code__) == read


def test_a_path_is_its_text():
    def size(path: Path) -> int:
        return len(path.name)

    def step() -> None:
        size(Path("a") / "b")

    assert watched(step, step)["size"].across == 1


def test_only_some_of_many_calls_are_looked_at():
    def step() -> None:
        for _ in range(80):
            table(5)

    call = watched(step, step)["table"]
    assert (call.calls, call.looked_at, call.across + call.again) == (80, 80, 80)


def test_of_many_that_differ_fewer_are_looked_at():
    rows = iter(range(1, 2000))

    def step() -> None:
        for _ in range(80):
            table(next(rows))
        table(1)

    call = watched(step, step)["table"]
    assert (call.calls, call.looked_at) == (1, 1)


def test_the_watch_ends_when_its_time_is_used(monkeypatch):
    monkeypatch.setattr(watching, "_MOST_NS", 0)
    assert watched(lambda: table(5), lambda: table(5)) == {}


def test_a_call_in_which_the_time_ends_is_not_looked_at(monkeypatch):
    """Its end is not seen: one of few would look as if it had given something new."""

    def step() -> None:
        for _ in range(2):
            table(5)
        monkeypatch.setattr(watching, "_MOST_NS", 0)
        table(5)
        monkeypatch.undo()

    call = watched(step)["table"]
    assert (call.looked_at, call.again) == (2, 1)


def spread(matrix: Any) -> Any:
    return matrix * 2


@pytest.mark.parametrize("rows", [200, 500])
def test_a_large_array_that_a_call_gave_is_known_by_what_it_holds(rows):
    """It lies somewhere else each time, as do the results of what takes it."""
    kept: list[Any] = []

    def step() -> None:
        kept.append(table(rows * rows))
        kept.append(spread(kept[-1]))

    calls = watched(step, step)
    assert (calls["table"].across, calls["spread"].across) == (1, 1)


@pytest.mark.parametrize("change", [0.0, 1.0])
def test_a_large_array_that_is_written_into_is_another_argument(change):
    kept: list[Any] = []

    def step() -> None:
        made = table(200 * 200)
        made[7777] += len(kept) * change
        kept.append((made, spread(made)))

    assert ("spread" in watched(step, step)) is (change == 0)


def test_what_each_step_costs_is_charged_once():
    watch = FunctionWatch(UserFiles())
    watch.begin()
    charged = []
    for _ in range(2):
        table(5)
        watch.end_step()
        charged.append(watch.take_uncharged_s())
    assert min(charged) > 0
    assert watch.take_uncharged_s() == 0


def test_a_program_that_is_profiled_keeps_its_profiler():
    watch = FunctionWatch(UserFiles())
    sys.setprofile(lambda *_: None)
    try:
        watch.begin()
        assert (watch.is_installed, watch.found) == (False, None)
        assert "compiled or profiled" in watch.ended
    finally:
        sys.setprofile(None)


def test_an_error_of_an_object_that_cannot_be_read_does_not_reach_the_program():
    class Rude:
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            raise RuntimeError

    rude = Rude()

    def given(_: object) -> int:
        return 3

    def step() -> None:
        given(rude)

    assert watched(step, step) == {}
