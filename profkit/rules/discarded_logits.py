"""A layer computes its output for all positions of a sequence, and only one of them is used.

What it detects
A linear layer over a sequence of eight positions or more if only one position of its result is taken, by a slice or a
selection: the scores over the vocabulary of a language model while it generates (`model(tokens)[:, -1]`), or the
classifier after a recurrent layer (`head(states)[:, -1]`). In training a language model, all positions go into the
loss.

Why is this bad?
The head is often the largest product of a language model, and its result the largest tensor. Of n positions, n - 1 are
computed and stored for nothing.

Example
    logits = self.head(hidden)
    return logits[:, -1]

Use instead
    return self.head(hidden[:, -1])

How the saving is estimated
The layer and its backward nodes take the share of one position, but at least as long as the program's cheapest
operators, and as reading the weights from memory: at the measured bandwidth, or else at that of half a channel of
DDR4-2400.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
from msgspec import Struct

from profkit.derive.families import base_name, operators_of
from profkit.derive.operators.operators import parse_dims
from profkit.patterns import Call, backward_of, by_call, distinct_calls, frequent_lines, times_per_step
from profkit.patterns.shapes import result_of_linear
from profkit.rules.base import Facts, Kind, Need, Suspicion, Suspicions, rule
from profkit.savings import Edit, call_ns, combine, computing_ns, memory_bytes_per_ns, take_less
from profkit.trace import Int64s, Rows, among, distinct

_MIN_POSITIONS = 8
"""Of fewer positions a good part is used, and their product hardly costs more than that of one."""
_UNCERTAINTY = 0.3
"""The weights may come from a cache or from memory."""
_LAYER = frozenset(("linear",))
_PICKS = frozenset(("narrow", "select", "slice"))


class _Layer(Struct, frozen=True):
    """A layer with known shapes: the positions that it computes, and the elements of its weights."""

    row: int
    positions: int
    weights: int


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES, Need.WHOLE_STEP)
def discarded_logits(facts: Facts) -> Suspicions:
    """Look at each line that calls a layer on a sequence."""
    found = list(_find_layers(facts))
    if not found:
        return
    at = np.array([layer.row for layer in found])
    layers = facts.operators.rows[operators_of(facts.trace, _LAYER)[facts.operators.rows]]
    layers = layers[facts.measured[layers]]
    known = np.where(facts.repeats.row[layers] >= 0, facts.repeats.row[layers], layers)
    layers, known = layers[among(known, at)], known[among(known, at)]
    for rows in frequent_lines(facts, layers):
        of = [found[i] for i in np.searchsorted(at, known[among(layers, rows)])]
        most = max(layer.positions for layer in of)
        yield Suspicion(
            message=f"A layer computes {most:,} positions of each sequence, and only one is used.",
            fix="Select the position first and pass only that to the layer: `head(hidden[:, -1])` instead of "
            "`head(hidden)[:, -1]`.",
            rows=rows,
            edit=_compute_one(facts, rows, of),
            confidence=0.85,
            count=times_per_step(facts, rows),
            evidence={"positions": most},
        )


def _find_layers(facts: Facts) -> Iterator[_Layer]:
    """Layers of whose result only one position is taken until the next layer of the kind or the end of the step."""
    events, trace = facts.trace.events, facts.trace
    called = facts.operators.rows[~(facts.updates.inside | facts.lines.backward)[facts.operators.rows]]
    step = facts.step_of(called)
    looked_at = facts.steps.located if facts.steps.located.any() else facts.steps.measured
    called, step = called[looked_at[step] & (step >= 0)], step[looked_at[step] & (step >= 0)]
    layers = operators_of(trace, _LAYER)[called]
    codes, kind = np.unique(events.dims_code[called], return_inverse=True)
    shapes = [parse_dims(trace.text_of(int(code))) if code >= 0 else [] for code in codes]
    sizes = [{math.prod(shape) for shape in of if shape} for of in shapes]
    for code in distinct(kind[layers]):
        result = result_of_linear(shapes[code])
        if len(result) < 3 or result[-2] < _MIN_POSITIONS:
            continue
        takers = np.flatnonzero(np.array([math.prod(result) in of for of in sizes])[kind])
        position = by_call(facts, called[takers], partial(_position_of, result), str).tolist()
        at = np.flatnonzero(layers & (kind == code))
        ends = np.append(at[1:], len(called))
        for begin, end in zip(at.tolist(), ends.tolist(), strict=True):
            first, last = np.searchsorted(takers, [begin + 1, end])
            used = {position[i] for i in range(first, last) if step[takers[i]] == step[begin]}
            if not used and (end == len(called) or step[end] != step[begin]):
                used = _used_of_the_last(facts, called[:begin][step[:begin] == step[begin]], result)
            if len(used - {"all"}) == 1 and "" not in used:
                yield _Layer(int(called[begin]), result[-2], math.prod(shapes[code][1]))


def _used_of_the_last(facts: Facts, before: Rows, result: tuple[int, ...]) -> set[str]:
    """What the beginning of a step takes of the result of the call before, which may be shorter or longer. This is for
    steps that end with the layer, as calls of a model do."""
    used = set[str]()
    for call in distinct_calls(facts, before[operators_of(facts.trace, _LAYER)[before].cumsum() == 0])[0]:
        last = next((shape for shape in call.shapes if len(shape) > 1 and shape[-1] == result[-1]), None)
        if last is not None and math.prod(last) > math.prod(result) // result[-2]:
            used.add(_position_of(tuple(last), call) if len(last) == len(result) else "")
    return used


def _position_of(result: tuple[int, ...], call: Call) -> str:
    """Which position of the layer's result an operator takes: ``all`` if it is a slice along another dimension, nothing
    if it does something else."""
    given, is_selection = call.arguments, call.name == "aten::select"
    if base_name(call.name) not in _PICKS or tuple(call.shapes[0]) != result or len(given) < 3:
        return ""
    along = len(result) - 2
    if given[1] not in (str(along), str(along - len(result))):
        return "" if is_selection else "all"
    is_last = call.name == "aten::slice" and given[2] in ("-1", str(result[-2] - 1))
    return given[2] if is_selection or is_last else ""


def _compute_one(facts: Facts, rows: Rows, of: list[_Layer]) -> Edit:
    """Each layer takes the share of one position, or what its weights take, and so does its backward pass."""
    positions = np.array([layer.positions for layer in of])
    weights: Int64s = np.array([layer.weights for layer in of])
    least = np.maximum(4 * weights / memory_bytes_per_ns(facts), call_ns(facts))
    kept = np.maximum(1 / positions, least / computing_ns(facts, rows).clip(min=1)).clip(max=1)
    after = take_less(facts, backward_of(facts, rows), float(kept.mean()), _UNCERTAINTY)
    return combine([take_less(facts, rows, kept, _UNCERTAINTY), after])
