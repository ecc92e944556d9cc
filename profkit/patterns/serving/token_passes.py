"""Loops of one's own that generate text: the passes of a model that each add a token to its sequences.

A pass looks up token embeddings, and before the next one a token is drawn for each sequence from the scores over the
table's words. Two passes are told apart from prefill, and from a classifier, by what they look up: one token of each
sequence (the rest is in a cache), or one token more each time.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.families import operators_of
from profkit.patterns.program import named_operators
from profkit.patterns.serving.lookups import lengths_of, table_and_ids
from profkit.patterns.shapes import shapes_of, with_shapes
from profkit.trace.events import Int64s, Rows
from profkit.trace.statistics import median

_DRAWS = frozenset(("argmax", "max", "multinomial", "topk", "sort", "softmax", "_softmax", "log_softmax"))
"""One of them stands between the scores and the chosen token."""
_FEWEST = 3
"""Passes in the measured steps: fewer make no rate."""
_OF_THE_TABLE = 0.5
"""A head may have fewer scores than the table has words, as the table is padded, but not by half."""
_MOST_TIMES = 3.0
"""Of the median distance of two passes: after a longer one, something else went on."""


class TokenPasses(Struct, frozen=True):
    """The passes of the measured steps, in order, each by its lookup. It lasts until ``end_ns``, when the next one
    begins, and reads ``length`` tokens of each of the ``sequences``, of which one is new."""

    rows: Rows
    end_ns: Int64s
    length: Int64s
    sequences: int

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def is_cached(self) -> bool:
        return bool((self.length == 1).all())


@derived_once
def token_passes(facts: Facts) -> TokenPasses | None:
    """The passes of the loop that takes most passes; None if there are too few, or if the recording trains."""
    operators = facts.operators
    if not operators.has_shapes or facts.lines.backward.any():
        return None
    called = operators.rows
    lookups = called[named_operators(facts, "aten::embedding")[called]]
    draws = _draws(facts, called)
    tables: dict[tuple[int, ...], list[tuple[int, int, int, int]]] = {}
    for row, known in zip(lookups.tolist(), with_shapes(facts, lookups).tolist(), strict=True):
        table, sequences, length = table_and_ids(facts, known) if known >= 0 else ((), 0, 0)
        if len(table) == 2 and sequences:
            tables.setdefault(table, []).append((row, known, sequences, length))
    found = [_passes(facts, words, of, draws) for (words, _), of in tables.items()]
    return max((one for one in found if one is not None), key=len, default=None)


def _draws(facts: Facts, called: Rows) -> list[tuple[int, int, int]]:
    """Operators that may draw a token: when each starts, of how many sequences, from how many scores."""
    rows = called[operators_of(facts.trace, _DRAWS)[called]]
    found = []
    for row, known in zip(rows.tolist(), with_shapes(facts, rows).tolist(), strict=True):
        shape = next(iter(shapes_of(facts, known)), ()) if known >= 0 else ()
        if shape:
            found.append((int(facts.trace.events.start_ns[row]), math.prod(shape[:-1]), shape[-1]))
    return found


def _passes(
    facts: Facts, words: int, of: list[tuple[int, int, int, int]], draws: list[tuple[int, int, int]]
) -> TokenPasses | None:
    rows, known, sequences, known_length = (np.array(column, dtype=np.int64) for column in zip(*of, strict=True))
    length = lengths_of(facts, rows, known, known_length)
    start_ns = facts.trace.events.start_ns[rows]
    drawn = np.array([at for at, _, scores in draws if _OF_THE_TABLE * words <= scores <= words], dtype=np.int64)
    count = np.array([some for _, some, scores in draws if _OF_THE_TABLE * words <= scores <= words], dtype=np.int64)
    until = np.append(start_ns[1:], np.iinfo(np.int64).max)
    first = np.searchsorted(drawn, start_ns)
    draws_next = (first < len(drawn)) & (np.append(drawn, np.iinfo(np.int64).max)[first] < until)
    of_draw = np.append(count, 0)[first.clip(max=len(count))]
    grows = np.append(False, np.diff(length) == 1) | np.append(np.diff(length) == 1, False)
    flat = (sequences == 1) & (length == of_draw) & (length > 1)  # all sequences' tokens in one row
    adds = draws_next & (((of_draw == sequences) & ((length == 1) | grows)) | flat) & facts.measured[rows]
    if adds.sum() < _FEWEST:
        return None
    ends = np.where(until < np.iinfo(np.int64).max, until, start_ns)
    follow = (ends > start_ns) & adds
    usual = int(median((ends - start_ns)[follow])) if follow.any() else 0
    ends = np.minimum(ends, start_ns + int(_MOST_TIMES * usual))
    ends[-1] = start_ns[-1] + usual
    batch = np.where(flat, length, sequences)[adds]
    alike = batch == np.bincount(batch).argmax()
    chosen = np.flatnonzero(adds)[alike]
    return TokenPasses(rows[chosen], ends[chosen], np.where(flat, 1, length)[chosen], int(batch[alike][0]))
