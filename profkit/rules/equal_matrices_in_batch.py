"""A batch of matrices that are all the same is multiplied or decomposed matrix by matrix.

What it detects
Products, inverses, Cholesky decompositions, solvers and determinants of the program on a batch of four or more matrices
whose numbers agree, read at some places of each in one step. In a product both factors are such batches, or one is a
single matrix. All calls of a line on matrices of a shape must be so, as matrices often begin as copies of one and then
differ. Not reported: batches of zeros, layers on copied rows (`layer-on-copied-rows`), and matrices on a device.

Why is this bad?
The covariance of a Kalman filter, a rotation that all points share, or a kernel of fixed places does not depend on the
sample. Expanded to the batch it is computed once for each, and so is its backward pass.

Example
    P = torch.eye(n).expand(batch, n, n)
    for z in measurements:
        S = H @ P @ H.T + R
        K = P @ H.T @ torch.linalg.inv(S)
        P = P - K @ H @ P

Use instead
    P = torch.eye(n)  # the same lines, without the batch
    ...
    x = x + innovation @ K.T  # the samples meet the matrix here

How the saving is estimated
The calls and their backward nodes keep one matrix's part of their time, but at least what the program's cheapest
operators take. Other operators on these batches, such as sums, are not counted, so there is often more to gain. Other
steps may have batches that differ.
"""

from __future__ import annotations

import math

import numpy as np

from profkit.patterns import Places, each_step, in_most_steps, spent_ns, times_per_step
from profkit.patterns.flow.matrix_forms import calls_of_form
from profkit.patterns.program import repeating_below
from profkit.rules.base import (
    MEDIUM_FROM,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    known_matrix_forms,
    rule,
)
from profkit.run.directory import Form, MatrixForm
from profkit.savings import call_ns
from profkit.savings.pricing import take_less_with_backward

_UNCERTAINTY = 0.3
"""A single matrix is multiplied at a lower rate, or in the cache at a higher one."""
_FIX = (
    "Keep one matrix, without the batch, and compute with it once; let it meet the samples last, in a product that "
    "broadcasts (`samples @ matrix.T`). If it depends on nothing that a step changes, compute it before the loop."
)


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS)
def equal_matrices_in_batch(facts: Facts) -> Suspicions:
    """One finding for the calls of a line."""
    for where, calls in calls_of_form(facts, known_matrix_forms(facts), Form.EQUAL).items():
        rows, mark = repeating_below(facts, facts.trace.mask_of(np.array(sorted(calls))))
        if rows.size and in_most_steps(facts, rows):
            batches = np.array([math.prod(calls[int(one)].shape[:-2]) for one in mark])
            kept = np.maximum(1 / batches, call_ns(facts) / np.maximum(spent_ns(facts, rows), 1)).clip(max=1)
            count, most = times_per_step(facts, rows), max(calls.values(), key=_batch)
            yield Suspicion(
                message=f"{each_step(count, 'operator', 'takes', 'take')} a batch of {_batch(most):,} matrices of "
                f"{most.shape[-2]:,} x {most.shape[-1]:,} that are all the same.",
                fix=_FIX,
                rows=rows,
                edit=take_less_with_backward(facts, rows, kept, _UNCERTAINTY),
                worth=MEDIUM_FROM,
                confidence=0.8,
                count=count,
                places=Places.of([where]),
                evidence={"matrices": _batch(most), "size": most.shape[-1]},
            )


def _batch(one: MatrixForm) -> int:
    return math.prod(one.shape[:-2])
