"""A matrix is inverted only to multiply a few vectors by the inverse.

What it detects
`torch.inverse` and `torch.linalg.inv` of matrices with 64 rows or more, where nothing but products reads the result,
and these multiply at most half as many vectors by it as it has rows. Not reported: an inverse that anything else reads,
such as its diagonal; one that is multiplied by a whole matrix, where solving gains little; and small matrices, where
the call takes longer than the arithmetic. Of steps with very many calls not all are followed, so some are missed.

Why is this bad?
Solving `A x = b` factors the matrix once, which is a third of the arithmetic of inverting it. The backward pass of an
inverse multiplies whole matrices twice; that of a solution solves for as many vectors again, with the same factors. It
is more accurate, too.

Example
    loss = y @ torch.inverse(covariance) @ y

Use instead
    loss = y @ torch.linalg.solve(covariance, y)

How the saving is estimated
The inverse keeps a quarter of its time, and more the more vectors there are. Its backward nodes keep the share that the
vectors are of the rows. Neither keeps less than what a call takes. On one thread of a CPU, for matrices of 64 to 1,024
rows, solving took 0.24 to 0.30 times as long for one vector, 0.41 to 0.43 for a quarter as many as rows, and 0.58 for
half.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns import busiest_site, each_step, in_most_steps, spent_ns, times_per_step
from profkit.patterns.flow.inverses import MultipliedInverse, multiplied_inverses
from profkit.patterns.step_calls import repeated_in_measured
from profkit.rules.base import (
    CALLS_NOT_WATCHED,
    MEDIUM_FROM,
    CannotLook,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    Watch,
    rule,
    why_not_watched,
)
from profkit.savings import combine, take_less
from profkit.savings.pricing import CALL_NS, scale_backward
from profkit.trace import Float64s, Rows

_LEAST_SIDE = 64
"""Rows of a matrix. With 32 solving took 0.55 times as long, with 16 it took 0.71 times: what the call itself takes."""
_MOST_COLUMNS = 0.5
"""Vectors for each row of the matrix."""
_FACTORS, _SUBSTITUTES = 0.26, 0.65
"""What solving takes of the inverse's time: to factor the matrix, and for as many vectors as rows."""
_UNCERTAINTY = 0.25
"""Libraries differ: with few threads or on a device solving may gain less."""


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES)
def explicit_inverse(facts: Facts) -> Suspicions:
    """One finding for the inverses of a line."""
    if facts.run.flow is None:
        raise CannotLook(why_not_watched(facts, Watch.CALLS, CALLS_NOT_WATCHED))
    by_line: dict[int, list[MultipliedInverse]] = {}
    for found in multiplied_inverses(facts):
        if found.side >= _LEAST_SIDE and found.columns <= _MOST_COLUMNS * found.side:
            by_line.setdefault(busiest_site(facts, np.array([found.row])), []).append(found)
    for several in by_line.values():
        parts = [repeated_in_measured(facts, np.array([found.row])) for found in several]
        rows = np.concatenate(parts)
        share = np.repeat([found.columns / found.side for found in several], [len(part) for part in parts])
        if in_most_steps(facts, rows):
            yield _suspect(facts, max(several, key=lambda found: found.side), rows, share)


def _suspect(facts: Facts, largest: MultipliedInverse, rows: Rows, share: Float64s) -> Suspicion:
    count, side, columns = times_per_step(facts, rows), largest.side, largest.columns
    least = CALL_NS / np.maximum(spent_ns(facts, rows), 1)
    kept = np.maximum(_FACTORS + _SUBSTITUTES * share, least).clip(max=1)
    edits = [
        take_less(facts, rows, kept, _UNCERTAINTY),
        scale_backward(facts, rows, np.maximum(share, least).clip(max=1), _UNCERTAINTY),
    ]
    vectors = "one vector" if columns == 1 else f"{columns:,} vectors"
    return Suspicion(
        message=f"{each_step(count, 'matrix', 'is', 'are')} inverted only to be multiplied. It has {side:,} rows and "
        f"meets {vectors}.",
        fix="Solve for what the inverse is multiplied by: `torch.linalg.solve(matrix, right)`, and "
        "`torch.linalg.solve(matrix, left, left=False)` where the inverse stands on the right. For a covariance, "
        "`torch.cholesky_solve(right, torch.linalg.cholesky(matrix))`.",
        rows=rows,
        edit=combine(edits),
        worth=MEDIUM_FROM,
        confidence=0.9,
        count=count,
        evidence={"rows": side, "vectors": columns, "matrices": largest.stacked},
    )
