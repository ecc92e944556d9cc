"""Which tensors hold denormal numbers, and how much longer this machine takes to multiply them.

A number below 1.2e-38 in float32, or 2.2e-308 in float64, is denormal unless it is zero. Many processors compute with
such numbers in microcode, 150 cycles for each vector. Whether this one does is measured on the tensor's own numbers: a
copy of some stretches is multiplied as it is, and once more with ones for the denormal numbers. NumPy does that, so no
operator of PyTorch runs. Nothing is found where the thread flushes such numbers to zero, or where they cost nothing.

Looked at are the tensors that Python's objects hold at that moment, such as states, weights and moments of an
optimizer, and what the calls of the located step take. Not looked at: tensors on a device, half types, and views with
gaps.
"""

from __future__ import annotations

import ctypes
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from msgspec import Struct
from numpy.typing import NDArray
from torch import Tensor
from torch._C import TensorBase
from torch.nn import Parameter

from profkit.collect.program.clocks import time
from profkit.collect.program.living import living
from profkit.run.directory import DenormalTensors


class _Format(Struct, frozen=True):
    """Of a type: its bits as a NumPy type, all of them but the sign, and those of the smallest normal number; ``name``
    as in a trace."""

    name: str
    bits: str
    number: str
    magnitude: int
    tiny: int


_FORMATS = {
    torch.float32: _Format("float", "u4", "f4", 0x7FFFFFFF, 0x00800000),
    torch.float64: _Format("double", "u8", "f8", 0x7FFFFFFFFFFFFFFF, 0x0010000000000000),
}
_LEAST_NUMBERS = 1 << 10
"""Of a tensor: at 5 ns for each, fewer take less than what calling an operator does several times."""
_MOST_TENSORS = 512
"""The largest ones: a look at each takes 10 µs."""
_STRETCHES, _FIRST_LOOK = 16, 16
"""Stretches of a tensor, and numbers of each that are looked at first: one vector of AVX-512."""
_TIMED = 1 << 10
"""Numbers of each stretch that are multiplied, if any of the first are denormal: 64 KB in all, which a cache holds."""
_MOST_TIMED = 24
"""Tensors: each takes at most half a millisecond."""
_TRIES = 3
_FACTOR = 0.75
"""Denormal numbers stay denormal, and others normal, except for those just above."""
_LEAST_NS, _LEAST_TIMES = 1_000, 1.2
"""How much longer, and how many times as long, one product with all the tensor's numbers takes. Less is noise."""
_FIRST_INPUTS, _EVERY = 4, 16
"""A step calls with as many tensors of one shape as it has rounds: a look takes as long as all else about a call."""
_MORE = 2
"""Times as much: then another recording tells more than the one that there is."""


class DenormalWatch:
    """`look` on the thread that computes, where no operator of it runs, and `keep` what the recording that begins, or
    goes on, is about: ``found``, None if there was no look."""

    def __init__(self) -> None:
        self.found: tuple[DenormalTensors, ...] | None = None
        self._seen: tuple[DenormalTensors, ...] = ()

    def look(self) -> bool:
        """Read the tensors that are alive now. Returns whether they cost twice as much as those that were kept."""
        self._seen = read_tensors(living(Tensor))
        return added_ns(self._seen) > _MORE * added_ns(self.found or ())

    def keep(self) -> None:
        self.found = self._seen

    def keep_more(self) -> None:
        """What the last look saw, too, as the recording goes on or has just ended."""
        self.add(self._seen)

    def add(self, found: Iterable[DenormalTensors]) -> None:
        """What calls took that ran since."""
        known = {(one.shape, one.type) for one in self.found or ()}
        more = tuple(one for one in found if (one.shape, one.type) not in known)
        self.found = (*(self.found or ()), *more)


class InputWatch:
    """`note` what a call takes, before it runs. Of each shape and type the first tensors and then one in so many are
    read; ``found`` are those with denormal numbers, one of each shape and type."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[tuple[int, ...], torch.dtype]] = Counter()
        self._found: dict[tuple[tuple[int, ...], torch.dtype], DenormalTensors] = {}

    @property
    def found(self) -> tuple[DenormalTensors, ...]:
        return tuple(self._found.values())

    def note(self, given: Iterable[Tensor]) -> None:
        for tensor in given:
            size = TensorBase.numel(tensor)
            if size < _LEAST_NUMBERS or not _is_read(tensor) or len(self._found) >= _MOST_TIMED:
                continue
            kind = tuple(tensor.shape), tensor.dtype
            self._seen[kind] += 1
            if kind in self._found or (self._seen[kind] > _FIRST_INPUTS and self._seen[kind] % _EVERY):
                continue
            numbers = _numbers(tensor, size)
            found = None if numbers is None else _read(tensor, numbers)
            if found is not None and is_slow(found):
                self._found[kind] = found


def added_ns(tensors: Iterable[DenormalTensors]) -> float:
    """How much longer a product with each of the tensors takes for its denormal numbers, in all."""
    return sum((one.slow_ns - one.usual_ns) * math.prod(one.shape) for one in tensors)


def read_tensors(tensors: Iterable[Tensor]) -> tuple[DenormalTensors, ...]:
    """Those that are slow, together with others of their shape and type."""
    known: dict[tuple[tuple[int, ...], str], list[DenormalTensors]] = {}
    seen: set[tuple[int, int]] = set()
    timed = 0
    sizes = ((TensorBase.numel(one), one) for one in tensors if _is_read(one))
    for size, tensor in sorted(sizes, key=lambda one: -one[0])[:_MOST_TENSORS]:
        numbers = _numbers(tensor, size)
        if numbers is None or (place := (numbers.ctypes.data, size)) in seen or timed >= _MOST_TIMED:
            continue
        seen.add(place)
        found = _read(tensor, numbers)
        timed += found is not None
        if found is not None and is_slow(found):
            known.setdefault((found.shape, found.type), []).append(found)
    return tuple(_together(alike) for alike in known.values())


def is_slow(tensor: DenormalTensors) -> bool:
    """Whether the denormal numbers cost more than noise."""
    return added_ns([tensor]) >= _LEAST_NS and tensor.slow_ns >= _LEAST_TIMES * tensor.usual_ns


def _read(tensor: Tensor, numbers: NDArray[Any]) -> DenormalTensors | None:
    """What a product with it takes; None if no number that is looked at first is denormal."""
    kind = _FORMATS[tensor.dtype]
    if not _are_below(_stretches(numbers, _FIRST_LOOK), kind, kind.tiny).any():
        return None
    return _time(tuple(tensor.shape), _stretches(numbers, _TIMED), kind)


def _is_read(tensor: Tensor) -> bool:
    if type(tensor) not in (Tensor, Parameter):
        return False
    is_plain = tensor.dtype in _FORMATS and tensor.layout is torch.strided and tensor.device.type == "cpu"
    return is_plain and TensorBase.numel(tensor) >= _LEAST_NUMBERS


def _numbers(tensor: Tensor, size: int) -> NDArray[Any] | None:
    """The bits of all numbers in the order in which they lie in memory; None for a view with gaps."""
    strides = TensorBase.stride(tensor)
    extent = 1 + sum(stride * (length - 1) for stride, length in zip(strides, tensor.shape, strict=True))
    item = TensorBase.element_size(tensor)
    try:
        start, there = TensorBase.data_ptr(tensor), TensorBase.untyped_storage(tensor).nbytes()
    except (NotImplementedError, RuntimeError):  # a wrapper, as of `torch.func`
        return None
    is_there = start and (TensorBase.storage_offset(tensor) + size) * item <= there  # a program may have shrunk it
    if extent != size or not is_there:
        return None
    memory = (ctypes.c_char * (size * item)).from_address(start)
    return np.ndarray((size,), dtype=_FORMATS[tensor.dtype].bits, buffer=memoryview(memory))


def _stretches(numbers: NDArray[Any], length: int) -> NDArray[Any]:
    """A copy of some stretches, spread evenly, one behind the other; all if there are not so many numbers."""
    if len(numbers) <= _STRETCHES * length:
        return numbers.copy()
    starts = np.linspace(0, len(numbers) - length, _STRETCHES).astype(np.int64)
    return np.concatenate([numbers[start : start + length] for start in starts])


def _are_below(bits: NDArray[Any], kind: _Format, limit: int) -> NDArray[np.bool_]:
    """Which numbers are not zero, but nearer to it than the one with these bits."""
    magnitude = bits & bits.dtype.type(kind.magnitude)
    found: NDArray[np.bool_] = (magnitude != 0) & (magnitude < limit)
    return found


def _time(shape: tuple[int, ...], bits: NDArray[Any], kind: _Format) -> DenormalTensors:
    numbers, share, count = bits.view(kind.number), float(_are_below(bits, kind, kind.tiny).mean()), len(bits)
    slow = _are_below(bits, kind, 2 * kind.tiny)  # those whose product is denormal, too
    usual = np.where(slow, numbers.dtype.type(1), numbers)
    return DenormalTensors(shape, kind.name, share, _multiply_ns(numbers) / count, _multiply_ns(usual) / count)


def _multiply_ns(numbers: NDArray[Any]) -> int:
    """The shortest of some tries, in CPU time: others on the machine do not count."""
    result, factor = np.empty_like(numbers), numbers.dtype.type(_FACTOR)
    took = []
    with np.errstate(all="ignore"):  # the program may have asked for errors
        for _ in range(_TRIES + 1):  # the first finds the caches cold
            begun = time.thread_time_ns()
            np.multiply(numbers, factor, out=result)
            took.append(time.thread_time_ns() - begun)
    return min(took[1:])


def _together(alike: list[DenormalTensors]) -> DenormalTensors:
    """Of tensors that a trace cannot tell apart, the one that costs least: no operator counts for more."""
    return min(alike, key=lambda one: one.slow_ns - one.usual_ns)
