"""What the user's names keep alive at the end of a step.

The census walks from the variables of the user's frames and modules through containers and objects to tensors. It
keeps no tensor alive. Its work is bounded by objects, by depth, and by sampling long sequences.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import combinations
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch._C import TensorBase

from profkit.collect.census.held_by_libraries import Entrusted
from profkit.collect.census.reachable import Reach, Reached, may_hold, named_values, user_file_of
from profkit.collect.program.engine import node_of
from profkit.collect.program.frames import forget_locals, walk_up
from profkit.run.directory import LiveHolder, LiveSample, SharedHold
from profkit.source.code import function_name, module_names, source_file
from profkit.source.growth import GrowthLines, Origin
from profkit.source.syntax import Parts

_MAX_DEPTH = 6
"""From a variable on: a trainer keeps a list of callbacks, one of which has a dictionary of lists of tensors."""
_MAX_OBJECTS = 20_000
_MAX_NODES = 50_000
_MAX_HOLDERS = 500
_MOST_COMPARED = 8
"""So many names, the largest by graph and the largest by bytes, are compared for what they hold in common. Looking for
a node in another graph takes a twentieth of walking to it, and each is looked for in at most 15 graphs."""

_MOST_SPREAD = 1.5
"""1 if each storage is left for ever once another comes, 2 if two alternate. Then those in between have other storages;
rows of a few data sets have no others."""

_Key = tuple[Parts, Origin]
_Share = tuple[_Key, int, int]
"""A name, and the backward nodes and bytes that are held in common with it."""


@dataclass(slots=True)
class _Holder:
    """What one name has reached so far: ``looked_at`` tensors, which stand for ``tensors``. Each storage and each
    backward node counts once. ``last_at`` is the number of the last tensor with each storage, ``spread`` how many
    tensors lie between the first and the last of a storage, both included, for all storages together."""

    parts: Parts
    origin: Origin
    tensors: float = 0.0
    graph_tensors: float = 0.0
    looked_at: int = 0
    storages: dict[int, int] = field(default_factory=dict)
    last_at: dict[int, int] = field(default_factory=dict)
    spread: int = 0
    is_bounded: bool = False
    nodes: set[object] = field(default_factory=set)

    @property
    def key(self) -> _Key:
        return self.parts, self.origin

    def share(self, key: _Key, nodes: int, size: int) -> _Share:
        """What it holds in common with the name ``key``, scaled like its own figures."""
        return key, round(nodes * self.scale), self._scaled(size)

    def summary(self, used: Mapping[int, int], shared: Iterable[_Share]) -> _Held:
        """The present figures. A view wastes nothing of a storage that some name uses in full."""
        return _Held(
            self.parts,
            self.origin,
            graph_tensors=round(self.graph_tensors),
            graph_nodes=round(len(self.nodes) * self.scale),
            bytes=self.bytes,
            tensors=round(self.tensors),
            used_bytes=self._used_bytes(used),
            is_bounded=self.is_bounded,
            shared=tuple(shared),
        )

    def _used_bytes(self, used: Mapping[int, int]) -> int:
        found = sum(min(size, used[storage]) for storage, size in self.storages.items())
        return min(self.bytes, round(found * self.scale))

    @property
    def bytes(self) -> int:
        """Scaled up from the sample, unless its tensors share a few storages."""
        return self._scaled(sum(self.storages.values()))

    def _scaled(self, size: int) -> int:
        """The size of storages. At either end of a sample one of them may be used by further tensors."""
        between = len(self.storages) - 2
        if self.tensors == self.looked_at or between < 2 or self.spread > _MOST_SPREAD * self.looked_at:
            return size
        storages = 1 + between / (self.looked_at - 2) * (self.tensors - 1)
        return round(size * storages / len(self.storages))

    def hold(self, storage: int, size: int) -> None:
        """One more tensor, with this storage of this size."""
        self.spread += self.looked_at - self.last_at.get(storage, self.looked_at - 1)
        self.storages[storage], self.last_at[storage] = size, self.looked_at

    @property
    def scale(self) -> float:
        return self.tensors / self.looked_at


@dataclass(frozen=True, slots=True)
class _Held:
    """What one name held at the end of a step, as figures only; the fields are those of
    `profkit.run.directory.LiveHolder`."""

    parts: Parts
    origin: Origin
    graph_tensors: int
    graph_nodes: int
    bytes: int
    tensors: int
    used_bytes: int
    is_bounded: bool
    shared: tuple[_Share, ...]

    @property
    def key(self) -> _Key:
        return self.parts, self.origin

    @property
    def path(self) -> str:
        return "".join(self.parts)


class Census:
    """Takes the samples of one recording. ``generators`` run the user's code without being on the stack.

    The program waits while a sample is taken, so source lines are looked up later, when the samples are read.
    """

    def __init__(
        self, is_user: Mapping[str, bool], growth: GrowthLines, generators: Callable[[], Iterable[Any]] = tuple
    ) -> None:
        self._cut_short = 0
        self._taken: list[tuple[int, list[_Held]]] = []
        self._described: list[LiveSample] = []
        self._is_user = is_user
        self._growth = growth
        self._generators = generators
        self._modules = _UserModules(is_user)
        self._entrusted = Entrusted(lambda kind: user_file_of(kind, is_user))

    @property
    def samples(self) -> list[LiveSample]:
        """One for each call of `take`."""
        self._described += [LiveSample(step, tuple(self._describe(held))) for step, held in self._taken]
        self._taken.clear()
        return self._described

    @property
    def ended(self) -> str:
        """Why some samples do not hold all names, in a sentence; empty if all do."""
        if not self._cut_short:
            return ""
        return (
            f"no more than {_MAX_OBJECTS:,} objects were looked at in {self._cut_short} of {self.taken} censuses: "
            "names far from the step are left out"
        )

    @property
    def taken(self) -> int:
        """How many samples there are."""
        return len(self._taken) + len(self._described)

    def forget(self) -> None:
        """Drop all samples."""
        self._taken.clear()
        self._described.clear()
        self._cut_short = 0

    def take(self, step: int, frame: FrameType | None) -> None:
        """Take a sample of what the variables of ``frame``, its callers and the user's modules hold now."""
        frames = [caller for caller in walk_up(frame) if self._is_user[caller.f_code.co_filename]]
        walk = _Walk(self._is_user)
        try:
            with torch._C.DisableTorchFunctionSubclass():  # else a subclass's attributes would run the user's code
                walk.run(self._roots(frames))
                walk.run(self._unnamed(frame))
            self._taken.append((step, walk.largest()))
            self._cut_short += walk.is_cut_short
        finally:
            walk.forget(frames)

    def _roots(self, frames: list[FrameType]) -> Iterator[Reached]:
        for generator in self._generators():
            yield Reached(generator, (), Origin(""))
        for frame in frames:
            if frame.f_locals is not frame.f_globals:
                yield from named_values(frame.f_locals, Origin(source_file(frame.f_code), frame.f_code))
        seen = set()
        for names in (*(frame.f_globals for frame in frames), *self._modules.globals()):
            file = names.get("__file__")
            if id(names) not in seen and isinstance(file, str):
                seen.add(id(names))
                yield from named_values(names, Origin(file))

    def _unnamed(self, frame: FrameType | None) -> Iterator[Reached]:
        """What only libraries hold, named by class. Whatever a variable reaches was seen before."""
        others = (caller for caller in walk_up(frame) if not self._is_user[caller.f_code.co_filename])
        for value, file in self._entrusted.objects(others):
            yield Reached(value, (type(value).__name__,), Origin(file))

    def _describe(self, taken: Sequence[_Held]) -> Iterator[LiveHolder]:
        paths = _paths(taken)
        for held in taken:
            yield LiveHolder(
                path=paths[held.key],
                site=self._growth.find(held.parts, held.origin),
                graph_tensors=held.graph_tensors,
                graph_nodes=held.graph_nodes,
                bytes=held.bytes,
                tensors=held.tensors,
                used_bytes=held.used_bytes,
                is_bounded=held.is_bounded or self._growth.is_bounded(held.parts, held.origin),
                begins_anew=self._growth.begins_anew(held.parts, held.origin),
                shared=tuple(SharedHold(paths[key], nodes, size) for key, nodes, size in held.shared),
            )


def _paths(taken: Iterable[_Held]) -> dict[_Key, str]:
    """How each name is written. If two read the same, the outer function's gets the function's name in front."""
    paths: dict[_Key, str] = {}
    used: set[str] = set()
    for held in taken:
        path, code = held.path, held.origin.root.code
        if path in used and code is not None:
            path = f"{function_name(code)}.<locals>.{path}"
        used.add(path)
        paths[held.key] = path
    return paths


class _UserModules:
    """The variables of the user's modules. A program has thousands of other modules, so the user's are only searched
    again when the number of modules has changed."""

    def __init__(self, is_user: Mapping[str, bool]) -> None:
        self._is_user = is_user
        self._known = 0
        self._names: list[str] = []

    def globals(self) -> Iterator[dict[str, Any]]:
        """The variables of each module in turn."""
        if len(sys.modules) != self._known:
            self._known = len(sys.modules)
            self._names = [name for name in list(sys.modules) if self._find(name) is not None]
        for name in self._names:
            names = self._find(name)
            if names is not None:
                yield names

    def _find(self, name: str) -> dict[str, Any] | None:
        names = module_names(name)
        file = names.get("__file__")
        return names if isinstance(file, str) and self._is_user[file] else None


class _Walk:
    """One walk, breadth first, so that the name nearer to the user's variables claims what two names share.

    ``used`` is an upper bound of the bytes of each storage that tensors cover (views may overlap).
    """

    def __init__(self, is_user: Mapping[str, bool]) -> None:
        self.holders: dict[tuple[Parts, Origin], _Holder] = {}
        self.used: defaultdict[int, int] = defaultdict(int)
        self._reach = Reach(is_user)
        self._queue: deque[Reached] = deque()
        self.is_cut_short = False
        self._seen: dict[int, int] = {}
        self._nodes_left = 2 * _MAX_NODES

    def run(self, roots: Iterable[Reached]) -> None:
        self._queue.extend(roots)
        for _ in range(_MAX_OBJECTS):
            if not self._queue:
                return
            reached = self._queue.popleft()
            if issubclass(type(reached.value), Tensor):
                self._count(reached)
            elif reached.depth < _MAX_DEPTH and self._is_news(reached):
                self._seen[id(reached.value)] = reached.depth
                self._queue.extend(held for held in self._reach.look_into(reached) if may_hold(held.value))
        self.is_cut_short |= bool(self._queue)

    def _is_news(self, reached: Reached) -> bool:
        """Whether an object was not looked into yet, or only as the last on its way, without what its containers
        hold."""
        known = self._seen.get(id(reached.value))
        return known is None or reached.depth < known == _MAX_DEPTH - 1

    def largest(self) -> list[_Held]:
        """The names that hold most, and what they hold."""
        largest = sorted(self.holders.values(), key=lambda holder: holder.bytes, reverse=True)[:_MAX_HOLDERS]
        shared = _shared(largest)
        return [holder.summary(self.used, shared.get(holder.key, ())) for holder in largest]

    def forget(self, frames: Iterable[FrameType]) -> None:
        """Release everything, including the copies of local variables that frames keep."""
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
            holder.hold(storage.key, storage.size_bytes)
        node = node_of(tensor)
        if node is not None:
            holder.graph_tensors += reached.weight
            self._follow_graph(node, holder.nodes)

    def _follow_graph(self, root: Any, seen: set[object]) -> None:
        """Add the backward nodes reachable from ``root`` to ``seen``."""
        stack = [root]
        while stack and len(seen) < _MAX_NODES and self._nodes_left > 0:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                self._nodes_left -= 1
                stack.extend(following for following, _ in node.next_functions if following is not None)


def _shared(holders: Sequence[_Holder]) -> dict[_Key, list[_Share]]:
    """For the names that hold most, what they hold in common with each other."""
    by_graph = nlargest(_MOST_COMPARED, holders, key=lambda holder: len(holder.nodes))
    compared = list({holder.key: holder for holder in (*by_graph, *holders[:_MOST_COMPARED])}.values())
    found: dict[_Key, list[_Share]] = {}
    for one, other in combinations(compared, 2):
        nodes = len(one.nodes & other.nodes)
        size = sum(one.storages[storage] for storage in one.storages.keys() & other.storages.keys())
        if nodes or size:
            found.setdefault(one.key, []).append(one.share(other.key, nodes, size))
            found.setdefault(other.key, []).append(other.share(one.key, nodes, size))
    return found


@dataclass(frozen=True, slots=True)
class _Storage:
    """A storage's identity, its bytes, and the bytes that one tensor covers."""

    key: int
    size_bytes: int
    covered_bytes: int


def _storage_of(tensor: Tensor) -> _Storage | None:
    """None if the tensor has no storage of its own."""
    try:
        storage = TensorBase.untyped_storage(tensor)
        return _Storage(storage._cdata, storage.nbytes(), TensorBase.numel(tensor) * TensorBase.element_size(tensor))
    except (RuntimeError, NotImplementedError):  # sparse tensors, for example
        return None
