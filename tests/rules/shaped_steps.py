"""Steps with the same operators each time, whose shapes and types are known."""

from __future__ import annotations

from typing import Any

from tests.traces import op, step

Json = dict[str, Any]


def steps_of(*events: Json, length_us: int = 200) -> list[Json]:
    """Three steps of that length with these events, timed from the beginning of a step."""
    found: list[Json] = []
    for number in range(3):
        begun = length_us * number
        found += [step(number, begun, length_us), *({**event, "ts": event["ts"] + begun} for event in events)]
    return found


def tensor_op(name: str, at: float, duration: float, *shapes: list[int], **more: Any) -> Json:
    """An operator of PyTorch's on tensors of float32."""
    return op(f"aten::{name}", at, duration, dims=list(shapes), types=["float"] * len(shapes), **more)
