"""Stretches in which PyTorch reads a Python list into a tensor, number by number: no operator runs."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.operators.operators import parse_dims, parse_types
from profkit.patterns.program import named_operators
from profkit.trace.events import Int64s, Rows

_MIN_ELEMENTS = 1024
"""A tenth of a millisecond; shorter lists are labels, lengths, the settings of a layer or one observation."""


class ListsRead(Struct, frozen=True):
    """The `to` behind each list that was read in the measured steps, and when reading it began; it ends with the
    `to`."""

    rows: Rows
    start_ns: Int64s


@derived_once
def lists_read(facts: Facts) -> ListsRead:
    """Where an empty tensor is followed by the `to` and `lift_fresh` of one of its shape."""
    events = facts.trace.events
    aside = facts.updates.inside | facts.lines.backward
    called = facts.operators.rows
    called = called[facts.measured[called] & ~aside[called]]
    empty, to, lifted = (
        named_operators(facts, name)[called] for name in ("aten::empty", "aten::to", "aten::lift_fresh")
    )
    at = np.flatnonzero(empty[:-2] & to[1:-1] & lifted[2:]) + 1
    at = at[facts.operators.elements[called[at]] >= _MIN_ELEMENTS]
    made, ends = called[at - 1], called[at]
    keys = np.stack([events.concrete_code[made], events.dims_code[ends]])
    distinct, inverse = np.unique(keys, axis=1, return_inverse=True)
    same = np.array([_is_of_size(facts.trace.text_of(a), facts.trace.text_of(b)) for a, b in distinct.T], dtype=bool)
    chosen = same[inverse.reshape(-1)]
    return ListsRead(ends[chosen], facts.tree.end_ns[made[chosen]])


def _is_of_size(arguments: str, dims: str) -> bool:
    """Whether a tensor of these dimensions was asked for: the size is the first argument of `empty`."""
    size = next(iter(parse_types(arguments)), "")
    shape = next(iter(parse_dims(dims)), ())
    return size.replace(" ", "") == str(list(shape)).replace(" ", "")
