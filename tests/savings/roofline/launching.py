"""Tiny steps of launches: a call on the host, and its kernels on the device."""

from __future__ import annotations

from typing import Any

from profkit.derive.facts import Facts
from tests.traces import Json, facts_of, kernel, op, runtime, step

STEP_US = 10_000.0
H100 = "NVIDIA H100 80GB HBM3"


def call(
    name: str,
    dims: list[Any],
    types: list[str] | str,
    *kernels: tuple[str, float],
    at: float = 0.0,
    values: list[str] | None = None,
    number: int = 1,
    on_device_at: float | None = None,
) -> list[Json]:
    """An operator that launches kernels of these names and microseconds, one after another."""
    kinds = [types] * len(dims) if isinstance(types, str) else types
    events = [op(name, at, 90, dims=dims, types=kinds, concrete=values, external=number)]
    begin = at + 20 if on_device_at is None else on_device_at
    for place, (kernel_name, microseconds) in enumerate(kernels):
        correlation = 100 * number + place
        events += [
            runtime("cudaLaunchKernel", at + 5 * place, 4, correlation=correlation, external=number),
            kernel(kernel_name, begin, microseconds, correlation=correlation, external=number),
        ]
        begin += microseconds
    return events


def steps_of(*calls: list[Json], card: str = H100, count: int = 3, length: float = STEP_US, **more: Any) -> Facts:
    """As many equal steps, each with these calls."""
    events: list[Json] = []
    for number in range(count):
        events.append(step(number, number * length, length))
        for place, one in enumerate(calls):
            events += [_moved(event, number * length, 10_000 * (number * len(calls) + place + 1)) for event in one]
    properties = [{"id": 0, "name": card}] if card else []
    return facts_of(events, deviceProperties=properties, **more)


def _moved(event: Json, by: float, ids: int) -> Json:
    arguments = {
        key: value + ids if key in ("External id", "correlation") else value for key, value in event["args"].items()
    }
    return {**event, "ts": event["ts"] + by, "args": arguments}
