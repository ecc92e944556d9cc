"""A convolution multiplies a long kernel element by element, where a Fourier transform is far cheaper.

What it detects
A convolution of stride and dilation 1 on a CPU with a kernel of 256 weights or more for each pair of channels, such as
an echo of thousands of samples or a wide blur. It is reported if the transforms of its inputs, kernels and results
would take a third of its time or less, counted by their shapes and compared with the time that the convolution took.
Kernels that are a column times a row are left to `unseparated-kernel`. On a GPU the rule does not look, as nobody has
measured there what transforms of these sizes take.

Why is this bad?
The arithmetic of a direct convolution grows with the length of the input times that of the kernel. Transforms of both,
their product, and the transform back grow with the length times its logarithm.

Example
    padded = F.pad(speech, (echo.size(1) - 1, 0))
    heard = F.conv1d(padded[None], echo.flip(1)[:, None], groups=len(speech))[0]

Use instead
    size = speech.size(1) + echo.size(1) - 1
    heard = torch.fft.irfft(torch.fft.rfft(speech, size) * torch.fft.rfft(echo, size), size)[:, : speech.size(1)]

How the saving is estimated
Each transform of n numbers takes 2.5 n log2 n operations, and the product of two spectra four per number, at 4e9 a
second: with one thread, 3.8e9 to 24e9 were measured for lengths of small prime factors, from 4,000 to a million. The
convolution and its backward pass take that share of their time. Results differ by rounding.
"""

from __future__ import annotations

import math

import numpy as np

from profkit.patterns import (
    Call,
    by_call,
    call_of,
    each_step,
    frequent_lines,
    named_operators,
    spent_ns,
    times_per_step,
)
from profkit.patterns.flow.matrix_forms import separable_kernels
from profkit.rules.base import MEDIUM_FROM, CannotLook, Facts, Kind, Need, Suspicion, Suspicions, format_share, rule
from profkit.savings import scale_with_backward
from profkit.trace import Float64s, Rows

_LEAST_TAPS = 256
"""Weights for each pair of channels: with fewer, direct kernels reach so high a rate that transforms gain nothing."""
_OPERATIONS_PER_NS = 4.0
"""Of transforms and their product, one thread, lengths with small prime factors: 3.8 to 24 were measured."""
_MOST_KEPT = 1 / 3
"""A transform of twice the price then still is the cheaper way."""
_UNCERTAINTY = 0.5
_MOST_SPATIAL = 2


@rule(Kind.OPPORTUNITY, Need.COMPUTE, Need.OPERATORS, Need.SHAPES)
def long_kernel_convolution(facts: Facts) -> Suspicions:
    """One finding for each line with such convolutions."""
    if facts.device.present:
        raise CannotLook("what Fourier transforms take on this GPU is not known")
    convolutions = named_operators(facts, "aten::conv1d", "aten::conv2d")
    rows = np.flatnonzero(facts.tree.outermost(convolutions) & facts.measured & ~facts.lines.backward)
    forms = facts.run.recomputation.forms if facts.run.recomputation is not None else None
    separable = [of_line for _, of_line, _ in separable_kernels(facts, forms or ())]
    rows = np.setdiff1d(rows, np.concatenate(separable)) if separable else rows
    transforms_ns = by_call(facts, rows, _transforms_ns, float)
    kept = transforms_ns / np.maximum(spent_ns(facts, rows), 1)
    share = np.ones(len(facts.trace.events))
    share[rows] = kept
    for mine in frequent_lines(facts, rows[(transforms_ns > 0) & (kept <= _MOST_KEPT)]):
        yield _suspect(facts, mine, share)


def _transforms_ns(call: Call) -> float:
    """What the same convolution takes by transforms, in nanoseconds; 0 if its kernel is short, or not all is known."""
    if len(call.shapes) < 2 or len(call.shapes[0]) != len(call.shapes[1]):
        return 0.0
    (rows, inputs, *sizes), (outputs, per_group, *taps) = call.shapes[:2]
    settings = [text.strip("[]").split(",") for text in call.arguments[3:6]]
    is_plain = len(settings) == 3 and {text.strip() for text in (*settings[0], *settings[2])} == {"1"}
    if not 0 < len(taps) <= _MOST_SPATIAL or math.prod(taps) < _LEAST_TAPS or not is_plain:
        return 0.0
    padding = [int(text) if text.strip().isdigit() else 0 for text in settings[1]]
    padded = [size + 2 * padding[at % len(padding)] for at, size in enumerate(sizes)]
    size = max(math.prod(padded), 2)
    transforms = rows * inputs + outputs * per_group + rows * outputs
    multiplied = 4 * rows * outputs * per_group * size
    return (transforms * 2.5 * size * math.log2(size) + multiplied) / _OPERATIONS_PER_NS


def _suspect(facts: Facts, rows: Rows, share: Float64s) -> Suspicion:
    dearest = call_of(facts, int(rows[np.argmax(spent_ns(facts, rows))]))
    count, taps = times_per_step(facts, rows), math.prod(dearest.shapes[1][2:])
    return Suspicion(
        message=f"{each_step(count, 'convolution', 'has', 'have')} a kernel of {taps:,} weights for each pair of "
        "channels. By the arithmetic, Fourier transforms would do the same in about "
        f"{format_share(float(share[rows].max()))} of the time.",
        fix="Multiply spectra instead: `irfft(rfft(x, n) * rfft(kernel.flip(-1), n), n)` of `torch.fft`, where n is at "
        "least both lengths together and has small prime factors. It is flipped because `conv1d` does not flip it. "
        "Transform a kernel that stays the same once.",
        rows=rows,
        edit=scale_with_backward(facts, rows, share[rows], _UNCERTAINTY),
        worth=MEDIUM_FROM,
        confidence=0.6,
        count=count,
        evidence={"kernel_elements": taps, "transforms_share": round(float(share[rows].max()), 4)},
    )
