"""Chains of rounds, by what calls take of each other."""

from __future__ import annotations

import pytest

from profkit.patterns.flow.data_flow import longest_chain, shared_inputs
from profkit.run.directory import DataFlow


def chain(takes: tuple[tuple[int, ...], ...], rounds: dict[int, int], working: set[int], **more) -> int:
    return longest_chain(DataFlow(takes, **more), rounds, frozenset(working))


def test_rounds_that_only_take_what_was_there_are_no_chain():
    assert chain(((-1, -2), (-3, -2), (-4, -2)), {0: 0, 1: 1, 2: 2}, {0, 1, 2}) == 1


def test_rounds_that_take_the_one_before_are_as_long_as_they_are_many():
    assert chain(((-1, -2), (0,), (1, -2), (2,), (3, -2)), {0: 0, 2: 1, 4: 2}, {0, 2, 4}) == 3


def test_a_tree_is_as_long_as_it_is_deep():
    """Four leaves, two nodes over them, and one over these."""
    takes = ((-1,), (-2,), (-3,), (-4,), (0, 1), (2, 3), (4, 5))
    assert chain(takes, {n: n for n in range(7)}, set(range(7))) == 3


def test_several_working_calls_of_one_round_are_one_round():
    takes = ((-1, -2), (0, -3), (-4, -2), (2, -3))
    assert chain(takes, {0: 0, 1: 0, 2: 1, 3: 1}, {0, 1, 2, 3}) == 1


def test_a_sum_over_the_rounds_ties_none_of_them_together():
    """Each round multiplies, and adds to what the rounds before added up."""
    takes = ((-1, -2), (0,), (-3, -2), (1, 2), (-4, -2), (3, 4))
    assert chain(takes, {0: 0, 1: 0, 2: 1, 3: 1, 4: 2, 5: 2}, {0, 2, 4}) == 1


@pytest.mark.parametrize(("binding", "length"), [({1, 4, 7}, 3), (set(), 1)])
def test_what_is_made_of_earlier_results_needs_their_rounds(binding: set[int], length: int):
    """Each round multiplies, and divides by what was made of the results before."""
    takes = ((-1, -2), (0, -5), (1, -5), (-3, -2), (3, 2), (4, 2), (-4, -2), (6, 5))
    rounds = {0: 0, 1: 0, 3: 1, 4: 1, 6: 2, 7: 2}
    assert longest_chain(DataFlow(takes), rounds, frozenset({0, 3, 6}), frozenset(binding)) == length


@pytest.mark.parametrize(("follows", "length"), [(False, 3), (True, 1)])
def test_what_follows_a_number_that_python_read_may_need_it(follows: bool, length: int):
    flow = DataFlow(((-1, -2), (0,), (-3, -2), (2,), (-4, -2)), reads=(1, 3))
    rounds = {0: 0, 2: 1, 4: 2}
    assert longest_chain(flow, rounds, frozenset(rounds), may_follow_numbers=follows) == length


@pytest.mark.parametrize("takes", [(), ((7, 9),), ((0,), (1, 3))])
def test_numbers_that_cannot_be_are_passed_by(takes: tuple[tuple[int, ...], ...]):
    assert chain(takes, {0: 0, 1: 1, 5: 2}, {0, 1, 5}) == min(len(takes), 1)


def test_weights_are_what_all_rounds_take():
    flow = DataFlow(((-1, -9), (-2, -9), (-3, -9)))
    assert shared_inputs(flow, [0, 1, 2]) == (False, True)
    assert shared_inputs(DataFlow(((-1, -9), (-2,))), [0, 1]) == ()
