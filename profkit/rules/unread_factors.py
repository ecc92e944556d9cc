"""A decomposition computes vectors that nothing reads.

What it detects
Singular value decompositions and eigendecompositions in each step of which only the values are read, or whose square
factor is cut down to the columns that the shorter side of the matrix has. No operator of the step takes a tensor of the
shape that the rest would have. The rule is silent about vectors where the decomposition has a backward pass, which
needs them. Only traces with shapes show it, and only for steps that were recorded whole.

Why is this bad?
The vectors take as long as the values, or longer. `torch.linalg.svd` completes both factors to square ones unless it is
told not to: of a matrix of 2,000 by 32, it then computes 2,000 columns where 32 hold all.

Example
    _, s, _ = torch.linalg.svd(features)
    rank = (s > 1e-3).sum()

Use instead
    s = torch.linalg.svdvals(features)
    rank = (s > 1e-3).sum()

How the saving is estimated
Values alone take half of the time (`eigvalsh` 0.42 to 0.58 and `svdvals` 0.39 to 0.57 of it, with one thread, matrices
of 3 to 512 rows). Without the completion a decomposition takes the share that its arithmetic has, 6 m n² + 20 n³ of
4 m² n + 22 n³ for m rows and n columns (Golub and Van Loan, Matrix Computations, section 8.6). Measured with one
thread: 0.09 for 768 by 64 where that says 0.15, and 0.63 for 256 by 64 where it says 0.51.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns import Places, backward_of, costliest_lines, each_step, in_most_steps, times_per_step
from profkit.patterns.step_calls import repeated_in_measured
from profkit.patterns.used.factors import PartlyRead, Unread, partly_read
from profkit.rules.base import LOW_FROM, Facts, Kind, Need, Suspicion, Suspicions, rule
from profkit.savings import take_less
from profkit.trace import Rows

_VALUES_ALONE = 0.5
"""Of the time with vectors; what was measured is on the page."""
_MOST_KEPT = 0.9
"""A matrix that is nearly square has little to complete."""
_UNCERTAINTY, _UNCERTAINTY_ON_DEVICE = 0.25, 0.5
"""What was measured lies so far from the formula; on a GPU nothing was measured."""
_VALUES = {
    "linalg_eig": "`torch.linalg.eigvals`",
    "linalg_eigh": "`torch.linalg.eigvalsh`",
    "linalg_svd": "`torch.linalg.svdvals`",
    "svd": "`torch.linalg.svdvals`",
}
_THIN = {"linalg_svd": "Pass `full_matrices=False`", "svd": "Leave `some=True`, the default,"}


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES, Need.WHOLE_STEP)
def unread_factors(facts: Facts) -> Suspicions:
    """One finding for equal calls of a decomposition."""
    for found in partly_read(facts):
        rows = repeated_in_measured(facts, found.rows)
        needed_backward = found.unread is Unread.VECTORS and backward_of(facts, rows).size > 0
        kept = _VALUES_ALONE if found.unread is Unread.VECTORS else 1.0
        kept *= _kept_without_completion(found) if found.completes else 1.0
        if kept <= _MOST_KEPT and not needed_backward and in_most_steps(facts, rows):
            yield _suspect(facts, found, rows, kept)


def _kept_without_completion(found: PartlyRead) -> float:
    n, m = sorted(found.shape[-2:])
    return (6 * m * n**2 + 20 * n**3) / (4 * m**2 * n + 22 * n**3)


def _suspect(facts: Facts, found: PartlyRead, rows: Rows, kept: float) -> Suspicion:
    count, size = times_per_step(facts, rows), " x ".join(f"{length:,}" for length in found.shape)
    does = each_step(count, "decomposition", "computes", "compute")
    small, large = sorted(found.shape[-2:])
    if found.unread is Unread.VECTORS:
        what = f"{does} the vectors of {size} matrices, and no operator reads them."
        fix = f"Ask for the values alone: {_VALUES[found.name]}."
    else:
        what = f"{does} all {large:,} columns of a factor of {size} matrices. At most {small:,} of them are read."
        fix = f"{_THIN[found.name]}: the factors then have {small:,} columns, which hold the whole matrix."
    return Suspicion(
        message=what,
        fix=fix,
        rows=rows,
        edit=take_less(
            facts, rows, np.full(len(rows), kept), _UNCERTAINTY_ON_DEVICE if facts.device.present else _UNCERTAINTY
        ),
        worth=LOW_FROM,
        confidence=0.8,
        count=count,
        places=Places.of(costliest_lines(facts, rows).all()),
        evidence={"rows": found.shape[-2], "columns": found.shape[-1]},
    )
