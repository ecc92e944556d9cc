"""Which variables of functions hold the same whenever these return."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator

import numpy as np

from profkit.collect.functions.watch import FunctionWatch
from profkit.run.directory import RepeatedCall
from profkit.source.user_code import UserFiles

WEIGHTS = {name: name * 0.5 for name in range(40)}
CALLS = 24


def found_in(draw: Callable[[int], object], calls: int = CALLS) -> dict[tuple[str, str], RepeatedCall]:
    """What is found in two steps, by the names of the functions and the variables."""
    watch = FunctionWatch(UserFiles())
    watch.begin()
    try:
        for _ in range(2):
            for i in range(calls):
                draw(i)
            watch.end_step()
    finally:
        watch.stop()
    assert sys.getprofile() is None
    of_variables = [call for call in watch.found or () if call.is_variable]
    return {(call.defined.function.rpartition(".")[2], call.callee): call for call in of_variables}


def weighted(i: int) -> float:
    weights = np.array([1 * weight for weight in WEIGHTS.values()])
    weights /= np.sum(weights)
    chosen = random.randrange(40)
    return float(weights[chosen]) + i


def test_a_table_that_each_draw_makes_anew():
    found = found_in(weighted)
    call = found["weighted", "weights"]
    assert (call.calls, call.looked_at, call.again, call.is_whole) == (CALLS, CALLS, CALLS - 1, True)
    assert call.site.source == "weights /= np.sum(weights)"
    assert set(found) == {("weighted", "weights")}


def test_fewer_calls_may_be_alike_by_chance():
    assert set(found_in(weighted, 20)) == {("weighted", "weights")}
    assert found_in(weighted, 19) == {}


def test_of_many_calls_some_are_looked_at():
    call = found_in(weighted, 100)["weighted", "weights"]
    assert (call.calls, call.looked_at) == (100, 36)


def test_a_variable_that_differs_once_is_not_the_same():
    def draw(i: int) -> float:
        weights = np.array([weight + (i == CALLS - 1) for weight in WEIGHTS.values()])
        return float(weights[0])

    assert found_in(draw) == {}


def test_one_that_is_written_into_before_the_end_is_not_the_same():
    def draw(i: int) -> float:
        weights = np.array([1 * weight for weight in WEIGHTS.values()])
        weights[3] = i
        return float(weights[0])

    assert found_in(draw) == {}


def test_one_that_is_missing_at_times_is_not_the_same():
    def draw(i: int) -> float:
        if i == 5:
            return 0.0
        weights = [1 * weight for weight in WEIGHTS.values()]
        return weights[0]

    assert found_in(draw) == {}


def test_few_different_values_may_be_alike_by_chance():
    def draw(i: int) -> int:
        flags = [weight > -1 for weight in WEIGHTS.values()]
        zeros = np.zeros(40)
        few = list(range(7))
        return flags[0] + int(zeros[0]) + few[0] + i

    assert found_in(draw) == {}


def test_arguments_and_generators_do_not_count():
    table = list(range(40))

    def given(table: list[int]) -> int:
        return table[0]

    def rows() -> Iterator[int]:
        table = list(range(40))
        yield from table

    def draw(i: int) -> int:
        return given(table) + next(rows()) + i

    assert found_in(draw) == {}
