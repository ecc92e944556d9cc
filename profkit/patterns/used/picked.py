"""How much of a tensor is picked by index: the trace has no indices, but the memory that their result takes."""

from __future__ import annotations

import math

import numpy as np

from profkit.derive.facts import Facts
from profkit.derive.families import base_name
from profkit.derive.operators.operators import item_bytes
from profkit.patterns.step_calls import StepCalls, first_seen, repeated_in_measured
from profkit.trace.events import Int64s, Rows

PICKING = frozenset(("index", "index_select"))
"""All whose result holds each picked element once, row by row: a product of the picked rows gives the same."""


def picked_shares(facts: Facts, step: StepCalls) -> dict[int, float]:
    """Of each operator of the step that picks by index, by its place: the share of the tensor that its result is as
    large as. Without recorded memory nothing is known."""
    names = np.array([base_name(call.name) in PICKING for call in step.calls], dtype=bool)
    places = np.flatnonzero(names[step.number]) if len(names) else step.rows[:0]
    if not places.size or not facts.memory.present:
        return {}
    repeated = repeated_in_measured(facts, step.rows[places])
    left = _left_bytes(facts, repeated)
    most = np.zeros(len(facts.trace.events), dtype=np.int64)
    np.maximum.at(most, first_seen(facts, repeated), left)
    shares = dict[int, float]()
    for place in places.tolist():
        call, given = step.calls[step.number[place]], step.shapes[step.number[place]]
        whole = math.prod(given[0]) * item_bytes(call.types[0]) if given and call.types else 0
        result = int(most[step.rows[place]])
        if 0 < result < whole:
            shares[place] = result / whole
    return shares


def _left_bytes(facts: Facts, rows: Rows) -> Int64s:
    """The memory that each of these operators allocates and does not free before it ends."""
    events, memory = facts.trace.events, facts.memory
    start_ns, end_ns = events.start_ns[rows], facts.tree.end_ns[rows]
    made_ns = events.start_ns[memory.rows]
    freed_ns = np.where(memory.freed_by >= 0, events.start_ns[memory.freed_by], np.iinfo(np.int64).max)
    within = np.searchsorted(start_ns, made_ns, side="right") - 1
    known = (within >= 0) & (events.lane[memory.rows] == events.lane[rows[within]])
    known &= (made_ns <= end_ns[within]) & (freed_ns > end_ns[within])
    left = np.zeros(len(rows), dtype=np.int64)
    np.add.at(left, within[known], memory.size_bytes[known])
    return left
