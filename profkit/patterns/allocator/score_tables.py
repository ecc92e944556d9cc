"""Attention that is written out, by a memory snapshot alone: the tables of scores that its lines store.

A snapshot knows sizes and stacks, not operators. Two signs show the formula within one call of a function:

- A softmax, by its name: what it allocates is as large as what the function allocated just before it (the product), and
  something smaller follows (the second product). Of a function that is not named after attention several such tables
  must be held at once, one for each layer; a loss over all pairs has one.
- Without a name: two inputs are copied and a table is allocated by the same line, more tables follow, and then a copy
  as large as the second input and a result as large as the first. `matmul` copies queries, keys and values because
  their heads do not lie together. A feed-forward layer copies none of its inputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.memory.allocator import Allocator, DeviceUse, held_after
from profkit.derive.memory.origins import Origin, calling_frames, python_frames
from profkit.derive.memory.purposes import Purpose
from profkit.patterns.allocator.lines import allocator_of, frames_of_stacks, user_frames
from profkit.patterns.allocator.purposes import LARGE_BYTES
from profkit.patterns.places.frames import is_profkits
from profkit.trace.events import NONE, Bools, Int64s, Rows
from profkit.trace.snapshot.columns import Stacks
from profkit.trace.statistics import among

_SOFTMAX = re.compile(r"(?<!log_)(?<!log)soft_?max", re.IGNORECASE)
_ATTENTION = re.compile(r"attention|attn|(^|/)[^/]*att[^/]*\.py$", re.IGNORECASE)
_PASSED_OVER = re.compile(r"(^|/)torch/(nn/modules/|overrides\.py$)")
"""Between a softmax and the function that wants it: the module `nn.Softmax`, and PyTorch's hook for modes."""
_REACH = 12
"""Pieces between two parts of one formula: a scale, a mask, a cast and a dropout take two each."""
_FEW = 2
_NOTABLE_SHARE = 0.1
"""Of the peak: the tables' share from which it would be lower by a tenth or so."""
_MOST_FUNCTIONS = 64
"""Distinct functions, by their callers, that are looked at; a file made to take long has more."""


class ScoreTables(Struct, frozen=True):
    """Tables of scores at the peak of the fullest device: how many, bytes of one and of all of them, and by how much
    the peak would be lower without any table. ``frames`` are the program's lines of the product and the softmax.
    ``named`` says that a function named softmax is among what was seen."""

    table_bytes: int
    count: int
    total_bytes: int
    saved_bytes: int
    peak_bytes: int
    frames: tuple[int, ...]
    named: bool


class _Function(NamedTuple):
    """One function under the same callers: the code of a frame of it, the frames outside, innermost first, and whether
    it was found by a softmax in it."""

    frame: int
    callers: tuple[int, ...]
    named: bool


class _Formula(NamedTuple):
    """What a function's calls allocated as tables, as rows of the allocations, and the frames of its lines."""

    tables: Rows
    frames: tuple[int, ...]
    named: bool


@derived_once
def score_tables(facts: Facts) -> ScoreTables | None:
    """The tables of scores, if they are the largest thing at the peak."""
    allocator = allocator_of(facts)
    if not allocator.devices or allocator.fullest.peak_bytes < LARGE_BYTES or not allocator.fullest.has_history:
        return None
    use, found = allocator.fullest, allocator.allocations
    at_peak = np.flatnonzero(allocator.live_at_peak(use))
    sizes, group = np.unique(found.requested_bytes[at_peak], return_inverse=True)
    size = int(sizes[np.bincount(group, found.size_bytes[at_peak]).argmax()])
    own = (found.device == use.device) & (found.made_by != NONE)
    own &= np.isin(allocator.origins[found.stack], (Origin.FORWARD, Origin.PROGRAM))
    rows = np.flatnonzero(own)
    rows = rows[np.argsort(found.made_by[rows], kind="stable")]
    formulas = [one for function in _functions(facts, rows, size) if (one := _formula(facts, rows, size, function))]
    return _sum_up(allocator, use, size, rows, formulas) if formulas else None


def _sum_up(
    allocator: Allocator, use: DeviceUse, size: int, rows: Rows, formulas: list[_Formula]
) -> ScoreTables | None:
    found = allocator.allocations
    is_table = np.zeros(len(found), dtype=bool)
    is_table[np.concatenate([one.tables for one in formulas])] = True
    alike = found.requested_bytes == size
    if is_table[rows][alike[rows]].all():  # else what is as large in the backward pass may be something else's
        is_table |= alike & (found.device == use.device) & (allocator.origins[found.stack] == Origin.BACKWARD)
    held = allocator.live_at_peak(use) & is_table
    total_bytes = int(found.size_bytes[held].sum())
    without = held_after(found, use.device, use.rows, ~is_table)
    if total_bytes < _NOTABLE_SHARE * use.peak_bytes:
        return None
    heaviest = max(formulas, key=lambda one: int(found.size_bytes[one.tables].sum()))
    return ScoreTables(
        table_bytes=size,
        count=int(held.sum()),
        total_bytes=total_bytes,
        saved_bytes=use.peak_bytes - int(without.max()),
        peak_bytes=use.peak_bytes,
        frames=heaviest.frames,
        named=any(one.named for one in formulas),
    )


def _functions(facts: Facts, rows: Rows, size: int) -> Iterator[_Function]:
    """The functions in which pieces of this size were allocated: those around a softmax, and those whose own operators
    allocate."""
    stacks, found = _program_stacks(facts), allocator_of(facts).allocations
    is_softmax, is_passed = _is_softmax(stacks), _is_passed_over(stacks)
    seen = set[_Function]()
    for code in np.unique(found.stack[rows[found.requested_bytes[rows] == size]]).tolist():
        frames = stacks.frames[stacks.starts[code] : stacks.starts[code + 1]]
        softmax = np.flatnonzero(is_softmax[frames])
        at = int(softmax[-1]) + 1 if len(softmax) else 0
        while len(softmax) and at < len(frames) and is_passed[frames[at]]:
            at += 1
        if at < len(frames):
            code_of = int(stacks.file[frames[at]]) * len(stacks.functions) + int(stacks.function[frames[at]])
            seen.add(_Function(code_of, tuple(frames[at + 1 :].tolist()), bool(len(softmax))))
    yield from sorted(seen)[:_MOST_FUNCTIONS]


@derived_once
def _program_stacks(facts: Facts) -> Stacks:
    """The stacks without the frames of C++, of which not all are always there, and without profkit's, which stand
    between a line and its operator while it records."""
    stacks = allocator_of(facts).snapshot.stacks
    own = [is_profkits(file.replace("\\", "/")) for file in stacks.files]
    kept = python_frames(stacks) & ~among(stacks.file.astype(np.int64), np.flatnonzero(own))
    count = np.concatenate([[0], np.cumsum(kept[stacks.frames])])
    return replace(stacks, starts=count[stacks.starts], frames=stacks.frames[kept[stacks.frames]])


def _formula(facts: Facts, rows: Rows, size: int, function: _Function) -> _Formula | None:
    """The formula in the calls of a function, if they show it."""
    allocator = allocator_of(facts)
    stacks, found = _program_stacks(facts), allocator.allocations
    place = _places_in(stacks, function)
    inside = place != NONE
    within = rows[inside[found.stack[rows]]]
    stack = found.stack[within]
    deeper = _holds(stacks, calling_frames(stacks), place)
    soft = _holds(stacks, _is_softmax(stacks), place)[stack]
    direct = ~deeper[stack]
    sizes = found.requested_bytes[within]
    if function.named:
        product = _by_softmax(sizes, soft, direct, size)
    else:
        product = _by_copies(sizes, stack, direct & ~soft, size, _sizes_of_parameters(allocator))
    table = (sizes == size) & (soft | direct)
    if not len(product) or not table.any():
        return None
    if function.named and not _is_attention(stacks, function):
        held = allocator.live_at_peak(allocator.fullest)[within] & table & soft
        if int(held.sum()) < _FEW:
            return None
    lines = np.concatenate([stack[product[:1]], stack[table & soft][:1] if function.named else stack[table][-1:]])
    own = user_frames(facts)[stacks.frames[place[lines]]]
    frames = np.where(own, stacks.frames[place[lines]], frames_of_stacks(facts)[lines])
    return _Formula(within[table], tuple(dict.fromkeys(frames.tolist())), function.named)


def _by_softmax(sizes: Int64s, soft: Bools, direct: Bools, size: int) -> Rows:
    """The products that a softmax follows, and a smaller piece after that."""
    tables = np.flatnonzero((sizes == size) & soft)
    products = np.flatnonzero(np.isin(sizes, (size, size // 2)) & direct & ~soft)
    results = np.flatnonzero((2 * sizes <= size) & direct & ~soft)
    if not len(tables) or not len(products) or not len(results):
        return tables[:0]
    before = np.searchsorted(products, tables) - 1
    after = np.searchsorted(results, tables)
    fits = (before >= 0) & (after < len(results))
    tables, before, after = tables[fits], before[fits], after[fits]
    near = (tables - products[before] <= _REACH) & (results[after] - tables <= _REACH)
    return np.unique(products[before[near]])


def _by_copies(sizes: Int64s, stack: Int64s, direct: Bools, size: int, parameters: Int64s) -> Rows:
    """The tables that follow copies of two inputs at the same line, before one copy more and a result. Under autocast a
    product copies its weight too: what may be one is no such copy."""
    at = np.flatnonzero(direct)
    sizes, stack = sizes[at], stack[at]
    first = np.flatnonzero((sizes[2:] == size) & (stack[2:] == stack[1:-1]) & (stack[1:-1] == stack[:-2])) + 2
    is_copy = (2 * sizes <= size) & ~among(sizes, parameters)
    first = first[is_copy[first - 1] & is_copy[first - 2]]
    ends = np.flatnonzero((sizes[:-2] == size) & (sizes[1:-1] != size)) if len(sizes) > _FEW else first[:0]
    place = np.searchsorted(ends, first, side="right")
    following = np.append(first[1:], len(sizes) + _FEW)[place < len(ends)] - _FEW
    first, last = first[place < len(ends)], ends[place[place < len(ends)]]
    fits = (last > first) & (last - first <= _REACH) & (last + 2 < following)  # the next call's copies are not its own
    fits &= (sizes[last + 1] == sizes[first - 1]) & (sizes[last + 2] == sizes[first - 2])
    found: Rows = at[first[fits]]
    return found


def _sizes_of_parameters(allocator: Allocator) -> Int64s:
    """The sizes of parameters, also in half of their precision."""
    known = np.isin(allocator.purposes, (Purpose.PARAMETERS, Purpose.GRADIENTS))
    sizes = np.unique(allocator.allocations.requested_bytes[known])
    return np.concatenate([sizes, sizes // 2])


def _places_in(stacks: Stacks, function: _Function) -> Rows:
    """For each stack where in ``stacks.frames`` the function's frame is, `NONE` if it is not a call of it."""
    begin, end = stacks.starts[:-1], stacks.starts[1:]
    outside = len(function.callers)
    place = np.where(end - begin > outside, end - outside - 1, NONE).astype(np.int64)
    known = np.flatnonzero(place != NONE)
    code = stacks.file[stacks.frames[place[known]]].astype(np.int64) * len(stacks.functions)
    known = known[code + stacks.function[stacks.frames[place[known]]] == function.frame]
    for at, caller in enumerate(function.callers, start=1):
        known = known[stacks.frames[place[known] + at] == caller]
    found = np.full(len(begin), NONE, dtype=np.int64)
    found[known] = place[known]
    return found


def _holds(stacks: Stacks, frames: Bools, end: Rows) -> Bools:
    """The stacks that hold one of these frames inside of a place in them."""
    seen = np.concatenate([[0], np.cumsum(frames[stacks.frames])])
    held: Bools = (end != NONE) & (seen[end.clip(min=0)] > seen[stacks.starts[:-1]])
    return held


def _is_attention(stacks: Stacks, function: _Function) -> bool:
    """Whether the function, its file or one of its callers is named after attention."""
    file, name = divmod(function.frame, len(stacks.functions))
    callers = [stacks.functions[int(stacks.function[frame])] for frame in function.callers]
    texts = (stacks.functions[name], stacks.files[file].replace("\\", "/"), *callers)
    return any(_ATTENTION.search(text) for text in texts)


def _is_softmax(stacks: Stacks) -> Bools:
    named = np.flatnonzero([_SOFTMAX.search(name) is not None for name in stacks.functions])
    return among(stacks.function.astype(np.int64), named)


def _is_passed_over(stacks: Stacks) -> Bools:
    files = [_PASSED_OVER.search(file.replace("\\", "/")) is not None for file in stacks.files]
    return among(stacks.file.astype(np.int64), np.flatnonzero(files))
