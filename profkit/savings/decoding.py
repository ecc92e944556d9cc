"""The least that adding a token can take: reading the weights and the cache once.

A step that adds one token to each of a few sequences does two operations for each weight that it reads, far below what
any device does for a byte. So its floor is what it has to read, over the rate of the memory (Pope et al., Efficiently
Scaling Transformer Inference, 2022). A larger batch shares the reading of the weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.families import base_name, operators_of
from profkit.patterns.serving.token_passes import TokenPasses
from profkit.patterns.shapes import with_shapes
from profkit.savings.cost_models.devices import presumed_rates
from profkit.savings.roofline.calls import BYTES_OF, read_call
from profkit.trace.events import Rows
from profkit.trace.statistics import distinct_rows

_OPERANDS: Mapping[str, tuple[int, ...]] = {
    "linear": (1,),
    "addmm": (2,),
    "mm": (1,),
    "matmul": (1,),
    "bmm": (1,),
    "baddbmm": (2,),
    "scaled_dot_product_attention": (1, 2),
}
"""What each reads besides the new token: weights if it is a matrix, keys and values if it has more dimensions."""


class Floor(Struct, frozen=True):
    """What a pass has to read, in bytes, and how long that takes at least (0 if the memory's rate is not known)."""

    weight_bytes: int
    cache_bytes: int
    ns: int


def decode_floor(facts: Facts, passes: TokenPasses) -> Floor | None:
    """A mean over the passes; None if no shapes tell what they read."""
    events = facts.trace.events
    wanted = operators_of(facts.trace, frozenset(_OPERANDS))
    rows = np.flatnonzero(facts.tree.outermost(wanted))
    at = np.searchsorted(events.start_ns[passes.rows], events.start_ns[rows], side="right") - 1
    rows = rows[(at >= 0) & (events.start_ns[rows] < passes.end_ns[at.clip(min=0)])]
    known = with_shapes(facts, rows)
    if not rows.size or (known < 0).any():
        return None
    weights, cached = _read_bytes(facts, known)
    weight_bytes, cache_bytes = weights / len(passes), cached / len(passes)
    if not weight_bytes:
        return None
    rates = presumed_rates(facts)
    least_ns = (weight_bytes + cache_bytes) / rates.bandwidth * 1e9 if rates is not None and rates.bandwidth else 0.0
    return Floor(round(weight_bytes), round(cache_bytes), round(least_ns))


def _read_bytes(facts: Facts, rows: Rows) -> tuple[float, float]:
    """Weights and cached tensors that these operators read, each once a call."""
    events, trace = facts.trace.events, facts.trace
    first, kind = distinct_rows(*(column[rows] for column in (events.name_code, events.dims_code, events.types_code)))
    count = np.bincount(kind, minlength=len(first))
    weights = cached = 0.0
    for row, times in zip(rows[first].tolist(), count.tolist(), strict=True):
        dims, types = (trace.text_of(int(codes[row])) for codes in (events.dims_code, events.types_code))
        call = read_call(trace.name_of(row), dims, types, "")
        if call is None:
            continue
        for operand in _OPERANDS[base_name(call.name)]:
            size = times * math.prod(call.shape(operand)) * BYTES_OF.get(call.type_of(operand), 0)
            if len(call.shape(operand)) > 2:
                cached += size
            else:
                weights += size
    return weights, cached
