"""Memory snapshots: bytes, opcodes and values damaged. Whatever is read has columns that fit together."""

from __future__ import annotations

import gzip
import pickle
import random
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from profkit.derive.facts import Facts
from profkit.diagnosis.pipeline import diagnose
from profkit.findings.values import Diagnosis
from profkit.trace.events import no_trace
from profkit.trace.limits import memory_limit
from profkit.trace.snapshot.columns import Snapshot
from profkit.trace.snapshot.reader import read_snapshot
from tests.fuzzing.hostile import TEXTS, pack
from tests.fuzzing.reports import check_reports
from tests.fuzzing.running import Files, Kind
from tests.trace.snapshot.written import WRITERS

RECORDED = Path(__file__).parents[1] / "trace" / "snapshot" / "recorded"
_LARGEST_BYTES = 30_000
_ENTRIES = 60
_OPCODES = b".NKMJGX}])hj(uetsaqrcRbQioP0122\x80\x81\x85\x86\x87\x88\x89\x8a\x8c\x93\x94\x95"
_VALUES = (
    *TEXTS,
    0,
    -1,
    2**31,
    2**63 - 1,
    -(2**63),
    2**63,
    2**64,
    10**30,
    1.5,
    float("nan"),
    float("inf"),
    None,
    True,
    "",
    "x" * 300,
    "\ud800",
    [],
    {},
    (),
    (1, 2),
    (1, 2, 3),
    "alloc",
    "oom",
    "inactive",
    "large",
)


@lru_cache(maxsize=1)
def seeds() -> tuple[bytes, ...]:
    """Recordings cut down to some entries, by each pickler; whole where they are small."""
    found = []
    for path in sorted(RECORDED.glob("*.pickle.gz")):
        value = pickle.loads(gzip.decompress(path.read_bytes()))
        small = _small(value)
        found += [write(small) for write in WRITERS.values()]
    return tuple(content for content in found if len(content) < _LARGEST_BYTES)


def _small(value: dict[str, Any]) -> dict[str, Any]:
    return {
        **value,
        "segments": value["segments"][:8],
        "device_traces": [trace[-_ENTRIES:] for trace in value["device_traces"]],
    }


def damage(rng: random.Random, content: bytes) -> bytes:
    """Bytes, opcodes or values changed, moved, repeated or gone."""
    if rng.random() < 0.5:
        content = _damage_values(rng, content)
    else:
        for _ in range(rng.choice((1, 1, 2, 4, 20))):
            content = _damage_bytes(rng, content)
    return pack(rng, content) if rng.random() < 0.05 else content


def _damage_bytes(rng: random.Random, content: bytes) -> bytes:
    at, other = (rng.randrange(max(len(content), 1)) for _ in range(2))
    length = rng.choice((1, 1, 2, 5, 50, 500))
    return rng.choice(
        (
            lambda: content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :],
            lambda: content[:at] + bytes([rng.choice(_OPCODES)]) + content[at + 1 :],
            lambda: content[:at] + bytes([rng.choice(_OPCODES)]) + content[at:],
            lambda: content[:at] + content[at + length :],
            lambda: content[:at] + content[at : at + length] * rng.choice((2, 3, 50)) + content[at + length :],
            lambda: content[:at] + content[other : other + length] + content[at:],
            lambda: content[: max(at, 3)],
        )
    )()


def _damage_values(rng: random.Random, content: bytes) -> bytes:
    """What a container holds replaced by something else, of the file or not, and written again."""
    value = pickle.loads(content)
    containers = [value]
    for each in containers:
        held = each.values() if isinstance(each, dict) else each
        containers += [item for item in held if isinstance(item, (dict, list)) and len(containers) < 2000]
    for _ in range(rng.choice((1, 2, 5, 30))):
        target = rng.choice(containers)
        new = rng.choice(containers) if rng.random() < 0.3 else rng.choice(_VALUES)
        if isinstance(target, dict):
            key = rng.choice([*target, "frames", "blocks", "segments", "action", "state", "filename"])
            target[key] = new
            if rng.random() < 0.2:
                del target[key]
        elif target and rng.random() < 0.7:
            target[rng.randrange(len(target))] = new
        else:
            target.append(new)
    return pickle.dumps(value, rng.choice((2, 4)))


def check(snapshot: Snapshot) -> None:
    """What everything that works with a snapshot relies on."""
    segments, blocks, history, stacks = snapshot.segments, snapshot.blocks, snapshot.history, snapshot.stacks
    for columns in (segments, blocks, history):
        sizes = {name: getattr(columns, name).shape for name in columns.__slots__}
        assert set(sizes.values()) == {(len(columns),)}, sizes
    for column in (segments.size_bytes, blocks.size_bytes, blocks.requested_bytes, history.size_bytes):
        assert ((column >= 0) & (column <= 2**50)).all()
    places = segments.device.astype(np.int64) << 48
    assert (np.lexsort((segments.address, places)) == np.arange(len(segments))).all()
    assert (np.lexsort((blocks.address, blocks.segment)) == np.arange(len(blocks))).all()
    begin = segments.address[blocks.segment]
    assert (blocks.address >= begin).all()
    assert (blocks.address + blocks.size_bytes <= begin + segments.size_bytes[blocks.segment]).all()
    assert (np.diff(history.device) >= 0).all()
    assert (history.time_ns >= -1).all()
    for stack in (blocks.stack, history.stack):
        assert ((stack >= 0) & (stack < len(stacks.starts) - 1)).all()
    assert stacks.starts[-1] == len(stacks.frames)
    assert ((stacks.frames >= 0) & (stacks.frames < len(stacks.file))).all()
    assert (stacks.file < len(stacks.files)).all()
    assert (stacks.function < len(stacks.functions)).all()
    "".join([*stacks.files, *stacks.functions, *snapshot.settings, *snapshot.settings.values()]).encode()


def make(rng: random.Random) -> Files:
    return {"snapshot.pickle": damage(rng, rng.choice(seeds()))}


def read(folder: Path) -> Callable[[], Diagnosis]:
    snapshot = read_snapshot(folder / "snapshot.pickle", memory_limit())
    check(snapshot)
    return partial(diagnose, Facts(no_trace(), snapshot=snapshot))


KIND = Kind("snapshots", 100_000, make, read, check_reports, judged_each=10, rendered_each=5)
