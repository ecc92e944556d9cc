"""Three or more factors are multiplied in an order that takes several times the arithmetic.

What it detects
Products of three or more matrices or tensors: an `einsum` of so many, or products whose results go into nothing but
another product. The order of the products changes nothing but rounding. It is reported where another order takes at
most half as many operations, or moves half as many bytes: `einsum` takes its factors from left to right, and so does
`a @ b @ x`. Not reported: chains with anything between the products, such as an activation, a mask or a scale; a
result that something else reads, too; and an `einsum` for which the package `opt_einsum` chose the order.

Why is this bad?
Of an n x k matrix, a k x n matrix and a vector, the product of both matrices takes n * k * n multiplications, and its
result has n * n numbers, which the backward pass needs again. From the right it is 2 * n * k. The text looks the same
but for two brackets.

Example
    weight = up @ down  # 1,024 x 8 and 8 x 1,024
    return base(x) + F.linear(x, weight)

Use instead
    return base(x) + F.linear(F.linear(x, down), up)

How the saving is estimated
The products and their backward nodes keep the share that the cheapest order's operations have of those now, where a
product counts for its arithmetic, or for its bytes if these take longer.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns import busiest_site, each_step, in_most_steps, times_per_step
from profkit.patterns.flow.contractions import Contraction, Order, contractions
from profkit.patterns.step_calls import repeated_in_measured
from profkit.rules.base import MEDIUM_FROM, Facts, Kind, Need, Suspicion, Suspicions, rule
from profkit.savings import scale_with_backward
from profkit.trace import Float64s, Rows

_MOST_LEFT = 0.5
"""Of the operations. With more, thinner products may take as long: they reach half of the rate of square ones."""
_UNCERTAINTY = 0.3
"""Thin products reach a lower rate, and large results have to be allocated."""
_MOST_NAMED = 5
"""Factors whose order is spelt out. Of more nobody reads it."""


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES)
def costly_product_order(facts: Facts) -> Suspicions:
    """One finding for the products of a line."""
    by_line: dict[int, list[Contraction]] = {}
    for found in contractions(facts):
        if found.cost(found.cheapest()) <= _MOST_LEFT * found.cost(found.done):
            by_line.setdefault(busiest_site(facts, found.rows[-1:]), []).append(found)
    for several in by_line.values():
        parts = [_measured(facts, found) for found in several]
        rows, kept = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        if in_most_steps(facts, rows):
            yield _suspect(facts, several, rows, kept)


def _measured(facts: Facts, found: Contraction) -> tuple[Rows, Float64s]:
    """The measured steps' operators, and what each keeps of its time."""
    rows = found.rows if found.is_einsum else repeated_in_measured(facts, found.rows)
    return rows, np.full(len(rows), found.cost(found.cheapest()) / found.cost(found.done))


def _suspect(facts: Facts, several: list[Contraction], rows: Rows, kept: Float64s) -> Suspicion:
    worst = max(several, key=lambda found: found.cost(found.done))
    best, count = worst.cheapest(), len(several) if not worst.is_einsum else times_per_step(facts, rows)
    times, factors = worst.cost(worst.done) / worst.cost(best), len(worst.factors)
    largest = worst.largest(worst.done)
    return Suspicion(
        message=f"{each_step(count, 'product', 'multiplies', 'multiply')} {factors} factors in an order that takes "
        f"{times:,.0f} times as much as the cheapest one. On the way it makes {largest:,} numbers, the other "
        f"{worst.largest(best):,}.",
        fix=_fix(best, worst),
        rows=rows,
        edit=scale_with_backward(facts, rows, kept, _UNCERTAINTY),
        worth=MEDIUM_FROM,
        confidence=0.85,
        count=count,
        evidence={"factors": factors, "times_as_much": round(times, 2), "largest_result": largest},
    )


def _fix(best: Order, found: Contraction) -> str:
    how = f"Multiply in the order {_spell(best)}, where the letters are the factors from left to right" * (
        len(found.factors) <= _MOST_NAMED
    )
    first = f"{how or 'Multiply what makes small results first'}: "
    if found.is_einsum:
        return (
            f"{first}one `einsum` of two factors inside another one. Or install `opt_einsum`: PyTorch then looks for a "
            "cheap order itself."
        )
    return f"{first}brackets, or a layer for each factor, change nothing but rounding."


def _spell(order: Order) -> str:
    """``((0, 1), 2)`` → ``'(AB)C'``."""
    if isinstance(order, int):
        return chr(ord("A") + order)
    return "".join(_spell(part) if isinstance(part, int) else f"({_spell(part)})" for part in order)
