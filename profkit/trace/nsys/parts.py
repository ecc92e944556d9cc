"""The tables of an Nsight Systems export as stretches of events, with the names of PyTorch's profiler."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct, structs

from profkit.trace.events import NONE, Bools, Int32s, Int64s
from profkit.trace.nsys.tables import MISSING, MOST_NAME_CHARACTERS, Names, Tables
from profkit.trace.statistics import distinct, distinct_rows

_KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
_GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
_MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_NVTX = "NVTX_EVENTS"
_OVERHEAD = "CUPTI_ACTIVITY_KIND_OVERHEAD"
TABLES = (_KERNEL, _GRAPH, _MEMCPY, _MEMSET, _RUNTIME, _NVTX, _OVERHEAD)
"""Without CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, whose rows each repeat a CUDA call that waits."""

_ON_DEVICE = ("start", "end", "globalPid", "correlationId", "deviceId", "contextId", "streamId")
_DIRECTIONS = (
    "Unknown",
    "HtoD",
    "DtoH",
    "HtoA",
    "AtoH",
    "AtoA",
    "AtoD",
    "DtoA",
    "DtoD",
    "HtoH",
    "PtoP",
    "HtoD",
    "DtoH",
    "DtoD",
)
"""By CUPTI's ``copyKind``; the last three are those of unified memory."""
_MEMORIES = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static", "Unknown")
"""By ``srcKind`` and ``dstKind``, if the export does not enumerate them itself."""
_OVERHEADS = {
    3: "Buffer Flush",
    4: "Instrumentation",
    5: "Resource",
    6: "Runtime Triggered Module Loading",
    7: "Lazy Function Loading",
    8: "Command Buffer Full",
}
"""By ``overheadType``, as PyTorch's profiler names them."""
_NESTING, _CROSSING = (59, 70), (60, 71)
"""Event types of NVTX ranges: push and pop, start and end, each also as imported from text."""
_VERSION = re.compile(r"_v\d+$")
"""The version of the interface, at the end of a CUDA call's name."""
_OPERATOR = re.compile(r"[\w:]+::|\w+Backward\d*$")
_PYTORCHS = re.compile(r"(aten|prim|quantized|c10d|torchvision|autograd::engine)::")
_THREAD_BITS = (1 << 24) - 1
"""A global thread id is the process's id with the thread's in the lowest bits."""


class Part(Struct, frozen=True):
    """Events of one table. ``kind`` indexes ``kinds``, pairs of a category of PyTorch's profiler and a name. The three
    columns of ``lane`` identify the thread, or the device, context and stream. Times may be `MISSING`."""

    kinds: list[tuple[str, str]]
    kind: Int32s
    start_ns: Int64s
    end_ns: Int64s
    process: Int64s
    lane: tuple[Int64s, Int64s, Int64s]
    on_device: bool
    correlation: Int64s
    size_bytes: Int64s
    sequence: Int64s

    def __len__(self) -> int:
        return len(self.start_ns)

    def select(self, chosen: Bools) -> Part:
        """These events alone."""
        names = ("kind", "start_ns", "end_ns", "process", "correlation", "size_bytes", "sequence")
        columns = {name: getattr(self, name)[chosen] for name in names}
        outer, middle, inner = (column[chosen] for column in self.lane)
        return structs.replace(self, lane=(outer, middle, inner), **columns)

    def until(self, end_ns: int) -> Part:
        """The same events, none of which ends later."""
        return structs.replace(self, end_ns=np.minimum(self.end_ns, end_ns))


def read_parts(tables: Tables) -> Iterator[Part]:
    """The events of all tables in the export."""
    yield _read_kernels(tables)
    yield _read_graphs(tables)
    yield _read_copies(tables)
    yield _read_fills(tables)
    yield _read_calls(tables)
    yield _read_ranges(tables)
    yield _read_overhead(tables)


def _read_kernels(tables: Tables) -> Part:
    name = "demangledName" if tables.has(_KERNEL, "demangledName") else "shortName"
    columns = tables.read(_KERNEL, (*_ON_DEVICE, name))
    kinds, kind = _named("kernel", tables.texts(_KERNEL, name), columns[name])
    return _device_part(columns, kinds, kind)


def _read_graphs(tables: Tables) -> Part:
    """Launches of whole CUDA graphs, as Nsight records them unless it is asked for their nodes."""
    columns = tables.read(_GRAPH, (*_ON_DEVICE, "graphId"))
    graphs = {int(graph): f"CUDA graph {graph}" for graph in distinct(columns["graphId"]) if graph != MISSING}
    kinds, kind = _named("kernel", graphs, columns["graphId"], "CUDA graph")
    return _device_part(columns, kinds, kind)


def _read_copies(tables: Tables) -> Part:
    columns = tables.read(_MEMCPY, (*_ON_DEVICE, "copyKind", "srcKind", "dstKind", "bytes"))
    memories = dict(enumerate(_MEMORIES)) | tables.labels("ENUM_CUDA_MEM_KIND")
    first, kind = distinct_rows(columns["copyKind"], columns["srcKind"], columns["dstKind"])
    kinds = []
    for row in first.tolist():
        way, source, target = (int(columns[column][row]) for column in ("copyKind", "srcKind", "dstKind"))
        direction = _DIRECTIONS[way] if 0 <= way < len(_DIRECTIONS) else _DIRECTIONS[0]
        between = f" ({memories[source]} -> {memories[target]})" if source in memories and target in memories else ""
        kinds.append(("gpu_memcpy", f"Memcpy {direction}{between}"))
    return _device_part(columns, kinds, kind.astype(np.int32))


def _read_fills(tables: Tables) -> Part:
    columns = tables.read(_MEMSET, (*_ON_DEVICE, "bytes"))
    return _device_part(columns, [("gpu_memset", "Memset (Device)")], _zeros(columns).astype(np.int32))


def _read_calls(tables: Tables) -> Part:
    columns = tables.read(_RUNTIME, ("start", "end", "globalTid", "correlationId", "nameId"))
    texts = {number: _VERSION.sub("", text) for number, text in tables.texts(_RUNTIME, "nameId").items()}
    kinds, kind = _named("cuda_runtime", texts, columns["nameId"])
    return _host_part(columns, kinds, kind)


def _read_ranges(tables: Tables) -> Part:
    """NVTX ranges. Those of PyTorch's operators have details after their name: ``aten::mul, seq = 3``."""
    names = Names()
    there = [column for column in ("start", "end", "globalTid", "eventType") if tables.has(_NVTX, column)]
    columns = [f'"{column}"' for column in there]
    source = f"(SELECT {', '.join([*columns, f'{_range_text(tables)} AS full'])} FROM {_NVTX})"  # noqa: S608  # names from here
    numbers = {column: f'"{column}"' for column in there}
    found, name = tables.select(_NVTX, source, {**numbers, "marked": _MARKED, "sequence": _SEQUENCE}, _NAME, names)
    missing = np.full(len(name), MISSING, dtype=np.int64)
    found = {
        column: found.get(column, missing)
        for column in (*numbers, "start", "end", "globalTid", "eventType", "marked", "sequence")
    }
    chosen = np.isin(found["eventType"], (*_NESTING, *_CROSSING, MISSING)) & (name != NONE)
    found, name = {column: values[chosen] for column, values in found.items()}, name[chosen]
    first, kind = distinct_rows(name, found["marked"])
    listed = list(names.codes)
    kinds = [_kind_of_range(listed[name[row]], bool(found["marked"][row])) for row in first.tolist()]
    crossing = np.isin(found["eventType"], _CROSSING).astype(np.int64)
    return _host_part(found, kinds, kind.astype(np.int32), crossing, found["sequence"])


_AFTER_NAME = tuple(f"instr(full, ', {field} = ')" for field in ("seq", "op_id", "sizes"))
_MARKED = f"ifnull({' + '.join(_AFTER_NAME)} > 0, 0)"
_SEQUENCE = f"CASE WHEN {_AFTER_NAME[0]} THEN CAST(substr(full, {_AFTER_NAME[0]} + 8, 18) AS INTEGER) ELSE {NONE} END"
_NAME = f"CASE {' '.join(f'WHEN {place} THEN substr(full, 1, {place} - 1)' for place in _AFTER_NAME)} ELSE full END"
"""In SQL, for a range's text: whether PyTorch wrote it, and its parts."""


def _range_text(tables: Tables) -> str:
    """In SQL, the text of a range, which is in its row or among all strings; NULL without one."""
    places = []
    if tables.has(_NVTX, "text"):
        places.append("CASE typeof(text) WHEN 'text' THEN text END")
    if tables.has(_NVTX, "textId") and tables.has("StringIds", "id") and tables.has("StringIds", "value"):
        places.append("(SELECT value FROM StringIds WHERE id = textId AND typeof(value) = 'text')")
    return f"substr(coalesce({', '.join([*places, 'NULL', 'NULL'])}), 1, {MOST_NAME_CHARACTERS})"


def _kind_of_range(name: str, marked: bool) -> tuple[str, str]:
    is_operator = _OPERATOR.match(name) if marked else _PYTORCHS.match(name)
    return "cpu_op" if is_operator else "user_annotation", name


def _read_overhead(tables: Tables) -> Part:
    """What the profiler and the driver did, in a lane of its own: it may overlap the thread's events."""
    columns = tables.read(_OVERHEAD, ("start", "end", "globalTid", "correlationId", "overheadType"))
    kinds, kind = _named("overhead", _OVERHEADS, columns["overheadType"], "Unknown")
    return _host_part(columns, kinds, kind, np.full(len(kind), 2, dtype=np.int64))


def _named(
    category: str, texts: Mapping[int, str], ids: Int64s, otherwise: str = "(nameless)"
) -> tuple[list[tuple[str, str]], Int32s]:
    """The kinds of events whose names are given by an id, and the kind of each."""
    known = distinct(ids)
    kinds = [(category, texts.get(number) or otherwise) for number in known.tolist()]
    return kinds, np.searchsorted(known, ids).astype(np.int32)


def _device_part(columns: Mapping[str, Int64s], kinds: list[tuple[str, str]], kind: Int32s) -> Part:
    return Part(
        kinds=kinds,
        kind=kind,
        start_ns=columns["start"],
        end_ns=columns["end"],
        process=columns["globalPid"],
        lane=(columns["deviceId"], columns["contextId"], columns["streamId"]),
        on_device=True,
        correlation=_or_none(columns["correlationId"]),
        size_bytes=columns.get("bytes", _zeros(columns)).clip(min=0),
        sequence=_or_none(np.full(len(kind), MISSING)),
    )


def _host_part(
    columns: Mapping[str, Int64s],
    kinds: list[tuple[str, str]],
    kind: Int32s,
    layer: Int64s | None = None,
    sequence: Int64s | None = None,
) -> Part:
    """Events of threads. Those of another ``layer`` need not nest with the thread's and are in another lane."""
    thread, missing = columns["globalTid"], np.full(len(kind), MISSING, dtype=np.int64)
    number = np.where(thread == MISSING, MISSING, thread & _THREAD_BITS)
    return Part(
        kinds=kinds,
        kind=kind,
        start_ns=columns["start"],
        end_ns=columns["end"],
        process=np.where(thread == MISSING, MISSING, thread & ~_THREAD_BITS),
        lane=(_zeros(columns) if layer is None else layer, _zeros(columns), number),
        on_device=False,
        correlation=_or_none(columns.get("correlationId", missing)),
        size_bytes=_zeros(columns),
        sequence=_or_none(missing if sequence is None else sequence),
    )


def _or_none(ids: Int64s) -> Int64s:
    return np.where(ids == MISSING, NONE, ids)


def _zeros(columns: Mapping[str, Int64s]) -> Int64s:
    return np.zeros(len(columns["start"]), dtype=np.int64)
