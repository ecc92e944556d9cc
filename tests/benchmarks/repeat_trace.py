"""Make a large trace of a small one by repeating its events in time, with all ids shifted consistently.

    python tests/benchmarks/repeat_trace.py SOURCE TARGET MEGABYTES

TARGET is written plain, or as gzip (level 1) where its name ends in .gz. MEGABYTES is the uncompressed size.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isal import igzip

_IDS = ("External id", "external id", "correlation", "Ev Idx", "Sequence number", "Record function id")
_STEP = re.compile(r"ProfilerStep#(\d+)")
_PLACE = "\x00"
"""Stands in the template where a time or an id goes; no text of a trace holds it."""


def repeat(source: Path, target: Path, size_bytes: int) -> None:
    """Write ``source`` repeated up to ``size_bytes``."""
    raw = source.read_bytes()
    text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    document = json.loads(text, strict=False)
    events = document.pop("traceEvents")
    with igzip.open(target, "wb", 1) if target.suffix == ".gz" else target.open("wb") as out:
        head = {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": {"name": "python"}}
        out.write((json.dumps(document)[:-1] + ', "traceEvents": [\n  ' + json.dumps(head)).encode())
        written = 0
        for piece in repeats(events):
            out.write(piece.encode())
            written += len(piece)
            if written >= size_bytes:
                break
        out.write(b"\n]}")


def repeats(events: list[dict[str, Any]]) -> Iterator[str]:
    """The events as JSON, each after a comma, again and again: later, with other ids and the next steps' numbers."""
    timed = [event for event in events if event.get("ph") in ("X", "i", "s", "f", "t") and "ts" in event]
    first = min(float(e["ts"]) for e in timed)
    span = int(max(float(e["ts"]) + float(e.get("dur") or 0) for e in timed) - first + 1000)
    steps = [int(found[1]) for event in timed if (found := _STEP.fullmatch(str(event.get("name"))))]
    more_steps = max(steps) - min(steps) + 1 if steps else 0
    most = max((int(e["args"][k]) for e in timed for k in _IDS if isinstance(e.get("args", {}).get(k), int)), default=0)
    shifts: list[tuple[Any, int]] = []
    """Of each place in the template: the number, and what each repetition adds to it."""
    template = "".join(",\n  " + json.dumps(_open(event, span, most + 1, more_steps, shifts)) for event in timed)
    template = template.replace("%", "%%").replace(json.dumps(_PLACE), "%r").replace(json.dumps(_PLACE)[1:], '%r"')
    round_number = 0
    while True:
        yield template % tuple([number + round_number * step for number, step in shifts])
        round_number += 1


def _open(event: dict[str, Any], span_us: int, ids: int, steps: int, shifts: list[tuple[Any, int]]) -> dict[str, Any]:
    """The event with places instead of its time, its ids and its step's number; what belongs there goes to ``shifts``,
    in order."""

    def place(number: Any, step: int) -> str:
        shifts.append((number, step))
        return _PLACE

    opened = {}
    for key, value in event.items():
        if key == "ts":
            opened[key] = place(value, span_us)
        elif key == "name" and (step := _STEP.fullmatch(str(value))):
            opened[key] = f"ProfilerStep#{place(int(step[1]), steps)}"
        elif key == "id" and isinstance(value, int):
            opened[key] = place(value, ids)
        elif key == "args" and isinstance(value, dict):
            opened[key] = {
                k: place(v, ids) if k in _IDS and isinstance(v, int) and v >= 0 else v for k, v in value.items()
            }
        else:
            opened[key] = value
    return opened


if __name__ == "__main__":
    repeat(Path(sys.argv[1]), Path(sys.argv[2]), int(float(sys.argv[3]) * 1e6))
