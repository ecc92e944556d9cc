"""A launch: the tables of its ranks, and which of their collectives belong together."""

from __future__ import annotations

from msgspec import Struct

from profkit.derive.launch.table import Group, RankTable
from profkit.trace.events import Int64s


class Joint(Struct, frozen=True):
    """One row for each collective that several recorded ranks took part in, in order of time. ``group`` and
    ``operation`` are indices of the launch's groups and texts; ``members`` counts the ranks that were recorded in it.
    """

    step: Int64s
    group: Int64s
    sequence: Int64s
    operation: Int64s
    size_bytes: Int64s
    members: Int64s

    def __len__(self) -> int:
        return len(self.step)


class Parts(Struct, frozen=True):
    """The ranks' parts in the joint collectives, sorted by ``joint`` and then by rank: the index of the rank's table,
    and the row in that table's collectives."""

    joint: Int64s
    table: Int64s
    row: Int64s

    def __len__(self) -> int:
        return len(self.joint)


class Launch(Struct, frozen=True):
    """What the ranks of a launch did together.

    The launch had ``world_size`` ranks. ``tables`` holds those that were recorded and fit together, in order of rank.
    A table's times plus its ``offset_ns`` are on the first table's clock. ``notes`` say what is missing, duplicated or
    does not fit.
    """

    tables: tuple[RankTable, ...]
    world_size: int
    groups: tuple[Group, ...]
    texts: tuple[str, ...]
    joint: Joint
    parts: Parts
    offset_ns: Int64s
    notes: tuple[str, ...] = ()
