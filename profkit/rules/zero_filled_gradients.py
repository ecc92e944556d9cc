"""Gradients are filled with zeros before each backward pass, which then adds to them instead of handing them over.

What it detects
`zero_` (or `_foreach_zero_`) inside an optimizer's `zero_grad`, or elsewhere on as many tensors of the same shapes as
the backward pass then adds gradients to: `module.zero_grad(set_to_none=False)`, `p.grad.zero_()`. Nothing is reported
if several backward passes add to the gradients before they are cleared again, which is gradient accumulation.

Why is this bad?
Each gradient is first overwritten with zeros; then the backward pass computes it in a tensor of its own and adds the
one to the other. If `.grad` is `None` it hands that tensor over, and between `zero_grad` and the backward pass no
memory is held for gradients at all.

Example
    optimizer.zero_grad(set_to_none=False)
    loss.backward()

Use instead
    optimizer.zero_grad()   # sets them to None, the default since PyTorch 2.0
    loss.backward()

How the saving is estimated
The additions in the backward pass vanish, and so do the fills. If a gradient fits the cache of a CPU, only the call of
the fill vanishes, which takes as long as the program's cheapest operators: the fill also put the gradient's memory into
the cache, and without it the backward pass is the first to write there. The bytes are those of the gradients: they are
free until the backward pass, so they only lower a peak that lies before it. The time in which the system gives the
freed memory back to the program, page by page, is not included; on a CPU it can take up all of the saving.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.operators.operators import parse_dims
from profkit.patterns import (
    ACCUMULATES,
    by_line,
    clearing_ranges,
    in_most_steps,
    named_operators,
    per_step,
    program_operators,
    spent_ns,
    sum_per_step,
)
from profkit.patterns.program import launches_anything
from profkit.patterns.releases import INDUCTOR, has_release
from profkit.rules.base import Facts, Kind, Need, Suspicion, Suspicions, format_bytes, format_count, pick_form, rule
from profkit.savings import Edit, call_ns, combine, drop_operators, scale_operators
from profkit.source.changes import Argument, ChangedCall
from profkit.trace import Int64s, Rows, among, distinct_rows

_FILLS = ("aten::zero_", "aten::_foreach_zero_")
_MOST_ADDED = 1.5
"""Additions for each fill: one means a backward pass for each `zero_grad`, two and more mean gradient accumulation."""
_LEAST_ADDED = 0.5
"""Not every parameter gets a gradient in every step; if fewer than half do, the fills have another reason."""
_LEAST_ALIKE = 0.9
"""The share of the tensors filled on a line that have to look like the gradients added to next, if no range says so."""
_CACHED_BYTES = 2 << 20
"""The largest second-level caches of CPUs today; a larger gradient goes to memory in any case."""
_UNCERTAINTY = 0.3
"""A gradient that is handed over lies elsewhere in memory each time, and now and then has to be copied instead."""

_LEAVE_DEFAULT = ChangedCall("zero_grad", (Argument("set_to_none", None, (False,)),))


class _Clearing(Struct, frozen=True):
    """The fills on one line, the additions to gradients between them, and the number of tensors filled."""

    fills: Rows
    adds: Rows
    tensors: int


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.WHOLE_STEP)
def zero_filled_gradients(facts: Facts) -> Suspicions:
    """Look at each line that fills gradients with zeros."""
    is_default = has_release(facts, INDUCTOR)  # from 2.0 on
    remedy = "zero_grad()` without `set_to_none=False`" if is_default else "zero_grad(set_to_none=True)`"
    for clearing in _find_clearings(facts):
        if not in_most_steps(facts, clearing.fills):
            continue
        filled = sum_per_step(facts, facts.operators.input_bytes[clearing.fills])
        tensors, added = clearing.tensors / facts.steps.measured_count, per_step(facts, clearing.adds)
        size, count = f" ({format_bytes(filled)})" if filled else "", max(1, round(tensors))
        yield Suspicion(
            message=f"{format_count(count, 'gradient')} a step{size} {pick_form(count, 'is', 'are')} filled "
            "with zeros, to which the backward pass then adds.",
            fix=f"Call `{remedy}, or set `p.grad = None`: the backward pass then stores its result instead of adding "
            "it. Code that reads `.grad` in between must expect `None`.",
            rows=clearing.fills,
            edit=_hand_over(facts, clearing),
            rewrite=_LEAVE_DEFAULT if is_default else None,
            count=max(1, round(tensors)),
            size_bytes=filled,
            evidence={"gradients_per_step": round(tensors, 1), "additions_per_step": round(added, 1)},
        )


def _find_clearings(facts: Facts) -> Iterator[_Clearing]:
    """Lines that fill gradients, with about as many additions to gradients as tensors filled."""
    events = facts.trace.events
    fills, adding = _fills(facts), named_operators(facts, "aten::add_")
    adds = facts.measured_rows(facts.tree.outermost(adding & facts.tree.under(named_operators(facts, ACCUMULATES))))
    # An addition belongs to the line that filled last; the first ones may follow a fill before the recording.
    after = np.searchsorted(events.start_ns[fills], events.start_ns[adds]) - 1
    by_range = facts.tree.under(clearing_ranges(facts))[fills]
    for rows in by_line(facts, fills):
        mine = among(fills, rows)
        own = adds[(after >= 0) & mine[after]] if len(fills) else adds[:0]
        tensors = int(_tensors_in(facts, rows).sum())
        is_certain = bool(by_range[mine].all())
        if not _LEAST_ADDED * tensors <= len(own) <= _MOST_ADDED * tensors:
            continue
        if is_certain or _are_alike(facts, rows, own):
            yield _Clearing(rows, own, tensors)


def _fills(facts: Facts) -> Rows:
    """What the program fills, in time order; also if a hook of the optimizer's step clears the gradients."""
    called, in_range = facts.operators.rows, facts.tree.under(clearing_ranges(facts))
    wanted = among(called, program_operators(facts)) | (in_range & facts.measured)[called]
    fills = called[wanted & named_operators(facts, *_FILLS)[called]]
    return fills[np.argsort(facts.trace.events.start_ns[fills], kind="stable")]


def _tensors_in(facts: Facts, fills: Rows) -> Int64s:
    """How many tensors each call fills: one, or for `_foreach_zero_` as many as it takes. If that is not recorded, as
    many as it calls `zero_` for."""
    inner = facts.tree.total_under(named_operators(facts, "aten::zero_").astype(np.int64))[fills]
    together = named_operators(facts, "aten::_foreach_zero_")[fills]
    shapes, alike = _shapes(facts, fills)
    listed = np.array(list(map(len, shapes)), dtype=np.int64)[alike]
    return np.where(together, np.maximum(np.where(listed > 0, listed, inner), 1), 1)


def _shapes(facts: Facts, rows: Rows) -> tuple[list[list[tuple[int, ...]]], Int64s]:
    """For each distinct operator the shapes of the tensors that it fills, or of the one that it adds to; and for each
    row the number of its operator."""
    trace, events = facts.trace, facts.trace.events
    first, alike = distinct_rows(events.name_code[rows], events.dims_code[rows])
    listed = [(row, parse_dims(trace.text_of(int(events.dims_code[row])))) for row in rows[first].tolist()]
    several = "aten::_foreach_zero_"
    return [list(map(tuple, dims if trace.name_of(row) == several else dims[:1])) for row, dims in listed], alike


def _count_shapes(facts: Facts, rows: Rows) -> Counter[tuple[int, ...]]:
    shapes, alike = _shapes(facts, rows)
    counts: Counter[tuple[int, ...]] = Counter()
    for listed, times in zip(shapes, np.bincount(alike, minlength=len(shapes)).tolist(), strict=True):
        for shape in filter(None, listed):
            counts[shape] += times
    return counts


def _are_alike(facts: Facts, fills: Rows, adds: Rows) -> bool:
    """Whether nearly every tensor that is filled has the shape of a gradient that is added to, each its own."""
    filled, added = _count_shapes(facts, fills), _count_shapes(facts, adds)
    return bool(filled) and (filled & added).total() >= _LEAST_ALIKE * filled.total()


def _hand_over(facts: Facts, clearing: _Clearing) -> Edit:
    """Without the additions; the fills only keep the time that moves data."""
    spent = spent_ns(facts, clearing.fills).astype(np.float64)
    calls = _tensors_in(facts, clearing.fills)
    cached = facts.operators.input_bytes[clearing.fills] <= calls * _CACHED_BYTES
    cached &= ~launches_anything(facts)[clearing.fills]
    kept = np.where(cached, (spent - calls * call_ns(facts)).clip(min=0), 0.0) / np.maximum(spent, 1)
    return combine(
        [
            drop_operators(facts, clearing.adds, _UNCERTAINTY),
            scale_operators(facts, clearing.fills, kept, _UNCERTAINTY, launch_kept=0.0),
        ]
    )
