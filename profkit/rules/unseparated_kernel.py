"""A convolution multiplies with a whole square of weights that is a column times a row.

What it detects
Two-dimensional convolutions of each channel by itself, whose kernels have rank one: the wide Gaussian windows of blurs
and of structural similarity (SSIM), boxes, and most filters of image processing. The weights are those of the located
step, and need no gradient. The rule is silent where a pass along each axis would take more than two thirds of the time,
as with kernels of less than nine by nine. Tensors on a device are not looked at.

Why is this bad?
A kernel of k by k weights takes k * k multiplications for each pixel. One pass with the column and one with the row
give the same result with 2 * k.

Example
    line = torch.exp(-(torch.arange(25) - 12.0) ** 2 / 32)
    kernel = (line[:, None] * line[None]).expand(channels, 1, 25, 25)
    blurred = F.conv2d(x, kernel, groups=channels)

Use instead
    line = torch.exp(-(torch.arange(25) - 12.0) ** 2 / 32)
    column, row = (line.view(1, 1, *shape).expand(channels, -1, -1, -1) for shape in ((25, 1), (1, 25)))
    blurred = F.conv2d(F.conv2d(x, column, groups=channels), row, groups=channels)

How the saving is estimated
The two passes take three times as long as their share of the multiplications says, forward and backward: 2.6 to 3.1
times were measured with 16 and 64 channels, on one thread of an AMD EPYC. With one or three channels they took from 1.7
to 5 times as long.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns import Places, each_step, in_most_steps, times_per_step
from profkit.patterns.flow.matrix_forms import separable_kernels
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
from profkit.savings.pricing import take_less_with_backward

_SLOWER = 3.0
"""Of short rows of weights, per multiplication."""
_MOST_KEPT = 2 / 3
_UNCERTAINTY = 0.4
"""The factor above varies with the number of channels and the length of rows."""


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS)
def unseparated_kernel(facts: Facts) -> Suspicions:
    """One finding for each line that convolves with such kernels."""
    for where, rows, taps in separable_kernels(facts, known_matrix_forms(facts)):
        high, wide = taps
        kept = _SLOWER * (high + wide) / (high * wide)
        if kept > _MOST_KEPT or not in_most_steps(facts, rows):
            continue
        count = times_per_step(facts, rows)
        yield Suspicion(
            message=f"{each_step(count, 'convolution', 'multiplies', 'multiply')} with {high} x {wide} weights that "
            f"are a column times a row. {high + wide} weights would do.",
            fix=f"Convolve with the column, then with the row: kernels of the shapes (channels, 1, {high}, 1) and "
            f"(channels, 1, 1, {wide}), both with `groups=channels`. Pad once before. If only the whole kernel is "
            "known, `torch.linalg.svd` of it gives both.",
            rows=rows,
            edit=take_less_with_backward(facts, rows, np.full(len(rows), kept), _UNCERTAINTY),
            worth=MEDIUM_FROM,
            confidence=0.8,
            count=count,
            places=Places.of([where]),
            evidence={"weights": high * wide, "weights_needed": high + wide},
        )
