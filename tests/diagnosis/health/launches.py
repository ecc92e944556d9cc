"""Launches and their kernels, and what health notes say of a recording that holds them."""

from __future__ import annotations

from profkit.diagnosis.health import check_recording
from tests.traces import facts_of, kernel, op, runtime, step


def launched(count: int, *, shift: float = 0, without: range = range(0)) -> list:
    """Launches every 100 µs, each with a kernel of 50 µs that starts 10 µs later. The device's clock is ``shift`` µs
    off."""
    events = []
    for n in range(count):
        events.append(runtime("cudaLaunchKernel", 100 * n, 5, correlation=n + 1))
        if n not in without:
            events.append(kernel("k", 100 * n + 10 + shift, 50, correlation=n + 1))
    return events


def notes_of(*events: dict, lasting: float = 10_000) -> tuple[str, ...]:
    """The notes on two steps with these events in the first."""
    half = lasting / 2
    return check_recording(facts_of([step(0, 0, half), step(1, half, half), op("aten::mul", 0, 1), *events]))
