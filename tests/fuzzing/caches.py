"""The cached columns of a large trace: members of the archive, their types, shapes, values and tables damaged."""

from __future__ import annotations

import io
import json
import os
import random
import struct
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from profkit.derive.facts import Facts
from profkit.findings.values import Diagnosis
from profkit.trace import cache as cached
from profkit.trace.events import Trace
from profkit.trace.limits import memory_limit
from profkit.trace.reading import read_trace
from tests.fuzzing import traces
from tests.fuzzing.hostile import damage_bytes, damage_tree, json_of
from tests.fuzzing.reports import check_reports
from tests.fuzzing.running import LIMIT, Files, Kind

_TRACE, _COLUMNS, _TABLES = "trace.json", "columns", "tables.npy"
_TIME_NS = 1_700_000_000 * 10**9
_TYPES = ("<i8", "<i4", "<u1", "<i1", "<u8", "<f8", ">i8", "|O", "|V8", "<M8[ns]", "<c16", "|S8", "<U2", "|b1")
Members = dict[str, bytes]


@cache
def seeds() -> tuple[tuple[bytes, Members], ...]:
    """Traces, and the members of their caches."""
    found = []
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, {"PROFKIT_MEMORY_LIMIT": LIMIT}):
        for seed in traces.seeds():
            path = Path(folder, _TRACE)
            path.write_bytes(json.dumps(seed.document).encode())
            kept = _read(path)[1]
            with zipfile.ZipFile(kept) as archive:
                found.append((path.read_bytes(), {name: archive.read(name) for name in archive.namelist()}))
            kept.unlink()
    return tuple(found)


def _read(path: Path) -> tuple[Trace, Path]:
    """The trace through a cache beside it, and the cache's file. Where one is given, it comes first."""
    os.utime(path, ns=(_TIME_NS, _TIME_NS))
    folder = path.parent / "kept"
    kept = cached._kept_file(path, str(folder), None)
    given = path.parent / _COLUMNS
    if given.exists():
        folder.mkdir()
        given.rename(kept)
    with ExitStack() as changed:
        changed.enter_context(patch.dict(os.environ, {cached.CACHE: str(folder)}))
        changed.enter_context(patch.object(cached, "SMALLEST_BYTES", 1))
        changed.enter_context(patch.object(cached, "FEWEST_EVENTS", 1))
        return read_trace(path, limit_bytes=memory_limit()), kept


def make(rng: random.Random) -> Files:
    trace, members = rng.choice(seeds())
    members = dict(members)
    for _ in range(rng.choice((1, 1, 2, 4))):
        rng.choice(_CHANGES)(rng, members)
    content = _zipped(rng, members)
    return {_TRACE: trace, _COLUMNS: damage_bytes(rng, content) if rng.random() < 0.15 else content}


def _zipped(rng: random.Random, members: Members) -> bytes:
    file = io.BytesIO()
    packed = zipfile.ZIP_DEFLATED if rng.random() < 0.05 else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", packed) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, packed)
    return file.getvalue()


def _array(content: bytes | None) -> np.ndarray[Any, Any] | None:
    """None for a member that is gone or damaged already."""
    try:
        return np.load(io.BytesIO(content or b""), allow_pickle=False)
    except Exception:  # of a damaged header NumPy raises what its tokenizer and its shapes do
        return None


def _member(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=False)
    return file.getvalue()


def _columns(members: Members) -> list[str]:
    return [name for name in members if name != _TABLES]


def _set_values(rng: random.Random, members: Members) -> None:
    name = rng.choice(_columns(members) or [_TABLES])
    array = _array(members[name])
    if array is None or array.dtype.kind not in "iu":
        return
    array, most = array.copy(), np.iinfo(array.dtype)
    values = (0, 1, -1, 7, int(most.max), int(most.min), 2**31, 86_400 * 10**9, int(array.max(initial=0)) + 1)
    chosen = rng.choice([one for one in values if most.min <= one <= most.max])
    if array.ndim == 1 and len(array):
        array[rng.randrange(len(array)) : rng.choice((None, rng.randrange(len(array)) + 1))] = chosen
    members[name] = _member(array)


def _reorder(rng: random.Random, members: Members) -> None:
    name = rng.choice(_columns(members) or [_TABLES])
    array = _array(members[name])
    if array is None or array.ndim != 1:
        return
    members[name] = _member(
        rng.choice(
            (array[::-1].copy(), np.sort(array), array[:1].copy(), array[: len(array) // 2], np.repeat(array, 2))
        )
    )


def _retype(rng: random.Random, members: Members) -> None:
    """Another header on the same bytes: a type, a shape or an order that they do not have."""
    name = rng.choice(list(members))
    shape = rng.choice(
        ("(3,)", "(1,)", "()", "(0,)", "(2, 2)", "(-1,)", "(99999999999999,)", "(None,)", f"({2**62},)", "(True,)")
    )
    header = (
        f"{{'descr': '{rng.choice(_TYPES)}', 'fortran_order': {rng.choice(('False', 'True'))}, 'shape': {shape}, }}"
    )
    if rng.random() < 0.2:
        header = rng.choice(
            ("__import__('os')", "{" * 900, "{'descr': [('a', '<i8')], 'fortran_order': False, 'shape': (1,)}", "")
        )
    version = rng.choice((b"\x01\x00", b"\x01\x00", b"\x01\x00", b"\x02\x00", b"\x09\x09"))
    padded = header.encode() + b" " * (-(len(header) + 11) % 64) + b"\n"
    members[name] = b"\x93NUMPY" + version + struct.pack("<H", len(padded)) + padded + members[name][128:]


def _change_tables(rng: random.Random, members: Members) -> None:
    array = _array(members.get(_TABLES))
    try:
        tables = json.loads(b"" if array is None else array.tobytes())
    except (ValueError, RecursionError):
        return
    made_from = tables.get("made_from")
    damage_tree(rng, tables, rng.choice((1, 2, 5)))
    if rng.random() < 0.9:
        tables["made_from"] = made_from
    members[_TABLES] = _member(np.frombuffer(json_of(rng, tables), dtype=np.uint8))


def _drop(rng: random.Random, members: Members) -> None:
    members.pop(rng.choice(list(members)))


def _swap(rng: random.Random, members: Members) -> None:
    one, other = rng.choice(list(members)), rng.choice(list(members))
    members[one], members[other] = members[other], members[one]


_CHANGES: tuple[Callable[[random.Random, Members], None], ...] = (
    *(_set_values, _set_values, _set_values, _change_tables, _change_tables),
    *(_reorder, _retype, _retype, _drop, _swap),
)


def read(folder: Path) -> Callable[[], Diagnosis]:
    trace, _ = _read(folder / _TRACE)
    return partial(traces.judge, Facts(trace))


KIND = Kind("caches", 20_000, make, read, check_reports, judged_each=10, rendered_each=4)
