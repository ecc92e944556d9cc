"""A large tensor is computed whole, and only a small part of it is used.

What it detects
Operators that work element by element (arithmetic, functions, `where`), copy (`repeat`, `clone`) or multiply matrices
(`matmul`, `bmm`), for a tensor of which at most half is read afterwards: slices, selections and diagonals are all that
takes it. A mask or a table of the largest length that is cut to the length of the batch is the usual case, or a table
of all pairs of which each row's own partner is read. The rule is silent if anything else takes a tensor of
that shape before the next one is made, if the slices together read most of it, and for operators that write in place
or draw random numbers.

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
cheapest operators, and so does giving the memory of their results back.
"""

from __future__ import annotations

import numpy as np

from profkit.derive.families import operators_of
from profkit.patterns import spent_ns, times_per_step
from profkit.patterns.step_calls import first_seen
from profkit.patterns.used_parts import (
    DIAGONALS,
    UsedPart,
    cut_by_line,
    makers_and_cuts,
    mostly_unused,
    rows_of_cuts,
)
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
from profkit.savings import call_ns, combine, take_less
from profkit.savings.pricing import scale_backward
from profkit.trace import Rows

_DIAGONAL = " The diagonal of `a @ b.T` is `(a * b).sum(-1)`."
_UNCERTAINTY = 0.2
"""Large tensors get fresh pages from the system, small ones do not."""


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES, Need.WHOLE_STEP)
def mostly_discarded_result(facts: Facts) -> Suspicions:
    """One finding for each line that computes most of such results."""
    for parts, rows in cut_by_line(facts, mostly_unused(facts)):
        yield _suspect(facts, parts, rows)


def _suspect(facts: Facts, parts: list[UsedPart], rows: Rows) -> Suspicion:
    used = np.ones(len(facts.trace.events))
    for part in parts:
        used[part.rows] = part.used
    share = used[first_seen(facts, rows)]
    kept = np.maximum(share, call_ns(facts) / np.maximum(spent_ns(facts, rows), 1)).clip(max=1)
    largest = max(parts, key=lambda part: np.prod(part.shape))
    count, size = times_per_step(facts, rows), " x ".join(f"{length:,}" for length in largest.shape)
    cuts = rows_of_cuts(facts, parts)
    diagonal = _DIAGONAL * bool(operators_of(facts.trace, DIAGONALS)[cuts].any())
    compute = pick_form(count, "computes", "compute")
    return Suspicion(
        message=f"{format_count(count, 'operator')} a step {compute} a tensor of {size} elements, of which only "
        f"{format_share(largest.used)} is used, a {'diagonal' if diagonal else 'slice'}.",
        fix="Slice before computing: take what goes in (`table[:length]`) instead of what comes out. Where a tensor "
        "is only repeated along a dimension, `expand` copies nothing." + diagonal,
        rows=rows,
        edit=combine([take_less(facts, rows, kept, _UNCERTAINTY), scale_backward(facts, rows, share, _UNCERTAINTY)]),
        worth=LOW_FROM,
        confidence=0.85,
        count=count,
        places=makers_and_cuts(facts, rows, cuts),
        evidence={"used_share": round(largest.used, 6), "elements": int(np.prod(largest.shape))},
    )
