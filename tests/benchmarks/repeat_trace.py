"""Make a large trace of a small one by repeating its events in time, with all ids shifted consistently.

    python tests/benchmarks/repeat_trace.py SOURCE TARGET MEGABYTES

TARGET is written plain, or as gzip where its name ends in .gz. MEGABYTES is the uncompressed size.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_IDS = ("External id", "external id", "correlation", "Ev Idx", "Sequence number", "Record function id")


def repeat(source: Path, target: Path, size_bytes: int) -> None:
    """Write ``source`` repeated up to ``size_bytes``."""
    raw = source.read_bytes()
    text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    document = json.loads(text, strict=False)
    events = document.pop("traceEvents")
    opener = gzip.open if target.suffix == ".gz" else open
    with opener(target, "wt", encoding="utf-8") as out:  # type: ignore[operator]  # both open text files
        out.write(json.dumps(document)[:-1] + ', "traceEvents": [\n')
        out.write("  " + json.dumps({"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": {}}))
        written = 0
        for piece in _repeats(events):
            out.write(piece)
            written += len(piece)
            if written >= size_bytes:
                break
        out.write("\n]}")


def _repeats(events: list[dict[str, Any]]) -> Iterator[str]:
    timed = [event for event in events if event.get("ph") in ("X", "i", "s", "f", "t") and "ts" in event]
    first = min(float(e["ts"]) for e in timed)
    span = max(float(e["ts"]) + float(e.get("dur") or 0) for e in timed) - first + 1000
    most = max((int(e["args"][k]) for e in timed for k in _IDS if isinstance(e.get("args", {}).get(k), int)), default=0)
    round_number = 0
    while True:
        time_us, ids = round_number * int(span), round_number * (most + 1)
        yield "".join(",\n  " + json.dumps(_shift(event, time_us, ids)) for event in timed)
        round_number += 1


def _shift(event: dict[str, Any], time_us: int, ids: int) -> dict[str, Any]:
    shifted = {**event, "ts": event["ts"] + time_us}
    if "id" in event and isinstance(event["id"], int):
        shifted["id"] = event["id"] + ids
    if isinstance(event.get("args"), dict):
        moved = {k: v + ids for k, v in event["args"].items() if k in _IDS and isinstance(v, int) and v >= 0}
        shifted["args"] = {**event["args"], **moved}
    return shifted


if __name__ == "__main__":
    repeat(Path(sys.argv[1]), Path(sys.argv[2]), int(float(sys.argv[3]) * 1e6))
