"""Snapshots as PyTorch writes them, from Python and from C++, and the values expected from reading them."""

from __future__ import annotations

import io
import itertools
import pickle
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from profkit.trace.snapshot.columns import Action, Snapshot, State
from profkit.trace.snapshot.reader import read_snapshot

Json = dict[str, Any]
Flat = dict[str, Any]
"""A snapshot as rows of plain values, with each stack written out."""

_STATES = {
    "inactive": State.INACTIVE,
    "active_allocated": State.ACTIVE,
    "active_awaiting_free": State.PENDING_FREE,
    "active_pending_free": State.PENDING_FREE,
}
_ACTIONS = {action.name.lower(): action for action in Action if action is not Action.OTHER}


def read(content: bytes, folder: Path, **options: Any) -> Snapshot:
    path = folder / "snapshot.pickle"
    path.write_bytes(content)
    return read_snapshot(path, **options)


# What is to be read


def flat(snapshot: Snapshot) -> Flat:
    stacks = list(_stacks(snapshot))
    pools: dict[int, int] = {0: 0}
    segments, blocks, history = snapshot.segments, snapshot.blocks, snapshot.history
    return {
        "segments": [
            (*row, pools.setdefault(pool, len(pools)))
            for *row, pool in _rows(segments, "device address size_bytes stream is_large is_expandable pool")
        ],
        "blocks": [
            (*row, stacks[stack])
            for *row, stack in _rows(blocks, "segment address size_bytes requested_bytes state stack")
        ],
        "history": [
            (*row, stacks[stack])
            for *row, stack in _rows(history, "device action address size_bytes stream time_ns stack")
        ],
        "settings": dict(snapshot.settings),
    }


def _rows(columns: Any, names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(getattr(columns, name).tolist() for name in names.split()), strict=True)


def _stacks(snapshot: Snapshot) -> Iterator[tuple[tuple[str, str, int], ...]]:
    stacks = snapshot.stacks
    frames = [
        (stacks.files[file], stacks.functions[function], line)
        for file, function, line in _rows(stacks, "file function line")
    ]
    bounds = stacks.starts.tolist()
    for start, end in itertools.pairwise(bounds):
        yield tuple(frames[code] for code in stacks.frames[start:end].tolist())


def expected(value: Any) -> Flat:
    """What reading gives for values as PyTorch makes them."""
    document = value if isinstance(value, dict) else {"segments": value}
    found = sorted(document["segments"], key=lambda segment: (segment["device"], segment["address"]))
    pools = {(0, 0): 0}
    return {
        "segments": [
            (
                s["device"],
                s["address"],
                s["total_size"],
                s["stream"],
                s["segment_type"] == "large",
                s.get("is_expandable", False),
                pools.setdefault(tuple(s.get("segment_pool_id", (0, 0))), len(pools)),
            )
            for s in found
        ],
        "blocks": [(place, *row) for place, segment in enumerate(found) for row in _blocks(segment)],
        "history": [
            (device, *_entry(entry))
            for device, entries in enumerate(document.get("device_traces", []))
            for entry in entries
        ],
        "settings": dict(_settings(document.get("allocator_settings", {}))),
    }


def _blocks(segment: Json) -> Iterator[tuple[Any, ...]]:
    address, rows = segment["address"], []
    for block in segment["blocks"]:
        state = _STATES[block["state"]]
        requested = 0 if state is State.INACTIVE else block.get("requested_size", block["size"])
        rows.append((block.get("address", address), block["size"], requested, state, _frames(block)))
        address += block["size"]
    yield from sorted(rows, key=lambda row: row[0])


def _entry(entry: Json) -> tuple[Any, ...]:
    action = _ACTIONS.get(entry["action"], Action.OTHER)
    time_ns = 1000 * entry["time_us"] if "time_us" in entry else -1
    return action, entry.get("addr", entry.get("device_free")), entry["size"], entry["stream"], time_ns, _frames(entry)


def _frames(holder: Json) -> tuple[tuple[str, str, int], ...]:
    return tuple((frame["filename"], frame["name"], frame["line"]) for frame in holder.get("frames", ()))


def _settings(settings: Json, prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)


# The writers


def by_python(protocol: int) -> Callable[[Any], bytes]:
    return lambda value: pickle.dumps(value, protocol)


def by_python_alone(value: Any) -> bytes:
    """Like the pickler written in Python, with small frames."""
    file = io.BytesIO()
    pickle._Pickler(file, 4).dump(value)  # type: ignore[attr-defined]
    return file.getvalue()


def by_cpp(value: Any) -> bytes:
    """As ``torch/csrc/jit/serialization/pickler.cpp`` does: lists in one part however long, numbers for values after
    they are complete, of texts the first time, of containers each time."""
    memo: dict[Any, int] = {}
    return b"\x80\x02" + b"".join(_push(value, memo)) + b"."


def _push(value: Any, memo: dict[Any, int]) -> Iterator[bytes]:
    if isinstance(value, bool):
        yield b"\x88" if value else b"\x89"
    elif isinstance(value, int):
        yield _number(value)
    elif isinstance(value, float):
        yield b"G" + struct.pack(">d", value)
    else:
        key = value if isinstance(value, str) else id(value)
        if key in memo:
            yield _numbered(b"h", b"j", memo[key])
        else:
            yield from _push_new(value, memo)
            memo[key] = len(memo)
            yield _numbered(b"q", b"r", memo[key])


def _push_new(value: Any, memo: dict[Any, int]) -> Iterator[bytes]:
    if isinstance(value, str):
        encoded = value.encode()
        yield b"X" + struct.pack("<I", len(encoded)) + encoded
        return
    items = itertools.chain.from_iterable(value.items()) if isinstance(value, dict) else value
    end_of_tuple = b"\x85\x86\x87"[len(value) - 1 : len(value)]
    begin, end = {dict: (b"}(", b"u"), list: (b"](", b"e"), tuple: (b"", end_of_tuple)}[type(value)]
    yield begin
    for item in items:
        yield from _push(item, memo)
    yield end


def _number(value: int) -> bytes:
    for low, high, layout in ((0, 2**8, "<cB"), (0, 2**16, "<cH"), (-(2**31), 2**31, "<ci")):
        if low <= value < high:
            return struct.pack(layout, {"<cB": b"K", "<cH": b"M", "<ci": b"J"}[layout], value)
    return b"\x8a\x08" + struct.pack("<q", value)


def _numbered(short: bytes, long: bytes, number: int) -> bytes:
    return short + bytes([number]) if number < 256 else long + struct.pack("<I", number)


WRITERS = {
    "Python, protocol 2": by_python(2),
    "Python, protocol 3": by_python(3),
    "Python, protocol 4": by_python(4),
    "Python, protocol 5": by_python(5),
    "Python's own pickler": by_python_alone,
    "C++": by_cpp,
}
