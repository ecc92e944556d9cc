"""Which layers are given rows that went through the same weights earlier in the step.

One batch may hold rows of another: a picture as the present one and, a row later, as the next one. Such rows lie in
other memory, so they are told by their numbers: read where they lie when the program calls the layer, so that no
operator runs. Of long rows some numbers are read, at places drawn once. Layers on a device are not looked at.

Not kept: rows of which all numbers read are the same, as those of padding are; batches that repeat their own rows; and
rows between whose two calls a backward pass freed the graph.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch._C import TensorBase

from profkit.collect.tensors.in_memory import read_bits
from profkit.run.directory import SharedRows

_ON_VECTORS = frozenset(("linear",))
"""Each row is a vector of the last dimension."""
_ON_SAMPLES = {f"{name}{dims}d": dims + 2 for name in ("conv", "conv_transpose") for dims in (1, 2, 3)}
"""Each row is a whole sample: by the dimensions that a batch of them has."""
_LEAST_SHARED = 0.3
"""Of the later call's rows. Taking a batch apart for fewer gains little."""
_LEAST_ELEMENTS = 1 << 12
"""Of the rows that are shared: a layer on fewer takes as long as its call."""
_MOST_READ, _MOST_READ_AT_ONCE = 1 << 22, 1 << 16
"""Numbers in all, and for one call unless it has very many rows. With eight times as many for one, four convolutions of
pictures took all, and the second call of none was read."""
_READ_OF_ROW, _LEAST_DISTINCT = 64, 8
"""Numbers read of a row at least, and how many of them have to differ if not all of the row are read: sparse rows agree
in most places by chance."""


class RowWatch:
    """`note` is told each call before it runs; ``found`` are the calls of which many rows are known."""

    def __init__(self) -> None:
        self.found: list[SharedRows] = []
        self._known: dict[Hashable, list[tuple[int, NDArray[np.uint64]]]] = {}
        self._read = 0

    def note(self, call: int, name: str, given: Sequence[Tensor], weights: Hashable) -> None:
        """``given`` are the tensors of the call with this number; ``weights`` tell which, and in what state, all but
        the first are."""
        is_batch = name in _ON_VECTORS or _ON_SAMPLES.get(name) == TensorBase.dim(given[0])
        if not is_batch or given[0].device.type != "cpu":
            return
        shape = tuple(given[0].shape)
        inner = len(shape) - 1 if name in _ON_VECTORS else 1
        rows, width = math.prod(shape[:inner]), math.prod(shape[inner:])
        prints = self._prints(given[0], inner, rows, width) if rows * width >= _LEAST_ELEMENTS else None
        if prints is None:
            return
        earlier = self._known.setdefault((name, weights, given[0].dtype, shape[inner:]), [])
        is_known = np.isin(prints, np.concatenate([prints[:0], *(one for _, one in earlier)]))
        count = int(is_known.sum())
        if count >= _LEAST_SHARED * rows and count * width >= _LEAST_ELEMENTS:
            first = max(earlier, key=lambda one: int(np.isin(prints, one[1]).sum()))[0]
            self.found.append(SharedRows(call, first, rows, count / rows))
        earlier.append((call, prints))

    def _prints(self, batch: Tensor, inner: int, rows: int, width: int) -> NDArray[np.uint64] | None:
        """A number for each row that tells something, none of them twice; None if they are too many to read, or if half
        of them are the same."""
        read = min(width, max(_READ_OF_ROW, _MOST_READ_AT_ONCE // rows))
        if self._read + rows * read > _MOST_READ:
            return None
        self._read += rows * read
        bits = read_bits(batch)
        return None if bits is None else row_prints(bits, inner, read)


def row_prints(bits: NDArray[Any], inner: int, read: int) -> NDArray[np.uint64] | None:
    """``inner`` is the first dimension inside a row, of which so many numbers are read."""
    random = np.random.default_rng(0)  # a generator of its own: the program's stays as it is
    width = math.prod(bits.shape[inner:])
    places = np.arange(width) if read == width else np.sort(random.integers(0, width, read))
    where: tuple[Any, ...] = (..., *np.unravel_index(places, bits.shape[inner:]))
    rows = bits[where].reshape(-1, read)
    factors = random.integers(1 << 62, size=read, dtype=np.uint64) * 2 + 1
    prints = (rows.astype(np.uint64) * factors).sum(axis=1)
    if read == width:
        tells = (rows != rows[:, :1]).any(axis=1)
    else:
        tells = (np.diff(np.sort(rows, axis=1), axis=1) != 0).sum(axis=1) >= _LEAST_DISTINCT - 1
    found: NDArray[np.uint64] = np.unique(prints[tells])
    return found if 2 * len(found) > len(prints) else None
