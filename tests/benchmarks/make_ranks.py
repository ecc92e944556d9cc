"""Make a launch of many ranks of one real rank's trace.

    python tests/benchmarks/make_ranks.py TRACE FOLDER RANKS [--megabytes 50] [--late-ms 10] [--late RANK …]

TRACE is a Kineto trace of a rank with steps and NCCL's kernels, such as kineto/ddp_resnet_cpu_bound_a100.json.gz of the
corpus.
Each rank gets it repeated in time up to MEGABYTES (see `repeat_trace`), with a clock of its own, up to ten seconds off.
In every step the late ranks (default: 1) begin their first collective LATE_MS later, after a
pause in which nothing happens; the kernels of all others, and their hosts, wait for them, so that all end together.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from isal import igzip
from repeat_trace import repeats

Event = dict[str, Any]
_MOST_NAMED = 30
"""Ranks that PyTorch names of a group; of more it says the first and the last."""
_RETURN_US = 5.0
"""From the end of a kernel to the return of the call that waits for it."""
_CLOCK_NS = 10 * 10**9


def make_ranks(source: Path, folder: Path, ranks: int, size_bytes: int, late_ms: float, late: Iterable[int]) -> None:
    """Write ``rank-0.json.gz`` and so on; ranks that do the same share the bytes of their events."""
    raw = source.read_bytes()
    document = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw, strict=False)
    events = [_in_group_of(ranks, event) for event in document.pop("traceEvents")]
    late_us, slow = late_ms * 1000, set(late)
    bodies = {
        True: _pack(_blocking(_held_up(events, late_us), 0), size_bytes),
        False: _pack(_blocking(events, late_us), size_bytes),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        head = _head(document, rank, ranks)
        (folder / f"rank-{rank}.json.gz").write_bytes(igzip.compress(head, 1) + bodies[rank in slow])


def _head(document: dict[str, Any], rank: int, ranks: int) -> bytes:
    """The beginning of a rank's file: who it is, and what its clock says."""
    about = {**document.get("distributedInfo", {}), "rank": rank, "world_size": ranks}
    clock_ns = int(document.get("baseTimeNanoseconds", 0)) + rank * 7_919_000_003 % _CLOCK_NS
    named = {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": {"name": "python"}}
    head = {**document, "distributedInfo": about, "baseTimeNanoseconds": clock_ns}
    return (json.dumps(head)[:-1] + ', "traceEvents": [\n  ' + json.dumps(named)).encode()


def _pack(events: list[Event], size_bytes: int) -> bytes:
    """The events, repeated, to the end of the file: a gzip member of its own."""
    packed, written = io.BytesIO(), 0
    with igzip.IGzipFile(fileobj=packed, mode="wb", compresslevel=1) as out:
        for piece in repeats(events):
            out.write(piece.encode())
            written += len(piece)
            if written >= size_bytes:
                break
        out.write(b"\n]}")
    return packed.getvalue()


def _in_group_of(ranks: int, event: Event) -> Event:
    args = event.get("args")
    if not isinstance(args, dict) or "Group size" not in args:
        return event
    first, last = list(range(ranks))[:_MOST_NAMED], f", ..., {ranks - 1}" if ranks > _MOST_NAMED else ""
    named = f"[{', '.join(map(str, first))}{last}]"
    return {**event, "args": {**args, "Group size": ranks, "Process Group Ranks": named}}


def _first_collectives(events: Sequence[Event]) -> list[tuple[float, Event]]:
    """In each step, when the host begins the first collective that has a kernel, and that kernel."""
    calls = sorted(float(e["ts"]) for e in events if e.get("name") == "record_param_comms")
    kernels = sorted((e for e in events if _is_collective(e)), key=lambda e: float(e["ts"]))
    marks = [e for e in events if str(e.get("name")).startswith("ProfilerStep#")]
    steps = sorted(
        (float(e["ts"]), float(e["ts"]) + float(e["dur"])) for e in marks if e.get("cat") != "gpu_user_annotation"
    )
    found = []
    for begin, end in steps:
        call = next((at for at in calls if begin <= at < end), None)
        kernel = next((one for one in kernels if call is not None and float(one["ts"]) >= call), None)
        if call is not None and kernel is not None:
            found.append((call, kernel))
    return found


def _is_collective(event: Event) -> bool:
    return event.get("cat") == "kernel" and str(event["name"]).startswith("nccl")


def _held_up(events: Sequence[Event], pause: float) -> list[Event]:
    """The events with a pause before the first collective of each step."""
    return _with_pauses(events, [call for call, _ in _first_collectives(events)], [pause] * len(events))


def _blocking(events: Sequence[Event], wait: float) -> list[Event]:
    """The events with the first collective of each step that much longer, and the host waiting for its end, as with
    TORCH_NCCL_BLOCKING_WAIT; else it would run ahead."""
    found = [kernel for _, kernel in _first_collectives(events)]
    places = [float(kernel["ts"]) + 1e-3 for kernel in found]
    lengths = [float(kernel["dur"]) + wait for kernel in found]
    pauses = [length + _RETURN_US for length in lengths]
    longer = {id(kernel): {**kernel, "dur": length} for kernel, length in zip(found, lengths, strict=True)}
    made = _with_pauses([longer.get(id(event), event) for event in events], places, pauses)
    mark = next(e for e in events if str(e.get("name")).startswith("ProfilerStep#"))
    most = max(int(e["args"].get("correlation", 0)) for e in events if isinstance(e.get("args"), dict))
    waits = [
        {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "cudaDeviceSynchronize",
            "pid": mark["pid"],
            "tid": mark["tid"],
            "ts": at + sum(pauses[:number]),
            "dur": pauses[number] - 1,
            "args": {"correlation": most + 1 + number},
        }
        for number, at in enumerate(places)
    ]
    return [*made, *waits]


def _with_pauses(events: Iterable[Event], places: Sequence[float], pauses: Sequence[float]) -> list[Event]:
    """The events with a pause at each place: what begins there or later is later by that much, what the host does over
    it takes that much longer."""
    made = []
    for event in events:
        if "ts" not in event or event.get("ph") == "M":
            continue
        begin = float(event["ts"])
        end = begin + float(event.get("dur") or 0)
        changed = {**event, "ts": begin + sum(by for at, by in zip(places, pauses, strict=False) if at <= begin)}
        within = sum(by for at, by in zip(places, pauses, strict=False) if begin < at < end)
        if within and event.get("cat") not in ("kernel", "gpu_memcpy", "gpu_memset"):
            changed["dur"] = float(event["dur"]) + within
        made.append(changed)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("ranks", type=int)
    parser.add_argument("--megabytes", type=float, default=50)
    parser.add_argument("--late-ms", type=float, default=10)
    parser.add_argument("--late", type=int, nargs="*", default=[1])
    given = parser.parse_args()
    make_ranks(given.trace, given.folder, given.ranks, int(given.megabytes * 1e6), given.late_ms, given.late)


if __name__ == "__main__":
    main()
