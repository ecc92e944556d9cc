"""Facts of steps that multiply at one line, with what the watch of calls says of it."""

from __future__ import annotations

from typing import Any

from profkit.core.marks import CALL_MARK
from profkit.derive.facts import Facts
from profkit.run.directory import CallSite, Recomputation, Run
from tests.traces import annotation, facts_of, mark, op, step


def multiplying(
    site: CallSite,
    known: Recomputation | None,
    *,
    calls: int = 1,
    steps_with: int = 4,
    runs: bool = True,
    name: str = "aten::mm",
) -> Facts:
    """Steps of 1000 µs: 600 µs for products at one line, in runs of their own or in one, 2 µs for something else."""
    events: list[dict[str, Any]] = []
    for number in range(4):
        at, each = 1000 * number, 600 / calls
        called = name if number < steps_with else "aten::sort"
        events += [step(number, at, 1000), op("aten::relu", at + 750, 2)]
        events += [op(called, at + 10 + each * turn, each - 4) for turn in range(calls)]
        if not number:
            spans = [(at + 8.5 + each * turn, each - 1) for turn in range(calls)] if runs else [(at + 8, 640)]
            events += [mark(0, *span) for span in spans]
            events += [annotation(f"{CALL_MARK}{turn}", at + 9 + each * turn, each - 2) for turn in range(calls)]
    return facts_of(events, run=Run(recomputation=known), callsites=(site,))
