"""What the user's names keep alive at the end of a step.

The census walks from the variables of the user's frames and modules through containers and objects to tensors. It
holds no tensor longer than it runs, and its work is bounded: by objects, by depth, by samples of long sequences.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from profkit.collect.frames import forget_locals, function_name, source_file, walk_up
from profkit.collect.growth import GrowthLines, Origin, Parts
from profkit.collect.reach import Reach, Reached, may_hold, named_values
from profkit.run import LiveHolder, LiveSample

_MAX_DEPTH = 4
_MAX_OBJECTS = 20_000
_MAX_NODES = 50_000
_MAX_HOLDERS = 500


@dataclass(slots=True)
class _Holder:
    """What one name reached so far: ``looked_at`` tensors that stand for ``tensors``; storages and backward nodes
    count once."""

    parts: Parts
    origin: Origin
    tensors: float = 0.0
    graph_tensors: float = 0.0
    looked_at: int = 0
    storages: dict[int, int] = field(default_factory=dict)
    is_bounded: bool = False
    nodes: set[object] = field(default_factory=set)

    @property
    def path(self) -> str:
        return "".join(self.parts)

    @property
    def bytes(self) -> int:
        """A sample is scaled up, unless its tensors turned out to share their storages."""
        return self._scaled(sum(self.storages.values()))

    def used_bytes(self, used: Mapping[int, int]) -> int:
        """How much of its storages any name uses: what another name holds in full is not wasted by a view."""
        return self._scaled(sum(min(size, used[storage]) for storage, size in self.storages.items()))

    def _scaled(self, size: int) -> int:
        shared = len(self.storages) <= self.looked_at / 2
        return round(size * (1 if shared else self.scale))

    @property
    def scale(self) -> float:
        return self.tensors / self.looked_at


class Census:
    """Takes the samples of one recording. ``generators`` run the user's code though they are not on the stack."""

    def __init__(
        self, is_user: Mapping[str, bool], growth: GrowthLines, generators: Callable[[], Iterable[Any]] = tuple
    ) -> None:
        self.samples: list[LiveSample] = []
        self._is_user = is_user
        self._growth = growth
        self._generators = generators

    def take(self, step: int, frame: FrameType | None) -> None:
        """Note what the variables of ``frame``, its callers and the user's modules hold now."""
        frames = [caller for caller in walk_up(frame) if self._is_user[caller.f_code.co_filename]]
        walk = _Walk(self._is_user)
        try:
            with torch._C.DisableTorchFunctionSubclass():  # a subclass's attributes would run the user's code
                walk.run(self._roots(frames))
            self.samples.append(LiveSample(step, tuple(self._describe(walk))))
        finally:
            walk.forget(frames)

    def _roots(self, frames: list[FrameType]) -> Iterator[Reached]:
        for generator in self._generators():
            yield Reached(generator, (), Origin(""))
        for frame in frames:
            if frame.f_locals is not frame.f_globals:
                yield from named_values(frame.f_locals, Origin(source_file(frame.f_code), frame.f_code))
        seen = set()
        for names in (*(frame.f_globals for frame in frames), *self._module_globals()):
            file = names.get("__file__")
            if id(names) not in seen and isinstance(file, str):
                seen.add(id(names))
                yield from named_values(names, Origin(file))

    def _module_globals(self) -> Iterator[dict[str, Any]]:
        for module in list(sys.modules.values()):
            names = getattr(module, "__dict__", None)
            file = names.get("__file__") if type(names) is dict else None
            if names is not None and isinstance(file, str) and self._is_user[file]:
                yield names

    def _describe(self, walk: _Walk) -> Iterator[LiveHolder]:
        """The largest holders. Of two names that read the same, the outer function's carries the function's name."""
        taken: set[str] = set()
        largest = sorted(walk.holders.values(), key=lambda holder: holder.bytes, reverse=True)[:_MAX_HOLDERS]
        for holder in largest:
            path, code = holder.path, holder.origin.root.code
            if path in taken and code is not None:
                path = f"{function_name(code)}.<locals>.{path}"
            taken.add(path)
            yield LiveHolder(
                path=path,
                site=self._growth.find(holder.parts, holder.origin),
                graph_tensors=round(holder.graph_tensors),
                graph_nodes=round(len(holder.nodes) * holder.scale),
                bytes=holder.bytes,
                tensors=round(holder.tensors),
                used_bytes=holder.used_bytes(walk.used),
                is_bounded=holder.is_bounded or self._growth.is_bounded(holder.parts, holder.origin),
            )


class _Walk:
    """One walk, breadth first, so that a name nearer to the user's variables claims what two names share.

    ``used`` are the bytes of each storage that the tensors reached cover, at most (views may overlap).
    """

    def __init__(self, is_user: Mapping[str, bool]) -> None:
        self.holders: dict[tuple[Parts, Origin], _Holder] = {}
        self.used: defaultdict[int, int] = defaultdict(int)
        self._reach = Reach(is_user)
        self._queue: deque[Reached] = deque()
        self._seen: set[int] = set()
        self._nodes_left = 2 * _MAX_NODES

    def run(self, roots: Iterable[Reached]) -> None:
        self._queue.extend(roots)
        for _ in range(_MAX_OBJECTS):
            if not self._queue:
                return
            reached = self._queue.popleft()
            if issubclass(type(reached.value), Tensor):
                self._count(reached)
            elif reached.depth < _MAX_DEPTH and id(reached.value) not in self._seen:
                self._seen.add(id(reached.value))
                self._queue.extend(held for held in self._reach.look_into(reached) if may_hold(held.value))

    def forget(self, frames: Iterable[FrameType]) -> None:
        """Let go of everything reached, also of the copies of local variables that frames keep."""
        self._queue.clear()
        self.holders.clear()
        for frame in (*frames, *self._reach.suspended):
            forget_locals(frame)

    def _count(self, reached: Reached) -> None:
        tensor: Any = reached.value
        storage = _storage_of(tensor)
        if storage is not None:
            self.used[storage.key] += storage.covered_bytes
        if isinstance(tensor, nn.Parameter):
            return
        key = (reached.parts, reached.origin)
        holder = self.holders.get(key) or self.holders.setdefault(key, _Holder(*key))
        holder.looked_at += 1
        holder.tensors += reached.weight
        holder.is_bounded |= reached.is_bounded
        if storage is not None:
            holder.storages[storage.key] = storage.size_bytes
        if tensor.grad_fn is not None:
            holder.graph_tensors += reached.weight
            self._follow_graph(tensor.grad_fn, holder.nodes)

    def _follow_graph(self, root: Any, seen: set[object]) -> None:
        """Add the backward nodes reachable from ``root`` to those that its holder reached before."""
        stack = [root]
        while stack and len(seen) < _MAX_NODES and self._nodes_left > 0:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                self._nodes_left -= 1
                stack.extend(following for following, _ in node.next_functions if following is not None)


@dataclass(frozen=True, slots=True)
class _Storage:
    """What tells a storage from others, its bytes, and those that one tensor covers."""

    key: int
    size_bytes: int
    covered_bytes: int


def _storage_of(tensor: Tensor) -> _Storage | None:
    """None where the tensor has no storage of its own."""
    try:
        storage = tensor.untyped_storage()
        return _Storage(storage._cdata, storage.nbytes(), tensor.numel() * tensor.element_size())
    except (RuntimeError, NotImplementedError):  # sparse tensors, for example
        return None
