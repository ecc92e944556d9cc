"""Tensors that are sorted for one element, and sorts that are needed."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.denormal_numbers import denormal_numbers
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, kernel, op, rows_named, step


def find(facts) -> list[Suspicion]:
    return list(denormal_numbers.check(facts))


def stepped(*followed_by: str) -> list[dict[str, Any]]:
    """A step of 100 µs for each name: a sort of 40 µs, and the operator of that name."""
    events = []
    for i, name in enumerate(followed_by):
        events += [step(i, 100 * i, 100), op("aten::sort", 100 * i + 10, 40), op(name, 100 * i + 60, 5)]
    return events


def test_a_sort_for_one_element_costs_the_sort():
    facts = facts_of(stepped(*["aten::select"] * 4))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "aten::sort")
    assert found.evidence == {"sorting_ns_per_step": 40_000}
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.4, abs=0.005)


def test_a_sort_whose_result_is_used_otherwise_is_silent():
    assert find(facts_of(stepped(*["aten::cumsum"] * 4))) == []


@pytest.mark.parametrize(("steps_with", "reported"), [(1, 0), (2, 1)])
def test_it_counts_from_half_of_the_steps_on(steps_with, reported):
    names = ["aten::select"] * steps_with + ["aten::cumsum"] * (4 - steps_with)
    assert len(find(facts_of(stepped(*names)))) == reported


def test_without_operators_the_rule_does_not_look():
    facts = facts_of([step(0, 0, 100), kernel("sort", 10, 40)])
    assert Need.OPERATORS in missing_needs(facts, denormal_numbers.needs)
