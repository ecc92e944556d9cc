"""Which line of the program the main thread was at between its operators.

In the located step a mark says so at any moment. In another step what lies between two operators is what lies between
those that they repeat there. Traces of others have Python frames, if anything: then it is the function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from profkit.patterns.places.frames import parse_frame, user_frames
from profkit.run.directory import CallSite
from profkit.trace.events import NONE, Category, Int64s, Rows
from profkit.trace.statistics import distinct_rows

if TYPE_CHECKING:
    from profkit.derive.facts import Facts


def site_of(facts: Facts, rows: Rows) -> Int64s:
    """A number of the line that each event belongs to, for an operator of the backward pass that of the forward pass;
    else of the function; `NONE` where neither is known. `read_site` tells what it stands for."""
    found = np.full(len(rows), NONE, dtype=np.int64)
    known = np.flatnonzero(rows >= 0)
    mine = rows[known]
    site = facts.lines.forward_site[mine].astype(np.int64)
    site[site >= len(facts.callsites)] = NONE  # a mark whose line was never written down
    frames = user_frames(facts)
    if frames.any() and (site < 0).any():
        forward = facts.lines.forward[mine]
        frame = facts.tree.nearest_ancestor(frames, include_self=True, of=np.where(forward >= 0, forward, mine))
        site = np.where((site < 0) & (frame >= 0), _of_frames(facts, frame), site)
    found[known] = site
    return found


def site_of_loader(facts: Facts, loader: int) -> int:
    """The number of the line that makes one of the run's DataLoaders."""
    return len(facts.callsites) + len(facts.trace.names) + loader


def read_site(facts: Facts, number: int) -> CallSite:
    """The line that such a number stands for."""
    if number < len(facts.callsites):
        return facts.callsites[number]
    if number >= site_of_loader(facts, 0):
        return facts.run.loaders[number - site_of_loader(facts, 0)].site or CallSite("", 0, "")
    file, line, function = parse_frame(facts.trace.names[number - len(facts.callsites)]) or ("", 0, "")
    return CallSite(file, line, function)


def sites_between(facts: Facts, start_ns: Int64s, end_ns: Int64s) -> Int64s:
    """The same for stretches of the main thread's time that lie between its operators."""
    found = np.full(len(start_ns), NONE, dtype=np.int64)
    if not len(start_ns):
        return found
    middle = (start_ns + end_ns) // 2
    begin, end = _in_located(facts, middle)
    marks = facts.trace.events.category == Category.LINE_MARK
    timeline = _timeline(facts, np.flatnonzero(marks & (facts.trace.events.lane == facts.steps.main_lane)))
    known = np.flatnonzero(begin < end)
    if len(timeline.start_ns) and known.size:
        first, number = distinct_rows(begin[known], end[known])
        sites = _longest(timeline, begin[known][first], end[known][first])[number]
        valid = (sites >= 0) & (sites < len(facts.callsites))
        found[known] = np.where(valid, sites, NONE)
    frames = np.flatnonzero(user_frames(facts) & (facts.trace.events.lane == facts.steps.main_lane))
    if frames.size:
        framed = _timeline(facts, frames)
        at = np.searchsorted(framed.start_ns, middle, side="right") - 1
        row = np.where(at >= 0, framed.row[at], NONE)
        found = np.where((found < 0) & (row >= 0), _of_frames(facts, row), found)
    return found


def _of_frames(facts: Facts, rows: Rows) -> Int64s:
    return len(facts.callsites) + facts.trace.events.name_code[rows].astype(np.int64)


def _in_located(facts: Facts, times_ns: Int64s) -> tuple[Int64s, Int64s]:
    """What in the located step each time corresponds to: it lies between two moments at which an operator or a range
    begins or ends, and so do those that these repeat. Empty where that is not known."""
    events, steps = facts.trace.events, facts.steps
    nothing = np.zeros(len(times_ns), dtype=np.int64)
    repeats = facts.repeats.row
    operators = facts.trace.in_categories(Category.OPERATOR, Category.ANNOTATION)
    operators &= (events.lane == steps.main_lane) & (repeats >= 0)
    if not operators.any():
        return nothing, nothing
    located = int(np.flatnonzero(steps.located)[0])
    rows = np.flatnonzero(operators)
    moments = np.concatenate([events.start_ns[rows], facts.tree.end_ns[rows]])
    repeated = np.concatenate([events.start_ns[repeats[rows]], facts.tree.end_ns[repeats[rows]]])
    order = np.argsort(moments, kind="stable")
    moments, repeated = moments[order], repeated[order]
    step, of_moment = steps.index_of(times_ns), np.append(steps.index_of(moments), NONE)
    place = np.searchsorted(moments, times_ns, side="right")
    before = (place > 0) & (of_moment[place - 1] == step)
    begin = np.where(before, np.append(repeated, 0)[place - 1], steps.start_ns[located])
    end = np.where(of_moment[place] == step, np.append(repeated, 0)[place], steps.end_ns[located])
    return np.where(step >= 0, begin, 0), np.where(step >= 0, end, 0)


class _Timeline(Struct, frozen=True):
    """From each ``start_ns`` on the innermost of some events is that of ``row``, `NONE` where there is none."""

    start_ns: Int64s
    row: Rows
    site: Int64s


def _timeline(facts: Facts, rows: Rows) -> _Timeline:
    """The innermost of these events of one thread at any time."""
    events = facts.trace.events
    around = facts.tree.nearest_ancestor(facts.trace.mask_of(rows), of=rows)
    times = np.concatenate([events.start_ns[rows], facts.tree.end_ns[rows]])
    innermost = np.concatenate([rows, around])
    depth = np.concatenate([facts.tree.depth[rows], -facts.tree.depth[rows].astype(np.int64)])
    is_start = np.repeat([1, 0], len(rows))
    order = np.lexsort((depth, is_start, times))  # at one moment, inner ones end before outer ones, which begin first
    row = innermost[order]
    return _Timeline(times[order], row, np.where(row >= 0, events.site[row], NONE).astype(np.int64))


def _longest(timeline: _Timeline, start_ns: Int64s, end_ns: Int64s) -> Int64s:
    """The site at which most of each range is spent."""
    first = np.searchsorted(timeline.start_ns, start_ns, side="right") - 1
    last = np.searchsorted(timeline.start_ns, end_ns, side="left")
    first = first.clip(min=0)
    counts = (last - first).clip(min=0)
    owner = np.repeat(np.arange(len(first)), counts)
    segment = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts) + first[owner]
    ends = np.append(timeline.start_ns[1:], np.iinfo(np.int64).max)
    spent = np.minimum(ends[segment], end_ns[owner]) - np.maximum(timeline.start_ns[segment], start_ns[owner])
    pairs, number = distinct_rows(owner, timeline.site[segment]) if len(owner) else (owner, owner)
    totals = np.bincount(number, spent.clip(min=0), len(pairs))
    order = np.lexsort((totals, owner[pairs]))
    found = np.full(len(first), NONE, dtype=np.int64)
    found[owner[pairs][order]] = timeline.site[segment[pairs[order]]]  # the greatest comes last
    return found
