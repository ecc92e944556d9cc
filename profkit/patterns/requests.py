"""What a request for a batch consists of."""

from __future__ import annotations

import math
import re

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.patterns.program import named_operators
from profkit.patterns.shapes import by_shapes, first_shape
from profkit.trace.events import Bools, Category, Float64s, Int64s, Rows

PICKS = ("aten::select", "aten::index", "aten::index_select", "aten::slice", "aten::narrow")
"""Operators by which a dataset picks a sample out of a tensor."""
LEAST_PICKS = 64
"""Fewer calls, at some microseconds each, are lost in the noise of most steps."""
_OF_ORDERS = ("aten::randperm", "aten::resolve_conj", "aten::resolve_neg", "aten::empty", "aten::random_", "aten::item")
"""What `torch.randperm`, `Tensor.tolist` and the drawing of a seed call."""
_FREED_NS = 10
"""The longest that freeing one number of a list takes, on average: 6 ns of half a million (AMD EPYC, Python 3.11). What
comes later after the request is something else."""
_FIRST_NUMBER = re.compile(r'\["(\d{1,18})"')
_CALL_NS = 20_000
"""Of work on a sample, what a batch would spare: the call. Longer operators compute."""
_MOST_WORK = 0.5
"""Of the request: more, and the samples are made rather than picked."""
_LEAST_PICKING = 0.25
"""Of the time of a dataset that only picks, operators take half or more; the rest is Python's calls of them."""

_LEAST_ALIKE = 3
"""Of two the median is their mean, which a single wait for the processor moves."""


def asked_of_workers(facts: Facts) -> Bools:
    """Requests for batches that worker processes prepare, and anything else that names their iterator."""
    return facts.trace.where_name(lambda name: "MultiProcessing" in name)


def begins_an_iterator(facts: Facts, rows: Rows) -> Bools:
    """Which of all requests for a batch are the first of their iterator: a seed was drawn outside of requests since the
    one before.

    An iterator draws its workers' seed when it is made, and a sampler its own: ``torch.empty(()).random_().item()``.
    """
    events = facts.trace.events
    drawn = named_operators(facts, "aten::random_") & (events.lane == facts.steps.main_lane)
    drawn = facts.tree.outermost(drawn & (facts.tree.nearest_ancestor(named_operators(facts, "aten::randint")) < 0))
    seeds = np.sort(events.start_ns[drawn & ~facts.tree.under(facts.loading)])
    before = np.searchsorted(seeds, events.start_ns[rows])
    return np.diff(before, prepend=0) > 0


class Orders(Struct, frozen=True):
    """Requests for a batch that draw an order of all samples (``rows``), for how many nanoseconds each does nothing
    else, and for how many after the request the order may be freed again."""

    rows: Rows
    drawing_ns: Int64s
    freeing_ns: Int64s


def discarded_orders(facts: Facts, rows: Rows, least_length: int) -> Orders:
    """Which of the requests for a batch draw an order of at least so many samples. Drawing it lasts until the first
    operator that is not part of it, freeing it until the next event.

    A sampler that shuffles draws the order of a whole epoch when its iterator is asked for the first batch
    (``RandomSampler``: ``torch.randperm(n).tolist()``).
    """
    events, tree = facts.trace.events, facts.tree
    drawn = np.flatnonzero(tree.outermost(named_operators(facts, "aten::randperm")))
    length = _order_length(facts, drawn)
    request = tree.nearest_ancestor(facts.trace.mask_of(rows), of=drawn)
    chosen = (length >= least_length) & (request >= 0)
    drawn, request, length = drawn[chosen], request[chosen], length[chosen]
    called = np.flatnonzero(tree.outermost(events.category == Category.OPERATOR) & ~named_operators(facts, *_OF_ORDERS))
    until_ns = np.minimum(_next_ns(events.start_ns[called], tree.end_ns[drawn]), tree.end_ns[request])
    on_host = np.flatnonzero((tree.depth >= 0) & (events.lane == facts.steps.main_lane))
    edges = np.concatenate([events.start_ns[on_host], tree.end_ns[on_host]])
    idle_ns = _next_ns(edges, tree.end_ns[request] + 1) - tree.end_ns[request]
    freeing_ns = np.where(length > idle_ns // _FREED_NS, idle_ns, length * _FREED_NS)
    return Orders(request, until_ns - events.start_ns[request], freeing_ns)


def _next_ns(times_ns: Int64s, after_ns: Int64s) -> Int64s:
    """The first of the times that is not before each of the others."""
    ordered = np.append(np.sort(times_ns), np.iinfo(np.int64).max)
    following: Int64s = ordered[np.searchsorted(ordered, after_ns)]
    return following


def _order_length(facts: Facts, rows: Rows) -> Int64s:
    """The ``n`` of each `torch.randperm`, 0 if the recording does not tell it."""
    codes = facts.trace.events.concrete_code
    texts = [facts.trace.text_of(int(codes[row])) if codes.size and codes[row] >= 0 else "" for row in rows.tolist()]
    found = (_FIRST_NUMBER.match(text) for text in texts)
    return np.array([int(match[1]) if match else 0 for match in found], dtype=np.int64)


def main_requests(facts: Facts) -> Bools:
    """The main thread's requests for a batch."""
    return facts.tree.outermost(facts.loading & (facts.trace.events.lane == facts.steps.main_lane))


def worker_requests(facts: Facts) -> Bools:
    """Those of `main_requests` that workers serve."""
    asked = facts.loading & asked_of_workers(facts)
    return facts.tree.outermost(asked & (facts.trace.events.lane == facts.steps.main_lane))


def picked_one_by_one(facts: Facts, requests: Rows) -> Bools:
    """Which of the requests for a batch, none inside another, pick 64 samples or more out of tensors in memory and do
    little else. Operators take at least a quarter of their time; otherwise most samples are read, decoded or made in
    Python. Operators that compute on a sample take at most half of it. If shapes are known, the picked tensors hold at
    least 64 samples, and the picks yield at least half of the elements that become tensors out of Python objects
    (``lift_fresh``): if a sample is made in Python from what was picked, an index or a seed, they yield less. (Half, as
    two tensors may hold a text and what follows each of its words.)
    """
    events, tree = facts.trace.events, facts.tree
    wanted = facts.trace.mask_of(requests)
    request = tree.nearest_ancestor(wanted)
    # What an operator calls itself is not a pick of the program's.
    called = np.flatnonzero(tree.outermost(events.category == Category.OPERATOR) & (request >= 0))
    picks, fresh = (called[named_operators(facts, *names)[called]] for names in (PICKS, ("aten::lift_fresh",)))
    picks, held = _picked_of_many(facts, picks)

    def of_request(rows: Rows, weights: Float64s | Int64s | None = None) -> Float64s:
        return np.bincount(request[rows], weights, len(events))[requests].astype(np.float64)

    made = of_request(fresh, _elements(facts, fresh)[1])
    is_much = 2 * of_request(picks, held) >= made
    operating = _operating_share(facts, requests, called, request[called])
    work = called[~named_operators(facts, *PICKS, "aten::stack")[called]]
    worked = of_request(work, (tree.end_ns[work] - events.start_ns[work] - _CALL_NS).clip(min=0))
    picks_mainly = worked <= _MOST_WORK * (tree.end_ns[requests] - events.start_ns[requests])
    return (of_request(picks) >= LEAST_PICKS) & (operating >= _LEAST_PICKING) & is_much & picks_mainly


def _operating_share(facts: Facts, requests: Rows, called: Rows, request: Rows) -> Float64s:
    """Of each request's time, what the operators take that it called, as recorded: the overhead of such short ones
    cannot be told from their time.

    Requests with equally many operators, three or more, are one: of each operator, and of each stretch between two,
    the median counts. A program that takes the processor away holds up one of hundreds of pieces at a time, another
    one in each request; what Python does for the batch stands at the same place in all.
    """
    begin_ns, end_ns = facts.trace.events.start_ns, facts.tree.end_ns
    ordered = called[np.lexsort((begin_ns[called], request))]
    count = np.bincount(request, minlength=len(begin_ns))[requests]
    first = np.searchsorted(np.sort(request), requests)
    share = np.zeros(len(requests))
    for pieces in np.unique(count[count > 0]).tolist():
        alike = np.flatnonzero(count == pieces)
        groups = [alike] if len(alike) >= _LEAST_ALIKE else alike[:, None]
        for group in groups:
            rows, whole = ordered[first[group][:, None] + np.arange(pieces)], requests[group][:, None]
            begun = np.concatenate([begin_ns[whole], end_ns[rows]], axis=1)
            ended = np.concatenate([begin_ns[rows], end_ns[whole]], axis=1)
            working = float(np.median(end_ns[rows] - begin_ns[rows], axis=0).sum())
            share[group] = working / max(working + float(np.median(ended - begun, axis=0).sum()), 1.0)
    return share


def _picked_of_many(facts: Facts, picks: Rows) -> tuple[Rows, Float64s]:
    """The picks out of tensors that may hold a data set, and how many elements each yields: infinitely many for a
    stretch, or if no shape is known."""
    first, every = _elements(facts, picks)
    known, stretches = first > 0, named_operators(facts, "aten::slice", "aten::narrow")[picks]
    many = ~known | (first >= LEAST_PICKS)
    held = np.where(known & ~stretches, every / np.maximum(first, 1), np.inf)
    return picks[many], held[many]


def _elements(facts: Facts, rows: Rows) -> tuple[Float64s, Float64s]:
    """For the inputs of each event: the length of the first input's first dimension, and the number of elements of all
    of them; 0 if no shape is known."""
    first = by_shapes(facts, rows, lambda shapes: next(iter(first_shape(shapes)), 0), of=float)
    return first, by_shapes(facts, rows, lambda shapes: sum(math.prod(shape) for shape in shapes if shape), of=float)
