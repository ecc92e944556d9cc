"""Matching the collectives of several ranks: by group, sequence, operation and bytes, never by clocks.

All ranks of a group ask for its collectives in the same order. If the trace numbers them, equal numbers belong
together. Otherwise the collectives of a step are paired one by one, as long as operations and bytes agree. If steps do
not match either, one rank's whole sequence is shifted to the place where all of it agrees. If there are several such
places, none is chosen and a note says so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from functools import partial
from operator import attrgetter

import numpy as np
from msgspec import Struct, structs

from profkit.derive.launch.clocks import align_clocks
from profkit.derive.launch.foreign import (
    Reasons,
    broken_alone,
    lacking_collectives,
    lacking_steps,
    name_some,
    step_shifts,
    unlike_others,
    usual_steps,
)
from profkit.derive.launch.launch import Joint, Launch, Parts
from profkit.derive.launch.members import Members, choose_members
from profkit.derive.launch.subgroups import TOLERATED_NS, find_groups
from profkit.derive.launch.table import Group, RankTable
from profkit.trace.events import NONE, Int64s
from profkit.trace.statistics import among, deviation, distinct, occurrences

UNEVEN = ("all_to_all", "send_recv", "gather", "scatter", "")
"""Operations in which ranks may put in different numbers of bytes."""
_AGREE_SHARE = 0.9
"""A trace may lack some kernels. Of collectives that do not belong together, far fewer agree."""
_MOST_IN_A_STEP = 4096
"""A step with more collectives is matched only if it is the same on both ranks."""
_LEAST_MESSAGES = 3
_LEAST_WITHOUT_CLOCK = 8
"""If two clocks may differ by any amount, a few messages may be equally far apart by chance."""
_CLEARLY = 0.25
"""Messages of different steps are paired if their ends are this much closer than those of the same step."""
_MOST_SHIFTED = 20_000
"""Longer sequences are not tried at every place, which would take a second."""
_KEY_SPAN = 1 << 48
_CONTRADICTION = (
    "their times contradict each other, so the ranks are not compared: whatever the clocks, collectives end on one "
    "before they have begun on others"
)


class _Rows(Struct, frozen=True):
    """The collectives of one rank in one group: rows of its table, and what is compared of each. ``size_bytes`` is 0
    where ranks may differ, and `NONE` if unknown."""

    rows: Int64s
    operation: Int64s
    size_bytes: Int64s
    step: Int64s
    sequence: Int64s

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def is_numbered(self) -> bool:
        """Whether the trace gave the numbers. Counted ones begin at 0 and have no gaps."""
        return not np.array_equal(self.sequence, np.arange(len(self.sequence)))

    def keys(self, with_sizes: bool) -> Int64s:
        return self.operation * _KEY_SPAN + self.size_bytes.clip(0, _KEY_SPAN - 1) if with_sizes else self.operation


class _Pair(Struct, frozen=True):
    """One group as two ranks saw it, and what is compared of each collective."""

    base: _Rows
    own: _Rows
    base_keys: Int64s
    own_keys: Int64s


_Indices = tuple[Int64s, Int64s]
"""Matching indices: of the base's collectives, and of the rank's own."""


def match(tables: Sequence[RankTable]) -> Launch:
    """Match what the ranks did together. Recordings that do not belong to the launch are left out, with a note."""
    left = list(tables)
    notes: list[str] = []
    while True:
        members, renumbered = _with_steps_of_most(choose_members(left))
        found = broken_alone(members.tables) or _compare(members)
        if isinstance(found, Launch):
            return _with_notes(found, members, [*notes, *renumbered])
        left_out = {members.tables[at].source: reason for at, reason in found.items()}
        notes += [f"{source}: {reason}; it is left out" for source, reason in left_out.items()]
        left = [table for table in left if table.source not in left_out]  # a copy may now take its place


def _compare(members: Members) -> Launch | Reasons:
    """What these ranks did together, or why some of them have to be left out first."""
    tables, doubts = find_groups(members.tables)
    found = align_clocks(_match(tables, members.world_size))
    unlike, contradict_each_other = unlike_others(found)
    if unlike:
        return unlike
    if contradict_each_other:
        doubts.append(f"{name_some([table.source for table in found.tables])}: {_CONTRADICTION}")
        found = _assemble(found.tables, found.groups, found.texts, [], [])
    return structs.replace(found, notes=(*doubts, *found.notes))


def _with_steps_of_most(members: Members) -> tuple[Members, list[str]]:
    """Renumber the steps of recordings whose numbers are all higher, or all lower, than those of most others.

    Finding them takes a match of its own, because telling groups, broken recordings and foreign ones relies on equal
    numbers."""
    usual = usual_steps(members.tables)
    if all(np.array_equal(table.steps.number, usual) for table in members.tables):
        return members, []
    shifts = step_shifts(align_clocks(_match(members.tables, members.world_size)))
    tables = tuple(_renumbered(table, shifts.get(at, 0)) for at, table in enumerate(members.tables))
    notes = [
        f"{members.tables[at].source}: it numbers its steps {abs(shift):,} {'higher' if shift > 0 else 'lower'} "
        "than others; the numbers of its collectives show which belong together"
        for at, shift in shifts.items()
    ]
    return structs.replace(members, tables=tables), notes


def _renumbered(table: RankTable, shift: int) -> RankTable:
    collectives, work = (
        structs.replace(column, step=np.where(column.step >= 0, column.step - shift, NONE))
        for column in (table.collectives, table.work)
    )
    steps = structs.replace(table.steps, number=table.steps.number - shift)
    return structs.replace(table, steps=steps, collectives=collectives, work=work)


def _with_notes(launch: Launch, members: Members, notes: Sequence[str]) -> Launch:
    world = members.world_size if members.world_size > 0 else len(launch.tables)
    notes = (
        *members.notes,
        *notes,
        *launch.notes,
        *lacking_steps(launch.tables),
        *lacking_collectives(launch),
        *_missing(launch, world),
    )
    return structs.replace(launch, world_size=world, notes=notes)


def _missing(launch: Launch, world: int) -> list[str]:
    """The ranks that were not recorded, if they are few. If only a sample was recorded, its size."""
    recorded = {table.identity.rank for table in launch.tables}
    missing = [rank for rank in range(world) if rank not in recorded] if world < 1 << 20 else []
    if not missing or not recorded:
        return []
    if 2 * len(missing) > world or len(missing) > 8:
        return [f"{len(recorded):,} of {world:,} ranks were recorded; what the others did is unknown"]
    names = ", ".join(map(str, missing))
    if len(missing) == 1:
        return [f"rank {names} of {world:,} is missing; what it did is unknown"]
    return [f"ranks {names} of {world:,} are missing; what they did is unknown"]


def _match(tables: tuple[RankTable, ...], world_size: int) -> Launch:
    texts: dict[str, int] = {}
    groups, group_of = _common_groups(tables, world_size)
    found: list[tuple[Int64s, ...]] = []
    notes: list[str] = []
    for number in range(len(groups)):
        inside = [
            np.flatnonzero(np.append(of_own, NONE)[table.collectives.group] == number)
            for table, of_own in zip(tables, group_of, strict=True)
        ]
        rows = {at: _rows_of(tables[at], own, texts) for at, own in enumerate(inside) if len(own)}
        if len(rows) > 1:
            found.append(_match_group(tables, rows, number, notes))
    columns = [np.concatenate(column) for column in zip(*found, strict=True)] if found else []
    return _assemble(tables, groups, tuple(texts), columns, list(dict.fromkeys(notes)))


def _rows_of(table: RankTable, rows: Int64s, texts: dict[str, int]) -> _Rows:
    taken = table.collectives
    codes = np.array([texts.setdefault(text, len(texts)) for text in table.texts] or [NONE], dtype=np.int64)
    uneven = np.array([text in UNEVEN for text in table.texts] or [True], dtype=bool)
    operation = taken.operation[rows]
    size_bytes = np.where(uneven[operation], 0, taken.size_bytes[rows])
    return _Rows(rows, codes[operation], size_bytes, taken.step[rows], taken.sequence[rows])


def _common_groups(tables: tuple[RankTable, ...], world_size: int) -> tuple[tuple[Group, ...], list[Int64s]]:
    """The distinct groups of all tables, and for each table the numbers of its own groups among them.

    Groups with the same ranks are the same group. If a table has several groups of the same ranks, their names tell
    them apart, or their order if ranks name them differently.
    """
    by_ranks = [_by_ranks(table, world_size) for table in tables]
    names: dict[object, set[tuple[str, ...]]] = {}
    for own in by_ranks:
        for key, mine in own.items():
            names.setdefault(key, set()).add(tuple(sorted(group.name for _, group in mine)))
    numbers: dict[object, int] = {}
    groups: list[Group] = []
    group_of = [np.full(len(table.groups), NONE, dtype=np.int64) for table in tables]
    for at, own in enumerate(by_ranks):
        for key, mine in own.items():
            same_names = len(names[key]) == 1 and len({group.name for _, group in mine}) == len(mine)
            for order, (index, group) in enumerate(mine):
                whole = (key, group.name if same_names else order)
                if whole not in numbers:
                    numbers[whole] = len(groups)
                    groups.append(group)
                group_of[at][index] = numbers[whole]
    return tuple(groups), group_of


def _by_ranks(table: RankTable, world_size: int) -> dict[object, list[tuple[int, Group]]]:
    found: dict[object, list[tuple[int, Group]]] = {}
    for index, group in enumerate(table.groups):
        size = group.size if group.size > 0 else world_size
        if group.is_message:  # by sender and receiver; if they are unknown it matches none
            key: object = group.ranks or (table.identity.rank, index, "unknown")
        elif group.ranks is None:
            key = (size, group.description, "unknown")
        else:
            key = (*sorted(group.ranks), "together")
        found.setdefault(key, []).append((index, group))
    return found


def _match_group(
    tables: tuple[RankTable, ...], rows: dict[int, _Rows], group: int, notes: list[str]
) -> tuple[Int64s, ...]:
    """Columns over the parts: the group, the row and the table of the reference, and the part's own table and row."""
    reference = _reference(rows)
    base = rows[reference]
    found = [(np.arange(len(base)), np.full(len(base), reference), base.rows)]
    for at, own in rows.items():
        if at != reference:
            theirs, mine, note = _pair(base, own, _messages(tables[reference], base, tables[at], own))
            notes.extend([f"{tables[at].source}: {note}"] if note else [])
            found.append((theirs, np.full(len(mine), at), own.rows[mine]))
    place, table, row = (np.concatenate(column) for column in zip(*found, strict=True))
    several = np.bincount(place, minlength=len(base))[place] > 1
    place, table, row = place[several], table[several], row[several]
    return np.full(len(place), group), base.rows[place], np.full(len(place), reference), table, row


def _reference(rows: dict[int, _Rows]) -> int:
    """Among the ranks that do what most do, the one with most collectives. So foreign recordings are compared with the
    majority, and not the other way round."""
    kinds = {at: frozenset(distinct(row.keys(True)).tolist()) for at, row in rows.items()}
    common = Counter(kinds.values())
    return max(rows, key=lambda at: (common[kinds[at]], len(rows[at]), -at))


class _Messages(Struct, frozen=True):
    """The messages from one rank to another, as both ranks saw them: their starts and ends. The base sends them if
    ``base_sends``, else the rank itself does. ``is_one_clock`` means that both have the same clock."""

    base_start_ns: Int64s
    base_end_ns: Int64s
    own_start_ns: Int64s
    own_end_ns: Int64s
    base_sends: bool
    is_one_clock: bool


def _messages(table: RankTable, base: _Rows, other: RankTable, own: _Rows) -> _Messages | None:
    """The messages of both ranks; None if these collectives are no messages."""
    first = table.groups[int(table.collectives.group[base.rows[0]])]
    if not first.is_message:
        return None
    clocks = table.identity.clock_offset_ns, other.identity.clock_offset_ns
    taken, others = table.collectives, other.collectives
    is_one_clock = clocks[0] is not None and clocks[0] == clocks[1]
    return _Messages(
        taken.start_ns[base.rows],
        taken.end_ns[base.rows],
        others.start_ns[own.rows],
        others.end_ns[own.rows],
        bool(first.sends),
        is_one_clock,
    )


def _pair(base: _Rows, own: _Rows, messages: _Messages | None = None) -> tuple[Int64s, Int64s, str]:
    """Matching indices of both, and a note if the match is unclear."""
    with_sizes = bool((base.size_bytes >= 0).all() and (own.size_bytes >= 0).all())
    pair = _Pair(base, own, base.keys(with_sizes), own.keys(with_sizes))
    found = _by_number(pair) if base.is_numbered or own.is_numbered else None
    if found is None:
        found = _by_step(pair) if messages is None else _by_step_of_either(pair, messages)
    if found is not None:
        return (*found, "")
    nothing = np.zeros(0, dtype=np.int64)
    if messages is not None and _by_step(pair) is not None:
        return (
            nothing,
            nothing,
            (
                "by the clock that both ranks share, some of its messages arrive before they are "
                "sent, so none is compared"
            ),
        )
    shifts = _shifts(pair.base_keys, pair.own_keys)
    if len(shifts) == 1:
        first = max(0, -shifts[0])
        mine = np.arange(first, min(len(own), len(base) - shifts[0]))
        return mine + shifts[0], mine, ""
    why = "fit those of others at several places" if shifts else "do not fit those of others"
    if (base.step >= 0).all() and (own.step >= 0).all() and not len(np.intersect1d(base.step, own.step)):
        why = "are of steps that the others did not record"
    return nothing, nothing, f"its collectives {why}, and are not compared with them"


def _by_number(pair: _Pair) -> _Indices | None:
    """Match those with the same number, in order if several have it; None if they do not agree."""
    base, own = pair.base, pair.own
    span = int(max(base.sequence.max(), own.sequence.max())) + 1
    keys = [occurrences(one.sequence) * span + one.sequence for one in (base, own)]
    order = np.argsort(keys[0], kind="stable")
    mine = np.flatnonzero(among(keys[1], keys[0]))
    theirs = order[np.searchsorted(keys[0][order], keys[1][mine])]
    agree = pair.base_keys[theirs] == pair.own_keys[mine]
    if not agree.any() or agree.mean() < _AGREE_SHARE:
        return None
    return theirs[agree], mine[agree]


def _by_step(pair: _Pair) -> _Indices | None:
    """Match one by one in steps of the same number; if a step differs, match the longest runs that agree."""
    common = np.intersect1d(distinct(pair.base.step), distinct(pair.own.step))
    common = common[common >= 0]
    found = [_within_step(pair, step) for step in common.tolist()]
    if not found:
        return None
    theirs, mine = (np.concatenate(column) for column in zip(*found, strict=True))
    inside = np.count_nonzero(among(pair.own.step, common))
    return (theirs, mine) if len(mine) and 2 * len(mine) >= inside else None


def _by_step_of_either(pair: _Pair, messages: _Messages) -> _Indices | None:
    """Match messages by step, but a step of one rank may be the one before or after on the other. A parameter server
    ends its step when it has received all gradients, while its workers end theirs before they send them. Then messages
    of different steps end at the same time on both ranks, and those of the same step do not."""
    usual = _by_step(pair)
    least = _LEAST_MESSAGES if messages.is_one_clock else _LEAST_WITHOUT_CLOCK
    if usual is None or len(usual[0]) < least:
        return usual
    most_ns, best = _CLEARLY * _apart_ns(messages, usual), usual
    for shift in (1, -1):
        step = np.where(pair.own.step >= 0, pair.own.step + shift, NONE)
        found = _by_step(structs.replace(pair, own=structs.replace(pair.own, step=step)))
        if found is not None and len(found[0]) >= least:
            apart_ns = _apart_ns(messages, found)
            if apart_ns < most_ns:
                most_ns, best = apart_ns, found
    return best if most_ns < math.inf else None


def _apart_ns(messages: _Messages, found: _Indices) -> float:
    """How far apart the ends of paired messages are on both ranks, beyond the difference of the clocks; infinite if
    messages arrive before they are sent."""
    theirs, mine = found
    ends_ns = messages.own_end_ns[mine] - messages.base_end_ns[theirs]
    if not messages.is_one_clock:
        return deviation(ends_ns)
    if messages.base_sends:
        took_ns = messages.own_end_ns[mine] - messages.base_start_ns[theirs]
    else:
        took_ns = messages.base_end_ns[theirs] - messages.own_start_ns[mine]
    arrives_early = np.mean(took_ns < -TOLERATED_NS) > 1 - _AGREE_SHARE
    return math.inf if arrives_early else float(np.median(np.abs(ends_ns)))


def _within_step(pair: _Pair, step: int) -> _Indices:
    theirs, mine = np.flatnonzero(pair.base.step == step), np.flatnonzero(pair.own.step == step)
    first, second = pair.base_keys[theirs], pair.own_keys[mine]
    if np.array_equal(first, second):
        return theirs, mine
    if max(len(first), len(second)) > _MOST_IN_A_STEP:
        return theirs[:0], mine[:0]
    blocks = SequenceMatcher(None, first.tolist(), second.tolist(), autojunk=False).get_matching_blocks()
    side_by_side = [(one.a + i, one.b + i) for one in blocks for i in range(one.size)]
    at = np.array(side_by_side, dtype=np.int64).reshape(-1, 2)
    return theirs[at[:, 0]], mine[at[:, 1]]


def _shifts(base: Int64s, own: Int64s) -> list[int]:
    """The shifts of the rank's sequence after which all collectives side by side agree: the one with the longest
    overlap, or several with the same overlap."""
    best: list[int] = []
    most = 0
    if len(base) + len(own) > _MOST_SHIFTED:
        return best
    for shift in range(1 - len(own), len(base)):
        first, last = max(0, -shift), min(len(own), len(base) - shift)
        if last - first >= max(most, 1) and np.array_equal(base[first + shift : last + shift], own[first:last]):
            best, most = [*(best if last - first == most else []), shift], last - first
    return best if 2 * most >= min(len(base), len(own)) else []


def _assemble(
    tables: tuple[RankTable, ...],
    groups: tuple[Group, ...],
    texts: tuple[str, ...],
    columns: list[Int64s],
    notes: list[str],
) -> Launch:
    empty = np.zeros(0, dtype=np.int64)
    offset = np.zeros(len(tables), dtype=np.int64)
    if not columns:
        nothing = Joint(*[empty] * 6)
        return Launch(tables, len(tables), groups, texts, nothing, Parts(empty, empty, empty), offset, tuple(notes))
    group, base_row, base_table, table, row = columns
    keys = np.stack([group, base_table, base_row])
    joints, number = np.unique(keys, axis=1, return_inverse=True)
    number = number.ravel()
    parts = Parts(number, table, row)
    found = Joint(
        step=_of_references(tables, joints, attrgetter("collectives.step")),
        group=joints[0],
        sequence=_of_references(tables, joints, attrgetter("collectives.sequence")),
        operation=_of_references(tables, joints, partial(_operations, texts)),
        size_bytes=_of_references(tables, joints, attrgetter("collectives.size_bytes")),
        members=np.bincount(number, minlength=joints.shape[1]),
    )
    return Launch(tables, len(tables), groups, texts, found, parts, offset, tuple(notes))


def _of_references(tables: tuple[RankTable, ...], joints: Int64s, column: Callable[[RankTable], Int64s]) -> Int64s:
    """The value of a column for each joint collective, from its reference's table."""
    found = np.zeros(joints.shape[1], dtype=np.int64)
    for at in distinct(joints[1]).tolist():
        mine = joints[1] == at
        found[mine] = column(tables[at])[joints[2][mine]]
    return found


def _operations(texts: tuple[str, ...], table: RankTable) -> Int64s:
    """The operation of each collective of a table, as an index of these texts."""
    codes = np.array([texts.index(text) for text in table.texts], dtype=np.int64)
    return codes[table.collectives.operation]
