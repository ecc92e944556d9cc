"""Operators on matrices whose form needs no such work."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.needlessly_full_matrix import needlessly_full_matrix
from profkit.run.directory import CallSite, Form, MatrixForm, Recomputation, SparseFactor
from profkit.savings.simulate import predict_saving
from tests.multiplying import multiplying

SITE = CallSite("score.py", 5, "hsic", "return torch.trace(K @ H @ L @ H)")
SHAPE = (400, 400)


facts_with = partial(multiplying, SITE)


def known(*forms: Form, **others: Any) -> Recomputation:
    found = tuple(MatrixForm(number, form, SHAPE, 400) for number, form in enumerate(forms))
    return Recomputation(looked_at=2, forms=found, **others)


def find(facts: Any) -> list[Suspicion]:
    return list(needlessly_full_matrix.check(facts))


@pytest.mark.parametrize(
    ("form", "says", "advises"),
    [
        (Form.DIAGONAL, "a diagonal matrix", "as a vector"),
        (Form.CENTRING, "everywhere else", "Subtract a mean"),
        (Form.ADDING_UP, "a triangle", "cumsum"),
    ],
)
def test_each_form_has_its_advice_and_nearly_all_of_the_product_goes(form, says, advises):
    facts = facts_with(known(form))
    (found,) = find(facts)
    assert found.location is not None
    assert found.location.line == 5
    assert says in found.message
    assert found.message.endswith("of 400 x 400 numbers.")
    assert advises in found.fix
    assert 0.58 < predict_saving(facts, found.edit).fraction < 0.596


@pytest.mark.parametrize("form", [Form.NONE, Form.EQUAL])
def test_other_forms_are_silent(form):
    assert find(facts_with(known(form))) == []


@pytest.mark.parametrize(("second", "count"), [(Form.DIAGONAL, 1), (Form.NONE, 0)])
def test_a_call_must_have_it_in_all_runs_of_the_line(second, count):
    assert len(find(facts_with(known(Form.DIAGONAL, second), calls=2))) == count


def test_other_calls_of_the_line_may_be_of_other_forms():
    (found,) = find(facts_with(known(Form.NONE, Form.DIAGONAL), calls=2, runs=False))
    assert found.count == 1


def test_the_identity_that_picks_rows_is_another_fault():
    picks = (SparseFactor(0, SHAPE, 0.9975, picks=True),)
    assert find(facts_with(known(Form.DIAGONAL, sparse=picks))) == []


@pytest.mark.parametrize(("steps_with", "count"), [(4, 1), (2, 0)])
def test_it_must_be_so_in_most_steps(steps_with, count):
    assert len(find(facts_with(known(Form.DIAGONAL), steps_with=steps_with))) == count


@pytest.mark.parametrize("number", [7, -1])
def test_calls_that_the_trace_does_not_have_are_left_out(number):
    assert find(facts_with(Recomputation(forms=(MatrixForm(number, Form.DIAGONAL, SHAPE, 1),)))) == []


@pytest.mark.parametrize("missing", [None, Recomputation(looked_at=2)])
def test_if_nothing_was_looked_at_it_says_so(missing):
    with pytest.raises(CannotLook):
        find(facts_with(missing))
