"""Which recordings are the ranks of one launch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

from msgspec import Struct, structs

from profkit.derive.launch.table import RankTable

_LEAST_WHOLE = 2
"""With fewer complete recordings than this, truncated ones are used too."""


class Members(Struct, frozen=True):
    """The tables that fit together, in order of rank; the number of the launch's ranks, -1 if unknown; and notes on why
    others are left out."""

    tables: tuple[RankTable, ...]
    world_size: int
    notes: tuple[str, ...] = ()


def choose_members(tables: Sequence[RankTable]) -> Members:
    """Choose the launch that most recordings say they belong to. Those that say something else are left out."""
    launch = _commonest(table.identity.launch for table in tables if table.identity.launch)
    world = _commonest(table.identity.world_size for table in tables if table.identity.world_size > 0)
    numbered = _numbered(tables)
    are_whole = sum(not table.is_cut_off for table in tables) >= _LEAST_WHOLE
    kept: dict[int, RankTable] = {}
    notes = []
    for table in sorted(numbered, key=_first_of_a_rank):
        rank = table.identity.rank
        reason = _why_not(table, launch, world)
        if table.is_cut_off and are_whole and not reason:
            reason = "its file is cut off, and what is lost may be from any time"
        if not reason and rank in kept:
            reason = _why_not_both(kept[rank], table)
        if reason:
            notes.append(f"{table.source}: {reason}; it is left out")
        else:
            kept[rank] = _of_world(table, world) if isinstance(world, int) else table
    return Members(tuple(kept.values()), world if isinstance(world, int) else -1, tuple(notes))


def _of_world(table: RankTable, world: int) -> RankTable:
    """The table with groups of unknown size taken for groups of all ranks."""
    groups = [one if one.size > 0 else structs.replace(one, size=world) for one in table.groups]
    return structs.replace(table, groups=tuple(groups))


def _first_of_a_rank(table: RankTable) -> tuple[int, bool, int, str]:
    """Sorts recordings of one rank by trust: first those whose names do not contradict, then those that hold most."""
    return table.identity.rank, _is_named_otherwise(table), -len(table.collectives), table.source


def _is_named_otherwise(table: RankTable) -> bool:
    return table.named_rank not in (None, table.identity.rank)


def _why_not_both(kept: RankTable, other: RankTable) -> str:
    rank = f"rank {other.identity.rank:,}"
    if _is_named_otherwise(other) and not _is_named_otherwise(kept):
        return f"its name says rank {other.named_rank:,}, but its content says {rank}, which is {kept.source}"
    return f"it is {rank}, as {kept.source} is, which holds at least as many collectives"


def _numbered(tables: Sequence[RankTable]) -> list[RankTable]:
    """If no recording says which rank it is, they are numbered in the order given."""
    if not tables or any(table.identity.rank >= 0 for table in tables):
        return list(tables)
    return [
        structs.replace(table, identity=structs.replace(table.identity, rank=rank)) for rank, table in enumerate(tables)
    ]


def _why_not(table: RankTable, launch: Hashable, world: Hashable) -> str:
    """Why a table cannot belong to the launch, empty if it can."""
    own = table.identity
    if not len(table.collectives):
        return "it holds no collective that could tie it to the others"
    if own.launch and own.launch != launch:
        return "it belongs to another launch"
    if isinstance(world, int) and own.world_size > 0 and own.world_size != world:
        return f"it is one of {own.world_size:,} ranks, while the others are of {world:,}"
    if own.rank < 0:
        return "it does not say which rank it is"
    if isinstance(world, int) and own.rank >= world:
        return f"it is rank {own.rank:,} of only {world:,} ranks"
    return ""


def _commonest(values: Iterable[Hashable]) -> Hashable:
    """The most common value, the first one of several; None without values."""
    counted = Counter(values).most_common(1)
    return counted[0][0] if counted else None
