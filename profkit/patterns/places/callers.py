"""Which line calls the function that operators run in. What lies around the operators tells it: the line marks of the
located step, or Python frames.

A setting of a whole model is changed where the model is called or made, not in the layer that takes most time. A
formula in a function of its own is compiled where that function is called.
"""

from __future__ import annotations

import numpy as np

from profkit.derive.facts import Facts
from profkit.derive.families import VIEW, operators_of
from profkit.patterns.places.frames import commonest_function, parse_frame, user_frames
from profkit.run.directory import CallSite
from profkit.trace.events import NONE, Bools, Category, Int32s, Int64s, Rows
from profkit.trace.statistics import distinct

_SEVERAL = 2
_FORWARD = "forward"
"""What `torch.nn.Module` calls, in its own layers and in the user's."""


def where_marked(facts: Facts, rows: Rows) -> Rows:
    """The marked operators that these repeat, or whose backward nodes they are; themselves where nothing is marked."""
    forward = facts.lines.forward[rows]
    return facts.lines.marked[np.where(forward >= 0, forward, rows)].astype(np.int64)


def model_call_sites(facts: Facts, rows: Rows) -> Int32s:
    """For each operator, forward or backward, the line that calls the outermost module around it. Without a module it
    is the operator's own line, `NONE` if unknown."""
    marks = facts.trace.events.category == Category.LINE_MARK
    site = _known_sites(facts)
    within = np.array([*(_base(one.function) == _FORWARD for one in facts.callsites), False])
    called = _outside(facts, where_marked(facts, rows), marks, marks & within[site])
    return np.where(called >= 0, site[called], np.int32(NONE))


def model_caller(facts: Facts, rows: Rows) -> CallSite | None:
    """The function that calls the outermost module around most of these operators, by recorded Python frames."""
    frames, forward = user_frames(facts), facts.lines.forward[rows]
    rows = np.where(forward >= 0, forward, rows)
    return commonest_function(facts, _outside(facts, rows, frames, facts.trace.where_name(_is_forward)))


def calling_sites(facts: Facts, rows: Rows) -> Int32s:
    """For each event the line that calls the function around the event's own line, `NONE` if unknown."""
    outer = _outer_marks(facts, where_marked(facts, rows))[1]
    return np.where(outer >= 0, _known_sites(facts)[outer], np.int32(NONE))


def sole_call_site(facts: Facts, rows: Rows) -> int:
    """The one line that calls the function that consists of these operators alone, on several lines; else `NONE`."""
    located = distinct(where_marked(facts, rows))
    inner, outer = _outer_marks(facts, located)
    if not located.size or (outer < 0).any():
        return NONE
    site = _known_sites(facts)
    lines, calls = distinct(site[inner]), distinct(site[outer])
    if len(lines) < _SEVERAL or len(calls) > 1 or len(distinct(_functions(facts)[lines])) > 1:
        return NONE
    operators = facts.operators.rows
    beside = operators[~operators_of(facts.trace, VIEW)[operators] & ~facts.trace.mask_of(located)[operators]]
    called = facts.tree.nearest_ancestor(facts.trace.mask_of(outer), of=beside)
    return NONE if (called >= 0).any() else int(calls[0])


def _outside(facts: Facts, rows: Rows, places: Bools, forward: Bools) -> Rows:
    """For each row the innermost of the ``places`` around the outermost module ``forward``."""
    at = facts.tree.nearest_ancestor(places, of=rows)
    found = at
    while (at >= 0).any():
        around = np.where(at >= 0, facts.tree.nearest_ancestor(places, of=at.clip(min=0)), NONE)
        found = np.where(forward[at] & (at >= 0) & (around >= 0), around, found)
        at = around
    return found


def _outer_marks(facts: Facts, rows: Rows) -> tuple[Rows, Rows]:
    """For each row the innermost line mark around it, and the mark of the line that calls the function there."""
    events = facts.trace.events
    marks = events.category == Category.LINE_MARK
    function = _functions(facts)[_known_sites(facts)]
    inner = facts.tree.nearest_ancestor(marks, of=rows)
    own, outer = function[inner], inner
    while (same := (outer >= 0) & (function[outer] == own)).any():
        outer = np.where(same, facts.tree.nearest_ancestor(marks, of=outer.clip(min=0)), outer)
    return inner, outer


def _known_sites(facts: Facts) -> Int32s:
    """The call site of each event's mark, `NONE` if the list of call sites has no such number."""
    site = facts.trace.events.site
    return np.where(site < len(facts.callsites), site, np.int32(NONE))


def _functions(facts: Facts) -> Int64s:
    """For each call site the number of its function; the last entry stands for no site."""
    names = [(site.file, site.function) for site in facts.callsites]
    number = {name: at for at, name in enumerate(dict.fromkeys(names))}
    return np.array([*(number[name] for name in names), NONE], dtype=np.int64)


def _is_forward(name: str) -> bool:
    frame = parse_frame(name)
    return frame is not None and _base(frame[2]) == _FORWARD


def _base(function: str) -> str:
    """``Block.forward`` → ``forward``."""
    return function.rpartition(".")[2]
