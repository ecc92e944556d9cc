"""Rows of a batch go through the same weights again, as an earlier batch of the step held them too.

What it detects
Linear layers and convolutions called twice in a step with the same weights, where a third or more of the second call's
rows are rows of the first: a picture encoded as the present one and, a row later, as the next one; windows of a
sequence that overlap; an anchor in two pairs. Rows lie in other memory, so they are told by their numbers, of long ones
by some, in one step. Not reported: rows of equal numbers, such as padding; batches that repeat their own rows; weights
that were updated in between; calls with a backward pass between them; rows that dropout or the batch's statistics have
changed before the layer; and calls on the very same tensor, which are `redundant-recomputation`. Tensors on a device
are not looked at, and of a step with very many calls only some are.

Why is this bad?
A layer gives the same for the same row. Of 32 frames and the 32 that follow them, 33 differ: encoded as two batches
they take nearly twice as long, and so does the backward pass.

Example
    latent = encoder(frames[:-1])
    next_latent = encoder(frames[1:])

Use instead
    latents = encoder(frames)
    latent, next_latent = latents[:-1], latents[1:]

How the saving is estimated
The later calls of these layers, and their backward nodes, keep the share of their time that the other rows have. What
runs between the layers is not counted. Putting batches together and taking results apart may cost a copy, which is why
the range is wide.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.patterns import Places, costliest_lines, each_step, in_most_steps, location_at, times_per_step
from profkit.patterns.calls import run_in_training
from profkit.patterns.loops.located import call_marks, marks_around, ways_apart
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
    format_share,
    known_recomputation,
    rule,
)
from profkit.run.directory import SharedRows
from profkit.savings.pricing import take_less_with_backward
from profkit.trace import Float64s, Rows

_UNCERTAINTY = 0.3
"""Batches are put together, results taken apart, and what lies between the layers is not counted."""
_NOT_LOOKED_AT = "rows were not looked at: they lie on a device, or the step has too many calls to see all"
_FIX = (
    "Apply the module once to rows that differ: to the whole sequence, or to both batches put together without what "
    "they share. Then take the parts of its result (`latents[:-1]`, `latents[1:]`, or an index). For a part that needs "
    "no gradients, take `detach()` of it."
)
_ONLY_THESE = (
    " Dropout or batch norm in training mode follows here: in one call a row has one mask, and all rows share their "
    "statistics. To keep the numbers, apply only the layers in front of it once."
)
_MODES = (
    (frozenset(("alpha_dropout", "dropout", "feature_dropout")), 2),
    (frozenset(("batch_norm", "instance_norm")), 5),
)
"""Operators whose results depend on more than a row, and the argument that says whether they do now."""


class _Pair(Struct, frozen=True):
    """The lines that tell the ways to both calls apart, the calls that were found there, and a mark of the later
    line."""

    where: Location
    first: Location | None
    calls: list[SharedRows]
    mark: int


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS)
def rows_computed_again(facts: Facts) -> Suspicions:
    """One finding for the layers of a module that is called at one line for the second time."""
    for found in _by_line(facts):
        rows, kept = _layers(facts, found.calls)
        if rows.size and in_most_steps(facts, rows):
            yield _suspect(facts, found, rows, kept)


def _by_line(facts: Facts) -> list[_Pair]:
    known = known_recomputation(facts)
    if known.rows is None:
        raise CannotLook(_NOT_LOOKED_AT)
    marks, around = call_marks(facts), marks_around(facts)
    calls = [one for one in known.rows if all(0 <= at < len(marks) and marks[at] >= 0 for at in (one.call, one.first))]
    lines, first_lines = (around[marks[[*numbers]]] for numbers in ([c.call for c in calls], [c.first for c in calls]))
    found, ways = dict[tuple[Location, Location | None], _Pair](), ways_apart(facts, lines, first_lines)
    for call, line, first in zip(calls, *(one.tolist() for one in ways), strict=True):
        if (where := location_at(facts, line)) is not None:
            key = where, location_at(facts, first)
            found.setdefault(key, _Pair(*key, [], line)).calls.append(call)
    return list(found.values())


def _layers(facts: Facts, calls: list[SharedRows]) -> tuple[Rows, Float64s]:
    """The measured steps' operators of these calls, and the share of its time that each keeps."""
    mark_of = call_marks(facts)
    kept_of = {int(mark_of[one.call]): 1 - one.again for one in calls}
    return shares_below(facts, kept_of)


def _depends_on_more(facts: Facts, mark: int) -> bool:
    """Whether a line's results depend on chance or on other rows."""
    rows = np.flatnonzero(facts.tree.under(facts.trace.mask_of(np.array([mark]))))
    return any(run_in_training(facts, rows, names, argument) for names, argument in _MODES)


def _suspect(facts: Facts, found: _Pair, rows: Rows, kept: Float64s) -> Suspicion:
    most, count = max(found.calls, key=lambda one: one.rows * one.again), times_per_step(facts, rows)
    if found.first is None or found.first == found.where:
        known = "at this line too"
    else:
        known = f"at line {found.first.line}" + f" of {found.first.file}" * (found.first.file != found.where.file)
    return Suspicion(
        message=f"{each_step(count, 'layer', 'is given', 'are given')} rows that went through the same weights "
        f"before, {known}: {format_share(most.again)} of {most.rows:,}.",
        fix=_FIX + _ONLY_THESE * _depends_on_more(facts, found.mark),
        rows=rows,
        edit=take_less_with_backward(facts, rows, kept, _UNCERTAINTY),
        worth=LOW_FROM,
        confidence=0.85,
        count=count,
        places=Places.of([found.where, found.first, *costliest_lines(facts, rows).all()]),
        evidence={"rows": most.rows, "again_share": round(most.again, 4)},
    )
