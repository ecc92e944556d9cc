"""How long a device was busy, by the events of the file alone: nothing here is profkit's."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_WORK = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")

Spans = NDArray[np.float64]
"""Begin and end of each, in microseconds."""


def read_work(path: Path) -> Spans:
    """The pieces of work of the device that worked longest, in order."""
    content = path.read_bytes()
    text = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    trace = json.loads(text.decode("utf-8", "replace"), strict=False)
    events: list[dict[str, Any]] = trace if isinstance(trace, list) else trace["traceEvents"]
    by_device: dict[str, list[tuple[float, float]]] = {}
    for event in events:
        if event.get("ph") == "X" and str(event.get("cat")).lower() in _WORK:
            begin, length = float(event["ts"]), float(event["dur"])
            if length <= 0:  # the profiler lost its times
                continue
            by_device.setdefault(str(event["pid"]), []).append((begin, begin + length))
    longest = max(by_device.values(), key=lambda spans: sum(end - begin for begin, end in spans), default=[])
    return np.array(sorted(longest), dtype=np.float64).reshape(-1, 2)


def busy_us(work: Spans, windows: Iterable[tuple[float, float]]) -> float:
    """How much of the windows is covered by the work, which is in order."""
    total, windows = 0.0, list(windows)
    for begin, end in windows:
        reached = begin
        for first, last in work[(work[:, 1] > begin) & (work[:, 0] < end)].tolist():
            total += max(0.0, min(last, end) - max(first, reached))
            reached = max(reached, min(last, end))
    return total
