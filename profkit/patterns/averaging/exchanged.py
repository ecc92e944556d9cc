"""This rank's own collectives, and which of its launch's ranks it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profkit.derive.facts import Facts, derived_once
from profkit.derive.launch.table import Collectives, RankTable
from profkit.patterns.averaging.gradients import gradient_all_reduces
from profkit.patterns.ranks.table import rank_table
from profkit.trace.events import NONE, Bools, Int64s, Rows
from profkit.trace.statistics import among, distinct


@derived_once
def own_table(facts: Facts) -> RankTable:
    """What this rank exchanged, on the trace's own clock."""
    return rank_table(facts, "")


def own_number(facts: Facts, tables: Sequence[RankTable]) -> int:
    """Which of the tables is this rank's, `NONE` if none is."""
    mine = own_table(facts).collectives
    return next(
        (
            number
            for number, table in enumerate(tables)
            if np.array_equal(table.collectives.start_ns, mine.start_ns)
            and np.array_equal(table.collectives.end_ns, mine.end_ns)
        ),
        NONE,
    )


def on_trace_clock(facts: Facts, times_ns: Int64s) -> Int64s:
    """A table's times on the clock of the trace's events."""
    return times_ns - facts.trace.base_ns


def waits_for(facts: Facts, rows: Int64s) -> tuple[Int64s, Int64s]:
    """From when to when this rank stands still for its own collectives ``rows``, on the clock of the trace's events."""
    taken = own_table(facts).collectives
    return on_trace_clock(facts, taken.wait_start_ns[rows]), on_trace_clock(facts, taken.wait_end_ns[rows])


def called_under(facts: Facts, calls: Rows, names: tuple[str, ...]) -> Bools:
    """Which calls, `NONE` where unknown, are inside a range whose name begins with one of these."""
    inside = facts.tree.under(facts.trace.where_name(lambda name: name.startswith(names)))
    return (calls >= 0) & inside[calls]


def with_operation(table: RankTable, operation: str) -> Bools:
    """Which of a rank's collectives have this operation, such as ``all_reduce``."""
    is_operation = np.array([*(text == operation for text in table.texts), False], dtype=bool)
    return is_operation[table.collectives.operation]


def all_reduces(facts: Facts) -> Bools:
    """Which of this rank's collectives are all-reduces."""
    return with_operation(own_table(facts), "all_reduce")


def gradient_messages(facts: Facts) -> tuple[Int64s, Int64s]:
    """The table's all-reduces that the storing of gradients starts, and the step of each."""
    calls = gradient_all_reduces(facts)
    if not calls.size:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    issue_ns = on_trace_clock(facts, own_table(facts).collectives.issue_ns)
    rows = np.flatnonzero(among(issue_ns, facts.trace.events.start_ns[calls]) & all_reduces(facts))
    step = facts.steps.index_of(issue_ns[rows])
    return rows[step >= 0], step[step >= 0]


def sizes_by_order(taken: Collectives, rows: Int64s, step: Int64s) -> Int64s:
    """The bytes of these collectives. A step without shapes has those of a step with as many collectives and shapes."""
    size = taken.size_bytes[rows].copy()
    known: dict[int, Int64s] = {}
    for one in distinct(step):
        mine = np.flatnonzero(step == one)
        if (size[mine] >= 0).all():
            known.setdefault(len(mine), size[mine])
    for one in distinct(step):
        mine = np.flatnonzero(step == one)
        if (size[mine] < 0).any() and len(mine) in known:
            size[mine] = known[len(mine)]
    return size
