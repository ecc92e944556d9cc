"""The Fourier transform of a real signal is computed as a whole, although one half mirrors the other.

What it detects
`torch.fft.fft`, `fft2` or `fftn` of tensors that are not complex, where all that takes their spectra in the step works
on each number, multiplies spectra with each other, or transforms them back and takes the real part. Complex signals,
spectra that are made into complex ones, as for an envelope, and products with complex weights are silent. Traces with
shapes and types show it.

Why is this bad?
The spectrum of a real signal holds each number twice, once as its conjugate. Half of it tells all. The rest is
computed, stored, multiplied, and differentiated again.

Example
    spectrum = torch.fft.fft(signal, n=size) * torch.fft.fft(kernel, n=size)
    filtered = torch.fft.ifft(spectrum).real

Use instead
    spectrum = torch.fft.rfft(signal, n=size) * torch.fft.rfft(kernel, n=size)
    filtered = torch.fft.irfft(spectrum, n=size)

How the saving is estimated
Along one dimension `rfft` takes three quarters of the time of `fft` and `irfft` half of that of `ifft` and its real
part; along several, 0.6 and all of it. What works on spectra takes half. Measured with one thread, for 4,096 to a
million numbers: 0.42 to 0.93, 0.15 to 0.61, 0.22 to 0.80, 0.77 to 1.38, and 0.32 to 0.59.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns import Places, costliest_lines, each_step, in_most_steps, times_per_step
from profkit.patterns.step_calls import repeated_in_measured
from profkit.patterns.used.mirrored import mirrored_spectra
from profkit.rules.base import (
    MEDIUM_FROM,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    rule,
)
from profkit.savings.pricing import take_less_with_backward

_FORWARD_KEPT, _INVERSE_KEPT = (0.6, 0.75), (1.0, 0.5)
"""Of the time of the whole transform: along several dimensions, and along one."""
_OTHERS_KEPT = 0.5
_UNCERTAINTY = 0.4
"""Lengths and layouts differ by so much; the ranges are on the page."""
_FIX = (
    "Use `torch.fft.rfft` and `irfft(…, n=length)`, or `rfft2` and `irfft2(…, s=size)`: they compute the half that "
    "tells all. Where all frequencies are added up or averaged, count the inner ones twice."
)


@rule(Kind.OPPORTUNITY, Need.COMPUTE, Need.OPERATORS, Need.SHAPES, Need.WHOLE_STEP)
def mirrored_spectrum(facts: Facts) -> Suspicions:
    """One finding for the step."""
    found = mirrored_spectra(facts)
    if found is None:
        return
    parts = (
        (found.transforms, _FORWARD_KEPT[found.along_one]),
        (found.others, _OTHERS_KEPT),
        (found.inverse, _INVERSE_KEPT[found.along_one]),
    )
    measured = [(repeated_in_measured(facts, rows), kept) for rows, kept in parts]
    rows = np.concatenate([rows for rows, _ in measured])
    kept = np.concatenate([np.full(len(rows), kept) for rows, kept in measured])
    transforms, order = measured[0][0], np.argsort(rows, kind="stable")
    if not transforms.size or not in_most_steps(facts, transforms):
        return
    count = times_per_step(facts, transforms)
    yield Suspicion(
        message=f"{each_step(count, 'transform', 'computes', 'compute')} the whole spectrum of real signals. One half "
        "of it mirrors the other.",
        fix=_FIX,
        rows=transforms,
        edit=take_less_with_backward(facts, rows[order], kept[order], _UNCERTAINTY),
        worth=MEDIUM_FROM,
        confidence=0.75,
        count=count,
        places=Places.of(costliest_lines(facts, rows[order]).all()),
        evidence={"transforms_per_step": count},
    )
