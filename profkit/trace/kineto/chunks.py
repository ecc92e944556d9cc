"""From the text of some events to columns: names and lists become codes, times become integer nanoseconds.

A decoder numbers kinds of events and texts in the order in which it meets them. Several decoders can share a file (see
`decoding`); `Translation` then turns the numbers of one into those of another.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import compress, islice
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, field

from profkit.core.marks import STEP_MARK
from profkit.trace.events import HOST, NONE, Bools, Int64s
from profkit.trace.kinds import MEMORY_EVENT, ON_DEVICE
from profkit.trace.kineto.codes import KindCodes, TextCodes, codes_of, text_codes
from profkit.trace.kineto.collectives import collective_codes
from profkit.trace.kineto.convert import Part, either, integers, narrow
from profkit.trace.kineto.flows import Flows, flows_of
from profkit.trace.kineto.schema import MISSING, Arguments, Event
from profkit.trace.statistics import distinct
from profkit.trace.times import durations_of, nanoseconds_of, numbers_of, too_coarse

TEXTS = ("dims_code", "types_code", "concrete_code", "collective_code")
"""Columns of text codes."""
KINDS = ("kind",)
_NO_ARGUMENTS = Arguments()
_NAMES_OF_LANES = ("thread_name", "process_name")
_kind_of = attrgetter("cat", "name", "pid", "tid")
_as_floats = msgspec.json.Decoder(list[Event])
_as_text = msgspec.json.Decoder(list[Event], float_hook=str)


class Chunk(Struct):
    """The content of a stretch of a file.

    Of its ``rows``, ``held`` have a time before the cutoff, and ``parts`` are their columns. ``timeless`` counts those
    without a time, by category. ``dropped`` begin after the cutoff, and ``marks_dropped`` counts the profiler's steps
    among these, by thread. ``reserved_bytes`` is the most that PyTorch's allocator held of each device at once. The new
    kinds and texts are those that the decoder meets for the first time.
    """

    rows: int = 0
    held: int = 0
    parts: dict[str, Part] = field(default_factory=dict)
    timeless: Counter[str] = field(default_factory=Counter)
    impossible_durations: int = 0
    reserved_bytes: dict[int, int] = field(default_factory=dict)
    dropped: int = 0
    marks_dropped: Counter[tuple[Any, Any]] = field(default_factory=Counter)
    lane_names: dict[tuple[Any, Any], str] = field(default_factory=dict)
    flows: Flows | None = None
    new_kinds: list[Any] = field(default_factory=list)
    new_texts: list[bytes] = field(default_factory=list)


class ChunkDecoder:
    """Makes chunks, whose codes index ``kinds`` and ``texts``."""

    def __init__(self) -> None:
        self.kinds = KindCodes()
        self.texts = TextCodes()
        self._decoder = _as_floats

    def decode(self, text: bytes | memoryview, cutoff_ns: int | None = None) -> Chunk:
        """The chunk of a JSON array of events. Those after the cutoff are only counted.

        Raises `msgspec.DecodeError`, `ValueError` or `RecursionError`, with nothing remembered, for anything that
        strict JSON forbids or that is not a list of events.
        """
        events = self._decoder.decode(text)
        kept = _kept(events)
        times_us = [e.ts for e in kept]
        numbers = numbers_of(times_us)
        if kept and self._decoder is _as_floats and too_coarse(numbers):
            self._decoder = _as_text
            kept = _kept(self._decoder.decode(text))
            times_us, numbers = [e.ts for e in kept], None
        return self._convert(events, kept, nanoseconds_of(times_us, numbers), cutoff_ns, text)

    def convert(self, events: Sequence[Event], cutoff_ns: int | None = None, text: bytes = b"") -> Chunk:
        """The chunk of decoded events. ``text`` is what they were decoded from, if it is at hand."""
        kept = _kept(events)
        return self._convert(events, kept, nanoseconds_of([e.ts for e in kept]), cutoff_ns, text)

    def _convert(
        self,
        events: Sequence[Event],
        kept: list[Event],
        times: tuple[Int64s, Bools],
        cutoff_ns: int | None,
        text: bytes | memoryview,
    ) -> Chunk:
        chunk = Chunk(rows=len(kept))
        if len(kept) < len(events):
            chunk.lane_names, chunk.flows = _lane_names(events), flows_of(events)
        if kept:
            start_ns, known = times
            near = known if cutoff_ns is None else known & (start_ns < cutoff_ns)
            if not near.all():
                chunk.timeless = Counter(event.cat for event in compress(kept, (~known).tolist()))
                _note_dropped(chunk, compress(kept, (known & ~near).tolist()))
                kept, start_ns = list(compress(kept, near.tolist())), start_ns[near]
        if kept:
            known_before = len(self.kinds), len(self.texts)
            chunk.held = len(kept)
            chunk.parts = {"start_ns": start_ns, **self._columns(chunk, kept, text)}
            chunk.new_kinds = _last_of(self.kinds, known_before[0])
            chunk.new_texts = _last_of(self.texts, known_before[1])
        return chunk

    def _columns(self, chunk: Chunk, events: list[Event], text: bytes | memoryview) -> dict[str, Part]:
        duration_ns, chunk.impossible_durations = durations_of([e.dur for e in events])
        fields = map(msgspec.structs.astuple, [e.args or _NO_ARGUMENTS for e in events])
        columns: dict[str, Any] = dict(zip(Arguments.__struct_fields__, zip(*fields, strict=True), strict=True))
        texts = {key: text_codes(self.texts, columns[key]) for key in ("dims", "dims_2021", "types", "concrete")}
        device_type, device = _small(columns["device_type"]), _small(columns["device"])
        chunk.reserved_bytes = _most_of_each(device, device_type, integers(columns["reserved_bytes"]))
        parts = {
            "correlation": integers(columns["correlation"]),
            "external": either(integers(columns["external"]), integers(columns["external_2021"])),
            "sequence": integers(columns["sequence"]),
            "size_bytes": _without_missing(either(integers(columns["memory_bytes"]), integers(columns["bytes"]))),
            "address": integers(columns["address"]),
            "held_bytes": integers(columns["allocated_bytes"]),
            "device_type": device_type,
            "device": device,
        }
        return {
            "kind": codes_of(self.kinds, list(map(_kind_of, events))),
            "duration_ns": narrow(duration_ns),
            "dims_code": either(texts["dims"], texts["dims_2021"]),
            "types_code": texts["types"],
            "concrete_code": texts["concrete"],
            "collective_code": collective_codes(self.texts, columns["collective"], events, text),
            **{key: narrow(part) for key, part in parts.items()},
        }


class Translation:
    """From the codes of one decoder to those of another, which learns what is new to it."""

    def __init__(self, own: ChunkDecoder) -> None:
        self._own = own
        self._kinds, self._texts = array("i"), array("i", [NONE])  # the first is no text and has the code -1

    def translate(self, chunk: Chunk) -> Chunk:
        """A chunk of the other decoder in one's own codes. All of its chunks must come, in order."""
        self._kinds.extend(map(self._own.kinds.__getitem__, chunk.new_kinds))
        self._texts.extend(map(self._own.texts.__getitem__, chunk.new_texts))
        for keys, codes, first in ((KINDS, self._kinds, 0), (TEXTS, self._texts, NONE)):
            for key in keys:
                if (part := chunk.parts.get(key)) is not None:
                    chunk.parts[key] = np.frombuffer(codes, dtype=np.int32)[part - first]
        return chunk


def _last_of(table: dict[Any, int], known: int) -> list[Any]:
    """The keys that follow the first ``known``."""
    return [*islice(reversed(table), len(table) - known)][::-1]


def _kept(events: Sequence[Event]) -> list[Event]:
    """The events that are kept."""
    kept = [e for e in events if e.ph == "X"]
    if len(kept) < len(events):
        kept = [e for e in events if e.ph == "X" or e.name == MEMORY_EVENT]
    return kept


def _lane_names(events: Sequence[Event]) -> dict[tuple[Any, Any], str]:
    names = {}
    for event in events:
        if event.ph == "M" and event.name in _NAMES_OF_LANES and event.args is not None:
            thread = event.tid if event.name == "thread_name" else None
            if isinstance(event.args.thread_name, str):
                names[event.pid, thread] = event.args.thread_name
    return names


def is_step_mark(category: str, name: str) -> bool:
    return name.startswith(STEP_MARK) and category not in ON_DEVICE


def _note_dropped(chunk: Chunk, events: Iterable[Event]) -> None:
    """Count these events, which begin after the cutoff."""
    for event in events:
        chunk.dropped += 1
        if event.name.startswith(STEP_MARK) and is_step_mark(event.cat, event.name):
            chunk.marks_dropped[event.pid, event.tid] += 1


def _small(values: Sequence[Any]) -> Part:
    """Small integers: types and numbers of devices."""
    found = integers(values)
    return None if found is None else found.clip(NONE, 127).astype(np.int8)


def _most_of_each(device: Part, device_type: Part, reserved: Part) -> dict[int, int]:
    """The most that was reserved of each device, `NONE` for one without a number. The host's does not count: that is
    pinned memory."""
    if reserved is None:
        return {}
    nobody = np.full(len(reserved), NONE)
    device, device_type = (nobody if one is None else one for one in (device, device_type))
    known = np.flatnonzero((reserved > 0) & (device_type != HOST))
    return {int(one): int(reserved[known][device[known] == one].max()) for one in distinct(device[known])}


def _without_missing(sizes: Part) -> Part:
    """0 bytes allocated or moved if the event does not say."""
    return None if sizes is None else np.where(sizes == MISSING, 0, sizes)
