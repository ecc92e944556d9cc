"""From chunks to the columns of a whole trace, within a memory limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import structs

from profkit.core.units import format_count
from profkit.trace.events import (
    NONE,
    Bools,
    Category,
    Events,
    Int32s,
    Int64s,
    Lane,
    Recording,
    Rows,
    Trace,
    timeline_order,
)
from profkit.trace.kinds import ON_DEVICE, classify, is_foreign
from profkit.trace.kineto.chunks import KINDS, TEXTS, Chunk, ChunkDecoder, is_step_mark
from profkit.trace.kineto.codes import Codes, recode
from profkit.trace.kineto.convert import Part, by_kind, join
from profkit.trace.kineto.flows import Flows, correlate
from profkit.trace.kineto.schema import Event
from profkit.trace.kineto.time_cutoff import TimeCutoff
from profkit.trace.left_out import describe_left_out, find_clockless
from profkit.trace.limits import DEFAULT_LIMIT_BYTES, EMPTY_BYTES, EVENT_BYTES
from profkit.trace.statistics import constant
from profkit.trace.times import plausible_starts

_COLUMNS: dict[str, tuple[type[Any], int]] = {
    "correlation": (np.int64, NONE),
    "external": (np.int64, NONE),
    "sequence": (np.int64, NONE),
    "dims_code": (np.int32, NONE),
    "types_code": (np.int32, NONE),
    "concrete_code": (np.int32, NONE),
    "collective_code": (np.int32, NONE),
    "size_bytes": (np.int64, 0),
    "address": (np.int64, NONE),
    "held_bytes": (np.int64, NONE),
    "device_type": (np.int8, NONE),
    "device": (np.int8, NONE),
}
"""Arguments of events: the type, and the missing value."""
_IDS = ("correlation", "external", "sequence")
_MOST_FLOWS = 4_000_000
"""They take a tenth of a gigabyte. More belong to two million launches, beyond any trace seen."""
_MERGED = 256
"""So many parts are merged into one: half a million events."""


class TooMuch(Exception):
    """Not even the events of one moment fit the memory."""


class ColumnBuilder:
    """Collects events and builds a `Trace` from them. Until then they take about 40 bytes each.

    If all events would need more memory than the limit, only those before a cutoff are kept (see `time_cutoff`).
    """

    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self.rows = 0
        self.decoder = ChunkDecoder()
        self.tables = 1
        """How many processes hold the tables that the codes index."""
        self._limit_bytes = limit_bytes
        self._held = 0
        self._unmerged = 0
        self._cutoff = TimeCutoff()
        self._unreadable = 0
        self._timeless: Counter[str] = Counter()
        self._impossible_durations = 0
        self._reserved_bytes: dict[int, int] = {}
        self._lanes = Codes()
        self._thread_names: dict[tuple[Any, Any], str] = {}
        self._flows: list[Flows] | None = []
        """None once an event has a correlation, which makes them needless."""
        self._parts: list[dict[str, Part]] = []
        self._lengths: list[int] = []

    def note_lost(self, events: int) -> None:
        """Count events that could not be read."""
        self._unreadable += events

    def decode(self, text: bytes) -> None:
        """Append the events of a JSON array.

        Raises `msgspec.DecodeError`, `ValueError` or `RecursionError`, with nothing appended, for anything that strict
        JSON forbids or that is not a list of events.
        """
        self.append(self.decoder.decode(text, self.cutoff_ns))

    def add(self, events: Sequence[Event], text: bytes = b"") -> None:
        """Append decoded events; ``text`` is what they were decoded from, if it is at hand."""
        self.append(self.decoder.convert(events, self.cutoff_ns, text))

    @property
    def cutoff_ns(self) -> int | None:
        """The moment from which on nothing is kept; None while everything is."""
        return self._cutoff.at_ns

    def append(self, chunk: Chunk) -> None:
        """Append a chunk that has the codes of ``decoder``. Raises `TooMuch`."""
        self.rows += chunk.rows
        self._timeless += chunk.timeless
        self._impossible_durations += chunk.impossible_durations
        for device, most in chunk.reserved_bytes.items():
            self._reserved_bytes[device] = max(most, self._reserved_bytes.get(device, 0))
        self._thread_names |= chunk.lane_names
        self._note_flows(chunk)
        self._cutoff.note_dropped(chunk)
        if chunk.held:
            self._held += chunk.held
            self._parts.append(chunk.parts)
            self._unmerged += 1
            if self._unmerged == _MERGED:
                self._merge()
            if self._needed_bytes() > self._limit_bytes:
                self._give_up_the_last()

    def _note_flows(self, chunk: Chunk) -> None:
        if chunk.parts.get("correlation") is not None:
            self._flows = None
        elif self._flows is not None and chunk.flows is not None:
            self._flows.append(chunk.flows)
            if sum(len(one.ids) for one in self._flows) > _MOST_FLOWS:
                self._flows = None

    def _needed_bytes(self) -> int:
        """The peak memory of the held events' diagnosis."""
        tables = self.decoder.texts.size_bytes + self.decoder.kinds.size_bytes
        return EMPTY_BYTES + self._held * EVENT_BYTES + self.tables * tables

    def _give_up_the_last(self) -> None:
        """Keep less of the recorded time, and drop the text that only the rest needs.

        Raises `TooMuch` if that does not help.
        """
        while (needed := self._needed_bytes()) > self._limit_bytes:
            held = self._held
            share = (self._limit_bytes - EMPTY_BYTES) / (needed - EMPTY_BYTES)
            self._cutoff.move_earlier(share, self._parts, list(self.decoder.kinds))
            self._held = sum(len(part["kind"]) for part in self._parts if part["kind"] is not None)
            self.decoder.kinds = recode(self.decoder.kinds, self._parts, KINDS)
            self.decoder.texts = recode(self.decoder.texts, self._parts, TEXTS)
            if self._held == held:
                raise TooMuch
        self._unmerged = 0

    def build(self, recording: Recording, clock_base_ns: int = 0) -> Trace:
        """The trace of everything that was added. Events without a usable time are left out and counted.

        ``clock_base_ns`` is what the file's times count from.
        """
        self._lengths = [len(part["start_ns"]) for part in self._parts if part["start_ns"] is not None]
        start_ns, duration_ns = self._join("start_ns", np.int64, 0), self._join("duration_ns", np.int64, 0)
        of_kind, names = self._split_kinds()
        kind = self._join("kind", np.int32, 0)
        lane, category = of_kind["lane"][kind], of_kind["category"][kind]
        duration_ns, cut = self._cutoff.cut(start_ns, duration_ns, kind, list(self.decoder.kinds))
        never_ran = self._never_ran(start_ns, duration_ns, lane, category)
        usable = ~(cut | never_ran)
        usable[usable] = plausible_starts(start_ns if usable.all() else start_ns[usable])
        base_ns = _first(start_ns if usable.all() else start_ns[usable]) // 1000 * 1000
        lost = ~(usable | cut)
        if lost.any():
            is_step = np.array([is_step_mark(category, name) for category, name, *_ in self.decoder.kinds])[kind]
            lost &= ~find_clockless(category, start_ns, duration_ns, self._external(), is_step, lost)
            self._timeless += self._categories_of(kind[lost])
        order = _timeline_order(lane, start_ns, duration_ns, usable)
        del lane, category, usable, cut, never_ran, lost
        start_ns = start_ns[order]
        start_ns -= base_ns
        columns = {"start_ns": start_ns, "duration_ns": duration_ns[order]}
        del duration_ns
        kind = kind[order]
        whole_steps = self._steps_of(kind)
        foreign = sorted(each for each in self._categories_of(kind).items() if is_foreign(each[0]) and each[1])
        columns |= {key: by_kind(column, kind) for key, column in of_kind.items()}
        columns |= {key: self._join(key, *how, order) for key, how in _COLUMNS.items()}
        if self._flows:
            columns["correlation"] = correlate(self._flows, self._lanes, columns, base_ns)
        reserved = tuple(sorted(self._reserved_bytes.items()))
        length_ns = self._cutoff.at_ns - base_ns if self._cutoff.at_ns is not None else 0
        partial = self._cutoff.describe(self._limit_bytes, len(order), length_ns, whole_steps)
        return Trace(
            events=Events(**columns),
            names=tuple(names),
            lanes=self._describe_lanes(),
            texts=self.decoder.texts.texts(),
            base_ns=clock_base_ns + base_ns,
            recording=structs.replace(recording, foreign=tuple(foreign), reserved_bytes=reserved),
            health=(*partial, *self._health()),
        )

    def _steps_of(self, kind: Int32s) -> Counter[tuple[Any, Any]]:
        """How many of the profiler's steps each thread has among events of these kinds."""
        counts = np.bincount(kind, minlength=len(self.decoder.kinds)).tolist()
        steps: Counter[tuple[Any, Any]] = Counter()
        for (category, name, pid, tid), count in zip(self.decoder.kinds, counts, strict=True):
            if is_step_mark(category, name):
                steps[pid, tid] += count
        return steps

    def _join(self, key: str, kind: type[Any], missing: int, order: Rows | None = None) -> np.ndarray[Any, Any]:
        """A whole column from its parts, which are freed, so that only one column at a time is held twice.

        A column without values takes no memory; ids take 32 bits if they fit.
        """
        joined = join([part.pop(key) for part in self._parts], self._lengths, missing, None if key in _IDS else kind)
        if joined is None:
            return constant(missing, kind, self._held if order is None else len(order))
        return joined if order is None else joined[order]

    def _merge(self) -> None:
        """Join the last parts, as the memory of large arrays can be reused for whole columns, unlike that of many small
        ones."""
        last = self._parts[-_MERGED:]
        lengths = [len(part["kind"]) for part in last if part["kind"] is not None]
        missing = {key: value for key, (_, value) in _COLUMNS.items()}
        self._parts[-_MERGED:] = [
            {key: join([part.pop(key) for part in last], lengths, missing.get(key, 0)) for key in list(last[0])}
        ]
        self._unmerged = 0

    def _split_kinds(self) -> tuple[dict[str, np.ndarray[Any, Any]], Codes]:
        """The name, lane, category and call site of each distinct kind of event, and the names."""
        names = Codes()
        categories, sites = classify([(category, name) for category, name, _, _ in self.decoder.kinds])
        name_codes = [names[name] for _, name, _, _ in self.decoder.kinds]
        lane_codes = [self._lanes[pid, tid, category in ON_DEVICE] for category, _, pid, tid in self.decoder.kinds]
        return {
            "name_code": np.array(name_codes, dtype=np.int32),
            "lane": np.array(lane_codes, dtype=np.int32),
            "category": categories,
            "site": sites,
        }, names

    def _never_ran(self, start_ns: Int64s, duration_ns: Int64s, lane: Int32s, category: np.ndarray[Any, Any]) -> Bools:
        """Device work and runtime calls at time zero and without length. CUPTI leaves such records if it could not
        complete them, and Kineto if it lost their clock."""
        on_device = np.array([device for _, _, device in self._lanes], dtype=bool)
        nothing: Bools = start_ns == 0
        rows = np.flatnonzero(nothing)  # none in nearly all traces
        nothing[rows] = (duration_ns[rows] == 0) & (on_device[lane[rows]] | (category[rows] == Category.RUNTIME))
        return nothing

    def _describe_lanes(self) -> tuple[Lane, ...]:
        names = self._thread_names
        return tuple(
            Lane(str(pid), str(tid), on_device, names.get((pid, tid)) or names.get((pid, None), ""), (pid, tid))
            for pid, tid, on_device in self._lanes
        )

    def _external(self) -> Int64s:
        """The whole column of operators' ids, which `build` makes again in the final order."""
        found = join([part["external"] for part in self._parts], self._lengths, NONE)
        return constant(NONE, np.int64, self._held) if found is None else found

    def _categories_of(self, kind: Int32s) -> Counter[str]:
        """How many events of each of the file's categories there are among these kinds."""
        counts: Counter[str] = Counter()
        for (category, *_), count in zip(self.decoder.kinds, np.bincount(kind).tolist(), strict=False):
            counts[category] += count
        return counts

    def _health(self) -> tuple[str, ...]:
        notes = [*describe_left_out(self._timeless, self._unreadable)]
        if self._impossible_durations:
            count = format_count(self._impossible_durations, "event")
            notes.append(f"read as instants, because of an impossible duration: {count}")
        return tuple(notes)


def _first(start_ns: Int64s) -> int:
    return int(start_ns.min()) if len(start_ns) else 0


def _timeline_order(lane: Int32s, start_ns: Int64s, duration_ns: Int64s, usable: Bools) -> Rows:
    """The order of the usable events. Nearly always all are usable, and nothing is copied."""
    if usable.all():
        return timeline_order(lane, start_ns, duration_ns)
    rows = np.flatnonzero(usable)
    return rows[timeline_order(lane[rows], start_ns[rows], duration_ns[rows])]
