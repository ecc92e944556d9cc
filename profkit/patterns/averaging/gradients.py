"""What averages gradients, and when the backward pass waits for it."""

from __future__ import annotations

import numpy as np

from profkit.derive.facts import Facts
from profkit.derive.operators.operators import parse_dims, parse_types
from profkit.patterns.program import ACCUMULATES
from profkit.patterns.ranks.names import element_bytes
from profkit.trace.events import Bools, Category, Int64s, Rows
from profkit.trace.statistics import distinct_rows

FORWARD = "DistributedDataParallel.forward"
"""The range that PyTorch records around the model's forward pass (``torch/nn/parallel/distributed.py``)."""
ALL_REDUCES = ("c10d::allreduce_", "nccl:all_reduce", "gloo:all_reduce", "mpi:all_reduce", "ucc:all_reduce")
"""The operator, and the range that the backend records in or after it (``torch/csrc/distributed/c10d``)."""

_FIRST_BUCKET_BYTES, _BUCKET_BYTES = 1 << 20, 25 << 20
"""``kDefaultFirstBucketBytes`` in ``reducer.hpp``, and the default of ``bucket_cap_mb``."""
_TOO_MANY = 2
"""How many times the default number of buckets: a parameter larger than a bucket has one of its own."""


def default_buckets(size_bytes: int) -> int:
    """In how many buckets DistributedDataParallel sends this many bytes of gradients by default."""
    return 1 + max(0, -(-(size_bytes - _FIRST_BUCKET_BYTES) // _BUCKET_BYTES))


def are_too_many(size_bytes: Int64s) -> bool:
    """Whether messages of these sizes, those of one step, are far more than the default buckets."""
    return bool((size_bytes >= 0).all()) and len(size_bytes) > _TOO_MANY * default_buckets(int(size_bytes.sum()))


def storing_gradients(facts: Facts) -> Bools:
    """What stores one gradient, with the hooks that run after it, where DistributedDataParallel does its work."""
    storing = facts.trace.where_name(lambda name: name.endswith(ACCUMULATES))
    return facts.tree.outermost(storing & (facts.trace.events.category == Category.OPERATOR))


def stored_gradients(facts: Facts) -> Rows:
    """The nodes that store one gradient each."""
    return np.flatnonzero(facts.trace.named(ACCUMULATES) & facts.tree.under(storing_gradients(facts)))


def gradient_all_reduces(facts: Facts) -> Rows:
    """The all-reduces that the storing of gradients calls, without those of metrics or of synchronised batch norm."""
    named = facts.trace.named(*ALL_REDUCES) & facts.tree.under(storing_gradients(facts))
    return np.flatnonzero(facts.tree.outermost(named))


def gradient_sizes(facts: Facts, rows: Rows) -> Int64s:
    """The bytes of the gradient that each of these events stores, 0 if its shape is unknown."""
    events = facts.trace.events
    if not rows.size:
        return np.zeros(0, dtype=np.int64)
    first, number = distinct_rows(events.dims_code[rows], events.types_code[rows])
    return np.array([_size_of(facts, row) for row in rows[first].tolist()], dtype=np.int64)[number]


def _size_of(facts: Facts, row: int) -> int:
    events = facts.trace.events
    shapes = parse_dims(facts.trace.text_of(events.dims_code[row]))
    kinds = parse_types(facts.trace.text_of(events.types_code[row]))
    width = element_bytes(kinds[0]) if kinds else None
    return int(np.prod(shapes[0], dtype=np.int64)) * width if shapes and shapes[0] and width else 0


def within(begin: Int64s, end: Int64s, times_ns: Int64s) -> Int64s:
    """For each time the range that it is in, -1 outside all of them."""
    index = np.searchsorted(begin, times_ns, side="right") - 1
    inside = times_ns < np.append(end, np.iinfo(np.int64).min)[index]  # the last one is for what begins before all
    return np.where(inside, index, -1)
