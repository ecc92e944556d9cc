"""From decoded Kineto events to columns: names and lists become codes, times become integer nanoseconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import compress
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from profkit.trace.codes import Codes, KindCodes, TextCodes, codes_of, recode, text_codes
from profkit.trace.convert import Part, by_kind, constant, either, integers, join, narrow
from profkit.trace.events import NONE, Bools, Events, Int32s, Int64s, Lane, Recording, Rows, Trace, timeline_order
from profkit.trace.horizon import Horizon, is_step_mark
from profkit.trace.kinds import MEMORY_EVENT, ON_DEVICE, classify
from profkit.trace.kineto_schema import MISSING, Arguments, Event
from profkit.trace.limits import DEFAULT_LIMIT_BYTES, EMPTY_BYTES, EVENT_BYTES
from profkit.trace.times import durations_of, nanoseconds_of, plausible_starts, too_coarse
from profkit.units import format_count

_NO_ARGUMENTS = Arguments()
_kind_of = attrgetter("cat", "name", "pid", "tid")
_as_floats = msgspec.json.Decoder(list[Event])
_as_text = msgspec.json.Decoder(list[Event], float_hook=str)
_COLUMNS: dict[str, tuple[type[Any], int]] = {
    "correlation": (np.int64, NONE),
    "external": (np.int64, NONE),
    "sequence": (np.int64, NONE),
    "dims_code": (np.int32, NONE),
    "types_code": (np.int32, NONE),
    "concrete_code": (np.int32, NONE),
    "size_bytes": (np.int64, 0),
    "address": (np.int64, NONE),
    "device_type": (np.int8, NONE),
}
"""Of what stands in the arguments of events: the type, and what a missing value reads as."""
_IDS = ("correlation", "external", "sequence")
_TEXTS = ("dims_code", "types_code", "concrete_code")
_MERGED = 128
"""So many parts become one: a quarter of a million events."""
_NAMES_OF_LANES = ("thread_name", "process_name")


class TooMuch(Exception):
    """Not even the events of one moment fit the memory."""


class ColumnBuilder:
    """Collects events and builds a `Trace` of them. Until then they take about 40 bytes each.

    Where all events would need more memory than the limit, only those before a moment are kept (see `horizon`).
    """

    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self.rows = 0
        self._limit_bytes = limit_bytes
        self._held = 0
        self._unmerged = 0
        self._horizon = Horizon()
        self._lost = 0
        self._impossible_durations = 0
        self._decoder = _as_floats
        self._kinds = KindCodes()
        self._lanes = Codes()
        self._texts = TextCodes()
        self._thread_names: dict[tuple[Any, Any], str] = {}
        self._parts: list[dict[str, Part]] = []
        self._lengths: list[int] = []

    def note_lost(self, events: int) -> None:
        """Remember that this many events could not be read."""
        self._lost += events

    def decode(self, text: bytes) -> None:
        """Append the events of a JSON array.

        Raises `msgspec.DecodeError`, `ValueError` or `RecursionError`, with nothing appended, for anything that strict
        JSON forbids or that is no list of events.
        """
        events = self._decoder.decode(text)
        kept, times = _timed(events)
        if self._decoder is _as_floats and too_coarse(times):
            self._decoder = _as_text
            kept, times = _timed(self._decoder.decode(text))
        self._add(events, kept, times)

    def add(self, events: Sequence[Event]) -> None:
        """Append decoded events."""
        self._add(events, *_timed(events))

    def _add(self, events: Sequence[Event], kept: list[Event], times: list[Any]) -> None:
        if len(kept) < len(events):
            for event in events:
                if event.ph == "M" and event.name in _NAMES_OF_LANES:
                    self._name_lane(event)
        if kept:
            self.rows += len(kept)
            self._hold(kept, *nanoseconds_of(times))

    def _hold(self, events: list[Event], start_ns: Int64s, known: Bools) -> None:
        """Keep the columns of those events that have a time, and one before the horizon."""
        near = known
        if self._horizon.at_ns is not None:
            near = known & (start_ns < self._horizon.at_ns)
            self._horizon.pass_by(compress(events, (known & ~near).tolist()))
        if not near.all():
            self._lost += int((~known).sum())
            events, start_ns = list(compress(events, near.tolist())), start_ns[near]
        if events:
            self._held += len(events)
            self._parts.append({"start_ns": start_ns, **self._columns(events)})
            self._unmerged += 1
            if self._unmerged == _MERGED:
                self._merge()
            if self._needed_bytes() > self._limit_bytes:
                self._give_up_the_last()

    def _needed_bytes(self) -> int:
        """What the diagnosis of what is held will take at its peak."""
        return EMPTY_BYTES + self._held * EVENT_BYTES + self._texts.size_bytes + self._kinds.size_bytes

    def _give_up_the_last(self) -> None:
        """Keep less of the recorded time, and no text that only the rest needs.

        Raises `TooMuch` where that does not help.
        """
        while (needed := self._needed_bytes()) > self._limit_bytes:
            held = self._held
            share = (self._limit_bytes - EMPTY_BYTES) / (needed - EMPTY_BYTES)
            self._horizon.draw_nearer(share, self._parts, list(self._kinds))
            self._held = sum(len(part["kind"]) for part in self._parts if part["kind"] is not None)
            self._kinds = recode(self._kinds, self._parts, ("kind",))
            self._texts = recode(self._texts, self._parts, _TEXTS)
            if self._held == held:
                raise TooMuch
        self._unmerged = 0

    def _name_lane(self, event: Event) -> None:
        if event.args is not None and isinstance(event.args.thread_name, str):
            thread = event.tid if event.name == "thread_name" else None
            self._thread_names[event.pid, thread] = event.args.thread_name

    def _columns(self, events: list[Event]) -> dict[str, Part]:
        duration_ns, impossible = durations_of([e.dur for e in events])
        self._impossible_durations += impossible
        fields = map(msgspec.structs.astuple, [e.args or _NO_ARGUMENTS for e in events])
        columns: dict[str, Any] = dict(zip(Arguments.__struct_fields__, zip(*fields, strict=True), strict=True))
        texts = {key: text_codes(self._texts, columns[key]) for key in ("dims", "dims_2021", "types", "concrete")}
        device_type = integers(columns["device_type"])
        parts = {
            "correlation": integers(columns["correlation"]),
            "external": either(integers(columns["external"]), integers(columns["external_2021"])),
            "sequence": integers(columns["sequence"]),
            "size_bytes": _without_missing(either(integers(columns["memory_bytes"]), integers(columns["bytes"]))),
            "address": integers(columns["address"]),
            "device_type": None if device_type is None else device_type.clip(NONE, 127).astype(np.int8),
        }
        return {
            "kind": codes_of(self._kinds, list(map(_kind_of, events))),
            "duration_ns": narrow(duration_ns),
            "dims_code": either(texts["dims"], texts["dims_2021"]),
            "types_code": texts["types"],
            "concrete_code": texts["concrete"],
            **{key: narrow(part) for key, part in parts.items()},
        }

    def build(self, recording: Recording, clock_base_ns: int = 0) -> Trace:
        """The trace of everything that was added. Events without a usable time are left out and counted.

        ``clock_base_ns`` is what the file's times count from.
        """
        self._lengths = [len(part["start_ns"]) for part in self._parts if part["start_ns"] is not None]
        start_ns, duration_ns = self._join("start_ns", np.int64, 0), self._join("duration_ns", np.int64, 0)
        of_kind, names = self._split_kinds()
        kind = self._join("kind", np.int32, 0)
        lane = of_kind["lane"][kind]
        duration_ns, cut = self._horizon.cut(start_ns, duration_ns, kind, list(self._kinds))
        never_ran = self._never_ran(start_ns, duration_ns, lane)
        usable = ~(cut | never_ran)
        usable[usable] = plausible_starts(start_ns if usable.all() else start_ns[usable])
        base_ns = int(start_ns.min(where=usable, initial=2**62)) // 1000 * 1000 if usable.any() else 0
        lost = self._lost + len(usable) - int(np.count_nonzero(usable)) - int(np.count_nonzero(cut))
        order = _timeline_order(lane, start_ns, duration_ns, usable)
        del lane, usable, cut, never_ran
        start_ns = start_ns[order]
        start_ns -= base_ns
        columns = {"start_ns": start_ns, "duration_ns": duration_ns[order]}
        del duration_ns
        kind = kind[order]
        whole_steps = self._steps_of(kind)
        columns |= {key: by_kind(column, kind) for key, column in of_kind.items()}
        columns |= {key: self._join(key, *how, order) for key, how in _COLUMNS.items()}
        length_ns = self._horizon.at_ns - base_ns if self._horizon.at_ns is not None else 0
        partial = self._horizon.describe(self._limit_bytes, len(order), length_ns, whole_steps)
        return Trace(
            events=Events(**columns),
            names=tuple(names),
            lanes=self._describe_lanes(),
            texts=self._texts.texts(),
            base_ns=clock_base_ns + base_ns,
            recording=recording,
            health=(*partial, *self._health(lost)),
        )

    def _steps_of(self, kind: Int32s) -> Counter[tuple[Any, Any]]:
        """How many of the profiler's steps each thread has among events of these kinds."""
        counts = np.bincount(kind, minlength=len(self._kinds)).tolist()
        steps: Counter[tuple[Any, Any]] = Counter()
        for (category, name, pid, tid), count in zip(self._kinds, counts, strict=True):
            if is_step_mark(category, name):
                steps[pid, tid] += count
        return steps

    def _join(self, key: str, kind: type[Any], missing: int, order: Rows | None = None) -> np.ndarray[Any, Any]:
        """A whole column of its parts, which are given up, so that only one column at a time is held twice.

        One that no event has takes no memory; ids take 32 bits where they fit.
        """
        joined = join([part.pop(key) for part in self._parts], self._lengths, missing)
        if joined is None:
            return constant(missing, kind, self._held)
        ordered = joined if order is None else joined[order]
        return ordered if key in _IDS and ordered.dtype == np.int32 else ordered.astype(kind, copy=False)

    def _merge(self) -> None:
        """Join the last parts: the space of many small arrays cannot be used again for whole columns, that of large
        ones can."""
        last = self._parts[-_MERGED:]
        lengths = [len(part["kind"]) for part in last if part["kind"] is not None]
        missing = {key: value for key, (_, value) in _COLUMNS.items()}
        self._parts[-_MERGED:] = [
            {key: join([part.pop(key) for part in last], lengths, missing.get(key, 0)) for key in list(last[0])}
        ]
        self._unmerged = 0

    def _split_kinds(self) -> tuple[dict[str, np.ndarray[Any, Any]], Codes]:
        """What each distinct kind of event says of its name, lane, category and call site; and the names."""
        names = Codes()
        categories, sites = classify([(category, name) for category, name, _, _ in self._kinds])
        name_codes = [names[name] for _, name, _, _ in self._kinds]
        lane_codes = [self._lanes[pid, tid, category in ON_DEVICE] for category, _, pid, tid in self._kinds]
        return {
            "name_code": np.array(name_codes, dtype=np.int32),
            "lane": np.array(lane_codes, dtype=np.int32),
            "category": categories,
            "site": sites,
        }, names

    def _never_ran(self, start_ns: Int64s, duration_ns: Int64s, lane: Int32s) -> Bools:
        """Device work at time zero of no length: what CUPTI leaves of records that it could not complete."""
        on_device = np.array([device for _, _, device in self._lanes], dtype=bool)
        nothing: Bools = (start_ns == 0) & (duration_ns == 0) & on_device[lane]
        return nothing

    def _describe_lanes(self) -> tuple[Lane, ...]:
        names = self._thread_names
        return tuple(
            Lane(str(pid), str(tid), on_device, names.get((pid, tid)) or names.get((pid, None), ""))
            for pid, tid, on_device in self._lanes
        )

    def _health(self, lost: int) -> tuple[str, ...]:
        notes = []
        if lost:
            notes.append(f"left out, because unreadable or without a usable time: {format_count(lost, 'event')}")
        if self._impossible_durations:
            count = format_count(self._impossible_durations, "event")
            notes.append(f"read as instants, because of an impossible duration: {count}")
        return tuple(notes)


def _timed(events: Sequence[Event]) -> tuple[list[Event], list[Any]]:
    """The events that are kept, and their times."""
    kept = [e for e in events if e.ph == "X"]
    if len(kept) < len(events):
        kept = [e for e in events if e.ph == "X" or e.name == MEMORY_EVENT]
    return kept, [e.ts for e in kept]


def _timeline_order(lane: Int32s, start_ns: Int64s, duration_ns: Int64s, usable: Bools) -> Rows:
    """The order of the usable events. Nearly always that is all of them, and nothing needs to be copied."""
    if usable.all():
        return timeline_order(lane, start_ns, duration_ns)
    rows = np.flatnonzero(usable)
    return rows[timeline_order(lane[rows], start_ns[rows], duration_ns[rows])]


def _without_missing(sizes: Part) -> Part:
    """Nothing allocated or moved where the event does not say."""
    return None if sizes is None else np.where(sizes == MISSING, 0, sizes)
