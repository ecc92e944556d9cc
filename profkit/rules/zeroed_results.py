"""Rows are computed at cost, and then most of them are multiplied by zeros or ignored by the loss.

What it detects
Products in which most rows of one factor meet an exact zero in the other: weights or a mask; and losses over classes
that ignore most of their rows (`ignore_index`), as those of masked language models do. The values are those of the
located step. Counted are the calls that made these rows and nothing else, as long as each of them works on every row by
itself: layers, activations, losses without reduction. Before a loss that ignores rows they count up to the next
residual connection. Experts that all compute every token, while the gate chooses one, are the usual case; a head that
computes every position for a loss of a few of them is another. Not reported: zeros here and there within rows (dropout,
activations, masks of attention), zeros that all stand at one end (padding), results that something else takes too, the
weights themselves among them, and soft gates. Tensors on a device are not looked at, nor steps with so many calls that
only some were seen.

Why is this bad?
A zero costs as much as any number: the layer computes the row, writes it, multiplies it, and its backward pass computes
gradients that are zero. With one of eight experts chosen, seven of eight operations are in vain.

Example
    outputs = torch.stack([expert(x) for expert in experts], 1)
    return (sparse_gates.unsqueeze(-1) * outputs).sum(1)

Use instead
    out = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        rows = (chosen == number).nonzero().flatten()
        out.index_add_(0, rows, best[rows, None] * expert(x[rows]))

How the saving is estimated
The calls that made the rows, and their backward nodes, keep the share of their time that the other rows have, but at
least what the program's cheapest operators take. Picking the rows and putting them back is not counted, which is why
the range is wide. The share of zeros may differ in other steps.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.patterns import Places, costliest_lines, in_most_steps, location_at, spent_ns, times_per_step
from profkit.patterns.loops.located import call_marks, marks_around
from profkit.patterns.program import shares_below
from profkit.rules.base import (
    LOW_FROM,
    CannotLook,
    Facts,
    Kind,
    Location,
    Need,
    Suspicion,
    Suspicions,
    format_count,
    format_share,
    known_recomputation,
    pick_form,
    rule,
)
from profkit.run.directory import ZeroedResult
from profkit.savings import call_ns, combine, take_less
from profkit.savings.pricing import scale_backward
from profkit.trace import Float64s, Rows

_UNCERTAINTY = 0.35
"""Picking the rows takes time, products of fewer rows are less efficient, and the next step has other zeros."""
_PICK_ROWS = (
    "Pick the rows that count before computing (`x[mask]`, `nonzero`, tokens sorted by their expert). Put the results "
    "back with `index_add_` or `index_copy`. Average over the rows that are left as before."
)
_PICK_TARGETS = (
    "Pick the rows that have a target before the last layers, and their targets. The mean over them stays the same:\n"
    "    chosen = labels != -100\n"
    "    loss = cross_entropy(head(hidden[chosen]), labels[chosen])\n"
    "Of a model of Transformers, call the parts one by one: the encoder, then the head on the chosen rows."
)
_NOT_LOOKED_AT = "factors were not looked at: they lie on a device, or the step has too many calls to see all"


class _Zeroed(Struct, frozen=True):
    """Products of one line, and the marks of the calls that made their rows."""

    where: Location
    products: list[ZeroedResult]


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS)
def zeroed_results(facts: Facts) -> Suspicions:
    """One finding for each line that multiplies by zeros."""
    for found in _by_line(facts):
        rows, kept = _made_in_vain(facts, found.products)
        if rows.size and in_most_steps(facts, rows):
            yield _suspect(facts, found, rows, kept)


def _by_line(facts: Facts) -> list[_Zeroed]:
    known = known_recomputation(facts)
    if known.zeroed is None:
        raise CannotLook(_NOT_LOOKED_AT)
    marks, around, found = call_marks(facts), marks_around(facts), dict[Location, list[ZeroedResult]]()
    for product in known.zeroed:
        if not 0 <= product.call < len(marks) or marks[product.call] < 0:
            continue
        if (where := location_at(facts, int(around[marks[product.call]]))) is not None:
            found.setdefault(where, []).append(product)
    return [_Zeroed(where, products) for where, products in found.items()]


def _made_in_vain(facts: Facts, products: list[ZeroedResult]) -> tuple[Rows, Float64s]:
    """The measured steps' operators that make the rows, and the share that each keeps."""
    mark_of = call_marks(facts)
    kept_of = {
        int(mark_of[maker]): 1 - product.zero
        for product in products
        for maker in product.makers
        if 0 <= maker < len(mark_of) and mark_of[maker] >= 0
    }
    return shares_below(facts, kept_of)


def _suspect(facts: Facts, found: _Zeroed, rows: Rows, share: Float64s) -> Suspicion:
    kept = np.maximum(share, call_ns(facts) / np.maximum(spent_ns(facts, rows), 1)).clip(max=1)
    count, most = times_per_step(facts, rows), max(found.products, key=lambda one: one.rows)
    zero = float(np.mean([one.zero for one in found.products]))
    lost = "ignored by the loss" if most.ignored else "multiplied by exact zeros"
    return Suspicion(
        message=f"{format_count(count, 'operator')} a step {pick_form(count, 'computes', 'compute')} {most.rows:,} "
        f"rows, but {format_share(zero)} of them are {lost} here, and nothing else uses them.",
        fix=_PICK_TARGETS if most.ignored else _PICK_ROWS,
        rows=rows,
        edit=combine([take_less(facts, rows, kept, _UNCERTAINTY), scale_backward(facts, rows, share, _UNCERTAINTY)]),
        worth=LOW_FROM,
        confidence=0.8,
        count=count,
        places=Places.of([found.where, *costliest_lines(facts, rows).all()]),
        evidence={"zero_share": round(zero, 4), "rows": most.rows},
    )
