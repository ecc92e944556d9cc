"""Handwritten run directories with steps of 1,000 µs, each with the given operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from profkit.run.directory import RUN_FILE, Host, Run, save
from tests.traces import Json, json_of, op, step

STEPS = 4
LONG = 1_000.0
RUN = Run(
    command=("python", "train.py"),
    python="3.11.2",
    torch="2.13.0",
    device="cpu",
    host=Host(2, 2, 8 << 30),
    flags={"autocast": False},
    step_signal="step()",
    reference_step_ns=tuple(1_000_000 + 1_000 * i for i in range(12)),
    trace="a.pt.trace.json",
)
OPERATORS = (("aten::mm", 600.0, "[[64,64],[64,64]]"), ("aten::add", 200.0, "[[64,64],[64,64]]"))
Operators = Sequence[tuple[str, float, str]]


def events_of(steps: Sequence[Operators]) -> list[Json]:
    """The operators of each step, one after another from its start."""
    events = []
    for number, operators in enumerate(steps):
        start = number * LONG
        events.append(step(number, start, LONG))
        for name, duration, dims in operators:
            events.append(op(name, start, duration, dims=dims, types='["float","float"]'))
            start += duration
    return events


def write_run(directory: Path, operators: Operators = OPERATORS, **of_the_run: Any) -> Path:
    """A run directory of `STEPS` equal steps; ``of_the_run`` are fields of its ``run.json``."""
    directory.mkdir(parents=True)
    (directory / "a.pt.trace.json").write_bytes(json_of(events_of([operators] * STEPS)))
    save(directory, RUN_FILE, replace(RUN, **of_the_run))
    return directory


def around(centre_ms: float, spread: float = 0.002) -> tuple[int, ...]:
    """Twelve step times whose median is ``centre_ms``, alternating between ``1 - spread`` and ``1 + spread`` of it."""
    return tuple(round(centre_ms * 1e6 * (1 + spread * (-1) ** i)) for i in range(12))
