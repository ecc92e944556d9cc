"""Recordings whose data flow is known: a located step and two measured ones of the same calls."""

from __future__ import annotations

from typing import Any

from profkit.core.marks import CALL_MARK
from profkit.rules.base import Facts
from profkit.run.directory import CallSite, DataFlow, Run
from tests.traces import annotation, facts_of, mark, op, step

Call = tuple[str, list[Any], tuple[int, ...]]
"""An operator, its shapes, and the makers of what it takes: numbers of calls, or negative ones."""


def following(site: CallSite, *calls: Call, gaps: tuple[int, ...] = ()) -> Facts:
    """Steps of 1000 µs: each call takes 100 µs at this line, and 10 µs pass until the next."""
    events: list[dict[str, Any]] = []
    for i in range(3):
        events.append(step(i, 1000.0 * i, 1000))
        for number, (name, dims, _) in enumerate(calls):
            at = 1000.0 * i + 10 + 110 * number
            if i == 0:
                events.append(annotation(f"{CALL_MARK}{number}", at - 0.5, 101))
            events.append(op(name, at, 100, dims=dims, concrete=[""] * len(dims)))
        if i == 0:
            events.append(mark(0, 5, 110 * len(calls)))
    return facts_of(events, callsites=(site,), run=Run(flow=DataFlow(tuple(call[2] for call in calls), gaps=gaps)))
