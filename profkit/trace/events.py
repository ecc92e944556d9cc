"""The columnar trace: one row per event, with text as codes into tables.

Every reader fills these columns. Everything after the readers computes on them with NumPy and never on one event at a
time. Times are integer nanoseconds relative to `Trace.base_ns`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from re import Pattern
from types import FunctionType
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]
Int32s = NDArray[np.int32]
Bools = NDArray[np.bool_]
Rows = NDArray[np.int64]
"""Indices of events."""

NONE = -1
"""A missing value in a column of codes or ids."""

HOST = 0
"""The device type of the host's memory. All other types are accelerators (``c10::DeviceType``)."""


class Category(IntEnum):
    """What an event is, for all vendors and releases."""

    OTHER = 0
    OPERATOR = 1
    ANNOTATION = 2
    PYTHON = 3
    RUNTIME = 4
    KERNEL = 5
    MEMCPY = 6
    MEMSET = 7
    DEVICE_ANNOTATION = 8
    MEMORY = 9
    LINE_MARK = 10
    PAUSE = 11
    HOST_MARK = 12
    """Marks by profkit for what no operator shows: a garbage collection, or the writing of a file."""
    COMPILED_CODE = 13
    """What `torch.compile` records around a run of its code, and on the way into one. The operators inside are those
    that the code calls."""
    DEVICE_SYNC = 14
    """A wait for a device, as CUPTI reports it: ``Stream Wait Event``, ``Event Sync``, ``Stream Sync``, ``Context
    Sync``. It lies on the stream that waits or is waited for (-1: all of the device) and is no work."""


DEVICE_WORK = (Category.KERNEL, Category.MEMCPY, Category.MEMSET)
"""Categories that occupy a device."""


class Lane(Struct, frozen=True):
    """One row of the timeline: a thread of a host process, or a stream (``thread``) of a device (``process``).
    ``in_file`` is how the file names the two, by numbers or text; None if it does not name them."""

    process: str
    thread: str
    on_device: bool
    label: str = ""
    in_file: tuple[int | float | str | None, int | float | str | None] | None = None


@dataclass(frozen=True, slots=True)
class Events:
    """Columns of equal length. ``*_code`` index the tables of the `Trace`; `NONE` stands for a missing value.

    ``size_bytes`` is what a memory event allocates (negative: frees) or a copy moves. Only memory events have an
    ``address``, a ``device_type``, the number of a ``device``, and ``held_bytes``, what that device holds afterwards.
    ``external`` is the profiler's id of the operator that an event belongs to. ``correlation`` joins a runtime call
    with what it put on the device, ``sequence`` a forward operator with its backward. ``site`` is the call site of a
    line mark. ``collective_code`` is the text that describes a collective (`profkit.trace.collectives`).
    """

    name_code: Int32s
    category: NDArray[np.uint8]
    start_ns: Int64s
    duration_ns: Int64s
    lane: Int32s
    correlation: Int64s
    external: Int64s
    sequence: Int64s
    dims_code: Int32s
    types_code: Int32s
    concrete_code: Int32s
    collective_code: Int32s
    size_bytes: Int64s
    address: Int64s
    held_bytes: Int64s
    device_type: NDArray[np.int8]
    device: NDArray[np.int8]
    site: Int32s

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def end_ns(self) -> Int64s:
        return self.start_ns + self.duration_ns

    def ends_of(self, rows: Rows | Bools) -> Int64s:
        """The ends of the given rows only."""
        ends: Int64s = self.start_ns[rows] + self.duration_ns[rows]
        return ends

    def take(self, rows: Rows) -> Events:
        """The same columns for the given rows only."""
        return Events(**{column.name: getattr(self, column.name)[rows] for column in fields(self)})


class Recording(Struct, frozen=True):
    """What a trace says about how it was made, None where it says nothing. ``kind`` is empty for PyTorch's own traces.

    ``memory_bytes`` is the memory of each of the ``devices``. ``reserved_bytes`` are pairs of a device's number and the
    most that PyTorch's allocator held of it. ``foreign`` counts the events of each category that the reader does not
    know. ``least_release`` is the oldest release of PyTorch that may have written the trace.
    """

    kind: str = ""
    devices: tuple[str, ...] = ()
    memory_bytes: tuple[int, ...] = ()
    has_shapes: bool | None = None
    has_stacks: bool | None = None
    has_memory: bool | None = None
    rank: int | None = None
    ranks: int | None = None
    host: str = ""
    reserved_bytes: tuple[tuple[int, int], ...] = ()
    is_cut_off: bool = False
    """The file ends too early. The loss may be from any time, as threads and streams are written one after another."""
    has_gaps: bool = False
    """Some events in the middle of the file are unreadable."""
    foreign: tuple[tuple[str, int], ...] = ()
    least_release: tuple[int, int] | None = None
    clock_base_ns: int = 0
    """The origin of the file's own times: `Trace.base_ns` is this plus the first of them."""
    groups: tuple[tuple[int, ...], ...] = ()
    """The ranks of each process group that this rank is in, each once; empty if the trace does not say."""


def _alone(accept: Callable[[str], bool]) -> Hashable | None:
    """A key for a function that depends only on its module; None for one that holds values of its own.

    A lambda is a new object at each call but keeps its code. Code alone is no key: it is equal in two modules if lines,
    names and constants are."""
    if not isinstance(accept, FunctionType) or accept.__closure__ or accept.__defaults__ or accept.__kwdefaults__:
        return None
    return accept.__module__, accept.__code__


@dataclass(frozen=True, slots=True)
class Trace:
    """One recording: its events, sorted by lane, start and falling duration, and the tables that they index."""

    events: Events
    names: tuple[str, ...]
    lanes: tuple[Lane, ...]
    texts: tuple[str, ...]
    base_ns: int
    recording: Recording = field(default_factory=Recording)
    health: tuple[str, ...] = ()
    _index: list[tuple[Int32s, list[int]]] = field(default_factory=list, init=False, repr=False, compare=False)
    """The result of `_rows_by_name`, once it was asked for."""
    _accepted: dict[Hashable, Int32s] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The codes of the names that a test accepts, by the key of the test."""

    def name_of(self, row: int) -> str:
        return self.names[int(self.events.name_code[row])]

    def text_of(self, code: int) -> str:
        """The text of a ``dims_code``, ``types_code`` or ``concrete_code``; empty for `NONE`."""
        return self.texts[code] if code >= 0 else ""

    def rows(self, *categories: Category) -> Rows:
        """Indices of the events of these categories, in the trace's order."""
        return np.flatnonzero(self.in_categories(*categories))

    def in_categories(self, *categories: Category) -> Bools:
        """A mask of the events of these categories."""
        mask: Bools = self.events.category == categories[0]
        for category in categories[1:]:
            mask |= self.events.category == category
        return mask

    def codes_where(self, accept: Callable[[str], bool]) -> Int32s:
        """Codes of the names that ``accept`` is true for. It is asked once per distinct name, not per event."""
        asked = _alone(accept)
        return self._codes(accept) if asked is None else self._codes_once(asked, accept)

    def _codes(self, accept: Callable[[str], object]) -> Int32s:
        return np.array([code for code, name in enumerate(self.names) if accept(name)], dtype=np.int32)

    def _codes_once(self, asked: Hashable, accept: Callable[[str], object]) -> Int32s:
        if asked not in self._accepted:
            found = self._codes(accept)
            found.setflags(write=False)
            self._accepted[asked] = found
        return self._accepted[asked]

    def mask_of(self, rows: Rows) -> Bools:
        """A mask of the events with these indices."""
        mask = np.zeros(len(self.events), dtype=bool)
        mask[rows] = True
        return mask

    def where_name(self, accept: Callable[[str], bool]) -> Bools:
        """A mask of the events whose name ``accept`` is true for."""
        return self.with_codes(self.codes_where(accept))

    def matching(self, pattern: Pattern[str]) -> Bools:
        """A mask of the events whose name contains the pattern."""
        return self.with_codes(self._codes_once(pattern, pattern.search))

    def with_codes(self, codes: Int32s) -> Bools:
        """A mask of the events whose name has one of these codes."""
        rows, first = self._rows_by_name()
        mask = np.zeros(len(self.events), dtype=bool)
        for code in codes.tolist():
            mask[rows[first[code] : first[code + 1]]] = True
        return mask

    def named(self, *names: str) -> Bools:
        """A mask of the events with one of these names."""
        codes = [self.names.index(name) for name in names if name in self.names]
        return self.with_codes(np.array(codes, dtype=np.int32))

    def _rows_by_name(self) -> tuple[Int32s, list[int]]:
        """The events grouped by name, and where each name's begin. Rules ask for a few names each; comparing every
        event every time takes ten times as long."""
        if not self._index:
            codes = self.events.name_code
            narrow = codes.astype(np.int16) if len(self.names) < 2**15 else codes  # sorted by counting
            counts = np.bincount(codes, minlength=len(self.names))
            rows = np.argsort(narrow, kind="stable").astype(np.int32)
            self._index.append((rows, [0, *np.cumsum(counts).tolist()]))
        return self._index[0]

    def with_health(self, *notes: str) -> Trace:
        return replace(self, health=(*self.health, *notes))


def no_trace() -> Trace:
    """The empty trace, for a memory snapshot alone."""
    empty: dict[str, Any] = {column.name: np.zeros(0, dtype=np.int64) for column in fields(Events)}
    return Trace(Events(**empty), (), (), (), 0)


def timeline_order(lane: Int32s, start_ns: Int64s, duration_ns: Int64s) -> Rows:
    """The order by lane, start and falling duration: an enclosing event comes before what it encloses.

    Lane and start are sorted as one number, which is several times faster than one after the other. Durations are only
    compared where those are equal.
    """
    if not len(lane):
        return np.zeros(0, dtype=np.int64)
    first_ns = int(start_ns.min())
    span_ns = int(start_ns.max()) - first_ns + 1
    if (int(lane.max()) + 1) * span_ns >= 2**63:
        return np.lexsort((-duration_ns, start_ns, lane)).astype(np.int64)
    key = lane * np.int64(span_ns) + (start_ns - first_ns)
    order = np.argsort(key, kind="stable")  # fast on what is nearly sorted
    key = key[order]
    tied = np.zeros(len(key) + 1, dtype=bool)
    np.equal(key[1:], key[:-1], out=tied[1:-1])
    tied = tied[1:] | tied[:-1]
    rows = order[tied]
    order[tied] = rows[np.lexsort((-duration_ns[rows], key[tied]))]
    return order.astype(np.int64, copy=False)
