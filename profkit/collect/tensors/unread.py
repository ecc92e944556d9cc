"""Which calls make what nobody reads: no call takes their results, or only such calls do, and their memory is gone by
the end of the step.

Memory counts, not tensors: a view, or an access to a property, leads to the same memory. A call that cannot be followed
counts as a reader. So does a backward pass of all memory that still exists when it begins: a custom function, or the
hook of a gradient, may have kept it for then. Calls that write into what they are given, or draw random numbers, are
never left out, since other results would change.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from typing import NamedTuple

from profkit.collect.loaders.feeders import feeding_threads
from profkit.collect.tensors.identities import Memory
from profkit.run.directory import UnreadResult

_DRAWING = ("bernoulli", "dropout", "exponential", "multinomial", "normal", "poisson", "rand", "uniform", "rrelu")

_QUIET_THREADS = ("profkit-", "tqdm")
"""How the names of threads, or of the modules that their classes come from, begin that read no tensors."""
_KEEPING = ("batch_norm", "fake_quant", "instance_norm")
"""These also write what they have seen into buffers, which changes no version."""


class _Call(NamedTuple):
    """The memory of its results, and the largest result's shape."""

    made: list[Memory]
    shape: tuple[int, ...]


class UnreadResults:
    """`take` is told each call before it runs, `make` after it; `conclude` at the end of the step."""

    def __init__(self) -> None:
        self._takers: dict[Memory, list[int | None]] = {}
        self._calls: dict[int, _Call] = {}
        self._names: dict[int, str] = {}
        self._before_backward: list[_Call] = []

    def take(self, call: int | None, name: str, memories: Iterable[Memory]) -> None:
        """The call with this number (None: one that cannot be followed) reads this memory."""
        if call is not None:
            self._names[call] = name
        for memory in set(memories):
            self._takers.setdefault(memory, []).append(call)

    def make(self, call: int, made: list[Memory], shapes: Iterable[tuple[int, ...]], is_writing: bool) -> None:
        """What the call made. If it ``is_writing`` into what it was given, it is not looked at."""
        name = self._names.get(call, "_")
        if (
            made
            and not is_writing
            and not name.endswith("_")
            and not any(word in name for word in (*_DRAWING, *_KEEPING))
        ):
            self._calls[call] = _Call(made, max(shapes, key=math.prod, default=()))
            self._before_backward.append(self._calls[call])

    def begin_backward(self) -> None:
        """A backward pass begins, which runs code that is not seen."""
        for call in self._before_backward:
            for memory in call.made:
                if not memory.is_gone:
                    self._takers.setdefault(memory, []).append(None)
        self._before_backward.clear()

    def conclude(self) -> tuple[UnreadResult, ...] | None:
        """Groups of calls: one whose result nothing takes, and those whose results go into it alone. A call is younger
        than those that made what it takes. None if another thread runs: it may read results unseen."""
        if _others_run():
            return None
        group_of = dict[int, int]()
        groups = dict[int, list[int]]()
        for number, call in sorted(self._calls.items(), reverse=True):
            readers = {taker for memory in call.made for taker in self._readers(memory, number)}
            if None in readers or not all(memory.is_gone for memory in call.made):
                continue
            known = [group_of.get(reader, -1) for reader in sorted(filter(None, readers))]
            if min(known, default=0) < 0:
                continue
            group_of[number] = known[0] if known else number
            groups.setdefault(group_of[number], []).append(number)
        return tuple(
            UnreadResult(tuple(sorted(calls)), self._calls[last].shape) for last, calls in sorted(groups.items())
        )

    def _readers(self, memory: Memory, number: int) -> list[int | None]:
        """Of all calls that took the memory, those after the one with this number, and those that are not known."""
        return [taker for taker in self._takers.get(memory, ()) if taker is None or taker > number]


def _others_run() -> bool:
    """Whether the program has more threads than this one and those that feed its loaders' workers."""
    quiet = [threading.current_thread(), *feeding_threads()]
    others = (one for one in threading.enumerate() if one not in quiet)
    return any(
        not (one.name.startswith(_QUIET_THREADS) or type(one).__module__.startswith(_QUIET_THREADS)) for one in others
    )
