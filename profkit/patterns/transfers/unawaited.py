"""Copies to the host that nothing waits for, although the host computes with the result."""

from __future__ import annotations

import math

import numpy as np

from profkit.derive.facts import Facts
from profkit.derive.families import VIEW, operators_of
from profkit.derive.operators.operators import parse_types
from profkit.patterns.program import calling_operator, launches_anything, program_operators
from profkit.patterns.shapes import first_shape, shapes_of
from profkit.patterns.transfers.copies import Transfers, program_transfers
from profkit.trace.events import NONE, Bools, Category, Int64s, Rows
from profkit.trace.statistics import distinct, distinct_rows

_QUERIES = ("EventQuery", "StreamQuery")


def unawaited_reads(facts: Facts) -> Transfers:
    """Asynchronous copies to the host that no call waits for, or asks about, before the next one at the same line,
    although the host works on a tensor of that shape and type before the device has finished the copy."""
    transfers = program_transfers(facts)
    waited = facts.tree.holding(facts.trace.mask_of(facts.waits.rows))[transfers.place]
    copies = transfers.at(~transfers.to_device & ~waited)
    used = np.zeros(len(copies), dtype=bool)
    for code in distinct(copies.site):
        mine = copies.site == code
        used[mine] = _are_used(facts, copies.at(mine))
    return copies.at(used)


def _are_used(facts: Facts, line: Transfers) -> Bools:
    """Which of one line's copies, all but the last, are such."""
    events = facts.trace.events
    begin_ns = facts.tree.end_ns[line.place]
    next_ns = np.append(events.start_ns[line.place[1:]], begin_ns[-1:])
    ended_ns = np.minimum(events.ends_of(line.work), next_ns)
    rows = _computing(facts)
    kinds = _first_inputs(facts, np.concatenate([line.place, rows]))
    copied, computed = kinds[: len(line)], kinds[len(line) :]
    used = np.zeros(len(line), dtype=bool)
    for kind in distinct(copied[copied >= 0]):
        of_kind = np.sort(events.start_ns[rows[computed == kind]])
        used |= (copied == kind) & _holds(begin_ns, ended_ns, of_kind)
    return used & ~_holds(begin_ns, next_ns, np.sort(events.start_ns[_asking(facts)]))


def _computing(facts: Facts) -> Rows:
    """The program's operators that work on the host."""
    rows = program_operators(facts)
    return rows[~(launches_anything(facts) | operators_of(facts.trace, VIEW))[rows]]


def _asking(facts: Facts) -> Rows:
    """Calls of the program that wait for the device or ask how far it is. PyTorch's allocator of pinned memory asks
    too, but below an operator."""
    asked = facts.trace.where_name(lambda name: any(query in name for query in _QUERIES))
    rows = np.flatnonzero(asked & (facts.trace.events.category == Category.RUNTIME))
    rows = np.concatenate([facts.waits.rows[~facts.waits.own], rows[calling_operator(facts, rows) == rows]])
    return rows[~facts.tree.under(facts.trace.events.category == Category.PAUSE)[rows]]


def _first_inputs(facts: Facts, rows: Rows) -> Int64s:
    """Equal for operators whose first input has the same shape and type; `NONE` if it is one number or unknown."""
    events = facts.trace.events
    first, inverse = distinct_rows(events.dims_code[rows], events.types_code[rows])
    numbers: dict[tuple[tuple[int, ...], str], int] = {}
    known = []
    for row in rows[first].tolist():
        shape = tuple(first_shape(shapes_of(facts, row)))
        kind = next(iter(parse_types(facts.trace.text_of(int(events.types_code[row])))), "")
        is_known = kind and shape and math.prod(shape) > 1
        known.append(numbers.setdefault((shape, kind), len(numbers)) if is_known else NONE)
    return np.array(known, dtype=np.int64)[inverse]


def _holds(begin_ns: Int64s, end_ns: Int64s, times_ns: Int64s) -> Bools:
    """Whether one of the times, which are in order, is in each stretch."""
    return np.searchsorted(times_ns, end_ns) > np.searchsorted(times_ns, begin_ns)
