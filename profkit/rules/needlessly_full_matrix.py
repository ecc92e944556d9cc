"""A full matrix is multiplied or decomposed, though its numbers show a form that needs no such work.

What it detects
Three forms, read from some rows of the matrices that products, inverses, Cholesky decompositions, solvers and
determinants of the program take in one step:
- diagonal, such as a covariance made by `torch.diag` or `diag_embed`;
- one number on the diagonal and another one everywhere else, such as the centring matrix `eye(n) - 1 / n`;
- rows that add up, or average, all rows up to theirs: a triangle of equal numbers.
In a product the matrix has 16 rows or more. All calls of a line on matrices of a shape must have the form, as the first
round of a recursion may begin with the identity. Not reported: parameters and whatever depends on them, unless it is
the diagonal; and the identity on the left of a product, which is `one-hot-product`. Matrices on a device are not
looked at, and a step with very many calls is not.

Why is this bad?
A product with an n x n matrix takes n operations for each number, and a decomposition n * n. A diagonal needs one, the
other two forms a mean or a running sum.

Example
    centre = torch.eye(n) - torch.ones(n, n) / n
    loss = torch.trace(K @ centre @ L @ centre)

Use instead
    K = K - K.mean(0, keepdim=True) - K.mean(1, keepdim=True) + K.mean()
    loss = (K * L).sum()

How the saving is estimated
The call and its backward nodes keep what one or two passes over the numbers take at the rate of memory, and what the
program's cheapest operators take. What makes the matrix, and other operators on it, such as those of a distribution,
are not counted. Other steps may have other matrices.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns import Places, each_step, in_most_steps, spent_ns, times_per_step
from profkit.patterns.flow.matrix_forms import calls_of_form
from profkit.patterns.program import repeating_below
from profkit.rules.base import (
    MEDIUM_FROM,
    Facts,
    Kind,
    Location,
    Need,
    Suspicion,
    Suspicions,
    known_matrix_forms,
    known_recomputation,
    rule,
)
from profkit.run.directory import Form, MatrixForm
from profkit.savings import call_ns, memory_bytes_per_ns
from profkit.savings.pricing import take_less_with_backward

_BYTES = 12
"""Of a pass over float32 numbers: two are read and one is written for each."""
_PASSES = {Form.DIAGONAL: 1, Form.CENTRING: 2, Form.ADDING_UP: 2}
"""A scaling; a mean and a difference; a running sum, which is not vectorised, and a division."""
_UNCERTAINTY = 0.3
"""What is written instead has its own calls, and the matrix need not be made."""
_SAYS = {
    Form.DIAGONAL: "a diagonal matrix as if it were full",
    Form.CENTRING: "a matrix of one number on its diagonal and another one everywhere else",
    Form.ADDING_UP: "a triangle of equal numbers, to add up rows",
}
_FIX = {
    Form.DIAGONAL: (
        "Keep the diagonal as a vector: a product is `vector[:, None] * x`, or on the right `x * vector`. The inverse "
        "is `1 / vector`, the Cholesky factor `vector.sqrt()`. The determinant's logarithm is `vector.log().sum(-1)`. "
        "In place of `MultivariateNormal(mean, torch.diag(variance))` take "
        "`Independent(Normal(mean, variance.sqrt()), 1)`."
    ),
    Form.CENTRING: (
        "Subtract a mean instead: `(eye - 1 / n) @ x` is `x - x.mean(0)`, and `x @ (eye - 1 / n)` is `x - x.mean(1, "
        "keepdim=True)`. In general a * x plus b times the sum of x, if b stands everywhere and a more on the "
        "diagonal."
    ),
    Form.ADDING_UP: (
        "Use `x.cumsum(dim)`; for means, divide it by the number of rows up to each (`torch.arange(1, n + 1)`). If "
        "the sums begin at the end, `x.flip(dim).cumsum(dim).flip(dim)`."
    ),
}


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS)
def needlessly_full_matrix(facts: Facts) -> Suspicions:
    """One finding for the calls of a line on matrices of a form."""
    forms = known_matrix_forms(facts)
    picking = {one.call for one in known_recomputation(facts).sparse or () if one.picks}
    for form in _PASSES:
        for where, calls in calls_of_form(facts, forms, form).items():
            others = {mark: call for mark, call in calls.items() if call.call not in picking}
            if others and (found := _suspect(facts, where, form, others)) is not None:
                yield found


def _suspect(facts: Facts, where: Location, form: Form, calls: dict[int, MatrixForm]) -> Suspicion | None:
    rows, mark = repeating_below(facts, facts.trace.mask_of(np.array(sorted(calls))))
    if not rows.size or not in_most_steps(facts, rows):
        return None
    others = np.array([calls[int(one)].others for one in mark], dtype=np.float64)
    kept_ns = _PASSES[form] * (others * _BYTES / memory_bytes_per_ns(facts) + call_ns(facts))
    kept = np.minimum(kept_ns / np.maximum(spent_ns(facts, rows), 1), 1.0)
    count, largest = times_per_step(facts, rows), max(calls.values(), key=lambda one: one.shape)
    return Suspicion(
        message=f"{each_step(count, 'operator', 'takes', 'take')} {_SAYS[form]}, of "
        f"{' x '.join(f'{size:,}' for size in largest.shape)} numbers.",
        fix=_FIX[form],
        rows=rows,
        edit=take_less_with_backward(facts, rows, kept, _UNCERTAINTY),
        worth=MEDIUM_FROM,
        confidence=0.8,
        count=count,
        places=Places.of([where]),
        evidence={"form": form.value, "size": largest.shape[-1]},
    )
