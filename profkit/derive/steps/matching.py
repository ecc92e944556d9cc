"""Matches events of the measured steps with those of the located one, in which lines and shapes were recorded.

A measured step has no line marks and no shapes, as recording them changes what is measured. The n-th operator of a kind
(same thread, name, enclosing operator and, if known, shapes) is matched with the n-th of that kind in the first located
step.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from msgspec import Struct

from profkit.core.marks import STEP_MARK
from profkit.derive.steps.boundaries import Steps
from profkit.derive.timeline.tree import Tree
from profkit.trace.events import NONE, Bools, Category, Int64s, Rows, Trace
from profkit.trace.statistics import constant

_AROUND = (Category.OPERATOR, Category.ANNOTATION, Category.COMPILED_CODE)
_CAUSED_BY_LINES = (*_AROUND, Category.MEMORY, Category.RUNTIME, Category.HOST_MARK)
"""The categories of events that a line of the program causes."""
_MOST_TIMES_LOCATED = 8
"""A step may have at most this many times the located step's number of a kind. Lengths of sequences differ by less;
more are something else, which did not run there."""


class Repeats(Struct, frozen=True):
    """Columns over all events. ``row`` is the event of the located step that an event of another step repeats, or
    `NONE`. ``exact`` says that both steps hold equally many of the kind, so that nothing is guessed."""

    row: Rows
    exact: Bools


def no_repeats(events: int) -> Repeats:
    """Of so many events none repeats another."""
    return Repeats(constant(NONE, np.int64, events), constant(False, np.bool_, events))


def match_located(trace: Trace, tree: Tree, steps: Steps) -> Repeats:
    """Match the other steps' events with those of the first located step, by kind and rank."""
    events = trace.events
    if not steps.located.any() or steps.located.all():
        return no_repeats(len(events))
    found = Repeats(np.full(len(events), NONE, dtype=np.int64), np.zeros(len(events), dtype=bool))
    step = steps.index_of(events.start_ns)
    wanted = trace.in_categories(*_CAUSED_BY_LINES) & (step >= 0)
    steps_by_name = trace.where_name(lambda name: name.startswith(STEP_MARK))
    around = tree.nearest_ancestor(trace.in_categories(*_AROUND) & ~steps_by_name)
    name = events.name_code.astype(np.int64)
    parent_name = np.where(around >= 0, name[around], NONE)
    source = np.flatnonzero(wanted & (step == int(np.flatnonzero(steps.located)[0])))
    target = np.flatnonzero(wanted & ~steps.located[step.clip(min=0)])
    shapes, lane = events.dims_code, events.lane
    for parts in ((lane, name, parent_name, shapes), (lane, name, parent_name), (lane, name, shapes), (lane, name)):
        if not (target.size and source.size):
            break
        found.row[target], found.exact[target] = _match(combine_codes(parts), step, source, target)
        target = target[found.row[target] < 0]
    return found


def allocated_bytes(trace: Trace, tree: Tree) -> Int64s:
    """Column over all events: the bytes allocated in each and in those inside it."""
    events = trace.events
    allocates = (events.category == Category.MEMORY) & (events.size_bytes > 0)
    if not allocates.any():
        return constant(0, np.int64, len(events))
    return tree.total_under(np.where(allocates, events.size_bytes, 0).astype(np.int64))


def copy_shapes(trace: Trace, repeats: Repeats, allocated: Int64s) -> Trace:
    """The trace with the shapes, types and values of inputs of the repeated events where that is no guess: both steps
    hold equally many of the kind, and both events allocate equally many bytes (``allocated``)."""
    events = trace.events
    taken = np.flatnonzero((events.dims_code < 0) & (events.types_code < 0) & (repeats.row >= 0) & repeats.exact)
    taken = taken[events.dims_code[repeats.row[taken]] >= 0]
    taken = taken[allocated[taken] == allocated[repeats.row[taken]]]
    origin = repeats.row[taken]
    if not taken.size:
        return trace
    columns = {name: getattr(events, name).copy() for name in ("dims_code", "types_code", "concrete_code")}
    for column in columns.values():
        column[taken] = column[origin]
    return replace(trace, events=replace(events, **columns))


def combine_codes(columns: tuple[np.ndarray[tuple[int], np.dtype[np.signedinteger]], ...]) -> Int64s:
    """One code per distinct combination of the columns' values."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values = column.astype(np.int64) + 1
        _, code = np.unique(code * (int(values.max(initial=0)) + 1) + values, return_inverse=True)
    return code


def _match(kind: Int64s, step: Int64s, source: Rows, target: Rows) -> tuple[Rows, Bools]:
    """For each target the source of its kind with its rank, scaled if their numbers differ."""
    source = source[np.argsort(kind[source], kind="stable")]
    kinds, first, count = np.unique(kind[source], return_index=True, return_counts=True)
    at = np.searchsorted(kinds, kind[target]).clip(max=len(kinds) - 1)
    found: Bools = kinds[at] == kind[target]
    rank, total = _rank_within(combine_codes((step[target], kind[target])))
    equal: Bools = total == count[at]
    scaled = np.where(equal, rank, rank * count[at] // np.maximum(total, 1))
    found &= total <= _MOST_TIMES_LOCATED * count[at]
    row = np.where(found, source[first[at] + scaled.clip(max=count[at] - 1)], NONE)
    return row, found & equal


def _rank_within(group: Int64s) -> tuple[Int64s, Int64s]:
    """For each element its rank among those of its group, in order, and the size of the group."""
    order = np.argsort(group, kind="stable")
    _, inverse, count = np.unique(group, return_inverse=True, return_counts=True)
    starts = np.concatenate([[0], np.cumsum(count)[:-1]])
    rank = np.empty(len(group), dtype=np.int64)
    rank[order] = np.arange(len(group)) - starts[inverse[order]]
    return rank, count[inverse]
