"""The fields of a Kineto trace that profkit reads, by all their names since 2021."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

Number = int | float | str | None
MISSING = -1
"""A missing argument. It is a number, so that whole columns convert at once."""
NO_TEXT = msgspec.Raw()


class Arguments(Struct, gc=False):
    """``args`` of one event. Lists stay undecoded text: they become codes into a table."""

    external: Number = field(name="External id", default=MISSING)
    external_2021: Number = field(name="external id", default=MISSING)
    correlation: Number = MISSING
    sequence: Number = field(name="Sequence number", default=MISSING)
    dims: msgspec.Raw = field(name="Input Dims", default=NO_TEXT)
    dims_2021: msgspec.Raw = field(name="Input dims", default=NO_TEXT)
    types: msgspec.Raw = field(name="Input type", default=NO_TEXT)
    concrete: msgspec.Raw = field(name="Concrete Inputs", default=NO_TEXT)
    bytes: Number = MISSING
    memory_bytes: Number = field(name="Bytes", default=MISSING)
    allocated_bytes: Number = field(name="Total Allocated", default=MISSING)
    reserved_bytes: Number = field(name="Total Reserved", default=MISSING)
    address: Number = field(name="Addr", default=MISSING)
    device_type: Number = field(name="Device Type", default=MISSING)
    device: Number = field(name="Device Id", default=MISSING)
    thread_name: Any = field(name="name", default=None)
    collective: msgspec.Raw = field(name="Collective name", default=NO_TEXT)
    """The name alone, or, where Python's parser read the event, all of ``args``."""


class CollectiveFields(Struct, gc=False):
    """What ``args`` say about a collective. Only those of collectives are decoded into this: looking for these fields
    in every event takes a tenth of the reading."""

    external: Number = field(name="External id", default=MISSING)
    correlation: Number = MISSING
    operation: Any = field(name="Collective name", default="")
    elements: Number = field(name="In msg nelems", default=MISSING)
    dtype: Any = ""
    group: Any = field(name="Process Group Name", default="")
    size: Number = field(name="Group size", default=MISSING)
    ranks: Any = field(name="Process Group Ranks", default="")
    description: Any = field(name="Process Group Description", default="")
    first_rank: Number = field(name="Global rank start", default=MISSING)
    rank_stride: Number = field(name="Global rank stride", default=MISSING)
    sequence: Number = field(name="Seq", default=MISSING)
    source: Number = field(name="Src Rank", default=MISSING)
    target: Number = field(name="Dst Rank", default=MISSING)


class Event(Struct, gc=False):
    """One element of ``traceEvents``. ``ts`` and ``dur`` are microseconds. A ``ts`` with a fraction stays text, because
    no float could hold it (see `profkit.trace.times`)."""

    ph: str = ""
    name: str = ""
    cat: str = ""
    ts: Any = None
    dur: Number = None
    pid: Number = None
    tid: Number = None
    id: Any = None
    """Of an arrow from one event to another."""
    args: Arguments | None = None

    @classmethod
    def from_object(cls, value: object) -> Event | None:
        """An event from loosely typed JSON, without arguments of wrong types; None if it is no event."""
        if not isinstance(value, dict):
            return None
        arguments = value.get("args")
        scalars = {key: item for key, item in value.items() if isinstance(item, (int, float, str))}
        return cls(
            ph=encodable(str(scalars.get("ph", ""))),
            name=encodable(str(scalars.get("name", ""))),
            cat=encodable(str(scalars.get("cat", ""))),
            ts=scalars.get("ts"),
            dur=scalars.get("dur"),
            pid=scalars.get("pid"),
            tid=scalars.get("tid"),
            id=scalars.get("id"),
            args=_loose_arguments(arguments) if isinstance(arguments, dict) else None,
        )


class Document(Struct):
    """The top level of a trace file, without its events."""

    events: list[Event] | UnsetType = field(name="traceEvents", default=UNSET)
    devices: Any = field(name="deviceProperties", default=None)
    distributed: Any = field(name="distributedInfo", default=None)
    base_ns: Any = field(name="baseTimeNanoseconds", default=None)
    host_name: Any = None
    record_shapes: Any = None
    with_stack: Any = None
    profile_memory: Any = None

    @classmethod
    def from_object(cls, value: dict[str, Any]) -> Document:
        """The top level from loosely typed JSON, without its events and what no report could hold."""
        known = {name: value[name] for name in cls.__struct_encode_fields__ if value.get(name) is not None}
        kept = json.loads(encodable(json.dumps({**known, "traceEvents": []}, ensure_ascii=False)))
        return msgspec.convert(kept, cls, strict=False)

    @property
    def is_trace(self) -> bool:
        return self.events is not UNSET

    def joined_with(self, other: Document) -> Document:
        """Both documents' keys: a file may have keys before and after its events."""
        pairs = {name: getattr(other, name) for name in self.__struct_fields__ if getattr(other, name) is not None}
        return msgspec.structs.replace(self, **pairs)


def encodable(text: str) -> str:
    """The text without lone surrogates. Tolerant JSON can hold them, but no report could be written with them."""
    return text.encode("utf-8", "replace").decode()


@cache
def _argument_fields() -> tuple[msgspec.structs.FieldInfo, ...]:
    """Once, because msgspec evaluates the annotations each time, which takes longer than all else about an event."""
    return msgspec.structs.fields(Arguments)


def _loose_arguments(arguments: dict[str, Any]) -> Arguments:
    kept: dict[str, Any] = {}
    for info in _argument_fields():
        value = arguments.get(info.encode_name)
        if info.type is msgspec.Raw:
            if value is not None:
                kept[info.name] = msgspec.Raw(json.dumps(value).encode())
        elif isinstance(value, (int, float, str)):
            kept[info.name] = encodable(value) if isinstance(value, str) else value
    if "collective" in kept:
        kept["collective"] = msgspec.Raw(encodable(json.dumps(arguments, ensure_ascii=False)).encode())
    return Arguments(**kept)
