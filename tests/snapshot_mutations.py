"""Memory snapshots damaged at random: whatever a file holds, it is read as columns that fit together, or profkit says
what is wrong with it.

``python -m tests.snapshot_mutations --count 100000`` damages that many and prints what broke, with the number that
makes it again (``--only NUMBER``). A selection runs with the tests.
"""

from __future__ import annotations

import argparse
import gzip
import pickle
import random
import sys
import tempfile
import time
import traceback
import tracemalloc
import warnings
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from profkit.errors import UnreadableInput
from profkit.trace.snapshot.reader import read_snapshot
from profkit.trace.snapshot.values import Snapshot
from tests.trace.snapshot.written import WRITERS

RECORDED = Path(__file__).parent / "trace" / "snapshot" / "recorded"
MOST_BYTES = 48 << 20
_LARGEST_BYTES = 30_000
_ENTRIES = 60
_OPCODES = b".NKMJGX}])hj(uetsaqrcRbQioP0122\x80\x81\x85\x86\x87\x88\x89\x8a\x8c\x93\x94\x95"
_VALUES = (
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
    if rng.random() < 0.4:
        content = _damage_values(rng, content)
    else:
        for _ in range(rng.choice((1, 1, 2, 4, 20))):
            content = _damage_bytes(rng, content)
    return gzip.compress(content, 1)[: rng.randrange(20, 30_000)] if rng.random() < 0.05 else content


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


def examine(content: bytes, folder: Path) -> str:
    """Read it; ``refused`` where profkit says what is wrong. Raises whatever breaks."""
    path = folder / "damaged.pickle"
    path.write_bytes(content)
    try:
        check(read_snapshot(path))
    except UnreadableInput as error:
        assert "\n" not in str(error)  # noqa: PT017  # what is raised is what is looked at
        return "refused"
    return "read"


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


def make(number: int, seed: int) -> bytes:
    rng = random.Random(f"{seed}/{number}")
    return damage(rng, rng.choice(seeds()))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.snapshot_mutations", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--only", type=int, help="this number alone; its bytes are written to stdout")
    parser.add_argument("--memory", action="store_true", help="measure the memory of each; three times as long")
    options = parser.parse_args()
    warnings.simplefilter("error")
    if options.only is not None:
        sys.stdout.buffer.write(make(options.only, options.seed))
        return 0
    began, ends, broken, most_bytes = time.monotonic(), Counter[str](), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.first, options.first + options.count):
            content = make(number, options.seed)
            if options.memory:
                tracemalloc.start()
            try:
                ends[examine(content, Path(folder))] += 1
            except Exception:
                broken += 1
                print(f"{number}: {traceback.format_exc()}")
            if options.memory:
                most_bytes = max(most_bytes, tracemalloc.get_traced_memory()[1])
                tracemalloc.stop()
    print(f"{dict(ends)}, {broken} broken in {time.monotonic() - began:.0f} s, from {len(seeds())} snapshots")
    if options.memory:
        print(f"at most {most_bytes / 1e6:.0f} MB")
    return int(broken > 0 or most_bytes > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
