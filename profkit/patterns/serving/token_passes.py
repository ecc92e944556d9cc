"""Loops of one's own that generate text: the passes of a model that each add a token to its sequences.

A pass looks up token embeddings, and before the next one a token is drawn for each sequence from the scores over the
table's words. Passes are told apart from prefill, and from a classifier, by what they look up: one token of each
sequence (the rest is in a cache), or one token more each time, or a window of constant length from which a token is
drawn at random. And they are told apart from a recommendation, which also ranks many things for one, by what looks
back at the tokens before: attention, or a state that is carried on.
"""

from __future__ import annotations

import math
import re

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.families import base_name, operators_of
from profkit.patterns.program import named_operators
from profkit.patterns.serving.lookups import lengths_of, table_and_ids
from profkit.patterns.shapes import shapes_of, with_shapes
from profkit.trace.events import Bools, Int64s, Rows
from profkit.trace.statistics import median

_DRAWS = frozenset(("argmax", "max", "multinomial", "topk", "sort", "softmax", "_softmax", "log_softmax"))
"""One of them stands between the scores and the chosen token."""
_LOOKS_BACK = re.compile(
    r"atten|attn|_mha|gru|lstm|rnn|selective_scan|mamba|ssm|rwkv|wkv|delta_rule|retention|conv1d", re.IGNORECASE
)
"""Operators that need the tokens before, by their names. Attention by hand shows as a softmax over several heads."""
_HEADS_AND_ALL = 4
"""Dimensions of scores of attention: sequences, heads, and two of tokens."""
_FEWEST = 3
"""Passes in the measured steps: fewer make no rate."""
_OF_THE_TABLE = 0.5
"""A head may have fewer scores than the table has words, as the table is padded, but not by half."""
_MOST_TIMES = 3.0
"""Of the median distance of two passes: after a longer one, something else went on."""


_MOSTLY = 0.9
"""Of the passes: between requests a prompt is read now and then, and belongs to no pass."""


class TokenPasses(Struct, frozen=True):
    """The passes of the measured steps, in order, each by its lookup. It lasts until ``end_ns``, when the next one
    begins, and reads ``length`` tokens of each of the ``sequences``, of which one is new. ``beside`` is how many other
    tokens are read for nearly every pass, from which nothing is drawn, such as a source that is encoded again."""

    rows: Rows
    end_ns: Int64s
    length: Int64s
    sequences: int
    beside: int = 0

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
    best = max((one for one in found if one is not None), key=len, default=None)
    return best if best is not None and _looks_back(facts, best) else None


def _looks_back(facts: Facts, passes: TokenPasses) -> bool:
    """Whether each pass has an operator that needs the tokens before."""
    events, called = facts.trace.events, facts.operators.rows
    by_name = called[facts.trace.matching(_LOOKS_BACK)[called]]
    weighing = called[operators_of(facts.trace, frozenset(("softmax", "_softmax")))[called]]
    known = with_shapes(facts, weighing)
    by_hand = [
        row
        for row, of in zip(weighing.tolist(), known.tolist(), strict=True)
        if of >= 0 and len(next(iter(shapes_of(facts, of)), ())) >= _HEADS_AND_ALL
    ]
    starts_ns = np.sort(events.start_ns[np.concatenate([by_name, np.array(by_hand, dtype=np.int64)])])
    first = np.searchsorted(starts_ns, events.start_ns[passes.rows])
    return bool((np.append(starts_ns, np.iinfo(np.int64).max)[first] < passes.end_ns).all())


class _Draw(Struct, frozen=True):
    """An operator that may draw a token: when it starts, of how many sequences, from how many ``scores``."""

    at_ns: int
    sequences: int
    scores: int
    is_random: bool


def _draws(facts: Facts, called: Rows) -> list[_Draw]:
    rows = called[operators_of(facts.trace, _DRAWS)[called]]
    found = []
    for row, known in zip(rows.tolist(), with_shapes(facts, rows).tolist(), strict=True):
        shape = next(iter(shapes_of(facts, known)), ()) if known >= 0 else ()
        if shape:
            is_random = base_name(facts.trace.name_of(row)) == "multinomial"
            found.append(_Draw(int(facts.trace.events.start_ns[row]), math.prod(shape[:-1]), shape[-1], is_random))
    return found


def _passes(facts: Facts, words: int, of: list[tuple[int, int, int, int]], draws: list[_Draw]) -> TokenPasses | None:
    rows, known, sequences, known_length = (np.array(column, dtype=np.int64) for column in zip(*of, strict=True))
    length = lengths_of(facts, rows, known, known_length)
    start_ns = facts.trace.events.start_ns[rows]
    fitting = [draw for draw in draws if _OF_THE_TABLE * words <= draw.scores <= words]
    drawn = np.array([draw.at_ns for draw in fitting], dtype=np.int64)
    count = np.array([draw.sequences for draw in fitting], dtype=np.int64)
    random = np.array([draw.at_ns for draw in fitting if draw.is_random], dtype=np.int64)
    until = np.append(start_ns[1:], np.iinfo(np.int64).max)
    first = np.searchsorted(drawn, start_ns)
    draws_next = (first < len(drawn)) & (np.append(drawn, np.iinfo(np.int64).max)[first] < until)
    of_draw = np.append(count, 0)[first.clip(max=len(count))]
    grows = np.append(False, np.diff(length) == 1) | np.append(np.diff(length) == 1, False)
    slides = (length > 1) & (np.searchsorted(random, until) > np.searchsorted(random, start_ns))
    flat = (sequences == 1) & (length == of_draw) & (length > 1)  # all sequences' tokens in one row
    adds = draws_next & (((of_draw == sequences) & ((length == 1) | grows | slides)) | flat) & facts.measured[rows]
    if adds.sum() < _FEWEST:
        return None
    beside = _read_beside(adds, draws_next, sequences * length)
    if beside:
        begin = start_ns[adds]
        until[adds] = np.append(begin[1:], begin[-1] + int(median(np.diff(begin))))
    ends = np.where(until < np.iinfo(np.int64).max, until, start_ns)
    follow = (ends > start_ns) & adds
    usual = int(median((ends - start_ns)[follow])) if follow.any() else 0
    ends = np.minimum(ends, start_ns + int(_MOST_TIMES * usual))
    ends[-1] = start_ns[-1] + usual
    batch = np.where(flat, length, sequences)[adds]
    alike = batch == np.bincount(batch).argmax()
    chosen = np.flatnonzero(adds)[alike]
    return TokenPasses(rows[chosen], ends[chosen], np.where(flat, 1, length)[chosen], int(batch[alike][0]), beside)


def _read_beside(adds: Bools, draws_next: Bools, tokens: Int64s) -> int:
    """How many tokens the lookups without a draw read between two passes (a median), if nearly all passes have some and
    no other draw comes between them."""
    each = np.flatnonzero(adds)
    drawn, read = np.cumsum(draws_next), np.cumsum(np.where(draws_next, 0, tokens))
    others = np.diff(read[each])
    is_beside = (others > 0) & (np.diff(drawn[each]) == 1)
    return int(median(others[is_beside])) if is_beside.sum() >= _MOSTLY * max(len(each) - 1, 1) else 0
