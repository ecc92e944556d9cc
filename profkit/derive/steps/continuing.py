"""Lines for the operators of a located step whose own line was not marked.

Marking ends after a maximum of lines, often in the middle of a loop. A function that takes most of them is marked no
further, and its operators then lie in the mark of the line that calls it. An operator without its own line takes that
of an earlier one that came after the same operators. Later turns of a loop do, even if branches in it depend on the
data, once each branch has been seen after each. Where all marks have ended, the first operator that never came after
the ones before it ends this: from there on nothing is known.
"""

from __future__ import annotations

import numpy as np

from profkit.core.marks import UNMARKED
from profkit.derive.steps.boundaries import Steps
from profkit.derive.steps.matching import combine_codes
from profkit.derive.timeline.tree import Tree
from profkit.trace.events import NONE, Bools, Category, Int32s, Int64s, Rows, Trace
from profkit.trace.statistics import among, distinct

_LEAST_ALIKE = 4
"""So many operators in a row, the one in question included, must have come in this order before."""
_MOST_ALIKE = 1024
"""More are not compared. A turn of a loop through a model of forty layers has fewer."""
_MOST_UNMARKED = 4
"""A function has to take half of the lines, so a located step marks no more than one no further."""


def match_earlier_turns(trace: Trace, tree: Tree, steps: Steps, mark: Rows) -> Int32s:
    """Column over all events: for an operator of a located step without its own mark, an operator of the same line.
    `NONE` if there is none, and for all other events. ``mark`` is the innermost line mark of each event."""
    events = trace.events
    operators = events.category == Category.OPERATOR
    step = steps.index_of(events.start_ns)
    inside = np.flatnonzero(operators & (step >= 0) & steps.located[step.clip(min=0)])
    above = tree.nearest_ancestor(operators, of=inside)
    outer, nested = inside[above < 0], np.bincount(above[above >= 0], minlength=len(events))
    group = combine_codes((step[outer], events.lane[outer]))
    earlier = np.full(len(events), NONE, dtype=np.int32)
    for one in distinct(group[mark[outer] >= 0]).tolist():
        rows = outer[group == one]
        rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
        kind = combine_codes((events.name_code[rows], nested[rows]))
        found = _in_unmarked_functions(trace, tree, mark, rows, kind)
        end = int(np.flatnonzero(mark[rows] >= 0)[-1]) + 1
        if end < len(rows):
            own = np.where(found >= 0, found, rows)
            like, is_like = _like_before(kind, _sites(trace, mark[own]), np.arange(len(rows)) < end)
            stop = end + int(np.argmin(np.append(is_like[end:], False)))  # the first that is like none
            found[end:stop] = np.where(like[end:stop] >= 0, own[like[end:stop]], NONE)
        earlier[rows] = found
    return earlier


def _in_unmarked_functions(trace: Trace, tree: Tree, mark: Rows, rows: Rows, kind: Int64s) -> Rows:
    """For each operator that a function ran after its lines were marked no further: one of the same line; else `NONE`.
    It lies in a mark of the line that calls the function, and those before it in marks inside such a mark."""
    events, found = trace.events, np.full(len(rows), NONE, dtype=np.int64)
    moments = np.flatnonzero(trace.named(UNMARKED) & (mark >= 0) & (events.lane == events.lane[rows[0]]))[
        :_MOST_UNMARKED
    ]
    if not moments.size:
        return found
    marks = events.category == Category.LINE_MARK
    site = _sites(trace, mark[rows])
    calling = _sites(trace, tree.nearest_ancestor(marks, of=mark[rows].clip(min=0)))
    for moment_ns, caller in zip(events.start_ns[moments].tolist(), events.site[mark[moments]].tolist(), strict=True):
        later = events.start_ns[rows] > moment_ns
        known = ~later & (calling == caller) & (mark[rows] >= 0)
        like, _ = _like_before(kind, site, known)
        taken = later & (site == caller) & (like >= 0)
        found[taken] = rows[like[taken]]
    return found


def _sites(trace: Trace, mark: Rows) -> Int32s:
    """The call sites of line marks; `NONE` for none."""
    return np.where(mark >= 0, trace.events.site[mark], np.int32(NONE))


def _like_before(kind: Int64s, site: Int32s, known: Bools) -> tuple[Rows, Bools]:
    """For each element that is not ``known`` the last known one that comes after the same elements, and whether there
    is any. `NONE` where such have different sites, however many elements are compared.

    Stretches double in length; two are equal if their halves are (Karp, Miller and Rosenberg, 1972). Which way a branch
    goes shows only in the elements that follow, so these tell apart what comes after the same.
    """
    like, found = np.full(len(kind), NONE, dtype=np.int64), np.zeros(len(kind), dtype=bool)
    places, unclear = np.flatnonzero(known), np.flatnonzero(~known)
    stretch, length = kind, 1
    while 2 * length <= min(len(kind), _MOST_ALIKE) and unclear.size and places.size:
        stretch, length = combine_codes((stretch[:-length], stretch[length:])), 2 * length
        outside = np.full(length - 1, NONE, dtype=np.int64)
        before, after = np.concatenate([outside, stretch]), np.concatenate([stretch, outside])
        places, unclear = places[before[places] >= 0], unclear[before[unclear] >= 0]
        unclear = unclear[among(before[unclear], before[places])]
        if length < _LEAST_ALIKE:
            continue
        found[unclear] = True
        for code in (before, combine_codes((before, after))):
            like[unclear] = _last_alike(code, site, places, unclear)
            unclear = unclear[like[unclear] < 0]
    return like, found


def _last_alike(code: Int64s, site: Int32s, places: Rows, of: Rows) -> Rows:
    """For each of these elements the last place with the same code; `NONE` if there is none or their sites differ."""
    last = np.full(int(code.max()) + 1, NONE, dtype=np.int64)
    last[code[places]] = places
    differing = code[places[site[places] != site[last[code[places]]]]]
    last[differing] = NONE
    return last[code[of]]
