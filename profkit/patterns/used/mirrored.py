"""Fourier transforms of real signals that compute the whole spectrum, of which one half mirrors the other.

The types of what operators take show that a signal is real and a spectrum complex; which spectrum an operator takes,
its shape. All that takes spectra of these shapes has to fit: products with each other, what works on each number, and
inverse transforms whose real part is taken right away. A spectrum that is changed on one side, as for an envelope,
gives complex signals, and one that is multiplied with complex weights of its own is no mirror any more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.families import VIEW, base_name
from profkit.patterns.calls import Call
from profkit.patterns.shapes import parse_numbers
from profkit.patterns.step_calls import Shape, StepCalls, step_calls
from profkit.patterns.used.parts import CUTS
from profkit.trace.events import Int64s, Rows

_ALONG_ONE = "fft_fft"
_FORWARD = frozenset((_ALONG_ONE, "fft_fft2", "fft_fftn"))
_INVERSE = frozenset(("fft_ifft", "fft_ifft2", "fft_ifftn"))
_READING = frozenset(("abs", "angle", "imag", "real", "view_as_real"))
_COMPLEX = "complex"


class MirroredSpectra(Struct, frozen=True):
    """Operators of the step that was looked at: ``transforms`` take real signals, ``others`` their spectra, and
    ``inverse`` give signals back. They are ``along_one`` dimension."""

    transforms: Rows
    others: Rows
    inverse: Rows
    along_one: bool


def mirrored_spectra(facts: Facts) -> MirroredSpectra | None:
    """None if there are none, or if anything about them does not fit."""
    step = step_calls(facts)
    real = [_transforms_a_real_signal(call) for call in step.calls]
    spectra = {
        _spectrum_of(call, given) for call, given, is_one in zip(step.calls, step.shapes, real, strict=True) if is_one
    }
    if not spectra or () in spectra:
        return None
    taken = [_spectra_among(call, given) for call, given in zip(step.calls, step.shapes, strict=True)]
    touches = np.array([not spectra.isdisjoint(shapes) for shapes in taken], dtype=bool)
    if any(not _keeps_mirror(call, shapes, spectra) for call, shapes in zip(step.calls, taken, strict=True)):
        return None
    back = np.array([base_name(call.name) in _INVERSE for call in step.calls], dtype=bool) & touches
    if not all(_is_made_real(step, taken, at) for at in np.flatnonzero(back[step.number]).tolist()):
        return None
    names = {base_name(step.calls[number].name) for number in np.flatnonzero(np.array(real) | back).tolist()}
    return MirroredSpectra(
        step.rows[np.array(real)[step.number]],
        step.rows[(touches & ~back)[step.number]],
        step.rows[back[step.number]],
        names <= {_ALONG_ONE, "fft_ifft"},
    )


def _keeps_mirror(call: Call, shapes: list[Shape], spectra: set[Shape]) -> bool:
    """Whether a call takes spectra alone. What takes parts of them, or turns them, may only hand them on or read them:
    whether they are still a mirror behind that is not known."""
    return spectra.issuperset(shapes) or base_name(call.name) in _READING | VIEW


def _transforms_a_real_signal(call: Call) -> bool:
    types = call.types
    return base_name(call.name) in _FORWARD and bool(types) and bool(types[0]) and _COMPLEX not in types[0]


def _spectrum_of(call: Call, given: list[Shape]) -> Shape:
    """The shape of what ``fft(x, n, dim, norm)`` or ``fft2(x, s, dim, norm)`` gives; empty if it is not known."""
    signal = list(given[0]) if given else []
    lengths, dimensions = parse_numbers(call.argument(1)), parse_numbers(call.argument(2))
    dimensions = dimensions or tuple(range(-len(lengths), 0))
    if any(not -len(signal) <= at < len(signal) for at in dimensions) or len(lengths) > len(dimensions):
        return ()
    for at, length in zip(dimensions, lengths, strict=False):
        signal[at] = length
    return _without_ones(signal)


def _spectra_among(call: Call, given: list[Shape]) -> list[Shape]:
    """The shapes of the complex tensors that a call takes."""
    return [_without_ones(shape) for shape, of in zip(given, call.types, strict=False) if shape and _COMPLEX in of]


def _without_ones(shape: Sequence[int]) -> Shape:
    """``[None]`` and `unsqueeze` prepare a spectrum for others to be multiplied with."""
    return tuple(length for length in shape if length != 1)


def _is_made_real(step: StepCalls, taken: list[list[Shape]], at: int) -> bool:
    """Whether the next operator that takes a complex tensor, but for slices, takes the real part."""
    numbers: Int64s = step.number[at + 1 :]
    for number in numbers.tolist():
        name = base_name(step.calls[number].name)
        if taken[number] and name not in CUTS:
            return name == "real"
    return False
