"""A memory snapshot from its file. Nothing in the file is run: only containers, text and numbers are made."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from profkit.errors import UnreadableInput
from profkit.trace.containers import Content
from profkit.trace.limits import DEFAULT_LIMIT_BYTES
from profkit.trace.snapshot.values import Action, Blocks, History, Segments, Snapshot, Stacks, State

_STATES = {
    "inactive": State.INACTIVE,
    "active_allocated": State.ACTIVE,
    "active_awaiting_free": State.PENDING_FREE,
    "active_pending_free": State.PENDING_FREE,
}
_ACTIONS = {action.name.lower(): action for action in Action if action is not Action.OTHER}


def is_snapshot(first_bytes: bytes) -> bool:
    """Whether a file whose content begins like this is a pickle, of protocol 2 or newer."""
    return len(first_bytes) > 1 and first_bytes[0] == 0x80 and 2 <= first_bytes[1] <= 5


def read_snapshot(path: Path, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Snapshot:
    """Read a snapshot of `torch.cuda.memory._dump_snapshot` or a pickled `memory_snapshot()`.

    Raises `UnreadableInput`, naming the file and the cause, for anything else.
    """
    content = b"".join(Content(path))
    if len(content) > limit_bytes:
        raise UnreadableInput(path, "is larger than the memory limit")
    try:
        value = _Unpickler(io.BytesIO(content)).load()
        return _columns(value)
    except UnreadableInput:
        raise
    except Exception as error:
        raise UnreadableInput(path, f"is not a memory snapshot: {type(error).__name__}") from error


class _Unpickler(pickle.Unpickler):  # find_class and persistent_load refuse
    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"names {module}.{name}")

    def persistent_load(self, pid: object) -> NoReturn:
        raise pickle.UnpicklingError(f"names the object {pid!r}")


class _Stacks:
    def __init__(self) -> None:
        self.codes: dict[tuple[tuple[str, str, int], ...], int] = {(): 0}

    def code(self, frames: list[dict[str, Any]]) -> int:
        key = tuple((frame["filename"], frame["name"], frame["line"]) for frame in frames)
        return self.codes.setdefault(key, len(self.codes))

    def table(self) -> Stacks:
        frames = {frame: None for stack in self.codes for frame in stack}
        frame_code = {frame: code for code, frame in enumerate(frames)}
        files = {file: None for file, _, _ in frames}
        functions = {function: None for _, function, _ in frames}
        file_code = {file: code for code, file in enumerate(files)}
        function_code = {function: code for code, function in enumerate(functions)}
        return Stacks(
            np.cumsum([0, *map(len, self.codes)], dtype=np.int64),
            np.array([frame_code[frame] for stack in self.codes for frame in stack], dtype=np.int32),
            np.array([file_code[file] for file, _, _ in frames], dtype=np.int32),
            np.array([function_code[function] for _, function, _ in frames], dtype=np.int32),
            np.array([line for _, _, line in frames], dtype=np.int32),
            tuple(files),
            tuple(functions),
        )


def _columns(value: Any) -> Snapshot:
    document = value if isinstance(value, dict) else {"segments": value}
    stacks = _Stacks()
    found = sorted(document["segments"], key=lambda segment: (segment["device"], segment["address"]))
    pools = {pool: code for code, pool in enumerate(sorted({(0, 0), *(_pool(segment) for segment in found)}))}
    rows = [
        (s["device"], s["address"], s["total_size"], s["stream"], s["segment_type"] == "large",
         s.get("is_expandable", False), pools[_pool(s)])
        for s in found
    ]  # fmt: skip
    blocks = [(i, *row) for i, segment in enumerate(found) for row in _blocks(segment, stacks)]
    history = [
        (device, *_entry(entry, stacks))
        for device, entries in enumerate(document.get("device_traces", []))
        for entry in entries
    ]
    return Snapshot(
        Segments(*_arrays(rows, "i4 i8 i8 i8 ? ? i4")),
        Blocks(*_arrays(blocks, "i4 i8 i8 i8 u1 i4")),
        History(*_arrays(history, "i4 u1 i8 i8 i8 i8 i4")),
        stacks.table(),
        dict(_settings(document.get("allocator_settings", {}))),
    )


def _arrays(rows: list[tuple[Any, ...]], types: str) -> Any:
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in types.split()]
    return [np.array(column, dtype=type_) for column, type_ in zip(columns, types.split(), strict=True)]


def _pool(segment: dict[str, Any]) -> tuple[int, int]:
    return tuple(segment.get("segment_pool_id", (0, 0)))


def _blocks(segment: dict[str, Any], stacks: _Stacks) -> Iterator[tuple[int, ...]]:
    address = segment["address"]
    for block in segment["blocks"]:
        state = _STATES[block["state"]]
        requested = block.get("requested_size", block["size"]) if state is not State.INACTIVE else 0
        frames = block.get("frames", [])
        yield block.get("address", address), block["size"], requested, state, stacks.code(frames)
        address += block["size"]


def _entry(entry: dict[str, Any], stacks: _Stacks) -> tuple[int, ...]:
    time_us = entry.get("time_us")
    return (
        _ACTIONS.get(entry["action"], Action.OTHER),
        entry.get("addr", entry.get("device_free", 0)),
        entry["size"],
        entry["stream"],
        -1 if time_us is None else time_us * 1000,
        stacks.code(entry.get("frames", [])),
    )


def _settings(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)
