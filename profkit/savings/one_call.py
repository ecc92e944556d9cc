"""Many calls with equal operators become few: each operator's own work stays, what a call costs is paid less often.

The host: dispatch goes, and Python between the operators, as long as it is short. The rest of an operator's time is its
work, but for the weights of a product: of few rows, most of its time is reading them, and one call reads them once.
What works element by element does at least as much as its bytes or its functions take a core.
What a call pays whatever it computes goes with it: gradients that are added to those of a parameter, and, for a part
taken of a tensor (`x[:, i]`), a whole tensor of zeros in the backward pass. Operators whose tensors would leave the
cache in one call gain little: what works element by element or adds up then takes between its bytes' time and all of
its own, and large results may get fresh pages. The range of the price tells both.
With a device the host only launches, so all of its time is the price of a call; a kernel below half of its roofline
does not fill the device, and takes as long for more rows until it would reach that half (the model of
`profkit.savings.larger_batch`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.families import ELEMENTWISE, operators_of
from profkit.patterns.calls import Call, by_call
from profkit.patterns.loops.accesses import MAX_GAP_NS
from profkit.patterns.program import (
    all_nodes,
    backward_of,
    clearing_ranges,
    length_ns,
    program_operators,
    spent_ns,
    works_under,
)
from profkit.savings.cost_models.roofline import product_of
from profkit.savings.edits import Edit, combine, shrink_spans, shrink_work
from profkit.savings.larger_batch import usual_ns
from profkit.savings.pricing import elementwise_ns, memory_bytes_per_ns
from profkit.savings.roofline.launches import least_of_work, usual_of_work
from profkit.trace.events import Bools, Category, Float64s, Int64s, Rows
from profkit.trace.statistics import among, distinct, distinct_rows

_LEAST_RATE = 50e9
"""Floating-point operations per second that a core with AVX2 does at least: products of few rows show less."""
_CALL_NS = 20_000
"""An operator costs the host 5 to 20 µs whatever its size, here in C++ and with the recording's part."""
_LONGER_CALLS_NS = {
    "aten::mkldnn_convolution": 40_000,
    "aten::convolution_backward": 90_000,
    "aten::mkldnn_rnn_layer": 100_000,
    "aten::mkldnn_rnn_layer_backward": 250_000,
}
"""oneDNN lays out image, weight and result anew in each call (convolutions: measured for
`profkit.savings.larger_batch`). An LSTM of 32 to 128 on one row and one time takes 130 to 220 µs, its backward pass
300 to 600 (one thread, AMD EPYC, torch 2.13)."""
_FEW = 4
"""A product with so many times fewer rows than its weights mostly reads these."""
_ADDING_UP = frozenset(("mean", "sum"))
_FILLING = ("IndexBackward", "SelectBackward", "SliceBackward")
"""Backward nodes of a part of a tensor: each fills one of the whole tensor's size with zeros, except for the part."""
_PAID_ONCE = ("AccumulateGrad", *_FILLING)
"""Nodes of the backward pass of which one call has one, of all calls together."""
_ACCUMULATING = "AccumulateGrad"
_ON_LISTS = ("aten::_foreach_", "aten::_fused_")
"""Operators that take the parameters as lists."""
_SHARED, _OWN = 0, 1
"""Whether calls share their weights, which one call then reads once, or each has its own."""
_ITEM_BYTES = 4
"""Of an element of a product: float32, PyTorch's default."""
CACHE_BYTES = 2 << 20
"""Of what an operator would take in one call. Beyond it the tensors leave the second-level cache and get fresh pages:
four calls of a convolution with batch norm, 590 kB each, took 5.3 ms with their backward pass, one call 7.8 ms."""
REUSED_BYTES, _FRESH_NS = 1 << 20, 0.35
"""Results up to this size mostly lie where earlier ones were. Larger ones may get fresh pages of the system each time,
for so many nanoseconds a byte: steps whose losses for 60 or 32 parts were made at once, in results of 1.2 and 2 MB, had
1,400 page faults more than in parts, of 4 KiB and 1.4 µs (glibc, Linux in a virtual machine)."""
_UNCERTAINTY = 0.3
"""Larger tensors may leave the cache, and more threads may share them."""


def join_calls(facts: Facts, rows: Rows, kept: float, filled: float = 1.0) -> Edit:
    """The program's operators ``rows``, of the measured steps, and their backward nodes: of the price of their calls
    the share ``kept`` stays. If each call has a backward pass of its own, what lies between the two goes likewise.
    Of padded tensors, which are only ``filled`` in part, all is computed."""
    return _join_with_backward(facts, rows, kept, filled, _SHARED)


def join_modules(facts: Facts, rows: Rows, kept: float) -> Edit:
    """`join_calls` of modules of which each has weights of its own: one call reads all of these. Their parameters
    become fewer, too, so of what an optimizer's calls and `zero_grad` cost for them the share ``kept`` stays."""
    return combine([_join_with_backward(facts, rows, kept, 1.0, _OWN), join_updates(facts, rows, kept)])


def join_updates(facts: Facts, rows: Rows, kept: float) -> Edit:
    """Of what calls cost in an optimizer's updates, for the parameters whose gradients these operators have, the share
    ``kept`` stays; likewise of what clears the gradients. Updates of whole lists cost as little as before."""
    share = _share_of_gradients(facts, rows)
    called = facts.measured_rows(facts.tree.outermost(facts.updates.inside & _is_operator(facts)))
    mine = called[~facts.trace.where_name(lambda name: name.startswith(_ON_LISTS))[called]]
    cleared = facts.measured_rows(facts.tree.outermost(clearing_ranges(facts)))
    left = 1 - share * (1 - kept)
    edits = _shrink(facts, [_join(facts, mine, called, left, 1.0, _OWN)]) if share and mine.size else []
    start, end = facts.trace.events.start_ns[cleared], facts.tree.end_ns[cleared]
    left_ns = (left * length_ns(facts, start, end)).astype(np.int64)
    return combine([*edits, shrink_spans(start, end, left_ns, _UNCERTAINTY)])


def _is_operator(facts: Facts) -> Bools:
    called: Bools = facts.trace.events.category == Category.OPERATOR
    return called


def _share_of_gradients(facts: Facts, rows: Rows) -> float:
    """The share of the gradients that are accumulated behind the backward nodes of these operators."""
    every = all_nodes(facts)
    accumulates = facts.trace.where_name(lambda name: _ACCUMULATING in name)
    mine = with_accumulation(facts, backward_of(facts, rows))
    return float(accumulates[mine].sum() / max(accumulates[every].sum(), 1))


def _join_with_backward(facts: Facts, rows: Rows, kept: float, filled: float, weights: int) -> Edit:
    nodes = with_accumulation(facts, backward_of(facts, rows))
    called, every = program_operators(facts), all_nodes(facts)
    lane = facts.trace.events.lane
    if differentiates_between(facts, rows) and rows.size and (lane[nodes] == lane[rows[0]]).all():
        parts = [(distinct(np.append(rows, nodes)), distinct(np.append(called, every)))]
    else:
        parts = [(rows, called), (nodes, every)]
    joined = [_join(facts, mine, of, kept, filled, weights) for mine, of in parts if mine.size]
    return combine([*_shrink(facts, joined), _fill(facts, np.concatenate([rows, nodes]), kept)])


def join_passes(facts: Facts, nodes: Rows, kept: float) -> Edit:
    """These backward nodes, of several passes through one graph, and what lies between them: of the price of their
    calls the share ``kept`` stays."""
    return combine(_shrink(facts, [_join(facts, nodes, nodes, kept, 1.0, _SHARED)]))


def _shrink(facts: Facts, joined: Sequence[_Runs]) -> list[Edit]:
    """As uncertain as what they save at most and at least are apart."""
    most, least = (sum(float(one.saved[end].sum()) for one in joined) for end in (0, 1))
    apart = (most - least) / max(most + least, 1)
    uncertainty = apart + _UNCERTAINTY * (1 - apart)
    return [shrink_spans(one.start_ns, one.end_ns, one.kept_ns(facts), uncertainty) for one in joined]


def differentiates_between(facts: Facts, rows: Rows) -> bool:
    """Whether backward passes lie between these operators, more than one in a step."""
    passes = np.searchsorted(all_nodes(facts), rows)
    inside = facts.step_of(rows[1:]) == facts.step_of(rows[:-1])
    return int((inside & (np.diff(passes) > 0)).sum()) > facts.steps.measured_count


def with_accumulation(facts: Facts, nodes: Rows) -> Rows:
    """These backward nodes of the measured steps, each with the accumulations of gradients that follow it."""
    everything = all_nodes(facts)
    follows = facts.trace.where_name(lambda name: "AccumulateGrad" in name)[everything]
    mine = among(everything, nodes)
    leader = np.maximum.accumulate(np.where(follows, 0, np.arange(len(everything))))
    return everything[mine[leader]] if everything.size else everything


def fills_zeros(facts: Facts, rows: Rows) -> bool:
    """Whether the backward pass of these operators fills a whole tensor with zeros for each part taken of it."""
    nodes = backward_of(facts, rows)
    filling = facts.trace.where_name(lambda name: any(kind in name for kind in _FILLING))
    return bool(filling[nodes].sum() > facts.steps.measured_count)


class _Runs(Struct, frozen=True):
    """Runs of operators: when each begins and ends, and how much time it saves at most and at least."""

    start_ns: Int64s
    end_ns: Int64s
    saved: tuple[Float64s, Float64s]

    def kept_ns(self, facts: Facts) -> Int64s:
        most, least = self.saved
        return (length_ns(facts, self.start_ns, self.end_ns) - (most + least) / 2).astype(np.int64)


def _join(facts: Facts, rows: Rows, of: Rows, kept: float, filled: float, weights: int) -> _Runs:
    """Each run of these operators with none of the others ``of`` between them."""
    first, last = runs_of(facts, rows, of)
    start, end = facts.trace.events.start_ns[rows[first]], facts.tree.end_ns[rows[last]]
    length, spent, gaps = length_ns(facts, start, end), spent_ns(facts, rows), _long_gaps_ns(facts, rows, first)
    least, most = (np.minimum(work[rows], spent) for work in _work_ns(facts, kept, weights))
    most += _fresh_pages_ns(facts, kept)[rows]
    stays = [np.add.reduceat(one / filled + gaps, first) for one in (least, most)]
    sure = np.add.reduceat(np.where(_is_paid_once(facts)[rows], spent, 0), first)
    at_most, at_least = (np.maximum(length - one, sure) * (1 - kept) for one in stays)
    return _Runs(start, end, (at_most, at_least))


def _long_gaps_ns(facts: Facts, rows: Rows, first: Int64s) -> Int64s:
    """The time before each operator since the last one of its run, if that is usually too long for Python to call it:
    then it is other work."""
    gap, names = np.zeros(len(rows), dtype=np.int64), facts.trace.events.name_code[rows]
    gap[1:] = length_ns(facts, facts.tree.end_ns[rows[:-1]], facts.trace.events.start_ns[rows[1:]])
    gap[first] = 0
    _, kind = distinct_rows(names, np.roll(names, 1))
    longer = np.bincount(kind, gap > MAX_GAP_NS) * 2 > np.bincount(kind)
    return np.where(longer[kind], gap, 0)


def runs_of(facts: Facts, rows: Rows, of: Rows) -> tuple[Int64s, Int64s]:
    """The first and the last place in ``rows`` of each run of them in a step, without others ``of`` between."""
    place, step = np.searchsorted(of, rows), facts.steps.index_of(facts.trace.events.start_ns[rows])
    first = np.concatenate([[0], np.flatnonzero((np.diff(place) != 1) | (np.diff(step) != 0)) + 1])
    return first, np.concatenate([first[1:], [len(rows)]]) - 1


def _work_ns(facts: Facts, kept: float, weights: int) -> tuple[Int64s, Int64s]:
    """Per event the time that what it computes and moves takes, with all below it, at least and at most; 0 where a
    device does that. If the calls that become one take more than fits the cache, that is all of an operator's time, or,
    of one that only moves what it takes, at least the bytes at the rate of memory."""
    known = _own_work_ns(facts)[weights]
    least, most = known.copy(), known.copy()
    if not facts.device.present:
        rows = np.flatnonzero((facts.trace.events.category == Category.OPERATOR) & facts.measured)
        rows = rows[~_is_paid_once(facts)[rows]]
        moves = operators_of(facts.trace, ELEMENTWISE, _ADDING_UP)[rows]
        taken = facts.operators.input_bytes[rows]
        moved = taken + facts.allocated_bytes[rows]
        is_large = np.where(moves, moved, taken) > CACHE_BYTES * kept
        large, own = rows[is_large], facts.tree.self_ns(facts.trace.events)[rows[is_large]]
        moving_ns = moved[is_large] / memory_bytes_per_ns(facts)
        most[large] = own
        least[large] = np.where(moves[is_large], np.maximum(least[large], np.minimum(moving_ns, own)), own)
    return facts.tree.total_under(least), facts.tree.total_under(most)


def _fresh_pages_ns(facts: Facts, kept: float) -> Int64s:
    """Per event the time in which the system may have to give pages for what it and those below it allocate, if that is
    for all calls at once."""
    events = facts.trace.events
    if facts.device.present:
        return np.zeros(len(events), dtype=np.int64)
    allocates = (events.category == Category.MEMORY) & facts.measured & ~_is_paid_once(facts)
    large = allocates & (events.size_bytes > REUSED_BYTES * kept)
    return facts.tree.total_under(np.where(large, events.size_bytes * _FRESH_NS, 0).astype(np.int64))


@derived_once
def _is_paid_once(facts: Facts) -> Bools:
    """What a call pays in the backward pass however large it is: the events of such nodes."""
    nodes = facts.trace.where_name(lambda name: any(kind in name for kind in _PAID_ONCE))
    return facts.tree.under(nodes & facts.lines.backward)


@derived_once
def _own_work_ns(facts: Facts) -> Int64s:
    """As `_work_ns`, without what is below an event: two rows, `_SHARED` and `_OWN`."""
    events = facts.trace.events
    own = np.zeros((2, len(events)), dtype=np.int64)
    if facts.device.present:
        return own
    rows = np.flatnonzero((events.category == Category.OPERATOR) & facts.measured)
    took = facts.tree.self_ns(events)[rows].astype(np.float64)
    usual = np.maximum(usual_ns(facts, rows, took), 1)
    operations, weights = by_call(facts, rows, _product, of=float).reshape(-1, 2).T
    call_ns = np.array([_LONGER_CALLS_NS.get(name, _CALL_NS) for name in facts.trace.names])[events.name_code[rows]]
    best = float((operations / usual).max(initial=0.0)) * 1e9
    computing = operations / max(best, _LEAST_RATE) * 1e9
    reading = weights * _ITEM_BYTES / memory_bytes_per_ns(facts)
    computing = np.maximum(computing, elementwise_ns(facts, rows))
    for which, read_once in ((_SHARED, reading), (_OWN, 0.0)):
        share = np.clip(np.maximum(computing, usual - call_ns - read_once) / usual, 0, 1)
        own[which, rows] = (took * share).astype(np.int64)
    own[:, _is_paid_once(facts)] = 0
    return own


def _product(call: Call) -> tuple[float, float]:
    """The operations of a product of matrices, and the elements of its weights if it has few rows; else zeros."""
    product = product_of(call.name, call.dims)
    if product is None:
        return 0.0, 0.0
    is_few = product.batch == 1 and _FEW * product.rows <= min(product.inner, product.columns)
    return product.operations, float(product.inner * product.columns * is_few)


def _fill(facts: Facts, rows: Rows, kept: float) -> Edit:
    """On a device: kernels that did not fill it take less time in all."""
    if not facts.device.present:
        return Edit()
    work, took = works_under(facts, facts.trace.mask_of(rows)), facts.trace.events.duration_ns
    least, usual = least_of_work(facts)[work], usual_of_work(facts)[work]
    reached = np.nan_to_num(least / np.maximum(took[work], 1) / usual, nan=1.0)
    return shrink_work(work, (np.clip(reached, kept, 1.0) * took[work]).astype(np.int64), _UNCERTAINTY)
