"""What kinds of exchanges there are, and which of them other rules report."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from profkit.derive.facts import Facts
from profkit.patterns.averaging.exchanged import (
    called_under,
    gradient_messages,
    on_trace_clock,
    own_number,
    own_table,
    with_operation,
)
from profkit.patterns.averaging.exposed import Exposed
from profkit.patterns.averaging.gathers import beside_nothing, find_late_gathers, of_parameters
from profkit.patterns.averaging.gradients import FORWARD, are_too_many, storing_gradients
from profkit.patterns.averaging.late import find_late_averages, is_averaged_within
from profkit.patterns.averaging.passes import find_passes, find_redundant
from profkit.patterns.ranks.exchanges import find_exchanges
from profkit.patterns.ranks.names import SEND_RECEIVE
from profkit.trace.events import Bools, Int64s
from profkit.trace.statistics import among, distinct


class Exchange(IntEnum):
    """What a collective is for, as far as its operation tells."""

    GRADIENTS = 0
    SHARDED = 1
    EXPERTS = 2
    STAGES = 3
    BUFFERS = 4
    OTHER = 5
    NONE = 6
    """No data at all."""


_KINDS = {
    "all_reduce": Exchange.GRADIENTS,
    "all_gather": Exchange.SHARDED,
    "reduce_scatter": Exchange.SHARDED,
    "all_to_all": Exchange.EXPERTS,
    SEND_RECEIVE: Exchange.STAGES,
    "barrier": Exchange.NONE,
}
_COUNTS = ("int", "long", "short", "bool", "byte", "char")


def kinds_of(facts: Facts, exposed: Exposed) -> Int64s:
    """The kind of each part. An all-reduce is one of gradients if the storing of gradients calls it, or if nothing is
    known of the rank's operators."""
    kind = np.zeros(len(exposed.row), dtype=np.int64)
    operation = exposed.column("operation")
    for number, table in enumerate(exposed.tables):
        mine = exposed.table == number
        kind[mine] = np.array([_KINDS.get(text, Exchange.OTHER) for text in table.texts])[operation[mine]]
    if storing_gradients(facts).any():
        rows = np.arange(len(own_table(facts).collectives))
        others = rows[~among(rows, gradient_messages(facts)[0])]
        kind[(kind == Exchange.GRADIENTS) & beside(facts, exposed, others)] = Exchange.OTHER
    kind[beside(facts, exposed, _of_buffers(facts))] = Exchange.BUFFERS
    return kind


def cannot_be_hidden(facts: Facts, exposed: Exposed, kind: Int64s) -> Bools:
    """Which parts no computation could hide, as far as is known. A part in the stream that computes may bring what the
    next kernel needs, and costs no more there than elsewhere. Gradients and FSDP's parameters need nothing of the
    layers beside them, but FSDP's first gathers and last reduce-scatter have no layer to run beside."""
    free = beside(facts, exposed, np.flatnonzero(of_parameters(facts)))
    free |= among(kind, np.array([Exchange.GRADIENTS, Exchange.BUFFERS]))
    found: Bools = (exposed.column("on_compute") > 0) & ~free
    return found | beside(facts, exposed, beside_nothing(facts))


def is_told_elsewhere(facts: Facts, exposed: Exposed) -> Bools:
    """Which parts belong to collectives that another rule reports as a fault."""
    return beside(
        facts,
        exposed,
        np.concatenate([_late(facts), _small(facts), _again(facts), _maps(facts), find_late_gathers(facts).row]),
    )


def beside(facts: Facts, exposed: Exposed, rows: Int64s) -> Bools:
    """The parts of all ranks in the collectives of these rows of this rank's own table."""
    own = own_number(facts, exposed.tables)
    mine = (exposed.table == own) & among(exposed.row, rows)
    return among(exposed.joint, distinct(exposed.joint[mine])) if exposed.is_whole else mine


def _of_buffers(facts: Facts) -> Int64s:
    """What DistributedDataParallel sends from rank 0 before each forward pass, unless told not to."""
    calls = find_exchanges(facts).call
    return np.flatnonzero(with_operation(own_table(facts), "broadcast") & called_under(facts, calls, (FORWARD,)))


def _late(facts: Facts) -> Int64s:
    late = find_late_averages(facts)
    return late.rows[~is_averaged_within(facts)[late.step[late.of]]]


def _small(facts: Facts) -> Int64s:
    rows, step = gradient_messages(facts)
    size = own_table(facts).collectives.size_bytes[rows]
    many = [one for one in distinct(step).tolist() if are_too_many(size[step == one])]
    return rows if many else rows[:0]


def _again(facts: Facts) -> Int64s:
    """Those of backward passes whose gradients are averaged again."""
    passes = find_passes(facts)
    rows, _ = gradient_messages(facts)
    issue_ns = on_trace_clock(facts, own_table(facts).collectives.issue_ns)[rows]
    of_pass = passes.of(issue_ns)
    chosen: Int64s = rows[(of_pass >= 0) & np.append(find_redundant(facts), False)[of_pass]]
    return chosen


def _maps(facts: Facts) -> Int64s:
    """Which parameters were used: integers among the gradients."""
    table, (rows, _) = own_table(facts), gradient_messages(facts)
    whole = np.array([*(any(word in text.lower() for word in _COUNTS) for text in table.texts), False])
    chosen: Int64s = rows[whole[table.collectives.dtype[rows]]]
    return chosen
