"""All-gathers of FSDP's parameters that kept the device waiting although they could have been sent earlier.

Parameters do not change within a step, so they can be gathered while the layer before computes. FSDP names its work in
ranges of its own. They tell its gathers from gathers of activations, which need what was computed last, and show which
ones FSDP asked for ahead of their layer.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.timeline.intervals import union
from profkit.patterns.averaging.exchanged import called_under, own_number, own_table, with_operation
from profkit.patterns.averaging.exposed import find_exposed
from profkit.patterns.ranks.exchanges import Exchanges, find_exchanges
from profkit.trace.events import NONE, Bools, Int64s, Rows

_FSDP = ("FSDP::", "FullyShardedDataParallel.")
"""The names of ranges in ``torch/distributed/fsdp``: of ``fully_shard``, and of the class."""
_AHEAD = (
    "FSDP::forward_prefetch",
    "FSDP::backward_prefetch",
    "FullyShardedDataParallel._pre_forward_prefetch",
    "FullyShardedDataParallel._pre_backward_prefetch",
)
_BACKWARD = (
    "FSDP::pre_backward",
    "FSDP::backward_prefetch",
    "FullyShardedDataParallel._pre_backward",
    "FullyShardedDataParallel._post_backward_prefetch",
)
_LIMITER = "FullyShardedDataParallel.rate_limiter"
_AT_ONCE_NS = 20_000
"""An idle stream starts work 6.5 µs after its launch on an H100, 16 µs on an RTX 2080 Ti."""
_MOST = 0.5


class Held(IntEnum):
    """What kept a gather from beginning earlier."""

    HOST = 0
    """The host asked for it too late: it began at once."""
    LIMITER = 1
    """The host waited in FSDP's rate limiter before it asked."""
    STREAM = 2
    """It had been asked for, but work before it in its stream, or work that the stream waits for, had to end first."""


class LateGathers(Struct, frozen=True):
    """Columns over this rank's late gathers: the row in its table; how much of the time that it kept the device waiting
    would have fitted beside the computing since the gather before; what held it; and whether it is in the backward
    pass."""

    row: Int64s
    saved_ns: Int64s
    held: Int64s
    backward: Bools


@derived_once
def find_late_gathers(facts: Facts) -> LateGathers:
    exchanges = find_exchanges(facts)
    if not facts.device.present or not len(exchanges):
        none = np.zeros(0, dtype=np.int64)
        return LateGathers(none, none, none, none > 0)
    row, before, ahead = _gathers_in_order(facts, exchanges)
    exposed = find_exposed(facts)
    part = np.flatnonzero(exposed.table == own_number(facts, exposed.tables))
    stood_ns = np.zeros(len(exchanges), dtype=np.int64)
    stood_ns[exposed.row[part]] = exposed.exposed_ns[part]
    begin_ns, start_ns = exchanges.end_ns[before], exchanges.start_ns[row]
    free = facts.device.computing.minus(union(exchanges.start_ns, exchanges.end_ns))
    room_ns = free.covered_within(begin_ns, np.maximum(begin_ns, start_ns))
    saved_ns = np.minimum(stood_ns[row], room_ns)
    late = (saved_ns > 0) & (before >= 0) & ~ahead & facts.steps.in_measured(exchanges.issue_ns[row])
    late &= ~own_table(facts).collectives.on_compute[row]
    row, before = row[late], before[late]
    backward = called_under(facts, exchanges.call[row], _BACKWARD)
    return LateGathers(row, saved_ns[late], _held_by(facts, exchanges, row, before), backward)


def gathered_again(facts: Facts) -> Rows:
    """The rows of FSDP's gathers in the backward pass: it gave up what it had gathered in the forward pass."""
    table = own_table(facts)
    again = with_operation(table, "all_gather") & called_under(facts, find_exchanges(facts).call, _BACKWARD)
    return np.flatnonzero(again)


def beside_nothing(facts: Facts) -> Rows:
    """The rows of FSDP's device collectives that have no layer to run beside: the first gather of each pass, and the
    last reduce-scatter of each step."""
    exchanges, table = find_exchanges(facts), own_table(facts)
    if not facts.device.present or not len(exchanges):
        return np.zeros(0, dtype=np.int64)
    gathers, before, _ = _gathers_in_order(facts, exchanges)
    scatters = np.flatnonzero(with_operation(table, "reduce_scatter") & of_parameters(facts))
    step = facts.steps.index_of(exchanges.issue_ns[scatters])
    is_last = np.append(step[1:] != step[:-1], True)[: len(scatters)]
    return np.concatenate([gathers[before < 0], scatters[is_last]])


def of_parameters(facts: Facts) -> Bools:
    """Which of `find_exchanges` FSDP asked for."""
    return called_under(facts, find_exchanges(facts).call, _FSDP)


def _gathers_in_order(facts: Facts, exchanges: Exchanges) -> tuple[Rows, Rows, Bools]:
    """FSDP's gathers; for each the one before in the same step and pass, `NONE` without one; and which were asked for
    ahead."""
    gathers = with_operation(own_table(facts), "all_gather")
    row = np.flatnonzero(gathers & exchanges.on_device & of_parameters(facts))
    call = exchanges.call[row]
    backward = called_under(facts, call, _BACKWARD)
    step = facts.steps.index_of(exchanges.issue_ns[row])
    same = (backward[1:] == backward[:-1]) & (step[1:] == step[:-1]) & (step[1:] >= 0)
    before = np.full(len(row), NONE, dtype=np.int64)
    before[1:][same] = row[:-1][same]
    return row, before, called_under(facts, call, _AHEAD)


def _held_by(facts: Facts, exchanges: Exchanges, row: Rows, before: Rows) -> Int64s:
    at_once = exchanges.start_ns[row] <= exchanges.issued_ns[row] + _AT_ONCE_NS
    limiter = np.flatnonzero(facts.trace.named(_LIMITER))
    waiting = union(facts.trace.events.start_ns[limiter], facts.tree.end_ns[limiter])
    since, until = exchanges.issued_ns[before], exchanges.issue_ns[row]
    limited = waiting.covered_within(since, np.maximum(since, until)) > _MOST * (until - since)
    return np.where(~at_once, Held.STREAM, np.where(limited, Held.LIMITER, Held.HOST)).astype(np.int64)
