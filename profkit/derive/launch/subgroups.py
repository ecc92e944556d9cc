"""Finding the process groups of collectives whose recordings do not name them.

Gloo's calls and traces from before PyTorch 2.2 do not say which group a collective belongs to. But times can prove that
two ranks are in different groups. A collective that brings data from everyone to everyone ends on no rank before it has
begun on all; if no clock offset makes that true each time, the ranks are in different groups. On GPUs it also ends on
all ranks at the same moment; if the difference between two ranks' ends varies, they are in different groups.

If a recording lists its groups (``pg_config``), the only possible one is taken, or on GPUs the largest of several.
Without the list, ranks are divided if they separate into groups of equal size. A note says what remains unknown and is
not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from msgspec import structs

from profkit.derive.launch.table import Collectives, Group, RankTable
from profkit.trace.events import NONE, Bools, Int64s
from profkit.trace.statistics import deviation

FOR_ALL = ("all_reduce", "all_gather", "reduce_scatter", "barrier")
"""Operations that end nowhere before they have begun everywhere."""
_SPLITTING = (*FOR_ALL, "all_to_all")
"""Operations that can separate ranks into groups. An all-to-all may send nothing to some ranks, which is rare."""
TOLERATED_NS = 100_000
"""Clocks of two machines drift apart by at most 10 µs a second."""
END_TOGETHER_NS = 50_000
"""A kernel of NCCL ends within some microseconds on all GPUs of its group. If kernels of two groups always end this
close, taking them for one makes their ranks' waits wrong by no more than this."""
_END_TOGETHER_SHARE = 0.02
"""Of the collective's duration, because a ring's last piece arrives at one rank after another. On 128 ranks, an
all-gather of 42 to 64 ms ended 0.26 ms apart on two of them."""
_LEAST_ENDS = 4
_LEAST_OF_GROUPS = 4
"""Fewer ranks cannot form several groups of two or more."""
_MOST_RANKS = 64
"""Without lists of groups, all pairs of ranks are compared, but not of more ranks than this."""

_Ranks = tuple[int, ...]
_Rows = dict[int, Int64s]
"""Rows of a table, by its place among the tables."""


def find_groups(tables: tuple[RankTable, ...]) -> tuple[tuple[RankTable, ...], list[str]]:
    """Find groups for collectives without one, as far as possible, and give notes on the rest."""
    tables = _with_ends_of_messages(tables)
    notes = [
        f"{table.source}: its messages do not say whom they go to or come from, so they are not compared"
        for table in tables
        if any(one.is_message and one.ranks is None for one in table.groups)
    ]
    for slot in range(max((len(_unnamed(table)) for table in tables), default=0)):
        for operation, rows in _kinds(tables, slot):
            groups, note = _groups_of(tables, operation, rows)
            tables = _regrouped(tables, rows, groups) if groups is not None else tables
            notes.extend([note] if note else [])
    return tables, list(dict.fromkeys(notes))


def _with_ends_of_messages(tables: tuple[RankTable, ...]) -> tuple[RankTable, ...]:
    """Give messages their two ranks if, of the possible pairs, only one other rank may have the counterpart."""
    at = {table.identity.rank: table for table in tables}

    def may_be(pair: _Ranks, own: RankTable, sends: bool | None) -> bool:
        other = at.get(pair[1] if pair[0] == own.identity.rank else pair[0])
        theirs = other.groups if other is not None else ()
        return other is None or any(
            one.is_message and one.sends != sends and pair in (one.ranks, *one.candidates) for one in theirs
        )

    def with_ends(group: Group, own: RankTable) -> Group:
        if not group.is_message or group.ranks is not None:
            return group
        left = [pair for pair in group.candidates if may_be(pair, own, group.sends)]
        return group if len(left) != 1 else structs.replace(group, name="{} to {}".format(*left[0]), ranks=left[0])

    return tuple(
        structs.replace(table, groups=tuple(with_ends(group, table) for group in table.groups)) for table in tables
    )


def _unnamed(table: RankTable) -> list[int]:
    """The groups about which nothing is known but, perhaps, the candidates."""
    return [
        at
        for at, one in enumerate(table.groups)
        if one.ranks is None
        and not one.is_message
        and not one.name
        and not one.description
        and len(one.candidates) != 1
    ]


def _kinds(tables: tuple[RankTable, ...], slot: int) -> Iterator[tuple[str, _Rows]]:
    """The collectives of these groups by operation and size, if several ranks take part in them."""
    found: dict[tuple[str, int], _Rows] = {}
    for number, table in enumerate(tables):
        own, taken = _unnamed(table), table.collectives
        rows = np.flatnonzero(taken.group == own[slot]) if slot < len(own) else np.zeros(0, dtype=np.int64)
        pairs, inverse = np.unique(
            np.stack([taken.operation[rows], taken.size_bytes[rows]]), axis=1, return_inverse=True
        )
        for at, (operation, size) in enumerate(pairs.T.tolist()):
            mine = rows[inverse.ravel() == at]
            found.setdefault((table.texts[operation], size), {})[number] = mine
    yield from ((operation, rows) for (operation, _), rows in found.items() if len(rows) > 1)


def _groups_of(tables: tuple[RankTable, ...], operation: str, rows: _Rows) -> tuple[dict[int, _Ranks] | None, str]:
    """For each table the ranks of its group, empty if unknown; None if all may be in one group and no list says
    otherwise. And a note."""
    listed = {at: _candidates(tables[at]) for at in rows}
    if any(listed.values()):
        return _groups_by_lists(tables, operation, rows, listed)
    if operation not in _SPLITTING:
        return None, ""
    first = next(iter(rows))
    if any(_are_apart(tables, rows, first, at) for at in rows):
        return _groups_by_times(tables, operation, rows)
    is_doubtful = len(rows) >= _LEAST_OF_GROUPS
    return None, _doubt(operation, "taken for those of all ranks, which nothing contradicts") if is_doubtful else ""


def _groups_by_lists(
    tables: tuple[RankTable, ...], operation: str, rows: _Rows, listed: dict[int, tuple[_Ranks, ...]]
) -> tuple[dict[int, _Ranks], str]:
    """The same, for tables with lists of groups."""
    number = {tables[at].identity.rank: at for at in rows}
    chosen: dict[int, _Ranks] = dict.fromkeys(rows, ())
    is_nested = False
    for at in rows if operation in _SPLITTING else ():
        possible = sorted((ranks for ranks in listed[at] if _may_be(tables, rows, number, ranks)), key=len)
        if len(possible) == 1:
            chosen[at] = possible[0]
        elif possible and _fit_all(tables, rows, at, possible):
            chosen[at], is_nested = possible[-1], True
    agreed = {
        at: ranks if all(chosen.get(number.get(rank, at)) == ranks for rank in ranks) else ()
        for at, ranks in chosen.items()
    }
    if not all(agreed.values()):
        return agreed, _doubt(operation, "they are not compared")
    largest = max(len(ranks) for ranks in agreed.values())
    return agreed, _doubt(
        operation, f"taken for one of {largest:,} ranks, because they end at the same time on all of these"
    ) if is_nested else ""


def _doubt(operation: str, what: str) -> str:
    return f"the recordings do not say which process group some collectives ({operation}) belong to: {what}"


def _candidates(table: RankTable) -> tuple[_Ranks, ...]:
    own = _unnamed(table)
    return table.groups[own[0]].candidates if own else ()


def _may_be(tables: tuple[RankTable, ...], rows: _Rows, number: dict[int, int], ranks: _Ranks) -> bool:
    """Whether these ranks may be one group."""
    recorded = {table.identity.rank for table in tables}
    inside = [number[rank] for rank in ranks if rank in number]
    takes_part = all(rank in number for rank in ranks if rank in recorded)
    reference = inside[0]
    return takes_part and not any(_are_apart(tables, rows, reference, at) for at in inside[1:])


def _are_apart(tables: tuple[RankTable, ...], rows: _Rows, one: int, other: int) -> bool:
    """Whether these two ranks cannot have taken part in the same collectives, whatever their clocks say."""
    if one == other:
        return False
    first, second = _side_by_side(tables[one], rows[one], tables[other], rows[other])
    a, b = tables[one].collectives, tables[other].collectives
    if not len(first):
        return False
    if _end_together(a, first, b, second) is False:
        return True
    least_ns = int((a.start_ns[first] - b.end_ns[second]).max())
    most_ns = int((a.end_ns[first] - b.start_ns[second]).min())
    clocks = tables[one].identity.clock_offset_ns, tables[other].identity.clock_offset_ns
    if clocks[0] is not None and clocks[1] is not None:
        said_ns = clocks[1] - clocks[0]
        return not least_ns - TOLERATED_NS <= said_ns <= most_ns + TOLERATED_NS
    return least_ns > most_ns + TOLERATED_NS


def _end_together(a: Collectives, first: Int64s, b: Collectives, second: Int64s) -> bool | None:
    """Whether kernels of two ranks end at the same time, apart from a constant offset; None if unknown."""
    if len(first) < _LEAST_ENDS or not (a.on_device[first].all() and b.on_device[second].all()):
        return None
    apart_ns = a.end_ns[first] - b.end_ns[second]
    takes_ns = np.minimum(a.end_ns[first] - a.start_ns[first], b.end_ns[second] - b.start_ns[second])
    most_ns = max(END_TOGETHER_NS, _END_TOGETHER_SHARE * float(np.median(takes_ns)))
    return deviation(apart_ns) <= most_ns


def _fit_all(tables: tuple[RankTable, ...], rows: _Rows, own: int, possible: Sequence[_Ranks]) -> bool:
    """Whether the largest of the possible groups contains the others, and the kernels of its ranks are known to end
    with those of this one."""
    ranks = possible[-1]
    if not all(set(one) <= set(ranks) for one in possible):
        return False
    number = {tables[at].identity.rank: at for at in rows}
    others = [number[rank] for rank in ranks if rank in number and number[rank] != own]
    for at in others:
        first, second = _side_by_side(tables[own], rows[own], tables[at], rows[at])
        if not _end_together(tables[own].collectives, first, tables[at].collectives, second):
            return False
    return True


def _side_by_side(one: RankTable, own: Int64s, other: RankTable, others: Int64s) -> tuple[Int64s, Int64s]:
    """The rows of both in the steps of which both have equally many."""
    steps = [table.collectives.step[rows] for table, rows in ((one, own), (other, others))]
    common = [
        step
        for step in np.intersect1d(steps[0], steps[1]).tolist()
        if step >= 0 and np.count_nonzero(steps[0] == step) == np.count_nonzero(steps[1] == step)
    ]
    chosen: list[Bools] = [np.isin(step, common) for step in steps]
    return own[chosen[0]], others[chosen[1]]


def _groups_by_times(tables: tuple[RankTable, ...], operation: str, rows: _Rows) -> tuple[dict[int, _Ranks], str]:
    """Groups of equal size such that two ranks may be together only within a group; empty groups if the ranks do not
    separate like that."""
    together = {at: {at} for at in rows}
    for one, other in combinations(rows, 2) if len(rows) <= _MOST_RANKS else ():
        if not _are_apart(tables, rows, one, other):
            together[one].add(other)
            together[other].add(one)
    is_clear = all(together[at] == together[other] for at in rows for other in together[at])
    sizes = {len(one) for one in together.values()}
    if not is_clear or len(sizes) > 1 or sizes == {1}:
        return dict.fromkeys(rows, ()), _doubt(operation, "they belong to several groups and are not compared")
    return (
        {at: tuple(sorted(tables[one].identity.rank for one in together[at])) for at in rows},
        _doubt(operation, "they are divided by which ranks cannot have taken part in the same ones"),
    )


def _regrouped(tables: tuple[RankTable, ...], rows: _Rows, groups: dict[int, _Ranks]) -> tuple[RankTable, ...]:
    """The tables with groups for these rows, and `NONE` for rows whose group remains unknown."""
    changed = list(tables)
    for at, ranks in groups.items():
        table = changed[at]
        reported = Group("", len(ranks), ranks)
        known = table.groups if not ranks or reported in table.groups else (*table.groups, reported)
        group, sequence = table.collectives.group.copy(), table.collectives.sequence.copy()
        group[rows[at]] = known.index(reported) if ranks else NONE
        mine = np.flatnonzero(group == group[rows[at][0]])
        sequence[mine] = np.arange(len(mine))
        taken = structs.replace(table.collectives, group=group, sequence=sequence)
        changed[at] = structs.replace(table, groups=known, collectives=taken)
    return tuple(changed)
