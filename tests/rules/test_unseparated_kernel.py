"""Convolutions whose kernels are a column times a row."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.unseparated_kernel import unseparated_kernel
from profkit.run.directory import CallSite, Form, MatrixForm, Recomputation
from profkit.savings.simulate import predict_saving
from tests.multiplying import multiplying

SITE = CallSite("blur.py", 5, "blur", "return F.conv2d(x, kernel, groups=3)")
facts_with = partial(multiplying, SITE, name="aten::conv2d")


def known(*forms: Form, size: int = 25) -> Recomputation:
    found = tuple(MatrixForm(number, form, (3, 1, size, size), 400) for number, form in enumerate(forms))
    return Recomputation(looked_at=2, forms=found)


def find(facts: Any) -> list[Suspicion]:
    return list(unseparated_kernel.check(facts))


def test_two_passes_take_the_place_of_the_square():
    """Of 596 µs of 1000, three times 50 of 625 weights are left."""
    facts = facts_with(known(Form.SEPARABLE))
    (found,) = find(facts)
    assert found.location is not None
    assert found.location.line == 5
    assert found.message == (
        "1 convolution a step multiplies with 25 x 25 weights that are a column times a row. 50 weights would do."
    )
    assert "(channels, 1, 25, 1)" in found.fix
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.596 * (1 - 3 * 50 / 625), abs=0.005)


@pytest.mark.parametrize(("size", "reported"), [(8, 0), (9, 1)])
def test_short_kernels_gain_nothing(size, reported):
    assert len(find(facts_with(known(Form.SEPARABLE, size=size)))) == reported


@pytest.mark.parametrize("form", [Form.NONE, Form.EQUAL])
def test_other_kernels_are_silent(form):
    assert find(facts_with(known(form))) == []


@pytest.mark.parametrize(("steps_with", "reported"), [(2, 0), (4, 1)])
def test_it_must_be_so_in_most_steps(steps_with, reported):
    assert len(find(facts_with(known(Form.SEPARABLE), steps_with=steps_with))) == reported


@pytest.mark.parametrize("missing", [None, Recomputation(looked_at=2)])
def test_if_nothing_was_looked_at_it_says_so(missing):
    with pytest.raises(CannotLook):
        find(facts_with(missing))
