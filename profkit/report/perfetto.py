"""A copy of a trace for https://ui.perfetto.dev, with the findings in it.

Each finding gets a track. Its slices last as long as the events that the finding rests on, and arrows lead to the
longest of these events. The format is Chrome's Trace Event Format, like the trace's own.

Perfetto ends an arrow at the innermost slice open at that time, whose children may begin at once. So an arrow ends a
nanosecond after its event begins. Slices and arrows come before the file's own events, because a slice must not follow
an arrow that begins in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import msgspec
import numpy as np
from isal import igzip

from profkit.core.errors import RunDirectoryError, UsageError
from profkit.core.files.writing import replacing
from profkit.derive.timeline.intervals import Intervals, union
from profkit.findings.values import Diagnosis, Finding
from profkit.report.wording import cost, place, printable, short_place
from profkit.trace.events import Category, Int64s, Rows, Trace
from profkit.trace.kineto.insertion import with_events

PERFETTO_FILE = "perfetto.json.gz"
MOST_SLICES = 2000
"""The longest slices of a finding. A track with more looks like a single bar until you zoom in to a few of them."""
MOST_ARROWS = 100
"""Arrows of a finding, to its longest events. More would hide what they point to."""
_FIRST_PROCESS = 2_000_000_000
"""No system uses such process numbers, and it fits the 32 bits in which Perfetto keeps them."""
_COMPRESSION_LEVEL = 1
_CATEGORY = "profkit"

_Event = dict[str, Any]


def write_perfetto(diagnosis: Diagnosis, trace: Trace, marked: Sequence[Rows], source: Path, target: Path) -> None:
    """Write the copy. ``source`` is the file of ``trace``; ``marked`` has the events behind each finding.

    Raises `UsageError` if the copy would replace its source, or if the source is no trace of `torch.profiler`.
    """
    if trace.recording.kind:
        kind = trace.recording.kind
        raise UsageError(f"--format perfetto copies a trace of torch.profiler, and {source} is {kind}'s")
    if target.exists() and target.samefile(source):
        raise UsageError(f"{source}: the copy would replace the trace; name another directory with --output")
    events = map(msgspec.json.encode, finding_events(diagnosis, trace, marked))
    try:
        with replacing(target.parent, target.name) as file, _packing(file) as packed:
            for piece in with_events(source, events):
                packed.write(piece)
    except OSError as error:
        raise RunDirectoryError(target, f"cannot be written: {error.strerror or error}") from error


def _packing(file: BinaryIO) -> IO[bytes]:
    packed: Any = igzip.IGzipFile("", "wb", _COMPRESSION_LEVEL, file, mtime=0)  # type: ignore[no-untyped-call] # isal
    return cast("IO[bytes]", packed)


def finding_events(diagnosis: Diagnosis, trace: Trace, marked: Sequence[Rows]) -> Iterator[_Event]:
    """The tracks of the findings with their slices and arrows, in the required order."""
    used = {lane.process for lane in trace.lanes} | {lane.thread for lane in trace.lanes}
    process = _FIRST_PROCESS
    while not used.isdisjoint(map(str, range(process, process + len(marked) + 1))):
        process += len(marked) + 1
    yield _metadata("process_name", process, process, name="profkit: findings")
    yield _metadata("process_sort_index", process, process, sort_index=-1)
    arrows = 0
    for number, (finding, rows) in enumerate(zip(diagnosis.findings, marked, strict=True), 1):
        thread = process + number
        spans = _spans(trace, rows)
        yield _metadata("thread_name", process, thread, name=_title(number, finding))
        yield _metadata("thread_sort_index", process, thread, sort_index=number)
        yield from _slices(trace, finding, spans, {"pid": process, "tid": thread})
        targets = _targets(trace, rows, spans)
        yield from _arrows(trace, targets, {"pid": process, "tid": thread}, arrows)
        arrows += len(targets)


def _title(number: int, finding: Finding) -> str:
    where = f" at {short_place(finding.location)}" if finding.location else ""
    return f"{number}. {finding.severity.value.upper()} {printable(finding.rule)}{where}"


def _metadata(kind: str, process: int, thread: int, **args: str | int) -> _Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "ts": 0, "args": args}


def _spans(trace: Trace, rows: Rows) -> Intervals:
    """When the events of a finding run; an instant counts as a nanosecond. If there are too many, the longest."""
    start_ns = trace.events.start_ns[rows]
    spans = union(start_ns, np.maximum(trace.events.ends_of(rows), start_ns + 1))
    longest = np.sort(np.argsort(spans.start_ns - spans.end_ns, kind="stable")[:MOST_SLICES])
    return Intervals(spans.start_ns[longest], spans.end_ns[longest])


def _slices(trace: Trace, finding: Finding, spans: Intervals, track: _Event) -> Iterator[_Event]:
    details = {"message": printable(finding.message), "cost": cost(finding), "fix": printable(finding.fix)}
    if finding.location is not None:
        details |= {"where": place(finding.location)}
    for start_ns, end_ns in zip(spans.start_ns.tolist(), spans.end_ns.tolist(), strict=True):
        yield {
            "ph": "X",
            "cat": _CATEGORY,
            "name": printable(finding.rule),
            **track,
            "ts": _file_time(trace, start_ns),
            "dur": _microseconds(end_ns - start_ns),
            "args": details,
        }


def _targets(trace: Trace, rows: Rows, spans: Intervals) -> Int64s:
    """The events that arrows lead to, by time: those with a duration, inside the spans that are drawn."""
    events = trace.events
    lasting = rows[(events.duration_ns[rows] > 0) & (events.category[rows] != Category.MEMORY)]
    if not len(spans.start_ns) or not len(lasting):
        return np.zeros(0, dtype=np.int64)
    around = np.searchsorted(spans.start_ns, events.start_ns[lasting], side="right") - 1
    inside = lasting[(around >= 0) & (events.start_ns[lasting] < spans.end_ns[around])]
    longest = inside[np.argsort(-events.duration_ns[inside], kind="stable")[:MOST_ARROWS]]
    ordered: Int64s = longest[np.argsort(events.start_ns[longest], kind="stable")]
    return ordered


def _arrows(trace: Trace, targets: Int64s, track: _Event, first: int) -> Iterator[_Event]:
    events = trace.events
    for number, row in enumerate(targets.tolist(), first):
        start_ns = int(events.start_ns[row])
        process, thread = trace.lanes[int(events.lane[row])].in_file or (None, None)
        arrow = {"cat": _CATEGORY, "name": "rests on", "id": number}
        yield {"ph": "s", **arrow, **track, "ts": _file_time(trace, start_ns)}
        yield {"ph": "f", **arrow, "pid": process, "tid": thread, "ts": _file_time(trace, start_ns + 1), "bp": "e"}


def _file_time(trace: Trace, time_ns: int) -> msgspec.Raw:
    return _microseconds(trace.base_ns - trace.recording.clock_base_ns + time_ns)


def _microseconds(time_ns: int) -> msgspec.Raw:
    """An exact number: no float holds the nanoseconds since 1970."""
    whole, rest = divmod(abs(time_ns), 1000)
    return msgspec.Raw(f"{'-' if time_ns < 0 else ''}{whole}.{rest:03d}".encode())
