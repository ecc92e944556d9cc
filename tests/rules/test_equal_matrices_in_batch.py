"""Operators on a batch of one and the same matrix."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.equal_matrices_in_batch import equal_matrices_in_batch
from profkit.run.directory import CallSite, Form, MatrixForm, Recomputation
from profkit.savings.simulate import predict_saving
from tests.multiplying import multiplying

SITE = CallSite("filter.py", 5, "update", "gain = torch.linalg.inv(spread)")
SHAPE = (30, 40, 40)


facts_with = partial(multiplying, SITE)


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
