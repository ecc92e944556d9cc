"""Steps with a Python loop, the first of them with the marks of its lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from profkit.derive.facts import Facts
from profkit.run.directory import CallSite
from tests.traces import facts_of, mark, step

Json = dict[str, Any]
Body = Callable[[float, int], list[Json]]


def looped(
    sites: tuple[CallSite, ...],
    body: Body,
    length: float,
    *,
    rounds: int = 40,
    every: float = 20,
    again: bool = False,
    **more: Any,
) -> Facts:
    """Four steps of this ``length``; a round takes 20 µs, 12 of them from its first operator to its last. The last of
    the lines calls the operators of ``body``. It may run ``again`` in each round, without operators, as a generator's
    does."""
    last = len(sites) - 1
    events: list[Json] = []
    for i in range(4):
        events.append(step(i, length * i, length))
        for k in range(rounds):
            at = length * i + 10 + every * k
            if i == 0:
                events += [mark(n, at + 0.1 * n, 0.05) for n in range(last)]
                events.append(mark(last, at + 1, 16))
                events += [mark(last, at + 17.5, 1)] * again
            events += body(at + 2, k)
    return facts_of(events, callsites=sites, **more)
