"""Lookups of token embeddings: the table, the sequences, and how many tokens of each are read."""

from __future__ import annotations

import math

import numpy as np

from profkit.derive.facts import Facts
from profkit.patterns.shapes import shapes_of
from profkit.trace.events import Int64s, Rows


def table_and_ids(facts: Facts, row: int) -> tuple[tuple[int, ...], int, int]:
    """For a lookup: the shape of the table, the number of sequences, and the tokens in each."""
    shapes = shapes_of(facts, row)
    if len(shapes) < 2 or not shapes[1]:
        return (), 0, 0
    return tuple(shapes[0]), math.prod(shapes[1][:-1]), shapes[1][-1]


def lengths_of(facts: Facts, lookups: Rows, known: Rows, known_length: Int64s) -> Int64s:
    """How long the sequence of each lookup is: told by what it allocates compared with the similar one whose length is
    known; 0 if that is no whole number of tokens."""
    here, there = facts.allocated_bytes[lookups], facts.allocated_bytes[known]
    times = here * known_length
    whole = np.where(there > 0, times // there.clip(min=1), 0)
    return np.where(lookups == known, known_length, np.where(whole * there == times, whole, 0))
