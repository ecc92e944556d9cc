"""Tiny memory snapshots written by hand: what a program's allocator does, as `torch.cuda.memory._snapshot()` tells it.

They are pickled and read by the real reader. Segments are laid out by the test; pieces are what it allocates in them.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profkit.derive.facts import Facts
from profkit.trace.events import no_trace
from profkit.trace.snapshot.columns import Snapshot
from profkit.trace.snapshot.reader import read_snapshot

Json = dict[str, Any]
Frame = tuple[str, int, str]
MIB = 1 << 20

MAIN: Frame = ("/home/me/train.py", 50, "<module>")
TORCH = "/usr/lib/python3/site-packages/torch"


def at(line: int, function: str = "main", file: str = "/home/me/train.py") -> list[Frame]:
    """A stack of the program itself."""
    return [(file, line, function), MAIN]


def in_model(line: int, *inner: Frame, called_at: int = 10) -> list[Frame]:
    """A stack inside a call of the model, which ``train.py`` makes at ``called_at``; ``line`` is one of the model's."""
    call = (f"{TORCH}/nn/modules/module.py", 1790, "_call_impl")
    return [*inner, ("/home/me/model.py", line, "forward"), call, *at(called_at)]


def moving(line: int = 3) -> list[Frame]:
    """A stack of ``model.cuda()``."""
    return [(f"{TORCH}/nn/modules/module.py", 965, "_apply"), *at(line)]


def in_step(line: int = 12) -> list[Frame]:
    """A stack of ``optimizer.step()``."""
    return [(f"{TORCH}/optim/adam.py", 178, "_init_group"), (f"{TORCH}/optim/optimizer.py", 533, "wrapper"), *at(line)]


def clearing(line: int = 9) -> list[Frame]:
    """A stack of ``optimizer.zero_grad()``."""
    return [(f"{TORCH}/optim/optimizer.py", 990, "zero_grad"), *at(line)]


BACKWARD: list[Frame] = []
"""The threads of the backward pass run no Python."""


@dataclass
class Recording:
    """What happens on one device, in order; each call adds to the history."""

    device: int = 0
    expandable: bool = False
    events: list[Json] = field(default_factory=list)
    segments: dict[int, tuple[int, int, tuple[int, int]]] = field(default_factory=dict)
    held: dict[int, tuple[int, int, list[Frame]]] = field(default_factory=dict)

    def segment(
        self,
        address: int,
        size: int,
        stack: Sequence[Frame] = (),
        pool: tuple[int, int] = (0, 0),
        is_older: bool = False,
        stream: int = 0,
    ) -> None:
        self.segments[address] = (size, stream, pool)
        if not is_older:
            self._add("segment_alloc", address, size, stack)

    def put(self, address: int, requested: int, stack: Sequence[Frame] = (), is_older: bool = False) -> None:
        """A piece that fills a segment of its own."""
        self.segment(address, requested, stack, is_older=is_older)
        self.alloc(address, requested, stack, is_older=is_older)

    def release(self, address: int, stack: Sequence[Frame] = ()) -> None:
        size, _, _ = self.segments.pop(address)
        self._add("segment_free", address, size, stack)

    def alloc(
        self, address: int, requested: int, stack: Sequence[Frame] = (), size: int | None = None, is_older: bool = False
    ) -> None:
        self.held[address] = (-(-requested // 512) * 512 if size is None else size, requested, list(stack))
        if not is_older:
            self._add("alloc", address, requested, stack)

    def free(self, address: int, stack: Sequence[Frame] = ()) -> None:
        _, requested, _ = self.held.pop(address)
        self._add("free_requested", address, requested, stack)
        self._add("free_completed", address, requested, stack)

    def fail(self, size: int, free: int, stack: Sequence[Frame] = ()) -> None:
        self.events.append({"action": "oom", "size": size, "device_free": free, "stream": 0, **self._beside(stack)})

    def _add(self, action: str, address: int, size: int, stack: Sequence[Frame]) -> None:
        self.events.append({"action": action, "addr": address, "size": size, "stream": 0, **self._beside(stack)})

    def _beside(self, stack: Sequence[Frame]) -> Json:
        return {"time_us": 1_000_000 + 10 * len(self.events), "frames": _frames(stack)}

    def described(self) -> list[Json]:
        """The segments with their blocks, as they are now."""
        return [self._describe(address, *self.segments[address]) for address in sorted(self.segments)]

    def _describe(self, begin: int, size: int, stream: int, pool: tuple[int, int]) -> Json:
        blocks: list[Json] = []
        free_from = begin
        for address in sorted(one for one in self.held if begin <= one < begin + size):
            taken, requested, stack = self.held[address]
            if address > free_from:
                blocks.append(_block(free_from, address - free_from))
            blocks.append(
                {
                    **_block(address, taken),
                    "state": "active_allocated",
                    "requested_size": requested,
                    "frames": _frames(stack),
                }
            )
            free_from = address + taken
        if free_from < begin + size:
            blocks.append(_block(free_from, begin + size - free_from))
        return {
            "device": self.device,
            "address": begin,
            "total_size": size,
            "stream": stream,
            "segment_pool_id": pool,
            "segment_type": "large" if size > 2 * MIB else "small",
            "is_expandable": self.expandable,
            "blocks": blocks,
            "allocated_size": sum(b["size"] for b in blocks if b["state"] != "inactive"),
            "active_size": sum(b["size"] for b in blocks if b["state"] != "inactive"),
            "requested_size": 0,
        }


def _block(address: int, size: int) -> Json:
    return {"address": address, "size": size, "requested_size": 0, "state": "inactive", "frames": []}


def _frames(stack: Iterable[Frame]) -> list[Json]:
    return [{"filename": file, "line": line, "name": name} for file, line, name in stack]


def snapshot_of(*recordings: Recording, with_history: bool = True, lost: int = 0) -> Snapshot:
    """The snapshot; of each device's history the first ``lost`` entries are gone."""
    traces: list[list[Json]] = [[] for _ in range(max(one.device for one in recordings) + 1)]
    for one in recordings:
        traces[one.device] = one.events[lost:] if with_history else []
    value = {"segments": [segment for one in recordings for segment in one.described()], "device_traces": traces}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot.pickle"
        path.write_bytes(pickle.dumps(value, 4))
        return read_snapshot(path)


def facts_of_snapshot(*recordings: Recording, with_history: bool = True, lost: int = 0) -> Facts:
    return Facts(no_trace(), snapshot=snapshot_of(*recordings, with_history=with_history, lost=lost))
