"""From decoded Kineto events to columns: names and lists become codes, times become integer nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from profkit.run import GC_MARK, LINE_MARK, PAUSE_MARK, SAVE_MARK
from profkit.trace.events import DEVICE_WORK, NONE, Bools, Category, Events, Int64s, Lane, Recording, Trace, sort_events
from profkit.trace.kineto_schema import MISSING, NO_TEXT, Arguments, Event
from profkit.trace.times import durations_of, nanoseconds_of, plausible_starts
from profkit.units import format_count

_CATEGORIES = {
    "cpu_op": Category.OPERATOR,
    "Operator": Category.OPERATOR,
    "user_annotation": Category.ANNOTATION,
    "python_function": Category.PYTHON,
    "cuda_runtime": Category.RUNTIME,
    "cuda_driver": Category.RUNTIME,
    "xpu_runtime": Category.RUNTIME,
    "xpu_driver": Category.RUNTIME,
    "privateuse1_runtime": Category.RUNTIME,
    "privateuse1_driver": Category.RUNTIME,
    "Runtime": Category.RUNTIME,
    "kernel": Category.KERNEL,
    "Kernel": Category.KERNEL,
    "gpu_memcpy": Category.MEMCPY,
    "Memcpy": Category.MEMCPY,
    "gpu_memset": Category.MEMSET,
    "Memset": Category.MEMSET,
    "gpu_user_annotation": Category.DEVICE_ANNOTATION,
}
_ON_DEVICE = {name for name, kind in _CATEGORIES.items() if kind in (*DEVICE_WORK, Category.DEVICE_ANNOTATION)}
_MEMORY_EVENT = "[memory]"
_NO_ARGUMENTS = Arguments()
_READ_AS_ANNOTATION = ("ProfilerStep#", "Optimizer.", "enumerate(DataLoader)#", "DistributedDataParallel.")
"""Until 2021 these carried the category of operators."""


class _Codes(dict[Any, int]):
    """Gives each new key the next code."""

    def __missing__(self, key: Any) -> int:
        code = self[key] = len(self)
        return code


class ColumnBuilder:
    """Collects decoded events and builds a `Trace` of them."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.rows = 0
        self.seen = 0
        self._lost = 0
        self._impossible_durations = 0
        self._kinds = _Codes()
        self._lanes = _Codes()
        self._texts = _Codes()
        self._thread_names: dict[tuple[Any, Any], str] = {}
        self._parts: list[dict[str, np.ndarray[Any, Any]]] = []

    def note_lost(self, events: int) -> None:
        """Remember that this many events could not be read."""
        self._lost += events

    def add(self, events: Sequence[Event]) -> None:
        """Append a chunk of decoded events."""
        self.seen += len(events)
        kept = [e for e in events if e.ph == "X"]
        if len(kept) < len(events):
            kept = [e for e in events if e.ph == "X" or e.name == _MEMORY_EVENT]
            for event in events:
                if event.ph == "M" and event.name in ("thread_name", "process_name"):
                    self._name_lane(event)
        if kept:
            self.rows += len(kept)
            self._parts.append(self._columns(kept))

    def _name_lane(self, event: Event) -> None:
        if event.args is not None and isinstance(event.args.thread_name, str):
            thread = event.tid if event.name == "thread_name" else None
            self._thread_names[event.pid, thread] = event.args.thread_name

    def _columns(self, events: list[Event]) -> dict[str, np.ndarray[Any, Any]]:
        arguments = [e.args or _NO_ARGUMENTS for e in events]
        kinds, texts = self._kinds, self._texts
        start_ns, known = nanoseconds_of([e.ts for e in events])
        duration_ns, impossible = durations_of([e.dur for e in events])
        self._impossible_durations += impossible

        def column(field: str) -> Int64s:
            return _integers(list(map(attrgetter(field), arguments)))

        def codes_of(field: str) -> np.ndarray[Any, Any]:
            raws = map(attrgetter(field), arguments)
            return np.array([NONE if raw is NO_TEXT else texts[bytes(raw)] for raw in raws], dtype=np.int32)

        return {
            "kind": np.array([kinds[e.cat, e.name, e.pid, e.tid] for e in events], dtype=np.int32),
            "start_ns": start_ns,
            "duration_ns": duration_ns,
            "known": known,
            "correlation": column("correlation"),
            "external": _either(column("external"), column("external_2021")),
            "sequence": column("sequence"),
            "dims_code": _either(codes_of("dims"), codes_of("dims_2021")),
            "types_code": codes_of("types"),
            "concrete_code": codes_of("concrete"),
            "size_bytes": _either(column("memory_bytes"), column("bytes"), missing=0),
            "address": column("address"),
            "device_type": column("device_type").clip(NONE, 127).astype(np.int8),
        }

    def build(self, recording: Recording, clock_base_ns: int = 0) -> Trace:
        """The trace of everything that was added. Events without a usable time are left out and counted.

        ``clock_base_ns`` is what the file's times count from.
        """
        columns = {key: np.concatenate([part[key] for part in self._parts]) for key in self._parts[0]}
        names = self._split_kinds(columns)
        start_ns = columns["start_ns"]
        usable = columns.pop("known") & ~self._never_ran(columns)
        usable[usable] = plausible_starts(start_ns[usable])
        base_ns = int(start_ns[usable].min()) // 1000 * 1000 if usable.any() else 0
        columns["start_ns"] = start_ns - base_ns
        events = sort_events(Events(**columns).take(np.flatnonzero(usable)))
        return Trace(
            events=events,
            names=tuple(names),
            lanes=self._describe_lanes(),
            texts=tuple(text.decode("utf-8", "replace") for text in self._texts),
            base_ns=clock_base_ns + base_ns,
            recording=recording,
            health=self._health(self._lost + int((~usable).sum())),
        )

    def _split_kinds(self, columns: dict[str, np.ndarray[Any, Any]]) -> _Codes:
        """What each distinct kind of event says of its name, lane, category and call site; returns the names."""
        kind, names = columns.pop("kind"), _Codes()
        categories, sites = self._classify([(category, name) for category, name, _, _ in self._kinds])
        name_codes = [names[name] for _, name, _, _ in self._kinds]
        lane_codes = [self._lanes[pid, tid, category in _ON_DEVICE] for category, _, pid, tid in self._kinds]
        columns["name_code"] = np.array(name_codes, dtype=np.int32)[kind]
        columns["lane"] = np.array(lane_codes, dtype=np.int32)[kind]
        columns["category"], columns["site"] = categories[kind], sites[kind]
        return names

    @staticmethod
    def _classify(pairs: list[tuple[str, str]]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Category and, for line marks, call site of each distinct (category, name)."""
        categories = np.zeros(len(pairs), dtype=np.uint8)
        sites = np.full(len(pairs), NONE, dtype=np.int32)
        for code, (category, name) in enumerate(pairs):
            site = name.removeprefix(LINE_MARK)
            if name == _MEMORY_EVENT:
                categories[code] = Category.MEMORY
            elif name.startswith(PAUSE_MARK):
                categories[code] = Category.PAUSE
            elif name.startswith((GC_MARK, SAVE_MARK)):
                categories[code] = Category.HOST_MARK
            elif site is not name and site.isascii() and site.isdigit() and len(site) < 8:
                categories[code], sites[code] = Category.LINE_MARK, int(site)
            elif category in ("cpu_op", "Operator") and name.startswith(_READ_AS_ANNOTATION):
                categories[code] = Category.ANNOTATION
            else:
                categories[code] = _CATEGORIES.get(category, Category.OTHER)
        return categories, sites

    def _never_ran(self, columns: dict[str, np.ndarray[Any, Any]]) -> Bools:
        """Device work at time zero of no length: what CUPTI leaves of records that it could not complete."""
        on_device = np.array([device for _, _, device in self._lanes], dtype=bool)
        nothing: Bools = (columns["start_ns"] == 0) & (columns["duration_ns"] == 0) & on_device[columns["lane"]]
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


def _either(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any], missing: int = NONE) -> np.ndarray[Any, Any]:
    """What one era of traces calls so and another otherwise."""
    found = np.where(first == MISSING, second, first)
    return found if missing == NONE else np.where(found == MISSING, missing, found)


def _integers(values: Sequence[Any]) -> Int64s:
    """Integers, `NONE` for what does not fit 64 bits."""
    try:
        return np.array(values, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_integer(value, NONE) for value in values], dtype=np.int64)


def _integer(value: Any, missing: int) -> int:
    try:
        number = int(value, 16) if isinstance(value, str) and value[:2].lower() == "0x" else int(value)
    except (TypeError, ValueError, OverflowError):
        return missing
    return int(number) if -(2**63) <= number < 2**63 else missing
