"""Recordings that cannot belong to the others' launch, whatever they say about themselves.

They break rules that hold for any clock, program and machine: a stream runs one collective after another, all ranks of
a group call its collectives, and a collective that brings data from everyone to everyone ends nowhere before it has
begun everywhere. The majority decides; without a majority, no recording is foreign.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profkit.derive.launch.clocks import is_message, part_column, runs_for_all
from profkit.derive.launch.launch import Launch, Parts
from profkit.derive.launch.subgroups import END_TOGETHER_NS, TOLERATED_NS
from profkit.derive.launch.table import RankTable
from profkit.derive.launch.transfers import last_parts
from profkit.trace.events import NONE, Bools, Int64s
from profkit.trace.statistics import among, deviation, distinct, distinct_rows

_MOST_WRONG = 0.1
"""A few times in a sound recording may be wrong, because profilers lose or confuse single events."""
_MOST_COMPARED = 5
"""Ranks that all others are compared with: those that come last most often, because they leave the least room."""
_MOST_NAMED = 3
"""Recordings named in a note."""
Reasons = dict[int, str]
"""Why tables are foreign, by their place among the tables."""


def usual_steps(tables: Sequence[RankTable]) -> Int64s:
    """The numbers of the steps that more than half of them recorded."""
    numbers = [distinct(table.steps.number) for table in tables]
    known, count = np.unique(np.concatenate([np.zeros(0, np.int64), *numbers]), return_counts=True)
    return known[2 * count > len(tables)]


def lacking_steps(tables: Sequence[RankTable]) -> list[str]:
    """A note if some lack steps that most recorded, so that fewer steps can be compared."""
    usual = usual_steps(tables)
    lacks = [~among(usual, table.steps.number) for table in tables]
    lacking = [table.source for table, steps in zip(tables, lacks, strict=True) if steps.any()]
    left = int((~np.any(lacks, axis=0)).sum()) if lacking else len(usual)
    if not 0 < left < len(usual):
        return []
    what = f"not all of the {len(usual):,} steps that most ranks recorded; only {left:,} of them show who is late"
    return [f"{name_some(lacking)}: {what}"]


def lacking_collectives(launch: Launch) -> list[str]:
    """A note if some have more or fewer collectives than the others."""
    differs = _miscounts(launch)[0].tolist() if launch.tables else []
    lacking = [table.source for table, steps in zip(launch.tables, differs, strict=True) if steps]
    what = "more or fewer collectives than others in some steps; those that others lack are not compared"
    return [f"{name_some(lacking)}: {what}"] if lacking else []


def name_some(sources: Sequence[str]) -> str:
    others = f" and {len(sources) - _MOST_NAMED:,} more" if len(sources) > _MOST_NAMED else ""
    return ", ".join(sources[:_MOST_NAMED]) + others


def broken_alone(tables: Sequence[RankTable]) -> Reasons:
    """Strangers by their own times, or else by their steps."""
    overlapping = {
        at: "its collectives overlap each other within one thread or stream, so its times are wrong"
        for at, table in enumerate(tables)
        if _overlap(table)
    }
    if 0 < len(overlapping) < len(tables):
        return overlapping
    usual = usual_steps(tables)
    recorded = [int(among(usual, table.steps.number).sum()) for table in tables]
    return _of_few(
        {
            at: f"it recorded {count:,} of the {len(usual):,} steps that most others recorded"
            for at, count in enumerate(recorded)
            if 2 * count <= len(usual)
        }
        if len(usual)
        else {},
        len(tables),
    )


def unlike_others(launch: Launch) -> tuple[Reasons, bool]:
    """Strangers by what the ranks did together; and whether so many have impossible times that nobody knows whose are
    right."""
    if not launch.tables:
        return {}, False
    is_unmatched: Bools = np.bincount(launch.parts.table, minlength=len(launch.tables)) == 0
    found = _few(is_unmatched, "its collectives are none of the others'")
    if found:
        return found, False
    contradicting = _contradicting(launch)
    if contradicting.any():
        found = _few(
            contradicting, "by its times, collectives end before they have begun on other ranks, or the other way round"
        )
        return found, not found
    found = _few(_misnumbering(launch), "it numbers its steps differently from the others")
    return found or _few(_miscounting(launch), "it holds more or fewer collectives in its steps than the others"), False


def _few(unlike: Bools, reason: str) -> Reasons:
    return _of_few(dict.fromkeys(np.flatnonzero(unlike).tolist(), reason), len(unlike))


def _of_few(reasons: Reasons, count: int) -> Reasons:
    return reasons if 2 * len(reasons) < count else {}


def _overlap(table: RankTable) -> bool:
    """Whether most of its collectives begin before the previous one in their lane has ended."""
    taken = table.collectives
    order = np.lexsort((taken.start_ns, taken.lane))
    lane, start_ns, end_ns = taken.lane[order], taken.start_ns[order], taken.end_ns[order]
    overlaps = (lane[1:] == lane[:-1]) & (start_ns[1:] < end_ns[:-1])
    return 2 * int(overlaps.sum()) > len(order)


def _contradicting(launch: Launch) -> Bools:
    """Whose collectives cannot be those of most others, whatever the offset of its clock."""
    count = len(launch.tables)
    if not len(launch.joint):
        return np.zeros(count, dtype=bool)
    wanted = runs_for_all(launch)
    last = launch.parts.table[last_parts(launch)[wanted]]
    chosen = np.argsort(-np.bincount(last, minlength=count), kind="stable")[:_MOST_COMPARED]
    times_ns = part_column(launch, "start_ns"), part_column(launch, "end_ns")
    compared, apart = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for other in chosen.tolist():
        tables, are_apart = _apart_from(launch.parts, other, wanted, times_ns)
        compared[tables] += 1
        apart[tables] += are_apart
    return 2 * apart > compared


def _apart_from(parts: Parts, other: int, wanted: Bools, times_ns: tuple[Int64s, Int64s]) -> tuple[Int64s, Bools]:
    """The tables that share collectives with another one, and which of them no clock offset reconciles with it."""
    start_ns, end_ns = times_ns
    part = np.full(len(wanted), NONE)
    theirs = np.flatnonzero(parts.table == other)
    part[parts.joint[theirs]] = theirs
    mine = np.flatnonzero(wanted[parts.joint] & (part[parts.joint] >= 0) & (parts.table != other))
    table, its = parts.table[mine], part[parts.joint[mine]]
    least_ns = _all_but_few(table, start_ns[its] - end_ns[mine])
    most_ns = -_all_but_few(table, start_ns[mine] - end_ns[its])
    return distinct(table), least_ns > most_ns + TOLERATED_NS


def _all_but_few(table: Int64s, bounds_ns: Int64s) -> Int64s:
    """For each table, a value that nearly all of its bounds are below."""
    ordered = bounds_ns[np.lexsort((bounds_ns, table))]
    count = np.bincount(table)
    count = count[count > 0]
    return ordered[np.cumsum(count) - 1 - (_MOST_WRONG * count).astype(np.int64)]


def _misnumbering(launch: Launch) -> Bools:
    """Who assigns most of its collectives to other steps than most of their ranks do."""
    parts, step = launch.parts, part_column(launch, "step")
    inside = step >= 0
    differs, judged = _unlike_most(launch, parts.table[inside], parts.joint[inside], step[inside])
    return 2 * differs > judged


def step_shifts(launch: Launch) -> dict[int, int]:
    """Tables whose step numbers are all higher than those of most others, by the same number, or lower (below 0).

    A first step of 0 does not count: then steps may be counted for lack of numbers, in a recording that is damaged if
    others have numbers. The rank's kernels must end at the same time as the others', or it could be the collectives
    that are numbered wrong.
    """
    parts, step = launch.parts, part_column(launch, "step")
    inside = (step >= 0) & ~is_message(launch)[parts.joint]
    joint, table = parts.joint[inside], parts.table[inside]
    shift = step[inside] - _middle_values(joint, step[inside])[joint]
    of_table = {at: distinct(shift[table == at]) for at in distinct(table).tolist()}
    first = {at: int(launch.tables[at].steps.number[:1].sum()) for at in of_table}
    return {
        at: int(shifts[0])
        for at, shifts in of_table.items()
        if len(shifts) == 1 and shifts[0] and first[at] and _ends_with_others(launch, at)
    }


def _ends_with_others(launch: Launch, at: int) -> bool:
    """Whether this rank's kernels end when the others' do."""
    parts, end_ns = launch.parts, part_column(launch, "end_ns") + launch.offset_ns[launch.parts.table]
    others = np.flatnonzero((parts.table != at) & ~is_message(launch)[parts.joint])
    middle_ns = _middle_values(parts.joint[others], end_ns[others])
    mine = np.flatnonzero((parts.table == at) & among(parts.joint, parts.joint[others]))
    if not len(mine) or not launch.tables[at].collectives.on_device[parts.row[mine]].all():
        return False
    apart_ns = end_ns[mine] - middle_ns[parts.joint[mine]]
    return deviation(apart_ns) <= END_TOGETHER_NS


def _miscounting(launch: Launch) -> Bools:
    """Who has another number of collectives than most in most steps, or in any step if its file has gaps."""
    differs, judged = _miscounts(launch)
    has_gaps = np.array([table.has_gaps for table in launch.tables], dtype=bool)
    found: Bools = (2 * differs > judged) | (has_gaps & (differs > 0))
    return found


def _miscounts(launch: Launch) -> tuple[Int64s, Int64s]:
    """For each table, in how many steps of its known groups it has another number of collectives than most ranks, and
    how many steps were judged."""
    columns = [_counts(launch, at) for at in range(len(launch.tables))]
    table, group, step, count = (np.concatenate(column) for column in zip(*columns, strict=True))
    return _unlike_most(launch, table, distinct_rows(group, step)[1], count)


def _unlike_most(launch: Launch, table: Int64s, place: Int64s, value: Int64s) -> tuple[Int64s, Int64s]:
    """For each table, in how many places its value differs from the median of all tables there, and in how many places
    there are enough tables to judge."""
    judged = np.bincount(place)[place] > 2  # of two, either may be right
    count = len(launch.tables)
    differs = judged & (value != _middle_values(place, value)[place])
    return np.bincount(table[differs], minlength=count), np.bincount(table[judged], minlength=count)


def _middle_values(place: Int64s, value: Int64s) -> Int64s:
    """The lower median by place, 0 for an empty place."""
    members = np.bincount(place)
    ordered = value[np.lexsort((value, place))]
    known = members > 0
    found = np.zeros(len(members), np.int64)
    found[known] = ordered[(np.cumsum(members) - members // 2 - 1)[known]]
    return found


def _counts(launch: Launch, at: int) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """For one table, the number of collectives of each of its groups in each of its steps, as columns: table, group,
    step, count."""
    table, parts = launch.tables[at], launch.parts
    mine = parts.table == at
    common = np.full(len(table.groups) + 1, NONE)
    common[table.collectives.group[parts.row[mine]]] = launch.joint.group[parts.joint[mine]]
    known = [not one.is_message and (one.ranks is not None or len(one.candidates) == 1) for one in table.groups]
    common[: len(known)][~np.array(known, dtype=bool)] = NONE
    group, step = common[table.collectives.group], table.collectives.step
    groups, steps = distinct(group[group >= 0]), distinct(table.steps.number)
    inside = (group >= 0) & among(step, steps)
    count = np.zeros((len(groups), len(steps)), np.int64)
    np.add.at(count, (np.searchsorted(groups, group[inside]), np.searchsorted(steps, step[inside])), 1)
    return np.full(count.size, at), np.repeat(groups, len(steps)), np.tile(steps, len(groups)), count.ravel()
