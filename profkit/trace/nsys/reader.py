"""Reader of Nsight Systems exports (``nsys export --type sqlite``).

Kernels, copies, fills, CUDA calls and NVTX ranges become events under the names of a Kineto trace, so everything after
the reader works on both. NVTX ranges that PyTorch itself opened (``emit_nvtx``, ``nsys profile
--pytorch=autograd-nvtx``) are operators. The sizes of their inputs are left out, because the export does not give their
types. The tables that describe the machine and the program's environment are not read.

An export holds all processes of a job. Only the one with most work on the devices is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from profkit.core.errors import UnreadableInput
from profkit.core.units import format_count, format_time
from profkit.trace.events import NONE, Bools, Events, Int32s, Int64s, Lane, Recording, Trace, timeline_order
from profkit.trace.kinds import BOUNDARIES, classify
from profkit.trace.left_out import LEFT_OUT
from profkit.trace.limits import DEFAULT_LIMIT_BYTES, describe_partial, most_events
from profkit.trace.nsys.parts import TABLES, Part, read_parts
from profkit.trace.nsys.tables import MISSING, Tables
from profkit.trace.statistics import distinct, distinct_rows
from profkit.trace.times import DAY_NS, plausible_starts

KIND = "an Nsight Systems export"
_LAYERS = ("", ", ranges that need not nest", ", profiler and driver")
_MOST_NS = 2**61
"""Some 73 years. Differences of later times might not fit 64 bits."""


_LEAST_ROW_BYTES = 8
"""Of the file, per event: each of the columns that are read takes a byte or more."""


def read_nsys(path: Path, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Trace:
    """Read an export. Of a damaged one, what can be saved is read. Of one whose diagnosis would take more memory than
    the limit, the first events that fit are kept. Health notes say what is missing.

    Raises `UnreadableInput`, naming the file and the cause, if it holds no event.
    """
    with Tables(path) as tables:
        if not any(table in tables for table in TABLES):
            raise UnreadableInput(path, f"is an SQLite file but not {KIND}")
        cutoff = _find_cutoff(tables, limit_bytes)
    with Tables(path, cutoff.at_ns if cutoff else None) as tables:
        parts = list(read_parts(tables))
        notes = tables.notes
    if cutoff is not None:
        parts = [cutoff.cut(part) for part in parts]
    graphs = len(parts[1])
    if graphs:
        noun = "launch" if graphs == 1 else "launches"
        notes.append(
            f"{graphs:,} {noun} of CUDA graphs stand for one kernel each: nsys profile --cuda-graph-trace=node shows "
            "those inside"
        )
    parts = [part for part in parts if len(part)]
    if not parts:
        raise UnreadableInput(path, f"holds no events{f': {notes[0]}' if notes else ''}")
    trace = _assemble(parts)
    if not len(trace.events):
        raise UnreadableInput(path, "holds no event with a time")
    if cutoff is not None:
        notes.append(cutoff.describe(len(trace.events), cutoff.at_ns - trace.base_ns))
    return trace.with_health(*notes)


class _TimeCutoff(Struct, frozen=True):
    """How an export that is larger than memory allows is cut: none of its ``events`` from ``at_ns`` on, on the file's
    own clock, is kept. The first rows would be no window of time, as each table has an order of its own."""

    at_ns: int
    events: int
    limit_bytes: int

    def cut(self, part: Part) -> Part:
        """Ranges that reach beyond the cutoff end there. Marks that would then end an incomplete step are dropped."""
        cut_off = part.end_ns > self.at_ns
        ends_a_step = np.array([name.startswith(BOUNDARIES) for _, name in part.kinds], dtype=bool)
        kept = part.select(~(cut_off & ends_a_step[part.kind]))
        return kept.until(self.at_ns)

    def describe(self, kept: int, length_ns: int) -> str:
        """What is missing, in one sentence."""
        events = f"{kept:,} of {format_count(self.events, 'event')}"
        return describe_partial(f"the first {format_time(length_ns)} ({events})", self.limit_bytes)


def _find_cutoff(tables: Tables, limit_bytes: int) -> _TimeCutoff | None:
    """None if all events fit. Raises `UnreadableInput` if too many begin at once."""
    most = most_events(limit_bytes)
    if tables.path.stat().st_size <= most * _LEAST_ROW_BYTES:
        return None
    starts = [tables.read(table, ("start",))["start"] for table in TABLES if table in tables]
    start_ns = np.concatenate(starts) if starts else np.zeros(0, dtype=np.int64)
    start_ns = start_ns[start_ns != MISSING]
    if len(start_ns) <= most:
        return None
    at_ns = int(np.partition(start_ns, most)[most])
    if at_ns <= start_ns.min():
        raise UnreadableInput(tables.path, "holds more at one moment than the memory limit allows")
    return _TimeCutoff(at_ns, len(start_ns), limit_bytes)


def _assemble(parts: Sequence[Part]) -> Trace:
    start_ns, end_ns, process = (
        np.concatenate([getattr(part, column) for part in parts]) for column in ("start_ns", "end_ns", "process")
    )
    on_device = np.concatenate([np.full(len(part), part.on_device) for part in parts])
    usable, duration_ns, impossible = _times(start_ns, end_ns)
    mine, others = _of_one_process(process, on_device & usable, duration_ns)
    rows = np.flatnonzero(usable & mine)
    lane, lanes = _lanes(parts, process, on_device)
    base_ns = int(start_ns[rows].min()) if len(rows) else 0
    order = rows[timeline_order(lane[rows], start_ns[rows], duration_ns[rows])]
    of_kind, names = _kinds(parts)
    kind = _joined_kinds(parts)[order]
    none = np.full(len(order), NONE, dtype=np.int32)
    ids = {
        key: np.concatenate([getattr(part, key) for part in parts])[order]
        for key in ("correlation", "sequence", "size_bytes")
    }
    return Trace(
        events=Events(
            lane=lane[order],
            start_ns=start_ns[order] - base_ns,
            duration_ns=duration_ns[order],
            external=none.astype(np.int64),
            dims_code=none,
            types_code=none,
            concrete_code=none,
            collective_code=none,
            address=none.astype(np.int64),
            held_bytes=none.astype(np.int64),
            device_type=none.astype(np.int8),
            device=none.astype(np.int8),
            **ids,
            **{key: column[kind] for key, column in of_kind.items()},
        ),
        names=names,
        lanes=lanes,
        texts=(),
        base_ns=base_ns,
        recording=Recording(kind=KIND, has_shapes=False, has_memory=False),
        health=_health(int((mine & ~usable).sum()), int((mine & impossible).sum()), others),
    )


def _times(start_ns: Int64s, end_ns: Int64s) -> tuple[Bools, Int64s, Bools]:
    """Which events have usable times, how long each takes, and which durations are impossible and become 0."""
    usable: Bools = (np.abs(start_ns.clip(min=-_MOST_NS - 1)) <= _MOST_NS) & (end_ns != MISSING)
    usable[usable] = plausible_starts(start_ns[usable])
    length_ns = np.where(usable, end_ns.clip(-_MOST_NS, _MOST_NS) - np.where(usable, start_ns, 0), 0)
    impossible = (length_ns < 0) | (length_ns > DAY_NS)
    return usable, np.where(impossible, 0, length_ns), impossible


def _of_one_process(process: Int64s, works: Bools, duration_ns: Int64s) -> tuple[Bools, int]:
    """The events of the process with most work on the devices, and the number of other processes.

    An export that does not tell processes apart is assumed to hold one.
    """
    known = (process != MISSING) & (process != 0)
    candidates = distinct(process[known & works] if (known & works).any() else process[known])
    if len(candidates) < 2:
        chosen = candidates
    else:
        rows = np.flatnonzero(np.isin(process, candidates))
        weight = np.where(works[rows], duration_ns[rows], 0) + (0 if works.any() else 1)
        chosen = candidates[[np.bincount(np.searchsorted(candidates, process[rows]), weight).argmax()]]
    mine: Bools = ~known | np.isin(process, chosen)
    return mine, len(distinct(process[known])) - len(chosen)


def _lanes(parts: Sequence[Part], process: Int64s, on_device: Bools) -> tuple[Int32s, tuple[Lane, ...]]:
    columns = [np.concatenate([part.lane[i] for part in parts]) for i in range(3)]
    columns = [np.where(column == MISSING, NONE, column) for column in columns]
    first, lane = distinct_rows(np.where(process == MISSING, 0, process), on_device, *columns)
    lanes = []
    for row in first.tolist():
        outer, _, inner = (int(column[row]) for column in columns)
        number = int(process[row]) >> 24 & 0xFFFFFF if process[row] != MISSING else 0
        if on_device[row]:
            lanes.append(Lane(str(outer), str(inner), on_device=True))
        else:
            lanes.append(Lane(str(number), f"{inner}{_LAYERS[outer]}", on_device=False))
    return lane.astype(np.int32), tuple(lanes)


def _kinds(parts: Sequence[Part]) -> tuple[dict[str, np.ndarray[Any, Any]], tuple[str, ...]]:
    """The name, category and call site of each kind of event, and the names."""
    pairs = [pair for part in parts for pair in part.kinds]
    codes = {name: code for code, name in enumerate(dict.fromkeys(name for _, name in pairs))}
    categories, sites = classify(pairs)
    name_code = np.array([codes[name] for _, name in pairs], dtype=np.int32)
    return {"name_code": name_code, "category": categories, "site": sites}, tuple(codes)


def _joined_kinds(parts: Sequence[Part]) -> Int32s:
    before = np.cumsum([0, *(len(part.kinds) for part in parts)])
    return np.concatenate([part.kind + first for part, first in zip(parts, before[:-1].tolist(), strict=True)])


def _health(lost: int, impossible: int, others: int) -> tuple[str, ...]:
    notes = []
    if others:
        noun = "process is" if others == 1 else "processes are"
        notes.append(
            f"the export holds {others + 1:,} processes: the one with most work on the GPUs is judged, "
            f"{others:,} other {noun} left out"
        )
    if lost:
        notes.append(f"{LEFT_OUT}: {format_count(lost, 'event')}")
    if impossible:
        notes.append(f"read as instants, because of an impossible duration: {format_count(impossible, 'event')}")
    return tuple(notes)
