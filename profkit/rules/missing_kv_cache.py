"""A language model reads the whole text again for each token that it adds.

What it detects
Lookups of token embeddings whose sequence grows by one token from call to call, eight times in a row or from step to
step, without a backward pass, each followed by causal attention or a recurrent layer over that whole length and by a
draw (`argmax`, `multinomial`, `topk`, ...) from the scores of one position. Not reported: a model that is given only
the new token, which attends with a query of length one; training on texts of many lengths, which draws nothing;
attention without a causal mask and recurrent layers in both directions, which give other values for the old tokens each
time; and a window that slides at its full length, where learned positions change for every token.

Why is this bad?
With a causal mask the keys and values of the earlier tokens are the same each time, and so is the state of a recurrent
layer after them. Computing them again makes the work for n tokens grow with n² instead of n.

Example
    for _ in range(length):
        logits = model(tokens)[:, -1]
        tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], dim=1)

Use instead
    cache, new = None, tokens
    for _ in range(length):
        logits, cache = model(new, cache)
        new = logits[:, -1].argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, new], dim=1)

How the saving is estimated
Each operator of the model that works on all n positions keeps its dispatch and one n-th of the rest, but at least the
time to read its weights from memory: at the measured bandwidth, else at that of half a channel of DDR4-2400. The
dispatch is the time of the cheapest operator of that name in the recording, and at most 15 µs. The cost of keeping keys
and values does not count.

If each pass is a step, the recorded ones are over a few lengths. If the steps that were timed after them get longer
step by step, at least those of the first text, the share is one of all these steps: with a cache each takes what is
left of a recorded one. That attention looks back on more tokens does not count. Else the share is that of the recorded
lengths, and the finding tells that of texts twice as long: what a cache saves is twice as much there, the rest stays.

It is an opportunity: the model has to learn to go on from a cache or a state, and its results differ by rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.families import VIEW, base_name, operators_of
from profkit.patterns import (
    Shapes,
    backward_of,
    call_of,
    name_lines,
    named_operators,
    shapes_of,
    times_per_step,
    with_shapes,
)
from profkit.patterns.places.callers import model_call_sites
from profkit.patterns.serving.lookups import lengths_of, table_and_ids
from profkit.rules.base import Facts, Kind, Need, Suspicion, Suspicions, format_share, rule
from profkit.savings import Edit, computing_ns, memory_bytes_per_ns, take_less, without_share
from profkit.savings.pricing import dispatch_ns
from profkit.savings.replay import replay
from profkit.savings.step_time import step_time
from profkit.trace import Rows, among, distinct, distinct_rows, median
from profkit.trace.statistics import BLOCKS, fastest_of_blocks, rank_order

_MIN_CALLS = 8
"""Fewer tokens are a label or an answer, which is not worth the code of a cache."""
_MIN_STEPS = 3
"""If each call is a step, a recording holds as many as it has measured steps."""
_UNCERTAINTY = 0.4
"""What one token takes changes by as much if weights come from memory and not from a cache."""
_LEAST_LATER, _LEAST_ORDER, _LEAST_GROWTH = 64, 0.75, 1.25
"""Steps and the order of their eight blocks that show growth, and its least factor: as in `growing-step-time`."""
_DRAWS = frozenset(("argmax", "max", "multinomial", "sort", "topk"))
_MASKING = frozenset(("add", "masked_fill", "where"))
_WITH_WEIGHTS = frozenset(("addmm", "linear", "matmul", "mm"))
_CAUSAL_ARGUMENT = 5
"""``is_causal`` of ``scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, ...)``."""
_RECURRENT = frozenset(("gru", "lstm", "rnn_relu", "rnn_tanh"))
_BIDIRECTIONAL_ARGUMENT = 7
"""Of ``gru(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)`` and the like."""
_OF_ATTENTION = (
    "Keep the keys and values of each layer and give the model only the new token: `use_cache=True` and "
    "`past_key_values` in transformers. In your own model append the new token's key and value to those kept. "
    "Let its one query attend to all of them, and go on counting its position."
)
_OF_RECURRENCE = (
    "Give the model only the new token, and the recurrent layer the state that it returned for the one before: "
    "`out, state = self.rnn(x, state)`."
)


class _Pass(Struct, frozen=True):
    """One pass of the model: its operators from the lookup on, the operators with known shapes that these repeat, batch
    and length of the lookup among those, and the pass's own length."""

    rows: Rows
    known: Rows
    batch: int
    known_length: int
    length: int


@rule(Kind.OPPORTUNITY, Need.COMPUTE, Need.OPERATORS, Need.SHAPES)
def missing_kv_cache(facts: Facts) -> Suspicions:
    """Look at the lookups of each table, and report those that lead to one call of a model once."""
    reported: set[int] = set()
    for passes in _growing_passes(facts):
        rows = np.concatenate([each.rows for each in passes])
        lookups = np.array([each.rows[0] for each in passes])
        batches, has_attention = _read_in_order(facts, passes)
        if backward_of(facts, rows).size or not any(_draws(facts, passes, batch) for batch in batches):
            continue
        site = int(model_call_sites(facts, passes[0].known[:1])[0])
        if site in reported:
            continue
        reported.add(site)
        lengths = [each.length for each in passes]
        calls, once = times_per_step(facts, lookups), _read_once(facts, passes)
        later_ns = _later_ns(facts) if calls == 1 else 0.0
        yield Suspicion(
            message=f"A model with {'causal attention' if has_attention else 'a recurrent layer'} reads all tokens "
            f"again for each one that it adds. That is {calls:,} pass{'es' * (calls > 1)} a step, over "
            f"{min(lengths):,} to {max(lengths):,} tokens, of which one is new."
            + _of_others(facts, once, calls, later_ns),
            fix=_OF_ATTENTION if has_attention else _OF_RECURRENCE,
            rows=lookups,
            edit=_over_later(facts, once, later_ns) if later_ns else once,
            confidence=0.85,
            places=name_lines(facts, [site]),
            evidence={"passes_per_step": calls, "longest": max(lengths)}
            | ({"later_step_ns": int(later_ns)} if later_ns else {}),
        )


def _later_ns(facts: Facts) -> float:
    """How long the steps behind the recorded ones take on average; 0 if it does not show that they grow. Several texts
    may follow each other, so only the first steps need to."""
    if facts.device.present:  # such steps are timed by what the host launches
        return 0.0
    later_ns = np.array(facts.run.later_step_ns, dtype=np.float64)
    first = [later_ns[:count] for count in range(_LEAST_LATER, len(later_ns) + 1, _LEAST_LATER)]
    fastest = [fastest_of_blocks(part) for part in first]
    if not any(rank_order(ns) >= _LEAST_ORDER and ns[-1] >= _LEAST_GROWTH * ns[0] for ns in fastest):
        return 0.0
    mean_ns = float(np.mean([median(row) for row in np.array_split(later_ns, len(later_ns) // BLOCKS)]))
    return mean_ns if mean_ns > step_time(facts).ns else 0.0


def _of_others(facts: Facts, once: Edit, calls: int, later_ns: float) -> str:
    """What the message says of texts of other lengths than the recorded ones. What a cache saves grows with them."""
    if not later_ns:
        share = replay(facts, once).fraction
        doubled = format_share(2 * share / (1 + share))
        return "" if calls > 1 else f" Over texts twice as long a cache would save about {doubled} of a step."
    times = later_ns / step_time(facts).ns
    return f" Steps behind the recorded ones take {times:.1f} times as long on average: the share is one of these."


def _over_later(facts: Facts, once: Edit, later_ns: float) -> Edit:
    """Steps of this length, of which as much is left as of the recorded ones."""
    share = 1 - (1 - replay(facts, once).fraction) * step_time(facts).ns / later_ns
    return without_share(facts, share, share * (1 - _UNCERTAINTY), share * (1 + _UNCERTAINTY))


def _growing_passes(facts: Facts) -> Iterator[list[_Pass]]:
    """For each table of embeddings, the measured passes of runs in which the sequence grows by one token each time."""
    called = facts.operators.rows[~(facts.updates.inside | facts.lines.backward)[facts.operators.rows]]
    lookups = called[named_operators(facts, "aten::embedding")[called]]
    known = with_shapes(facts, lookups)
    lookups, known = lookups[known >= 0], known[known >= 0]
    shapes = [table_and_ids(facts, int(row)) for row in known]
    tables: dict[tuple[object, ...], list[int]] = {}
    for i, (table, _, _) in enumerate(shapes):
        tables.setdefault((int(facts.lines.site[lookups[i]]), table), []).append(i)
    for mine in tables.values():
        batch = np.array([shapes[i][1] for i in mine])
        was = np.array([shapes[i][2] for i in mine])
        length = lengths_of(facts, lookups[mine], known[mine], was)
        step = facts.step_of(lookups[mine])
        grows = (np.diff(length) == 1) & (np.diff(batch) == 0) & (length[:-1] > 0) & (np.diff(step) <= 1)
        stops = np.append(np.searchsorted(called, lookups[mine])[1:], len(called))
        passes: list[_Pass] = []
        for run in np.split(np.arange(len(mine)), np.flatnonzero(~grows) + 1):
            if len(run) >= _MIN_CALLS or len(distinct(step[run])) >= _MIN_STEPS:
                passes += _cut(
                    facts,
                    called,
                    [(int(lookups[mine[i]]), int(stops[i]), int(batch[i]), int(was[i]), int(length[i])) for i in run],
                )
        if passes:
            yield passes


def _cut(facts: Facts, called: Rows, run: list[tuple[int, int, int, int, int]]) -> list[_Pass]:
    """The measured passes of a run; each ends at the next lookup or with its step, and is no longer than the first."""
    passes: list[_Pass] = []
    longest = len(called)
    for lookup, stop, batch, known_length, length in run:
        begin = int(np.searchsorted(called, lookup))
        step = facts.step_of(called[begin : begin + 1])
        rows = called[begin : min(stop, begin + longest)]
        rows = rows[facts.step_of(rows) == step]
        longest = min(longest, len(rows))
        if facts.measured[lookup]:
            passes.append(_Pass(rows, with_shapes(facts, rows), batch, known_length, length))
    return passes


def _read_in_order(facts: Facts, passes: list[_Pass]) -> tuple[set[int], bool]:
    """The numbers of sequences over whose whole length these passes run a recurrence, or attention if any masks it; and
    whether there is such attention."""
    trace, masked, attended, recurrent = facts.trace, False, set[int](), set[int]()
    for each in passes[:_MIN_STEPS]:
        known = each.known[each.known >= 0]
        first, _ = distinct_rows(trace.events.name_code[known], trace.events.dims_code[known])
        for row in known[first].tolist():
            name, shapes = base_name(trace.name_of(row)), shapes_of(facts, row)
            square = [shape[-2:] == [each.known_length] * 2 for shape in shapes]
            if name == "scaled_dot_product_attention" and _is_causal(facts, row, shapes, each.known_length):
                masked = True
                attended.add(shapes[0][0])
            masked |= name in _MASKING and any(square[1:] if name != "where" else square[:1])
            if name in ("softmax", "_softmax") and any(square[:1]):
                attended.add(shapes[0][0])
            if name in _RECURRENT and call_of(facts, row).argument(_BIDIRECTIONAL_ARGUMENT) == "False":
                sizes = shapes[0][:2]
                recurrent |= {sizes[1 - at] for at, size in enumerate(sizes) if size == each.known_length}
    return recurrent | (attended if masked else set()), bool(attended and masked)


def _draws(facts: Facts, passes: list[_Pass], batch: int) -> bool:
    """Whether the steps of these passes draw one token for each sequence of a batch: the last dimension of what they
    draw from is the scores. Those of a single sequence may have no other dimension, `model(tokens)[0, -1]`; then they
    are as many as the table has tokens."""
    called, start_ns = facts.operators.rows, facts.trace.events.start_ns
    called = called[operators_of(facts.trace, _DRAWS)[called]]
    step = facts.steps.index_of(start_ns[np.array([each.rows[0] for each in passes])])
    inside = called[among(facts.steps.index_of(start_ns[called]), step)]
    first, _ = distinct_rows(facts.trace.events.dims_code[inside])
    shapes = [shapes_of(facts, row) for row in inside[first].tolist() if facts.trace.events.dims_code[row] >= 0]
    tokens = table_and_ids(facts, int(passes[0].known[0]))[0][:1]
    return any(math.prod(of[0][:-1]) == batch for of in shapes if of and (len(of[0]) > 1 or tuple(of[0]) == tokens))


def _is_causal(facts: Facts, row: int, shapes: Shapes, length: int) -> bool:
    if len(shapes) < 3 or any(len(shape) < 2 or shape[-2] != length for shape in shapes[:2]):
        return False
    is_causal = call_of(facts, row).argument(_CAUSAL_ARGUMENT) == "True"
    return is_causal or any(list(shape[-2:]) == [length, length] for shape in shapes[3:])


def _read_once(facts: Facts, passes: list[_Pass]) -> Edit:
    """Operators on all positions take the time of one, or what reading their weights takes."""
    rows = np.concatenate([each.rows for each in passes])
    known = np.concatenate([each.known for each in passes])
    sizes = np.array([len(each.rows) for each in passes])
    batch, known_length, length = (
        np.repeat([getattr(each, name) for each in passes], sizes) for name in ("batch", "known_length", "length")
    )
    first, kind = distinct_rows(facts.trace.events.name_code[known], facts.trace.events.dims_code[known], known_length)
    growing, weights = np.zeros(len(first), dtype=bool), np.zeros(len(first))
    for i, at in enumerate(first.tolist()):
        shapes = shapes_of(facts, int(known[at])) if known[at] >= 0 else []
        name = base_name(facts.trace.name_of(known[at])) if known[at] >= 0 else ""
        growing[i] = _goes_by_length(shapes, int(batch[at]), int(known_length[at]))
        growing[i] |= name in _RECURRENT and int(known_length[at]) in shapes[0][:2]
        if name in _WITH_WEIGHTS and len(shapes) > 1:
            weights[i] = 4 * math.prod(shapes[1])
        if name in _RECURRENT:
            weights[i] = 4 * sum(math.prod(shape) for shape in shapes[1:] if len(shape) == 2)
    wanted = growing[kind] & ~operators_of(facts.trace, VIEW)[rows]
    spent = computing_ns(facts, rows[wanted]).clip(min=1)
    fixed = np.zeros(1) if facts.device.present else dispatch_ns(facts, rows[wanted], rows[wanted])
    once = np.maximum(fixed + (spent - fixed) / length[wanted], weights[kind][wanted] / memory_bytes_per_ns(facts))
    kept = (once / spent).clip(max=1)
    return take_less(facts, rows[wanted], kept, _UNCERTAINTY)


def _goes_by_length(shapes: Shapes, batch: int, length: int) -> bool:
    """Whether an operator's first tensor has as many positions as there are tokens, in each sequence or in all."""
    shape = next((shape for shape in shapes if shape), [])
    if len(shape) == 2 and shape[0] == batch * length:
        return True
    return length in shape[1:-1] or (len(shape) == 2 and shape[-1] == length)
