"""A large tensor is computed whole, and only a small part of it is used.

What it detects
Operators that work element by element (arithmetic, functions, `where`), copy (`repeat`, `clone`) or multiply matrices
(`matmul`, `bmm`), for a tensor of which at most half is read afterwards: slices, selections and diagonals are all that
takes it. A mask or a table of the largest length that is cut to the length of the batch is the usual case, or a table
of all pairs of which each row's own partner is read. What is picked by index counts as a part if the recording has the
memory of the result. So does a table of all rows of a batch with all targets that is split by sample, if each sample
reads its own rows of its piece. What goes into such a tensor is looked at in turn: linear layers, convolutions over
single positions, activations and sums before a slice of the last positions need these positions alone. The rule is
silent if anything else takes a tensor of that shape before the next one is made, if the slices together read most of
it, and for operators that write in place or draw random numbers.

Why is this bad?
Every element is computed, written to memory and thrown away. With a mask of 1,024 by 1,024 of which 48 by 48 are used,
that is 455 times the work.

Example
    mask = self.causal[None].repeat(len(ids), 1, 1) * lowest
    return mask[:, :length, :length]

Use instead
    mask = self.causal[:length, :length] * lowest
    return mask.expand(len(ids), -1, -1)

How the saving is estimated
The operators and their backward nodes take the share of their time that is used, but at least as long as the program's
cheapest operators and, for a layer, as reading its weights from memory. So does giving the memory of their results
back.
"""

from __future__ import annotations

import numpy as np

from profkit.derive.families import operators_of
from profkit.patterns import spent_ns, times_per_step
from profkit.patterns.step_calls import first_seen
from profkit.patterns.used.parts import (
    DIAGONALS,
    UsedPart,
    cut_by_line,
    makers_and_cuts,
    mostly_unused,
    rows_of_cuts,
    weights_of,
)
from profkit.patterns.used.picked import PICKING
from profkit.rules.base import (
    LOW_FROM,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_count,
    format_share,
    pick_form,
    rule,
)
from profkit.savings import call_ns, combine, memory_bytes_per_ns, take_less
from profkit.savings.pricing import scale_backward
from profkit.trace import Rows

_DIAGONAL = " The diagonal of `a @ b.T` is `(a * b).sum(-1)`, and its trace `(a * b).sum()`."
_OWN_BLOCKS = (
    "Compare each sample's rows with its own targets alone. Pad the targets to the longest and compute all samples at "
    "once (`rows[:, :, None]` with `targets[:, None]`), or loop over the samples."
)
_PICK_FIRST = (
    "Pick first: compute for the indices alone. For columns of a layer's result use `linear(x, weight[ids], "
    "bias[ids])`, for rows `layer(x[ids])`; in a formula, index what goes in."
)
_UNCERTAINTY = 0.2
"""Large tensors get fresh pages from the system, small ones do not."""


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES, Need.WHOLE_STEP)
def mostly_discarded_result(facts: Facts) -> Suspicions:
    """One finding for each line that computes most of such results."""
    for parts, rows in cut_by_line(facts, mostly_unused(facts)):
        yield _suspect(facts, parts, rows)


def _suspect(facts: Facts, parts: list[UsedPart], rows: Rows) -> Suspicion:
    cuts = rows_of_cuts(facts, parts)
    is_diagonal = bool(operators_of(facts.trace, DIAGONALS)[cuts].any())
    is_picked = bool(operators_of(facts.trace, PICKING)[cuts].any())
    used, least_ns = np.ones(len(facts.trace.events)), np.zeros(len(facts.trace.events))
    for part in parts:
        used[part.rows] = part.used
        read = part.used if is_picked else 1  # a layer's columns are picked together with their weights
        weights = [weights_of(facts, row) for row in part.rows.tolist()]
        least_ns[part.rows] = 4 * read * np.array(weights) / memory_bytes_per_ns(facts)
    seen = first_seen(facts, rows)
    least = np.maximum(call_ns(facts), least_ns[seen]) / np.maximum(spent_ns(facts, rows), 1)
    kept = np.maximum(used[seen], least).clip(max=1)
    largest = max(parts, key=lambda part: np.prod(part.shape))
    count = times_per_step(facts, rows)
    return Suspicion(
        message=_describe(parts, largest, count, _part_of(parts, is_diagonal, is_picked)),
        fix=(_PICK_FIRST if is_picked else _advise(parts)) + _DIAGONAL * is_diagonal,
        rows=rows,
        edit=combine(
            [take_less(facts, rows, kept, _UNCERTAINTY), scale_backward(facts, rows, used[seen], _UNCERTAINTY)]
        ),
        worth=LOW_FROM,
        confidence=0.85,
        count=count,
        places=makers_and_cuts(facts, rows, cuts),
        evidence={"used_share": round(largest.used, 6), "elements": int(np.prod(largest.shape))},
    )


def _part_of(parts: list[UsedPart], is_diagonal: bool, is_picked: bool) -> str:
    if any(part.is_block for part in parts):
        return "block for each sample"
    return "diagonal" if is_diagonal else "pick" if is_picked else "slice"


def _describe(parts: list[UsedPart], largest: UsedPart, count: int, part: str) -> str:
    operators, size = format_count(count, "operator"), " x ".join(f"{length:,}" for length in largest.shape)
    if len({one.shape for one in parts}) > 1:
        return (
            f"{operators} a step compute tensors of which only a part is used: of the largest, {size} elements, "
            f"{format_share(largest.used)}."
        )
    compute = pick_form(count, "computes", "compute")
    used = (
        f"{operators} a step {compute} a tensor of {size} elements, of which only {format_share(largest.used)} is used"
    )
    return f"{used}, picked by index." if part == "pick" else f"{used}, a {part}."


def _advise(parts: list[UsedPart]) -> str:
    if any(part.is_block for part in parts):
        return _OWN_BLOCKS
    if any(part.is_before for part in parts):
        return (
            "Slice first: the layers on these lines work on each position alone. Give them the positions that are read "
            "later (`layer(x[:, -n:])`) instead of slicing what comes out."
        )
    return (
        "Slice before computing: take what goes in (`table[:length]`) instead of what comes out. Where a tensor "
        "is only repeated along a dimension, `expand` copies nothing."
    )
