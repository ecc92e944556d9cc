"""Copies between host and device, as tests of several rules write them by hand."""

# ruff: noqa: PLR0913  # a copy has many sides, and nearly all are given by name

from __future__ import annotations

from typing import Any

from tests.traces import kernel, memcpy, op, runtime, step

Json = dict[str, Any]
PAGEABLE, PINNED = "HtoD (Pageable -> Device)", "HtoD (Pinned -> Device)"
TO_PAGEABLE, TO_PINNED = "DtoH (Device -> Pageable)", "DtoH (Device -> Pinned)"


def sent(
    start: float,
    size_bytes: int,
    direction: str = PAGEABLE,
    *,
    took: float = 100,
    copied: float = 95,
    correlation: int = 1,
    stream: int = 7,
    synchronises: bool = True,
    dims: str | None = None,
    types: str | None = None,
) -> list[Json]:
    """``x.to(…)`` that takes the host 20 µs more than ``took``, in which it waits; the device copies for the last
    ``copied`` µs of that."""
    called = took if direction == PAGEABLE else 5
    return [
        op("aten::to", start, took + 20, dims=dims, types=types),
        op("aten::copy_", start + 5, took + 10, dims=dims, types=types),
        runtime("cudaMemcpyAsync", start + 8, called - 1, correlation=correlation),
        memcpy(
            f"Memcpy {direction}",
            start + 8 + took - copied,
            copied,
            correlation=correlation,
            stream=stream,
            size_bytes=size_bytes,
        ),
        *([runtime("cudaStreamSynchronize", start + 8 + called, took - called + 1)] if synchronises else []),
    ]


def computed(start: float, took: float = 5, correlation: int = 500, delay: float = 6, stream: int = 7) -> list[Json]:
    """A kernel that the host launches in 10 µs."""
    return [
        op("aten::mul", start, 10),
        runtime("cudaLaunchKernel", start + 1, 5, correlation=correlation),
        kernel("mul", start + delay, took, correlation=correlation, stream=stream),
    ]


def stepped(*parts: list[Json], steps: int = 4, length: float = 200, first: int = 0) -> list[Json]:
    """Steps that all hold the same, with times counted from the step's start."""
    return [
        event
        for number in range(first, first + steps)
        for event in (
            step(number, length * number, length),
            *(moved(event, length * number, 1000 * number) for part in parts for event in part),
        )
    ]


def moved(event: Json, by: float, correlations: int) -> Json:
    """The same event later, with a correlation of its own."""
    args = dict(event["args"])
    if "correlation" in args:
        args["correlation"] += correlations
    return {**event, "ts": event["ts"] + by, "args": args}
