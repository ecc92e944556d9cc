"""Whether a long run has changed: its steps take twice as long, fewer of them come, or its memory grows.

Steps are taken in blocks. The first blocks say what is usual; later ones are compared with them. Nothing is kept of a
step after its block but in those first ones, so a run of weeks takes no more memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from itertools import pairwise
from statistics import median
from typing import NamedTuple

BLOCK_STEPS, _BLOCK_NS, _MOST_IN_BLOCK = 30, 500_000_000, 1000
"""The median of this many steps tells how long they take. Short steps get half a second, in which a pause of the
machine is little; 1,000 of them are enough whatever they take."""
_SHORT_NS, _MOST_TOGETHER = 5_000_000, 100
"""Noticing the end of a step takes 17 to 30 µs, half a hundredth of this: so many short steps are taken as one."""
_PACE, _USUAL = 12, 4
"""Of the last so many lengths the shortest but a quarter tells how short steps are now. Those that waited say nothing,
and beside other programs that may be most of them."""
_FIRST_BLOCKS = 4
"""The first block is left out: caches and allocators warm up. The next ones are what is usual."""
_TIMES = 2.0
"""Steps vary with their batches and the machine by less; the issue that users report is "twice as slow"."""
_IN_A_ROW, _RATES_IN_A_ROW = 2, 4
"""Blocks that must show it. An evaluation or a checkpoint makes one or two blocks slow, but seldom four."""
_MORE_BYTES, _MORE = 128 << 20, 0.5
"""What memory must grow by, in all and as a share: allocators and caches that fill stop below it."""
_QUARTERS, _LEAST_SHARE = 4, 0.1
"""Each quarter of the blocks must have this share of the growth. Memory that was taken at once has one such quarter."""
_MOST_KEPT = 64
"""Measures of memory kept; every second one is dropped when they are used up."""


class ChangeKind(Enum):
    """What changed. The value is what a note says about it."""

    STEP_TIME = "the steps took {factor:.1f} times as long as at first"
    THROUGHPUT = "{factor:.1f} times as much time passed for each step as at first, though most steps took no longer"
    MEMORY = "the memory of the process grew to {factor:.1f} times what it held at first"


class Change(NamedTuple):
    """Something changed by ``factor`` when so many ``steps`` were over. ``first_ns`` are the times of the usual steps,
    the last of which ended at ``until_ns`` of the same clock as the ends given to `Changes.note`."""

    kind: ChangeKind
    factor: float
    steps: int
    first_ns: tuple[int, ...]
    until_ns: int

    @property
    def note(self) -> str:
        return f"at step {self.steps:,} {self.kind.value.format(factor=self.factor)}"


class Changes:
    """`note` the end of each step. ``count_crowded_ns`` says how long the thread has waited for a CPU so far, None if
    that is unknown. ``measure_bytes`` says what the process holds. Both are asked once in a block. ``steps`` are over,
    and the last took ``last_ns``."""

    def __init__(self, count_crowded_ns: Callable[[], int | None], measure_bytes: Callable[[], int]) -> None:
        self.steps, self.last_ns = 0, 0
        self._crowded, self._measure = count_crowded_ns, measure_bytes
        self.begin_again()

    def begin_again(self) -> None:
        """Forget what was usual: other steps begin here."""
        self._ended_ns: int | None = None
        self._counted = 0
        self._lengths: deque[int] = deque(maxlen=_PACE)
        self._block: list[int] = []
        self._block_ns = 0
        self._blocks = self._until_ns = 0
        self._crowded_ns = self._crowded() or 0
        self._first_ns: list[int] = []
        self._first_medians: list[float] = []
        self._first_means: list[float] = []
        self._held: list[int] = []
        self._every = 1
        self._in_a_row = dict.fromkeys((ChangeKind.STEP_TIME, ChangeKind.THROUGHPUT), 0)

    def note(self, ended_ns: int, steps: int = 1) -> Change | None:
        """So many steps ended, the last of them now. Return what has changed, if that shows now."""
        if not self.count(ended_ns, steps):
            return None
        self._block += [self.last_ns] * steps
        self._block_ns += self.last_ns * steps
        count = len(self._block)
        if count < BLOCK_STEPS or (count < _MOST_IN_BLOCK and self._block_ns < _BLOCK_NS):
            return None
        block, self._block, self._block_ns = self._block, [], 0
        return self._end_block(block)

    @property
    def has_begun(self) -> bool:
        """Whether the end of a step is known, so that the next one tells a length."""
        return self._ended_ns is not None

    @property
    def ended_ns(self) -> int:
        """When the last step that was noted ended; 0 if none was since it began again."""
        return self._ended_ns or 0

    @property
    def together(self) -> int:
        """How many of the steps to come may be noted as one; 1 until it is known how short they are."""
        if self._counted <= BLOCK_STEPS:
            return 1
        usual_ns = max(sorted(self._lengths)[len(self._lengths) // _USUAL], 1)
        return max(1, min(_MOST_TOGETHER, _SHORT_NS // usual_ns))

    def count(self, ended_ns: int, steps: int = 1) -> bool:
        """So many steps ended. Return whether their length, ``last_ns``, is known: not that of the first."""
        before, self._ended_ns = self._ended_ns, ended_ns
        self.steps += steps
        self._counted += steps
        if before is None:
            return False
        self.last_ns = (ended_ns - before) // steps
        self._lengths.append(self.last_ns)
        return True

    def _end_block(self, block: list[int]) -> Change | None:
        crowded_ns = self._crowded() or 0
        waited_ns, self._crowded_ns = crowded_ns - self._crowded_ns, crowded_ns
        self._blocks += 1
        if self._blocks == 1:
            return None
        own = max(0.0, 1 - waited_ns / max(sum(block), 1))  # without what other programs on the machine kept it waiting
        usual, mean = own * median(block), own * sum(block) / len(block)
        if len(self._first_medians) < _FIRST_BLOCKS:
            self._first_medians.append(usual)
            self._first_means.append(mean)
            self._first_ns += block
            self._until_ns = self._ended_ns or 0
            return None
        return self._compare_times(usual, mean) or self._compare_memory()

    def _compare_times(self, usual: float, mean: float) -> Change | None:
        factors = {
            ChangeKind.STEP_TIME: (usual / max(median(self._first_medians), 1), _IN_A_ROW),
            ChangeKind.THROUGHPUT: (mean / max(median(self._first_means), 1), _RATES_IN_A_ROW),
        }
        for kind, (factor, least) in factors.items():
            self._in_a_row[kind] = self._in_a_row[kind] + 1 if factor >= _TIMES else 0
            if self._in_a_row[kind] >= least:
                return self._change(kind, factor)
        return None

    def _compare_memory(self) -> Change | None:
        if self._blocks % self._every:
            return None
        self._held.append(self._measure())
        held = self._held
        if len(held) >= _MOST_KEPT:
            self._held, self._every = held[::2], 2 * self._every
        more = held[-1] - held[0]
        if len(held) <= _QUARTERS or more < max(_MORE_BYTES, _MORE * held[0]):
            return None
        edges = [held[(len(held) - 1) * at // _QUARTERS] for at in range(_QUARTERS + 1)]
        if any(later - earlier < _LEAST_SHARE * more for earlier, later in pairwise(edges)):
            return None
        return self._change(ChangeKind.MEMORY, held[-1] / max(held[0], 1))

    def _change(self, kind: ChangeKind, factor: float) -> Change:
        return Change(kind, factor, self.steps, tuple(self._first_ns), self._until_ns)
