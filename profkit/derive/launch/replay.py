"""The replay of all ranks of a launch together: how long their steps would take with an edit applied.

Each rank's own work is a chain, cut where the rank waits for others. At points of that work the rank asks for
collectives. A collective begins when its last rank is ready and its lane has finished the previous one. It takes its
transfer time and then ends on all ranks, on each as much later as in the recording. A rank that waits for it goes on at
its end. If a rank does not wait for it, it is needed at the end of the step, because its result goes into that step's
update; a message is needed when its receiver looks for it. This is the graph that dPRO (Hu et al., MLSys 2022) and
Lumos (Liang et al., MLSys 2025) replay, with one node for each piece of work between two waits.

The transfer time is the shortest time from start to end over the ranks: the last rank to start waits for nobody.

A rank's own time leaves out its waits. In it, only waits make a rank late, and its lateness never shrinks: it is the
greatest ``end - place`` of all waits so far. So the replay goes from collective to collective, for all ranks at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from profkit.derive.launch.joint_edits import JointEdit
from profkit.derive.launch.launch import Launch
from profkit.derive.launch.table import Collectives, RankTable, Steps
from profkit.derive.launch.transfers import last_starts, transfer_times
from profkit.trace.events import Bools, Int64s

_NEVER = np.iinfo(np.int64).min // 4
_LATER = np.iinfo(np.int64).max // 4
_JOINED_NS = 20_000
"""A collective that starts this soon after the previous one in its lane was held up by it; one that starts later was
waiting for its data. Kernels follow each other in a stream within 2 µs, jobs of a thread within 20."""


class JointReplay(Struct, frozen=True):
    """The length of the recorded steps, as recorded and in the replay: from the first rank's start to the last one's
    end. ``begin_ns`` and ``end_ns`` say for each collective, on the first rank's clock, when its last rank could start
    and when its transfer was over."""

    recorded_ns: int
    replayed_ns: int
    steps: int
    begin_ns: Int64s
    end_ns: Int64s


class _Chains(Struct, frozen=True):
    """What the replay needs of the ranks' parts in the joint collectives, sorted by rank.

    ``place_ns`` is the point of its own work at which a rank asks, or at which its data are ready; the collective can
    start ``lag_ns`` later. ``need_ns`` is the point of its own work at which the rank waits; this is its wait number
    ``turn``, and ``before`` of its waits come before it asks. ``tail_ns`` is how much later than the transfer its part
    ends, because its thread gets no processor or it copies. Lanes have different numbers on different ranks.
    """

    table: Int64s
    joint: Int64s
    place_ns: Int64s
    lag_ns: Int64s
    need_ns: Int64s
    turn: Int64s
    before: Int64s
    tail_ns: Int64s
    lane: Int64s


class _Bounds(Struct, frozen=True):
    """By rank: the start of its first step, the end of its last one, and that end in own time with the edit."""

    begin_ns: Int64s
    end_ns: Int64s
    own_end_ns: Int64s


def replay_launch(launch: Launch, edit: JointEdit | None = None) -> JointReplay:
    """Replay the recorded steps of all ranks, with an edit if there is one."""
    edit = edit or JointEdit()
    transfer_ns = transfer_times(launch)
    chains, bounds = _build(launch, edit, transfer_ns)
    begin_ns, end_ns, late_ns = _run(chains, _edited(transfer_ns, edit), len(launch.tables))
    first_ns = int(bounds.begin_ns.min(initial=_LATER))
    recorded_ns = int(bounds.end_ns.max(initial=first_ns)) - first_ns
    replayed_ns = int((bounds.own_end_ns + late_ns).max(initial=first_ns)) - first_ns
    steps = max((len(table.steps.number) for table in launch.tables), default=0)
    return JointReplay(recorded_ns, replayed_ns, max(steps, 1), begin_ns, end_ns)


def parts_by_table(launch: Launch) -> list[tuple[RankTable, Int64s, Int64s]]:
    """Each table with the joint collectives that its rank took part in, and its rows for them."""
    parts, order = launch.parts, np.argsort(launch.parts.table, kind="stable")
    bounds = np.searchsorted(parts.table[order], np.arange(len(launch.tables) + 1)).tolist()
    pieces = (order[first:last] for first, last in pairwise(bounds))
    return [(table, parts.joint[mine], parts.row[mine]) for table, mine in zip(launch.tables, pieces, strict=True)]


def _edited(transfer_ns: Int64s, edit: JointEdit) -> Int64s:
    """The transfer times with the edit applied. If it has several for one collective, the shortest counts."""
    edited = np.full(len(transfer_ns), _LATER, dtype=np.int64)
    np.minimum.at(edited, edit.joint, edit.transfer_ns)
    return np.where(edited < _LATER, edited, transfer_ns)


def _build(launch: Launch, edit: JointEdit, transfer_ns: Int64s) -> tuple[_Chains, _Bounds]:
    """The ranks' chains, with the edit applied to their work and their collectives."""
    early_ns = np.zeros(len(launch.joint), dtype=np.int64)
    np.maximum.at(early_ns, edit.early, edit.early_ns)
    gone = np.zeros(len(launch.joint), dtype=bool)
    gone[edit.gone] = True
    over_ns = last_starts(launch) + transfer_ns  # as recorded, on the first rank's clock
    chains, ends, lanes = [], [], 0
    for number, (table, every, every_row) in enumerate(parts_by_table(launch)):
        joint, row = every[~gone[every]], every_row[~gone[every]]
        clock = _OwnTime.of(table, every_row, _removed(table, number, edit))
        offset_ns = int(launch.offset_ns[number])
        tail_ns = np.maximum(table.collectives.end_ns[row] + offset_ns - over_ns[joint], -transfer_ns[joint])
        seen_late = (table.sends | table.receives) & ~table.collectives.waited  # when the message arrived is unknown
        tail_ns[seen_late[row]] = 0
        one = _chain_of(table, number, joint, row, early_ns[joint], clock)
        chains.append(
            replace(
                one,
                place_ns=one.place_ns + offset_ns,
                need_ns=one.need_ns + offset_ns,
                tail_ns=tail_ns,
                lane=one.lane + lanes,
            )
        )
        lanes += int(table.collectives.lane.max(initial=0)) + 1
        ends.append(_ends_of(table, clock, offset_ns))
    columns = (
        np.concatenate([np.zeros(0, dtype=np.int64), *(getattr(one, name) for one in chains)])
        for name in _Chains.__struct_fields__
    )
    return _Chains(*columns), _Bounds(*np.array(ends, dtype=np.int64).reshape(-1, 3).T)


class _OwnTime(Struct, frozen=True):
    """A clock of the rank's own time: it stands still while the rank waits for others, and where an edit removes work.

    It runs evenly between the times ``time_ns``, at which it shows ``passed_ns``.
    """

    time_ns: Int64s
    passed_ns: Int64s

    @classmethod
    def of(cls, table: RankTable, row: Int64s, removed: tuple[Int64s, Int64s, Int64s]) -> _OwnTime:
        """``row`` are the collectives whose waits the replay computes anew. ``removed`` are pieces of work: start, end,
        and the time taken out of each."""
        waited = _waits_of(table, row)
        start_ns, end_ns = np.concatenate([waited[0], removed[0]]), np.concatenate([waited[1], removed[1]])
        gone = np.concatenate([waited[1] - waited[0], removed[2]])
        bounds = np.unique(np.concatenate([start_ns, end_ns]))
        if not len(bounds):
            return cls(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
        share = gone / np.maximum(end_ns - start_ns, 1)
        lost = np.zeros(len(bounds))
        np.add.at(lost, np.searchsorted(bounds, start_ns), share)
        np.subtract.at(lost, np.searchsorted(bounds, end_ns), share)
        kept = np.diff(bounds) * (1 - np.cumsum(lost)[:-1].clip(max=1))
        passed = bounds[0] + np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)
        return cls(bounds, passed)

    def own(self, time_ns: Int64s) -> Int64s:
        """These times on the own clock."""
        before = (time_ns - self.time_ns[0]).clip(max=0)
        after = (time_ns - self.time_ns[-1]).clip(min=0)
        first = self.time_ns[0]
        inside = np.interp(time_ns - first, self.time_ns - first, self.passed_ns - first)  # small enough for floats
        own: Int64s = np.rint(inside).astype(np.int64) + first + before + after
        return own


def _waits_of(table: RankTable, row: Int64s) -> tuple[Int64s, Int64s]:
    """The rank's waits for these collectives, without overlaps. The time it takes to go on after the end is its own
    work."""
    taken = table.collectives
    start_ns, until_ns = taken.wait_start_ns[row], np.minimum(taken.wait_end_ns[row], taken.end_ns[row])
    held = np.flatnonzero(until_ns > start_ns)
    held = held[np.argsort(start_ns[held], kind="stable")]
    start_ns, until_ns = start_ns[held], np.maximum.accumulate(until_ns[held])
    start_ns = np.maximum(start_ns, np.concatenate([start_ns[:1], until_ns[:-1]]))
    return start_ns, np.maximum(start_ns, until_ns)


def _removed(table: RankTable, number: int, edit: JointEdit) -> tuple[Int64s, Int64s, Int64s]:
    """The pieces of this rank's work that the edit changes: start, end, and how much shorter they get, below 0 if
    longer."""
    mine = edit.table == number
    kept_ns = np.full(len(table.work), _LATER, dtype=np.int64)
    np.minimum.at(kept_ns, edit.row[mine], edit.kept_ns[mine])
    row = np.flatnonzero((kept_ns < _LATER) & (kept_ns != table.work.time_ns))
    return table.work.start_ns[row], table.work.end_ns[row], (table.work.time_ns - kept_ns)[row]


def _chain_of(table: RankTable, number: int, joint: Int64s, row: Int64s, early_ns: Int64s, clock: _OwnTime) -> _Chains:
    """This rank's parts, on its own clock, as if all collectives ended with their transfers."""
    taken, ready_ns = table.collectives, _ready_of(table)[row]
    asked_ns = np.minimum(taken.issue_ns[row], ready_ns)
    over_ns = np.maximum(_step_ends(table.steps, taken.step[row]), taken.end_ns[row])
    over_ns = np.where(table.receives[row], taken.end_ns[row], over_ns)
    waits_ns = np.where(taken.waited[row], taken.wait_start_ns[row], over_ns)
    stands_still = clock.own(ready_ns + 1) == clock.own(ready_ns - 1)
    need_ns, placed_ns = clock.own(waits_ns), np.where(stands_still, asked_ns, ready_ns)
    queued = _Queued.of(taken, row)
    place_ns = queued.behind(clock.own(placed_ns)) - early_ns
    before = queued.behind(np.searchsorted(np.sort(waits_ns), placed_ns))
    before = np.where(early_ns > 0, np.minimum(before, np.searchsorted(np.sort(need_ns), place_ns)), before)
    return _Chains(
        table=np.full(len(row), number),
        joint=joint,
        place_ns=place_ns,
        lag_ns=np.where(stands_still, ready_ns - asked_ns, 0),
        need_ns=need_ns,
        turn=np.argsort(np.argsort(waits_ns)),
        before=before,
        tail_ns=np.zeros(len(row), dtype=np.int64),
        lane=taken.lane[row],
    )


class _Queued(Struct, frozen=True):
    """Collectives in order of their starts, one lane after another. ``bounds`` are the bounds of the lanes."""

    order: Int64s
    bounds: tuple[int, ...]

    @classmethod
    def of(cls, taken: Collectives, row: Int64s) -> _Queued:
        order = np.lexsort((taken.start_ns[row], taken.lane[row]))
        lane = taken.lane[row][order]
        return cls(order, (0, *(np.flatnonzero(np.diff(lane)) + 1).tolist(), len(row)))

    def behind(self, values: Int64s) -> Int64s:
        """Values raised so that none is below a previous one in its lane. A host that runs ahead asks for a collective
        early, but it begins only after those before it."""
        found = values.copy()
        for first, last in pairwise(self.bounds):
            mine = self.order[first:last]
            found[mine] = np.maximum.accumulate(values[mine])
        return found


def _ready_of(table: RankTable) -> Int64s:
    """When the rank's part of each collective could start, as far as known: its start, or when the host asked for it if
    the previous one in its lane held it up."""
    taken = table.collectives
    order = np.lexsort((taken.start_ns, taken.lane))
    before = np.full(len(taken), _NEVER, dtype=np.int64)
    follows = np.diff(taken.lane[order]) == 0
    before[order[1:][follows]] = taken.end_ns[order[:-1][follows]]
    held_up = (before > taken.issue_ns) & (taken.start_ns <= before + _JOINED_NS)
    return np.where(held_up, np.minimum(taken.issue_ns, taken.start_ns), taken.start_ns)


def _step_ends(steps: Steps, number: Int64s) -> Int64s:
    """When each of these steps, or the last one before it, ended on this rank."""
    if not len(steps.number):
        return np.full(len(number), _NEVER, dtype=np.int64)
    ends: Int64s = steps.end_ns[(np.searchsorted(steps.number, number, side="right") - 1).clip(min=0)]
    return ends


def _ends_of(table: RankTable, clock: _OwnTime, offset_ns: int) -> tuple[int, int, int]:
    """The start of the first step, the end of the last one, and that end in own time."""
    if not len(table.steps.number):
        return _LATER, _NEVER, _NEVER
    end_ns = table.steps.end_ns[-1:]
    own_end_ns = int(clock.own(end_ns)[0])
    return int(table.steps.start_ns[0]) + offset_ns, int(end_ns[0]) + offset_ns, own_end_ns + offset_ns


class _Queues(Struct, frozen=True):
    """The parts in each rank's order, one rank after another. ``first`` and ``last`` bound those of each rank."""

    order: Int64s
    first: Int64s
    last: Int64s

    @classmethod
    def of(cls, table: Int64s, place_ns: Int64s, then: Int64s, ranks: int) -> _Queues:
        order = np.lexsort((then, place_ns, table))
        bounds = np.searchsorted(table[order], np.arange(ranks + 1))
        return cls(order, bounds[:-1], bounds[1:])

    def heads(self, reached: Int64s) -> Int64s:
        """The next part of each rank that has one."""
        return self.order[reached[reached < self.last]]


def _run(chains: _Chains, transfer_ns: Int64s, ranks: int) -> tuple[Int64s, Int64s, Int64s]:
    """When each collective begins and ends, and how late waits have made each rank in the end."""
    joint, table = chains.joint, chains.table
    waiting = _Queues.of(table, chains.turn, joint, ranks)
    reached, late_ns = waiting.first.copy(), np.zeros(ranks, dtype=np.int64)
    begin_ns, end_ns = (np.full(len(transfer_ns), _NEVER, dtype=np.int64) for _ in range(2))
    free_ns = np.full(int(chains.lane.max(initial=-1)) + 1, _NEVER, dtype=np.int64)
    for part in _in_order(chains, ranks):
        rank, lane = table[part], chains.lane[part]
        until = waiting.first[rank] + chains.before[part]
        while rank.size:  # the waits before each of them asks
            wait = waiting.order[np.minimum(reached[rank], len(joint) - 1)]
            over = (reached[rank] < until) & (end_ns[joint[wait]] > _NEVER)
            rank, wait, until = rank[over], wait[over], until[over]
            until_ns = end_ns[joint[wait]] + chains.tail_ns[wait]
            late_ns[rank] = np.maximum(late_ns[rank], until_ns - chains.need_ns[wait])
            reached[rank] += 1
        ready_ns = chains.place_ns[part] + chains.lag_ns[part] + late_ns[table[part]]
        np.maximum.at(begin_ns, joint[part], np.maximum(ready_ns, free_ns[lane]))
        end_ns[joint[part]] = begin_ns[joint[part]] + transfer_ns[joint[part]]
        free_ns[lane] = end_ns[joint[part]] + chains.tail_ns[part]
    np.maximum.at(late_ns, table, end_ns[joint] + chains.tail_ns - chains.need_ns)
    return begin_ns, end_ns, late_ns


def _in_order(chains: _Chains, ranks: int) -> Iterator[Int64s]:
    """Batches of parts whose collectives can begin together. Every rank stands before the next collective that it asks
    for, and those begin before which all their ranks stand. If ranks ask in different orders, so that none can begin,
    the first one in the launch's order does."""
    joint = chains.joint
    asking = _Queues.of(chains.table, chains.place_ns, joint, ranks)
    by_joint = np.argsort(joint, kind="stable")
    members = np.bincount(joint)
    done = np.zeros(len(joint), dtype=bool)
    reached = asking.first.copy()
    while len(head := asking.heads(reached)):
        codes, of_head, standing = np.unique(joint[head], return_inverse=True, return_counts=True)
        part = head[(standing == members[codes])[of_head]]
        if not len(part):
            bounds = np.searchsorted(joint[by_joint], [codes[0], codes[0] + 1])
            part = by_joint[bounds[0] : bounds[1]]
        yield part
        done[part] = True
        _skip_done(asking, reached, done, chains.table[part])


def _skip_done(asking: _Queues, reached: Int64s, done: Bools, rank: Int64s) -> None:
    """Move each of these ranks on to its next part that has not begun."""
    while rank.size:
        at = np.minimum(reached[rank], len(done) - 1)
        rank = rank[(reached[rank] < asking.last[rank]) & done[asking.order[at]]]
        reached[rank] += 1
