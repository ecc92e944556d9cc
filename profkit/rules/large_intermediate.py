"""Small tensors are blown up to a large one, worked on element by element, and reduced again.

What it detects
Tensors of a million elements or more that are made of ones at most an eighth as large (by broadcasting, `repeat` or
`tile`), on which only elementwise operators work, and of which a reduction (`sum`, `min`, `any`) leaves little, if all
of that takes a tenth of the step or more. The rule is silent if anything else takes or makes a tensor of that shape:
a product of matrices, a layer, a concatenation.

Why is this bad?
A table of all pairs of n things with d numbers each has n * n * d elements. Each operator writes it to memory and the
next one reads it back, and a backward pass keeps it. Algebra mostly needs no such table: distances are a product of
matrices, sums of products are `einsum`, and what looks at one row at a time can do so block by block.

Example
    distances = (x[:, None] - y[None]).square().sum(-1)

Use instead
    distances = torch.cdist(x, y).square()

How the saving is estimated
All of these operators and their backward nodes go, but for the time of the program's cheapest operators. That is the
most that can be gained: what replaces them reads the small tensors and computes on them, which the recording does not
show.
"""

from __future__ import annotations

import math

import numpy as np

from profkit.patterns import Places, costliest_lines, in_most_steps, spent_ns, times_per_step
from profkit.patterns.intermediates import Intermediate, intermediates
from profkit.patterns.step_calls import repeated_in_measured
from profkit.rules.base import (
    HIGH_FROM,
    Facts,
    Kind,
    Location,
    Need,
    Suspicion,
    Suspicions,
    format_count,
    pick_form,
    rule,
)
from profkit.savings import call_ns, scale_with_backward
from profkit.trace import Rows

_UNCERTAINTY = 0.3
"""A product of matrices of the same size takes a tenth to a third of the time."""
_SQUARES = (
    "Squared distances of all pairs are `torch.cdist(x, y).square()`, or by a matrix product\n"
    "    x.square().sum(-1)[:, None] + y.square().sum(-1) - 2 * x @ y.T"
)
_SORTED = (
    "Comparisons of all pairs need no table but one sort: `torch.searchsorted(y.sort().values, x)` counts for each x "
    "the y below it. Sums over all that are larger are cumulative sums in sorted order. Take "
    "`order = x.argsort(descending=True)`, then `w[order].cumsum(0)`, and `logcumsumexp` for logarithms. Equal values "
    "take the sum at the last of them."
)
_BLOCKS = (
    "Look for a form without the table: an index or `gather` to pick one element of each row, a matrix product for "
    "sums of products. If there is none, compute it in blocks of rows that fit the cache. Or compile the formula "
    "(`torch.compile`), which writes none of the table to memory."
)


@rule(Kind.OPPORTUNITY, Need.COMPUTE, Need.OPERATORS, Need.SHAPES, Need.WHOLE_STEP)
def large_intermediate(facts: Facts) -> Suspicions:
    """One finding for each shape of such a tensor."""
    for found in intermediates(facts):
        rows = repeated_in_measured(facts, found.rows)
        if in_most_steps(facts, rows):
            yield _suspect(facts, found, rows)


def _suspect(facts: Facts, found: Intermediate, rows: Rows) -> Suspicion:
    kept = (call_ns(facts) / np.maximum(spent_ns(facts, rows), 1)).clip(max=1)
    count, size = times_per_step(facts, rows), " x ".join(f"{length:,}" for length in found.shape)
    works = pick_form(count, "works", "work")
    return Suspicion(
        message=f"{format_count(count, 'operator')} a step {works} on tensors of {size} elements that are made from "
        "much smaller ones and reduced again.",
        fix=_advise(found),
        rows=rows,
        edit=scale_with_backward(facts, rows, kept, _UNCERTAINTY),
        worth=HIGH_FROM,
        confidence=0.7,
        count=count,
        places=Places.of([*_lines(facts, found.makers), *_lines(facts, found.rows)]),
        evidence={"elements": math.prod(found.shape)},
    )


def _lines(facts: Facts, rows: Rows) -> tuple[Location, ...]:
    """The lines of these operators in the measured steps, the costliest first."""
    return costliest_lines(facts, repeated_in_measured(facts, rows)).all()


def _advise(found: Intermediate) -> str:
    """The algebra that the operators' names tell."""
    names = set(found.names)
    if found.is_order:
        return _SORTED
    if "sub" in names and names & {"pow", "square", "mul"} and names & {"sum", "mean"}:
        return _SQUARES
    if "sub" in names and "abs" in names and names & {"sum", "mean"}:
        return "Sums of absolute differences of all pairs are `torch.cdist(x, y, p=1)`."
    if names <= {"mul", "multiply", "sum"}:
        return "Sums of products are a matrix product: `x @ y.T`, or `torch.einsum('id,jd->ij', x, y)`."
    return _BLOCKS
