"""How much further batches of padded inputs use, in the timed steps behind the recorded ones.

Two batches tell little of the longest row of others. Of these one tensor is read from the host's memory, and of it how
long its rows are. So a step that is timed gets hardly longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace
from torch import Tensor

from profkit.collect.program.clocks import time
from profkit.collect.tensors.in_memory import read_bits
from profkit.collect.tensors.padded_inputs import PaddedTensor, Source
from profkit.collect.tensors.padded_rows import IDS, MASK, VALUES, count_used
from profkit.run.directory import PaddedBatch, PaddedInput

_MOST_BATCHES = 30
"""Another batch then exceeds all that were seen in one case of 31."""
_AT_MOST = 0.005
"""Of the time that passes: what a look adds to the timed steps, which vary by more."""
_MOST_MISSES = 3
"""Steps in a row without such a batch: on a device it is not looked at, and an evaluation has its own."""
_ORDER = (MASK, IDS, VALUES)
"""A mask says what is padding."""


class FurtherBatches:
    """Of each length to which batches are padded, one of the ``known`` inputs is followed: `look` at what comes."""

    def __init__(self, known: Sequence[PaddedTensor]):
        best: dict[tuple[int, int], PaddedTensor] = {}
        for one in sorted(known, key=lambda one: (_ORDER.index(one.found.kind), -len(one.found.batches))):
            best.setdefault((one.found.shape[one.found.batch_dim], one.found.shape[one.found.dim]), one)
        self._followed = list(best.values())
        self._later: list[list[PaddedBatch]] = [[] for _ in best]
        self._known, self._misses, self._spent_ns, self._since_ns = known, 0, 0, time.perf_counter_ns()

    @property
    def are_wanted(self) -> bool:
        """Whether another batch is to be looked at now."""
        is_affordable = self._spent_ns <= _AT_MOST * (time.perf_counter_ns() - self._since_ns)
        is_useful = self._misses < _MOST_MISSES and any(len(later) < _MOST_BATCHES for later in self._later)
        return is_affordable and is_useful

    @property
    def enter_modules(self) -> bool:
        """Whether an input was seen only where the program calls its model."""
        return any(one.found.site is not None for one in self._followed)

    def miss(self) -> None:
        """A step passed without a batch that is followed."""
        self._misses += 1

    def charge(self, spent_ns: int) -> None:
        """So long did a look take."""
        self._spent_ns += spent_ns

    def look(self, tensors: Sequence[tuple[str, Tensor]], source: Source) -> bool:
        """Look at the tensors of one batch or call; return whether a followed one was among them."""
        is_known = False
        for one, later in zip(self._followed, self._later, strict=True):
            batch = _measure(one, tensors) if Source(one.found.site, one.found.made) == source else None
            if batch is not None and len(later) < _MOST_BATCHES:
                later.append(batch)
            is_known |= batch is not None
        self._misses *= not is_known
        return is_known

    def found(self) -> Iterator[PaddedInput]:
        """All padded inputs, with what came later."""
        later = {id(one): tuple(batches) for one, batches in zip(self._followed, self._later, strict=True)}
        for one in self._known:
            yield replace(one.found, later=later.get(id(one), ()))


def _measure(one: PaddedTensor, tensors: Sequence[tuple[str, Tensor]]) -> PaddedBatch | None:
    """The batch that came where this tensor did. None if another tensor is there, or fewer rows: the last of a pass."""
    name, tensor = tensors[one.place] if one.place < len(tensors) else ("", None)
    if tensor is None or name != one.found.name or tensor.dim() != len(one.found.shape):
        return None
    bits = read_bits(tensor)
    used = None if bits is None else count_used(bits, one.layout, one.value)
    if used is None or tensor.shape[one.layout.batch_dim] != one.found.shape[one.layout.batch_dim]:
        return None
    return PaddedBatch(int(tensor.shape[one.layout.dim]), int(used.max()), float(used.mean()), len(used))
