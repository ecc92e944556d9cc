"""Which ranks are late by more than chance, judged by how long they work and not by how long others wait."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.launch.chance import LEAST_STEPS, is_beyond_chance, stand_out
from profkit.derive.launch.table import Cause
from profkit.derive.launch.work_by_rank import WorkByRank
from profkit.trace.events import Bools, Float64s, Int64s

MOST_OF_IT = 0.5
"""Single places must explain this share of the excess; otherwise all of the rank's work is slower."""


class Late(Struct, frozen=True):
    """Which ranks are late, and by rank and step how much longer each of them works than the median of the ranks of its
    kind that are on time; 0 for ranks on time."""

    late: Bools
    excess_ns: Float64s

    @property
    def ranks(self) -> Int64s:
        return np.flatnonzero(self.late)


def find_late(own: WorkByRank) -> Late | None:
    """Find the late ranks; None if too few steps were recorded or no two ranks do the same work.

    A rank is late if its work as a whole takes longer. If that varies too much to tell, the work at one place decides,
    as long as it explains most of the difference and the rank does not make up for it elsewhere. At most half of the
    ranks of a kind are late: if more take that long, the work takes that long and the others have less to do.
    """
    if len(own.steps) < LEAST_STEPS:
        return None
    late, compared = np.zeros(len(own.kind), dtype=bool), np.zeros(len(own.kind), dtype=bool)
    for code in np.unique(own.kind):
        mine = np.flatnonzero(own.kind == code)
        compared[mine] = len(mine) > 1
        late[mine] = _of_one_kind(own, mine)
    if not compared.any():
        return None
    excess_ns = np.zeros_like(own.total_ns)
    for rank in np.flatnonzero(late).tolist():
        excess_ns[rank] = own.total_ns[rank] - usual_ns(own.total_ns, own.kind, late, rank)
    return Late(late, excess_ns)


def usual_ns(time_ns: Float64s, kind: Int64s, late: Bools, rank: int) -> Float64s:
    """The median of the other ranks of this rank's kind that are on time; without others, the rank's own time."""
    others = np.flatnonzero((kind == kind[rank]) & ~late & (np.arange(len(kind)) != rank))
    median: Float64s = np.median(time_ns[others], axis=0) if len(others) else time_ns[rank]
    return median


def _of_one_kind(own: WorkByRank, mine: Int64s) -> Bools:
    total_ns = own.total_ns[mine]
    in_all = _late_in(total_ns, 1)
    late, comparisons = in_all.copy(), len(own.places)
    for at, place in enumerate(own.places):
        if place[0] != Cause.CONTENTION:
            place_ns = own.place_ns[mine, :, at]
            late |= _late_in(place_ns, comparisons) & _is_enough(total_ns, place_ns)
    return late if late.sum() * 2 <= len(mine) else in_all


def _late_in(time_ns: Float64s, comparisons: int) -> Bools:
    """Ranks that stand out from all, by more than their own steps vary: a few long steps do not make a rank late."""
    late = stand_out(time_ns, comparisons)
    if late.any():
        usual = np.median(time_ns[~late], axis=0)
        late[late] = [is_beyond_chance(one - usual, 1) for one in time_ns[late]]
    return late


def _is_enough(total_ns: Float64s, place_ns: Float64s) -> Bools:
    """Whether the extra time at a place is most of the rank's extra time, and is not made up for elsewhere."""
    above, above_at = (one.mean(axis=1) - np.median(one.mean(axis=1)) for one in (total_ns, place_ns))
    enough: Bools = (above >= MOST_OF_IT * above_at) & (above_at >= MOST_OF_IT * above)
    return enough
