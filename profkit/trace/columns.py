"""From decoded Kineto events to columns: names and lists become codes, times become integer nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from profkit.trace.convert import Codes, Part, TextCodes, codes_of, either, integers, narrow, text_codes
from profkit.trace.events import NONE, Bools, Events, Int32s, Int64s, Lane, Recording, Rows, Trace, timeline_order
from profkit.trace.kinds import MEMORY_EVENT, ON_DEVICE, classify
from profkit.trace.kineto_schema import MISSING, Arguments, Event
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


class ColumnBuilder:
    """Collects events and builds a `Trace` of them. Until then they take about 40 bytes each."""

    def __init__(self) -> None:
        self.rows = 0
        self._lost = 0
        self._impossible_durations = 0
        self._decoder = _as_floats
        self._kinds = Codes()
        self._lanes = Codes()
        self._texts = TextCodes()
        self._thread_names: dict[tuple[Any, Any], str] = {}
        self._lengths: list[int] = []
        self._parts: list[dict[str, Part]] = []

    def note_lost(self, events: int) -> None:
        """Remember that this many events could not be read."""
        self._lost += events

    def decode(self, text: bytes) -> None:
        """Append the events of a JSON array.

        Raises `msgspec.DecodeError`, `ValueError` or `RecursionError`, with nothing appended, for anything that strict
        JSON forbids or that is no list of events.
        """
        events = self._decoder.decode(text)
        if self._decoder is _as_floats and too_coarse([e.ts for e in events if e.ph == "X"]):
            self._decoder = _as_text
            events = self._decoder.decode(text)
        self.add(events)

    def add(self, events: Sequence[Event]) -> None:
        """Append decoded events."""
        kept = [e for e in events if e.ph == "X"]
        if len(kept) < len(events):
            kept = [e for e in events if e.ph == "X" or e.name == MEMORY_EVENT]
            for event in events:
                if event.ph == "M" and event.name in ("thread_name", "process_name"):
                    self._name_lane(event)
        if kept:
            self.rows += len(kept)
            self._lengths.append(len(kept))
            self._parts.append(self._columns(kept))

    def _name_lane(self, event: Event) -> None:
        if event.args is not None and isinstance(event.args.thread_name, str):
            thread = event.tid if event.name == "thread_name" else None
            self._thread_names[event.pid, thread] = event.args.thread_name

    def _columns(self, events: list[Event]) -> dict[str, Part]:
        start_ns, known = nanoseconds_of([e.ts for e in events])
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
            "start_ns": start_ns,
            "duration_ns": narrow(duration_ns),
            "known": known,
            "dims_code": either(texts["dims"], texts["dims_2021"]),
            "types_code": texts["types"],
            "concrete_code": texts["concrete"],
            **{key: narrow(part) for key, part in parts.items()},
        }

    def build(self, recording: Recording, clock_base_ns: int = 0) -> Trace:
        """The trace of everything that was added. Events without a usable time are left out and counted.

        ``clock_base_ns`` is what the file's times count from.
        """
        start_ns, duration_ns = self._join("start_ns", np.int64, 0), self._join("duration_ns", np.int64, 0)
        of_kind, names = self._split_kinds()
        kind = self._join("kind", np.int32, 0)
        lane = of_kind["lane"][kind]
        usable = self._join("known", np.bool_, 0) & ~self._never_ran(start_ns, duration_ns, lane)
        usable[usable] = plausible_starts(start_ns[usable])
        base_ns = int(start_ns[usable].min()) // 1000 * 1000 if usable.any() else 0
        rows = np.flatnonzero(usable)
        order = rows[timeline_order(lane[rows], start_ns[rows], duration_ns[rows])]
        columns = {"start_ns": start_ns[order] - base_ns, "duration_ns": duration_ns[order]}
        del start_ns, duration_ns, lane
        columns |= {key: column[kind[order]] for key, column in of_kind.items()}
        columns |= {key: self._join(key, *how, order) for key, how in _COLUMNS.items()}
        return Trace(
            events=Events(**columns),
            names=tuple(names),
            lanes=self._describe_lanes(),
            texts=self._texts.texts(),
            base_ns=clock_base_ns + base_ns,
            recording=recording,
            health=self._health(self._lost + int((~usable).sum())),
        )

    def _join(self, key: str, kind: type[Any], missing: int, order: Rows | None = None) -> np.ndarray[Any, Any]:
        """A whole column of its parts, which are given up, so that only one column at a time is held twice."""
        joined = np.full(self.rows, missing, dtype=kind)
        at = 0
        for rows, parts in zip(self._lengths, self._parts, strict=True):
            part = parts.pop(key)
            if part is not None:
                joined[at : at + rows] = part
            at += rows
        return joined if order is None else joined[order]

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


def _without_missing(sizes: Part) -> Part:
    """Nothing allocated or moved where the event does not say."""
    return None if sizes is None else np.where(sizes == MISSING, 0, sizes)
