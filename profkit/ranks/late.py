"""Which ranks are late by more than chance, by what they work and not by what others wait."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.ranks.chance import LEAST_STEPS, is_beyond_chance, stand_out
from profkit.ranks.own_work import Floats, OwnWork
from profkit.ranks.table import Cause
from profkit.trace.events import Bools, Int64s

MOST_OF_IT = 0.5
"""Of the excess that single places must explain; else all of the rank's work is slower."""


class Late(Struct, frozen=True):
    """By table: which ranks are late, and by rank and step how much longer these work than the median of those of
    their kind that are not; 0 for the others."""

    late: Bools
    excess_ns: Floats

    @property
    def ranks(self) -> Int64s:
        return np.flatnonzero(self.late)


def find_late(own: OwnWork) -> Late | None:
    """Ranks that are late with all of their work or, where other work varies too much to tell, with that at one place,
    if that is most of what they are late, and not made up for elsewhere. Of each kind of ranks half at most: what more
    of them need is what the work takes, and the others have less to do. None where too few steps were recorded, or no
    two ranks do the same, so that nothing can be told."""
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


def usual_ns(time_ns: Floats, kind: Int64s, late: Bools, rank: int) -> Floats:
    """The median of the ranks of one rank's kind, without it, that are not late."""
    others = np.flatnonzero((kind == kind[rank]) & ~late & (np.arange(len(kind)) != rank))
    median: Floats = np.median(time_ns[others], axis=0) if len(others) else time_ns[rank]
    return median


def _of_one_kind(own: OwnWork, mine: Int64s) -> Bools:
    total_ns = own.total_ns[mine]
    in_all = _late_in(total_ns, 1)
    late, comparisons = in_all.copy(), len(own.places)
    for at, place in enumerate(own.places):
        if place[0] != Cause.CONTENTION:
            place_ns = own.place_ns[mine, :, at]
            late |= _late_in(place_ns, comparisons) & _is_enough(total_ns, place_ns)
    return late if late.sum() * 2 <= len(mine) else in_all


def _late_in(time_ns: Floats, comparisons: int) -> Bools:
    """Those that stand out of all, and by more than their own steps vary: a rank with few long steps is none."""
    late = stand_out(time_ns, comparisons)
    if late.any():
        usual = np.median(time_ns[~late], axis=0)
        late[late] = [is_beyond_chance(one - usual, 1) for one in time_ns[late]]
    return late


def _is_enough(total_ns: Floats, place_ns: Floats) -> Bools:
    """Whether what a rank works longer at a place is most of what it works longer, and not made up for elsewhere."""
    above, above_at = (one.mean(axis=1) - np.median(one.mean(axis=1)) for one in (total_ns, place_ns))
    enough: Bools = (above >= MOST_OF_IT * above_at) & (above_at >= MOST_OF_IT * above)
    return enough
