"""Launches made by hand: what each rank does, in microseconds, becomes the tables that a recording of it would give.

A rank's program is a list: ``work(30)``, ``ask("a")`` for a collective, ``wait("a")`` for its end, ``*both("a")`` for
one after the other, and ``end_step()``. The name of a collective is its kind and a number after ``#``: ``grads#3``. It
begins when all of its ranks have asked and their lanes are free. How long it takes is what ``transfers`` has for its
kind.

The launch is played rank by rank, as it would happen, and shares no code with the replay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import structs

from profkit.derive.facts import Facts
from profkit.derive.launch.launch import Joint, Launch, Parts
from profkit.derive.launch.matching import match
from profkit.derive.launch.table import Cause, Collectives, Group, RankTable, Steps, Work
from profkit.run.directory import CallSite, RankIdentity
from profkit.trace.events import NONE, Int64s
from tests.traces import step, trace_of

SITES = (CallSite("train.py", 10, "train"), CallSite("train.py", 20, "train"), CallSite("data.py", 5, "load"))
_NEVER = float("inf")


@dataclass(frozen=True)
class Act:
    kind: str
    name: str = ""
    duration: float = 0.0
    cause: Cause = Cause.COMPUTE
    site: int = 0
    lane: int = 0
    is_backward: bool = False


def work(duration: float, cause: Cause = Cause.COMPUTE, site: int = 0, *, is_backward: bool = False) -> Act:
    return Act("work", duration=duration, cause=cause, site=site, is_backward=is_backward)


def ask(name: str, lane: int = 0) -> Act:
    return Act("ask", name, lane=lane)


def wait(name: str) -> Act:
    return Act("wait", name)


def end_step() -> Act:
    return Act("end")


def both(name: str, lane: int = 0) -> tuple[Act, Act]:
    return ask(name, lane), wait(name)


@dataclass
class _Asked:
    at: float
    lane: int
    step: int
    after_backward: bool = False
    waits: float | None = None
    waited: float | None = None


@dataclass
class _Rank:
    program: Sequence[Act]
    now: float
    at: int = 0
    asked: dict[str, _Asked] = field(default_factory=dict)
    pieces: list[tuple[int, float, Act]] = field(default_factory=list)
    cuts: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    went_back: bool = False

    def go_on(self, ends: Mapping[str, float]) -> bool:
        """Go on until it waits for something without an end yet. Return whether it did anything."""
        began = self.at
        while self.at < len(self.program):
            act = self.program[self.at]
            if act.kind == "wait" and act.name not in ends:
                break
            self.do(act, ends)
            self.at += 1
        return self.at > began

    def do(self, act: Act, ends: Mapping[str, float]) -> None:
        if act.kind == "work":
            self.pieces.append((len(self.ended), self.now, act))
            self.went_back = act.is_backward
            self.now += act.duration
        elif act.kind == "ask":
            self.asked[act.name] = _Asked(self.now, act.lane, len(self.ended), self.went_back)
        elif act.kind == "wait":
            one = self.asked[act.name]
            one.waits, self.now = self.now, max(self.now, ends[act.name])
            one.waited = self.now
            self.cuts += [one.waits, one.waited] if one.waited > one.waits else []
        else:
            self.ended.append(self.now)
            self.cuts += [self.now, self.now]


@dataclass(frozen=True)
class _History:
    ranks: list[_Rank]
    starts: list[float]
    begins: dict[str, float]
    ends: dict[str, float]


def launch_of(
    programs: Sequence[Sequence[Act]],
    transfers: Mapping[str, float],
    *,
    starts: Sequence[float] | None = None,
    behind: Sequence[float] | None = None,
    sizes: Mapping[str, Sequence[int]] | None = None,
    world_size: int | None = None,
    messages: Mapping[str, tuple[int, int]] | None = None,
) -> Launch:
    """The launch of these ranks. ``behind`` says by how much the clock of each is behind the first one's, ``sizes``
    what each rank puts into a collective, by its whole name or its kind, ``messages`` who sends those of a kind to
    whom."""
    history = _happen(programs, transfers, starts)
    names = sorted(history.begins, key=lambda name: history.begins[name])
    kinds = (*dict.fromkeys(_kind(name) for name in names), "Float")
    late = behind or [0.0] * len(programs)
    tables = tuple(_table(history, number, names, kinds, late[number], sizes or {}) for number in range(len(programs)))
    if messages:
        return match([_with_messages(table, kinds, messages) for table in tables])
    parts = [
        (joint, number, sorted(rank.asked, key=lambda one: rank.asked[one].at).index(name))
        for joint, name in enumerate(names)
        for number, rank in enumerate(history.ranks)
        if name in rank.asked
    ]
    first = {joint: (number, row) for joint, number, row in reversed(parts)}

    def column(which: str) -> Int64s:
        found = [getattr(tables[number].collectives, which)[row] for _, (number, row) in sorted(first.items())]
        return np.array(found, dtype=np.int64)

    members = np.bincount([joint for joint, _, _ in parts], minlength=len(names))
    joint = Joint(*(column(which) for which in ("step", "group", "sequence", "operation", "size_bytes")), members)
    columns = np.array(parts, dtype=np.int64).reshape(-1, 3).T
    offset_ns = np.array([int(one * 1000) for one in late], dtype=np.int64)
    group = (Group("0", len(tables), tuple(range(len(tables)))),)
    return Launch(tables, world_size or len(tables), group, kinds, joint, Parts(*columns), offset_ns)


def _with_messages(table: RankTable, kinds: tuple[str, ...], messages: Mapping[str, tuple[int, int]]) -> RankTable:
    """The table with a group of two for messages from one rank to another. Each message has a lane of its own."""
    rank, taken = table.identity.rank, table.collectives
    own = [kind for kind in messages if rank in messages[kind]]
    groups = [
        Group("{} to {}".format(*messages[kind]), 2, messages[kind], sends=messages[kind][0] == rank) for kind in own
    ]
    places = np.array([own.index(kind) + 1 if kind in own else 0 for kind in kinds])
    alone = np.array([kind in own for kind in kinds])[taken.operation]
    lane = np.where(alone, np.arange(len(taken)) + 100, taken.lane)
    texts = tuple("send_recv" if kind in messages else kind for kind in table.texts)
    changed = structs.replace(taken, group=places[taken.operation], lane=lane)
    return structs.replace(table, groups=(*table.groups, *groups), texts=texts, collectives=changed)


def length_of(
    programs: Sequence[Sequence[Act]], transfers: Mapping[str, float], starts: Sequence[float] | None = None
) -> float:
    """From the first rank's start to the last one's end, in microseconds."""
    history = _happen(programs, transfers, starts)
    return max(rank.now for rank in history.ranks) - min(history.starts)


def _kind(name: str) -> str:
    return name.split("#", maxsplit=1)[0]


def _happen(
    programs: Sequence[Sequence[Act]], transfers: Mapping[str, float], starts: Sequence[float] | None
) -> _History:
    begun = list(starts or [0.0] * len(programs))
    ranks = [_Rank(program, start) for program, start in zip(programs, begun, strict=True)]
    asking: dict[str, list[int]] = {}
    for number, program in enumerate(programs):
        for act in program:
            if act.kind == "ask":
                asking.setdefault(act.name, []).append(number)
    begins: dict[str, float] = {}
    ends: dict[str, float] = {}
    while sum(rank.go_on(ends) for rank in ranks):
        for name, members in asking.items():
            ready = [_ready(ranks[number], name, ends) for number in members]
            if name not in ends and max(ready) < _NEVER:
                begins[name] = max(ready)
                ends[name] = begins[name] + transfers[_kind(name)]
    assert all(rank.at == len(rank.program) for rank in ranks), "the ranks wait for each other for ever"
    return _History(ranks, begun, begins, ends)


def _ready(rank: _Rank, name: str, ends: Mapping[str, float]) -> float:
    """When this rank's part can begin: it has asked, and its previous request in the same lane is over."""
    if name not in rank.asked:
        return _NEVER
    order = list(rank.asked)
    before = [other for other in order[: order.index(name)] if rank.asked[other].lane == rank.asked[name].lane]
    return max([rank.asked[name].at, *(ends.get(other, _NEVER) for other in before)])


def _table(
    history: _History,
    number: int,
    names: list[str],
    kinds: tuple[str, ...],
    behind: float,
    sizes: Mapping[str, Sequence[int]],
) -> RankTable:
    rank = history.ranks[number]

    def ns(values: Sequence[float]) -> Int64s:
        return np.array([round((value - behind) * 1000) for value in values], dtype=np.int64)

    asked = sorted(rank.asked, key=lambda one: rank.asked[one].at)
    ends = {name: history.ends[name] for name in asked}
    of_kind = {name: [other for other in names if _kind(other) == _kind(name)].index(name) for name in asked}
    count, zeros = len(asked), np.zeros(len(asked), dtype=np.int64)
    took = [rank.asked[name] for name in asked]
    collectives = Collectives(
        step=np.array([one.step for one in took], dtype=np.int64),
        group=zeros,
        sequence=np.array([of_kind[name] for name in asked], dtype=np.int64),
        operation=np.array([kinds.index(_kind(name)) for name in asked], dtype=np.int64),
        size_bytes=np.array([_size(sizes, name, number) for name in asked], dtype=np.int64),
        dtype=np.full(count, len(kinds) - 1),
        issue_ns=ns([one.at for one in took]),
        start_ns=ns([_ready(rank, name, ends) for name in asked]),
        end_ns=ns([ends[name] for name in asked]),
        wait_start_ns=_known(took, "waits", ns),
        wait_end_ns=_known(took, "waited", ns),
        lane=np.array([one.lane for one in took], dtype=np.int64),
        on_compute=np.zeros(count, dtype=bool),
        site=zeros,
        after_backward=np.array([one.after_backward for one in took], dtype=bool),
        on_device=np.zeros(count, dtype=bool),
    )
    begun = [history.starts[number], *rank.ended[:-1]]
    steps = Steps(np.arange(len(rank.ended)), ns(begun), ns(rank.ended))
    identity = RankIdentity(rank=number, world_size=len(history.ranks), host="host0")
    group = (Group("0", len(history.ranks), tuple(range(len(history.ranks)))),)
    return RankTable(identity, f"rank{number}", group, kinds, SITES, steps, collectives, _work(rank, ns))


def _size(sizes: Mapping[str, Sequence[int]], name: str, number: int) -> int:
    of_ranks = sizes.get(name, sizes.get(_kind(name)))
    return 4 if of_ranks is None else of_ranks[number]


def _known(took: list[_Asked], which: str, ns: Callable[[Sequence[float]], Int64s]) -> Int64s:
    known = [getattr(one, which) is not None for one in took]
    return np.where(known, ns([getattr(one, which) or 0.0 for one in took]), NONE)


def _work(rank: _Rank, ns: Callable[[Sequence[float]], Int64s]) -> Work:
    edges = np.unique(rank.cuts)
    start, end = [], []
    for _, begin, act in rank.pieces:
        at = int(np.searchsorted(edges, begin, side="right"))
        start.append(edges[at - 1] if at else rank.pieces[0][1])
        end.append(edges[at] if at < len(edges) else begin + act.duration)
    columns = [(step, int(act.cause), act.site) for step, _, act in rank.pieces]
    step, cause, site = np.array(columns, dtype=np.int64).reshape(-1, 3).T
    time_ns = np.array([round(act.duration * 1000) for _, _, act in rank.pieces], dtype=np.int64)
    return Work(step, ns(start), ns(end), cause, site, time_ns)


def facts_of_launch(launch: Launch | None) -> Facts:
    """Facts with an empty trace and this launch."""
    return Facts(trace_of([step(0, 0, 1)]), launch=launch)
