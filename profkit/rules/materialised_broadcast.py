"""A tensor is repeated in memory so that it fits another one, where arithmetic would broadcast it for nothing.

What it detects
`x.repeat(...)`, `torch.tile`, `repeat_interleave`, `expand(...)` or `torch.broadcast_tensors(...)` followed by
`contiguous()` or `clone()`, or `torch.stack` or `torch.cat` of a list with one tensor many times, that repeat along new
dimensions or dimensions of size one. The first operator to take the result has to be one of these: an elementwise
operator of two tensors; a function of pairs of vectors (`pairwise_distance`, `cosine_similarity`); a product with
weights that are the same for all copies (`linear`); a batch of products (`bmm`, `matmul`) in which the copies are whole
matrices. Nothing is reported if the first one is another product, a concatenation or an embedding, which need the whole
tensor, if rows are tiled (`[a, b, a, b]`), or if something writes to the copies before: the data flow of the located
step tells, or else any operator in between that writes in place.

Why is this bad?
The repeated tensor is allocated, written and read back, all to hold the same numbers many times. An elementwise
operator matches shapes by itself: it reads the small tensor again and again from the cache. And a layer computes the
same result for each copy.

Example
    differences = points[:, None].repeat(1, len(centers), 1) - centers

Use instead
    differences = points[:, None] - centers

How the saving is estimated
The operator that repeats vanishes. The operator that takes its result keeps as much of its time as its memory traffic
keeps if it reads the small tensor instead of the large one. On a CPU it takes at least as long as walking over the rows
that are left in order, if these are shorter than 16 elements: the repetition did that before, so points of three
coordinates gain next to nothing. A product with weights, and its backward nodes, keep the share that one copy has in
all. A batch of products keeps its time.

Of one tensor joined many times, the data flow of the located step tells how far operators compute on each copy alike,
element by element or by a product with one matrix. They keep the share of one copy, and so do their backward nodes.
What is needed as copies after that is still joined. Where it broadcasts, the backward pass adds up gradients in one
pass, not copy by copy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct, structs

from profkit.derive.families import ELEMENTWISE, VIEW, base_name, operators_of, writes_in_place
from profkit.derive.operators.operators import item_bytes, parse_dims, parse_types
from profkit.patterns import (
    backward_of,
    each_step,
    first_shape,
    frequent_lines,
    program_operators,
    spent_ns,
    sum_per_step,
    times_per_step,
)
from profkit.patterns.flow.data_flow import is_written_on_the_way, located_flow
from profkit.patterns.flow.joined_copies import CopiesOfOne, copies_of_one, without_ones
from profkit.patterns.loops.traffic import measure_traffic
from profkit.patterns.program import located_operators
from profkit.patterns.shapes import parse_numbers, result_of_repeat
from profkit.patterns.step_calls import repeated_in_measured
from profkit.rules.base import Facts, Kind, Need, Suspicion, Suspicions, format_bytes, rule
from profkit.savings import Edit, call_ns, combine, memory_bytes_per_ns, scale_operators, scale_with_backward, take_less
from profkit.savings.pricing import CALL_NS, scale_backward
from profkit.trace import NONE, Bools, Float64s, Int64s, Rows, among, distinct

_MIN_BYTES = 64 << 10
"""Copying less takes less time than the call. Beyond it the second-level cache begins."""
_LOOK_AHEAD = 8
"""Operators to search for the first use of the result: a view or two, the other operand's own repetition, a scale. And
operators to search backwards, from a copy to the `expand` before it."""
_UNCERTAINTY = 0.3
"""The operator's result and operands may or may not lie in the cache, and its arithmetic stays."""
_SHORT_ROW = 16
"""Elements. Rows as long as these are computed as fast as tensors in order; below, each row costs a step of its own."""
_ROW_NS = 4
"""For one row of a broadcast sum of 2 to 8 elements: 2.4 to 5 ns in one thread of an AMD EPYC, torch 2.13."""
_REPEATING = frozenset(("repeat", "repeat_interleave", "tile"))
_JOINTLY = "broadcast_tensors"
_WEIGHING = frozenset(("addmm", "linear", "matmul", "mm"))
"""Products whose right operand is the weights, if it is a matrix."""
_MULTIPLYING = frozenset(("bmm", "matmul"))
_EXPANDING = frozenset(("broadcast_to", "expand", "expand_as", _JOINTLY))
_COPYING = frozenset(("clone", "contiguous"))
_MATCHING = frozenset((*ELEMENTWISE, "cosine_similarity", "pairwise_distance"))
"""What matches the shapes of two tensors by itself: arithmetic, and functions of pairs of vectors, which begin with
it."""

Shape = tuple[int, ...]


class _Repeats(Struct, frozen=True):
    """Columns over operators that repeat a tensor: the row, the row that takes the result (`NONE` if not found), the
    bytes of the tensor before and after, how many short rows are left in order (0 if they are long), and whether the
    copies are factors of a batch of products. Of joined copies: whether they are such, whether operators compute on
    each of them alike before, whether one of these is a product, and whether the copies are needed after that."""

    rows: Rows
    takers: Rows
    small_bytes: Int64s
    large_bytes: Int64s
    short_rows: Int64s
    are_factors: Bools
    are_joined: Bools
    are_chained: Bools
    are_multiplied: Bools
    are_needed: Bools


class _Repetition(Struct, frozen=True):
    """The shape of the result, the bytes before and after, whether each copy holds whole rows or whole matrices, and
    how many short rows of one source the result consists of (0 if they are long)."""

    shape: Shape = ()
    small_bytes: int = 0
    large_bytes: int = 0
    of_rows: bool = False
    of_matrices: bool = False
    short_rows: int = 0


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES)
def materialised_broadcast(facts: Facts) -> Suspicions:
    """Look at each line that repeats tensors for an operator that would broadcast them."""
    found = _find_repeats(facts, program_operators(facts))
    chosen = (found.takers >= 0) & ((found.large_bytes >= _MIN_BYTES) | found.are_multiplied)
    if chosen.any():
        chosen &= ~among(found.rows, _changed_between(facts))
    if located_flow(facts) is None:
        chosen &= ~_may_be_changed(facts, found)
    for rows in frequent_lines(facts, found.rows[chosen]):
        mine = chosen & among(found.rows, rows)
        large, small = (sum_per_step(facts, size[mine]) for size in (found.large_bytes, found.small_bytes))
        taker, advice = _taker(facts, found, mine)
        yield Suspicion(
            message=f"{each_step(times_per_step(facts, rows), 'tensor', 'is', 'are')} repeated in memory for {taker}: "
            f"{format_bytes(small)} become {format_bytes(large)}.",
            fix=advice,
            rows=rows,
            edit=_broadcast(facts, found, mine),
            confidence=0.85,
            evidence={"repeated_bytes_per_step": large, "source_bytes_per_step": small},
        )


_FIX = (
    "Leave the repetition out: arithmetic broadcasts dimensions of size one. If the dimension is missing, add it "
    "(`x[:, None]`, `x.unsqueeze(1)`). If something asks for the full shape, `expand` copies nothing. "
    "A layer gives the same for each copy: apply it before repeating."
)
_FIX_OF_FACTORS = (
    "Leave the repetition out: `torch.einsum` (`'nm,bmk->bnk'`) shares a factor that lacks a dimension. `bmm` takes "
    "`x.expand(batch, -1, -1)`, which copies nothing. `matmul` copies it after all if the batch has several dimensions."
)


def _taker(facts: Facts, found: _Repeats, mine: Bools) -> tuple[str, str]:
    """What takes these repetitions, in words, and how to do without them."""
    if found.are_factors[mine].any():
        return "a batch of products", _FIX_OF_FACTORS
    weighed = (operators_of(facts.trace, _WEIGHING)[found.takers[mine]] | found.are_multiplied[mine]).all()
    return "a product with the same weights" if weighed else "elementwise arithmetic", _FIX


def _changed_between(facts: Facts) -> Rows:
    """The repetitions whose result something writes to before it is taken, as the data flow of the located step tells:
    their copies differ."""
    found = _find_repeats(facts, located_operators(facts))
    taken, names = (found.takers >= 0) & ~found.are_chained, facts.trace
    passing = operators_of(names, ELEMENTWISE, VIEW, _REPEATING, _COPYING) & ~names.where_name(writes_in_place)
    written = is_written_on_the_way(facts, found.rows[taken], found.takers[taken], passing)
    return repeated_in_measured(facts, found.rows[taken][written])


def _may_be_changed(facts: Facts, found: _Repeats) -> Bools:
    """Whether something that writes in place runs between a repetition and what takes its result."""
    called = program_operators(facts)
    so_far = np.concatenate([[0], np.cumsum(facts.trace.where_name(writes_in_place)[called])])
    begin, end = np.searchsorted(called, found.rows), np.searchsorted(called, found.takers)
    changed: Bools = so_far[np.maximum(end, begin)] > so_far[begin]
    return changed


def _find_repeats(facts: Facts, called: Rows) -> _Repeats:
    """Every one of these operators that repeats a tensor as broadcasting would, and who takes the result."""
    wanted = operators_of(facts.trace, _REPEATING, _COPYING)[called]
    at = np.flatnonzero(wanted)
    events, own = facts.trace.events, called[at]
    expanded, place = _find_expansions(facts, called, at)
    keys = np.stack(
        [
            events.name_code[own],
            events.dims_code[own],
            events.types_code[own],
            events.concrete_code[own],
            events.name_code[expanded],
            np.where(expanded >= 0, events.dims_code[expanded], NONE),
            place,
        ]
    )
    distinct, kind = np.unique(keys, axis=1, return_inverse=True)
    kind = kind.reshape(-1)
    known = [_repetition(facts, *map(int, key)) for key in distinct.T]
    real = np.array([bool(one.shape) for one in known], dtype=bool)[kind]
    takers, are_factors = _find_takers(facts, called, at[real], known, kind[real])
    parts = [_as_columns(known, kind[real], own[real], takers, are_factors)]
    for one in copies_of_one(facts, called):
        repetition = _repeated(one.source, one.result, one.item_bytes)
        takes, is_batch = _takes_copies(one, repetition)
        is_chained = bool(one.chain.size and repetition.shape)
        takers = np.full(len(one.rows), NONE, dtype=np.int64)
        if takes or is_chained:
            takers = one.takers if takes else _next_of(one.chain, one.rows)
        number, factors = np.zeros(len(one.rows), dtype=np.int64), np.full(len(one.rows), is_batch)
        joined = True, is_chained, is_chained and one.multiplies, is_chained and not takes
        parts.append(_as_columns([repetition], number, one.rows, takers, factors, joined))
    order = np.argsort(np.concatenate([part.rows for part in parts]), kind="stable")
    return _Repeats(*(np.concatenate(column)[order] for column in zip(*map(structs.astuple, parts), strict=True)))


def _next_of(rows: Rows, after: Rows) -> Rows:
    """For each row the first of others that follows; `NONE` if none does."""
    return np.append(rows, NONE)[np.searchsorted(rows, after)]


def _as_columns(
    known: list[_Repetition],
    kind: Int64s,
    rows: Rows,
    takers: Rows,
    are_factors: Bools,
    joined: tuple[bool, bool, bool, bool] = (False, False, False, False),
) -> _Repeats:
    sizes = np.array([(one.small_bytes, one.large_bytes, one.short_rows) for one in known], dtype=np.int64)
    small, large, short = sizes.reshape(-1, 3)[kind].T
    return _Repeats(rows, takers, small, large, short, are_factors, *(np.full(len(rows), one) for one in joined))


def _takes_copies(copies: CopiesOfOne, known: _Repetition) -> tuple[bool, bool]:
    """Whether what first takes joined copies, or what was computed of each, would broadcast, and whether it is a batch
    of products. Views in between may have changed the dimensions of size one."""
    if copies.taker is None or not known.shape:
        return False, False
    name, given = base_name(copies.taker.name), [tuple(shape) for shape in copies.taker.shapes if shape]
    if len(given) < 2 or not any(without_ones(shape) == copies.taken for shape in given):
        return False, False
    if name in _MATCHING:
        return True, False
    is_batch = name in _MULTIPLYING and known.of_matrices and all(len(shape) > 2 for shape in given)
    return is_batch, is_batch


def _find_expansions(facts: Facts, called: Rows, at: Int64s) -> tuple[Rows, Int64s]:
    """For each copy the row that expanded the tensor (`NONE` if none did), and how many other copies lie between them:
    tensors that are expanded together may be copied in turn."""
    expands = operators_of(facts.trace, _EXPANDING)
    copies = operators_of(facts.trace, _COPYING)
    aside = operators_of(facts.trace, VIEW, _COPYING)
    step = facts.step_of(called)
    found, place = np.full(len(at), NONE, dtype=np.int64), np.zeros(len(at), dtype=np.int64)
    searching = copies[called[at]]
    for back in range(1, _LOOK_AHEAD + 1):
        there = (at - back).clip(min=0)
        rows = called[there]
        searching &= (at >= back) & (step[there] == step[at])
        here = searching & expands[rows]
        found[here] = rows[here]
        searching &= ~here & aside[rows]
        place += searching & copies[rows]
    return found, place


def _repetition(
    facts: Facts, name: int, dims: int, types: int, concrete: int, expansion: int, expanded: int, place: int
) -> _Repetition:
    """What the operator repeats; an empty shape if broadcasting would not do the same."""
    shape, operator = tuple(first_shape(parse_dims(facts.trace.text_of(dims)))), base_name(facts.trace.names[name])
    size = item_bytes(next(iter(parse_types(facts.trace.text_of(types))), "")) or 4
    source, result = shape, shape
    if operator in _COPYING:
        if expanded != NONE:
            place = place if base_name(facts.trace.names[expansion]) == _JOINTLY else 0
            source = tuple(first_shape(parse_dims(facts.trace.text_of(expanded))[place:]))
    elif operator == "repeat_interleave":
        result = _interleaved(shape, parse_types(facts.trace.text_of(concrete)))
    else:
        result = result_of_repeat(shape, "".join(parse_types(facts.trace.text_of(concrete))[1:2]))
    return _repeated(source, result, size)


def _repeated(source: Shape, result: Shape, size: int) -> _Repetition:
    """With numbers of so many bytes."""
    if math.prod(result) < 2 * math.prod(source) or not source or not _broadcasts(source, result):
        return _Repetition()
    row = _row_length(source, result)
    return _Repetition(
        shape=result,
        small_bytes=math.prod(source) * size,
        large_bytes=math.prod(result) * size,
        of_rows=source[-1] == result[-1],
        of_matrices=len(result) > 2 and source[-2:] == result[-2:],
        short_rows=math.prod(result) // row if row < _SHORT_ROW else 0,
    )


def _row_length(source: Shape, result: Shape) -> int:
    """How many elements are computed at a stretch: up to the last dimension at which repeating begins or ends."""
    padded = (1,) * (len(result) - len(source)) + source
    repeated = [a != b for a, b in zip(padded, result, strict=True)]
    length = 1
    for is_repeated, size in zip(reversed(repeated), reversed(result), strict=True):
        if is_repeated != repeated[-1]:
            break
        length *= size
    return max(length, 1)


def _broadcasts(source: Shape, result: Shape) -> bool:
    """Whether arithmetic broadcasts a tensor of the one shape to the other."""
    padded = (1,) * (len(result) - len(source)) + source
    return len(padded) == len(result) and all(a in (1, b) for a, b in zip(padded, result, strict=True))


def _interleaved(shape: Shape, arguments: Sequence[str]) -> Shape:
    """The result of `repeat_interleave` by one number along a dimension of size one."""
    numbers = [parse_numbers(text) for text in arguments[1:3]]
    if len(numbers) != 2 or any(len(number) != 1 for number in numbers):
        return ()
    (times,), (dim,) = numbers
    if not -len(shape) <= dim < len(shape) or shape[dim] != 1:
        return ()
    dim %= len(shape)
    return (*shape[:dim], times, *shape[dim + 1 :])


def _find_takers(facts: Facts, called: Rows, at: Int64s, known: list[_Repetition], kind: Int64s) -> tuple[Rows, Bools]:
    """For each repetition the operator that first uses its result, if it is an elementwise operator of two tensors, a
    product with weights or a batch of products; and whether it is the latter.

    Views, further repetitions, and arithmetic on the result alone are skipped on the way.
    """
    elementwise, weighing = operators_of(facts.trace, _MATCHING), operators_of(facts.trace, _WEIGHING)
    aside = operators_of(facts.trace, VIEW, _REPEATING, _COPYING)
    step = facts.step_of(called)
    multiplying = operators_of(facts.trace, _MULTIPLYING)
    takers, are_factors = np.full(len(at), NONE, dtype=np.int64), np.zeros(len(at), dtype=bool)
    searching = np.ones(len(at), dtype=bool)
    for ahead in range(1, _LOOK_AHEAD + 1):
        there = (at + ahead).clip(max=len(called) - 1)
        searching &= (at + ahead < len(called)) & (step[there] == step[at])
        rows = called[there]
        alone, together, weighed, batched = _takes(facts, rows, known, kind)
        used = searching & (alone | together) & ~aside[rows]
        in_batch = used & batched & multiplying[rows]
        takes = used & ((together & elementwise[rows]) | (weighed & weighing[rows])) | in_batch
        takers[takes], are_factors[in_batch] = rows[takes], True
        searching &= ~used | (elementwise[rows] & ~together)
    return takers, are_factors


def _takes(facts: Facts, rows: Rows, known: list[_Repetition], kind: Int64s) -> tuple[Bools, Bools, Bools, Bools]:
    """Four masks over the operators: whether the repeated tensor is the only one they take, whether they take it with
    another, whether it is the left operand of a product with one matrix, and perhaps a vector to add, and whether it
    holds the same matrices for all of a batch."""
    dims = facts.trace.events.dims_code[rows]
    distinct, inverse = np.unique(np.stack([dims, kind]), axis=1, return_inverse=True)
    verdicts = np.zeros((4, distinct.shape[1]), dtype=bool)
    for i, (code, which) in enumerate(distinct.T):
        one = known[which]
        inputs = [tuple(shape) for shape in parse_dims(facts.trace.text_of(int(code))) if shape]
        matrices = [shape for shape in inputs if len(shape) > 1]
        verdicts[:, i] = (
            inputs == [one.shape],
            len(inputs) > 1 and one.shape in inputs,
            one.of_rows and len(matrices) == 2 and matrices[0] == one.shape and len(matrices[1]) == 2,
            one.of_matrices and len(matrices) == 2 and one.shape in matrices and min(map(len, matrices)) > 2,
        )
    alone, together, weighed, batched = verdicts[:, inverse.reshape(-1)]
    return alone, together, weighed, batched


def _broadcast(facts: Facts, found: _Repeats, mine: Bools) -> Edit:
    """The repetitions vanish, and the operators that took their results read the small tensors; products are computed
    for one copy."""
    weighing = operators_of(facts.trace, _WEIGHING)
    gone = mine & ~found.are_needed
    products = gone & weighing[found.takers.clip(min=0)] & ~found.are_factors
    matched = gone & ~products & ~found.are_factors
    takers = distinct(found.takers[matched])
    traffic = measure_traffic(facts.trace, takers)
    total = traffic.read_bytes + traffic.written_bytes
    less = np.zeros(len(takers), dtype=np.int64)
    more = (found.large_bytes - found.small_bytes)[matched]
    np.add.at(less, np.searchsorted(takers, found.takers[matched]), more)
    kept = 1 - np.minimum(less, traffic.read_bytes) / np.maximum(total, 1)
    walking, left = _walking(facts, found, matched, takers)
    kept = np.minimum(np.maximum(kept, walking), 1.0)
    moved = np.zeros(len(mine))
    moved[matched] = left
    of_one = found.small_bytes / found.large_bytes
    return combine(
        [
            take_less(facts, found.rows[gone], moved[gone], _UNCERTAINTY, launch_kept=moved[gone]),
            scale_operators(facts, takers, kept, _UNCERTAINTY),
            scale_with_backward(facts, found.takers[products], of_one[products], _UNCERTAINTY),
            *_compute_on_one(facts, found.rows[mine & found.are_chained]),
            _sum_gradients(facts, found, gone & found.are_joined),
        ]
    )


def _compute_on_one(facts: Facts, joins: Rows) -> Iterator[Edit]:
    """What works on each of the joined copies alike works on one of them; the call is paid as before."""
    for one in copies_of_one(facts, program_operators(facts)):
        if among(one.rows, joins).any():
            called = 0.0 if facts.device.present else min(call_ns(facts), CALL_NS)
            kept = np.clip(called / np.maximum(spent_ns(facts, one.chain), 1), 1 / one.times, 1.0)
            yield scale_with_backward(facts, one.chain, kept, _UNCERTAINTY)


def _sum_gradients(facts: Facts, found: _Repeats, joined: Bools) -> Edit:
    """Joining adds up the copies' gradients one by one, broadcasting in one pass over them."""
    nodes = backward_of(facts, found.rows[joined])
    passing_ns = found.large_bytes[joined].sum() / memory_bytes_per_ns(facts)
    kept = min(1.0, float(passing_ns / max(int(spent_ns(facts, nodes).sum()), 1)))
    return scale_backward(facts, found.rows[joined], kept, _UNCERTAINTY)


def _walking(facts: Facts, found: _Repeats, matched: Bools, takers: Rows) -> tuple[Float64s, Float64s]:
    """What share of their time walking over short rows takes the operators at least; and of each repetition what share
    is left, since a reader that took less time than that takes over what the repetition did.

    The repetition walked over the same rows, and may have taken longer for other reasons, such as fresh memory."""
    least_ns, repeated_ns = np.zeros(len(takers)), np.zeros(len(takers))
    taker, spent = np.searchsorted(takers, found.takers[matched]), spent_ns(facts, found.rows[matched])
    if not facts.device.present:
        np.maximum.at(least_ns, taker, np.minimum(spent, found.short_rows[matched] * _ROW_NS))
    np.add.at(repeated_ns, taker, spent)
    reading_ns = spent_ns(facts, takers)
    more_ns = np.maximum(least_ns - reading_ns, 0)
    return least_ns / np.maximum(reading_ns, 1), (more_ns / np.maximum(repeated_ns, 1))[taker]
