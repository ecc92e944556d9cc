"""Operators on a batch of one and the same matrix."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.core.marks import CALL_MARK
from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.equal_matrices_in_batch import equal_matrices_in_batch
from profkit.run.directory import CallSite, Form, MatrixForm, Recomputation, Run
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, mark, op, step

SITES = (CallSite("filter.py", 5, "update", "gain = torch.linalg.inv(spread)"),)
SHAPE = (30, 40, 40)


def facts_with(known: Recomputation | None, *, calls: int = 1, steps_with: int = 4, runs: bool = True) -> Any:
    """Steps of 1000 µs: 600 µs for products at one line, in runs of their own or in one, 2 µs for something else."""
    events: list[dict[str, Any]] = []
    for number in range(4):
        at, each = 1000 * number, 600 / calls
        name = "aten::mm" if number < steps_with else "aten::sort"
        events += [step(number, at, 1000), op("aten::relu", at + 750, 2)]
        events += [op(name, at + 10 + each * turn, each - 4) for turn in range(calls)]
        if not number:
            spans = [(at + 8.5 + each * turn, each - 1) for turn in range(calls)] if runs else [(at + 8, 640)]
            events += [mark(0, *span) for span in spans]
            events += [annotation(f"{CALL_MARK}{turn}", at + 9 + each * turn, each - 2) for turn in range(calls)]
    return facts_of(events, run=Run(recomputation=known), callsites=SITES)


def known(*forms: Form) -> Recomputation:
    found = tuple(MatrixForm(number, form, SHAPE, 400) for number, form in enumerate(forms))
    return Recomputation(looked_at=2, forms=found)


def find(facts: Any) -> list[Suspicion]:
    return list(equal_matrices_in_batch.check(facts))


def test_one_matrix_of_the_batch_is_enough():
    facts = facts_with(known(Form.EQUAL))
    (found,) = find(facts)
    assert found.location is not None
    assert found.location.line == 5
    assert found.message == "1 operator a step takes a batch of 30 matrices of 40 x 40 that are all the same."
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.596 * 29 / 30, abs=1e-3)


@pytest.mark.parametrize("form", [Form.NONE, Form.DIAGONAL])
def test_other_forms_are_silent(form):
    assert find(facts_with(known(form))) == []


@pytest.mark.parametrize(("second", "count"), [(Form.EQUAL, 1), (Form.NONE, 0)])
def test_a_call_must_have_it_in_all_runs_of_the_line(second, count):
    assert len(find(facts_with(known(Form.EQUAL, second), calls=2))) == count


def test_other_calls_of_the_line_may_be_of_other_forms():
    (found,) = find(facts_with(known(Form.NONE, Form.EQUAL), calls=2, runs=False))
    assert found.count == 1


@pytest.mark.parametrize(("steps_with", "count"), [(4, 1), (2, 0)])
def test_it_must_be_so_in_most_steps(steps_with, count):
    assert len(find(facts_with(known(Form.EQUAL), steps_with=steps_with))) == count


@pytest.mark.parametrize("number", [7, -1])
def test_calls_that_the_trace_does_not_have_are_left_out(number):
    assert find(facts_with(Recomputation(forms=(MatrixForm(number, Form.EQUAL, SHAPE, 1),)))) == []


@pytest.mark.parametrize("missing", [None, Recomputation(looked_at=2)])
def test_if_nothing_was_looked_at_it_says_so(missing):
    with pytest.raises(CannotLook):
        find(facts_with(missing))
