"""A tensor is cut down to the elements that a mask picks, so that its size is known only once the mask is.

What it detects
Boolean indexing (`x[mask]`, `x[mask] = y`) and `masked_select` of large tensors in most steps, if keeping the whole
tensor and masking it with `torch.where` would take less time. On a GPU also `nonzero` and `unique`, if the host waits
for them. Selections that save later operators more than they cost are not reported, such as picking the few tokens
whose scores are computed; neither are integer indices. If the line only calls what selects, such as a library's layer,
the finding is an opportunity.

Why is this bad?
The mask is searched for its true elements, which makes a list of 64-bit indices; the elements are gathered one by one;
and the backward pass does the same to scatter their gradients. `torch.where` makes a single pass in order. On a GPU the
host also waits until the device has counted, because it needs the count to allocate the result.

Example
    error = (prediction - target) ** 2
    loss = error[valid].mean()

Use instead
    error = (prediction - target) ** 2
    loss = torch.where(valid, error, 0).sum() / valid.sum()

How the saving is estimated
The operators and their backward nodes are replaced by passes over the whole tensor: `torch.where` reads tensor and mask
and writes the result, and its backward does the same with the gradient. The rate is that of the program's own
elementwise operators, or else that of the gathering itself, which is no faster. What takes the result takes longer in
proportion to the larger tensor; that is subtracted. On a GPU the recorded steps are replayed without the waits and the
searches, and larger tensors count only where they keep the device busy longer than it has time.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from profkit.derive.families import MATRIX, operators_of
from profkit.derive.operators.operators import item_bytes
from profkit.patterns import (
    Call,
    Shapes,
    backward_of,
    by_call,
    by_line,
    by_shapes,
    in_most_steps,
    named_operators,
    per_step,
    program_elementwise,
    program_operators,
    program_traffic,
    runs_inside_a_call,
    shapes_of,
    spent_ns,
    times_a_step,
    with_shapes,
    works_under,
)
from profkit.patterns.time.wait_causes import WaitCause, wait_causes
from profkit.rules.base import (
    LOW_FROM,
    CannotLook,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_bytes,
    format_share,
    missing_needs,
    rule,
)
from profkit.savings import call_ns, combine, computing_ns, remove, scale_with_backward, unblock
from profkit.savings.replay import replay
from profkit.savings.step_time import step_time
from profkit.trace import Bools, Category, Int64s, Rows, among, distinct

_SEARCHES = ("aten::nonzero", "aten::masked_select")
_SELECTIONS = ("aten::index", "aten::index_put", "aten::index_put_", "aten::masked_select")
"""These can be replaced by a mask. The results of the other operators are lists of places or of values."""
_SIZED = (Need.SHAPES, Need.MEMORY)
_MIN_BYTES = 64 << 10
"""At several bytes a nanosecond and several passes, less than this takes about as long as the calls."""
_MOST_SIZES = 8
"""Distinct result sizes per line whose users are looked for."""
_MANY_IN_ONE = 3
"""In a recording of one step, a single wait says nothing about every step."""
_UNCERTAINTY = 0.35
"""`torch.where` and the sum over the mask really took between two thirds and four thirds of a pass."""
_MASK_FIX = (
    "Keep the whole tensor and mask it: `torch.where(mask, x, 0).sum() / mask.sum()` for a mean, `torch.where(mask, y, "
    "x)` for `x[mask] = y`; or pad to a fixed size."
)
_INSIDE_FIX = (
    "The selection is not on this line but inside what it calls. If that is a library, look for a setting that "
    "avoids it. Or prepare the input once, before the loop, so that nothing has to be selected."
)
_COUNT_FIX = "Work on tensors of a fixed size with `torch.where`, or find the places once, outside the loop."
_GROUPS_FIX = (
    " If each round picks the rows of one group, sort them all once with `order = group.argsort()`. Then "
    "`sizes = torch.bincount(group, minlength=n).tolist()` waits once, and `x[order].split(sizes)` are the groups."
)
_MANY_GROUPS = 4
"""So many waits a step at one line are a loop, such as one over experts or classes."""


class _Selections(Struct, frozen=True):
    """Columns over selections by a mask: the bytes of the tensor, the elements of the tensor and of what is picked
    (0: unknown, or nothing is taken out), and the bytes that `torch.where` would read and write."""

    tensor_bytes: Int64s
    elements: Int64s
    picked: Int64s
    where_bytes: Int64s


class _Growth(Struct, frozen=True):
    """How many times as large the results would be, the operators that take them, and how much longer these and their
    backward nodes would take in all measured steps."""

    factor: float
    takers: Rows
    longer_ns: float


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS)
def data_dependent_shape(facts: Facts) -> Suspicions:
    """Line by line: the waits on a GPU, the searching and gathering on a CPU."""
    if facts.device.present:
        rows, judge = counting_operators(facts), _judge_waits
    else:
        called, judge = program_operators(facts), _judge_copies
        searching = facts.tree.holding(named_operators(facts, *_SEARCHES))
        rows = called[(searching & named_operators(facts, *_SELECTIONS))[called]]
        if rows.size and (missing := missing_needs(facts, _SIZED)):
            raise CannotLook(missing[0].value)
    for of_line in by_line(facts, rows, forward=facts.device.present):
        several = len(facts.steps) > 1 or (facts.device.present and per_step(facts, of_line) >= _MANY_IN_ONE)
        if in_most_steps(facts, of_line) and several:
            yield from judge(facts, of_line)


def counting_operators(facts: Facts) -> Rows:
    """The outermost operators, backward ones included, in which the host waits for the device to learn the size of a
    result."""
    causes = facts.waits.rows[wait_causes(facts) == WaitCause.SIZE_OF_RESULT]
    outermost = facts.tree.outermost(facts.trace.events.category == Category.OPERATOR)
    return np.flatnonzero(outermost & facts.tree.holding(facts.trace.mask_of(causes)))


def _judge_waits(facts: Facts, rows: Rows) -> Suspicions:
    waits, inside = facts.waits, facts.tree.under(facts.trace.mask_of(rows))
    waiting = waits.rows[inside[waits.rows] & ~waits.own]
    edit, growth = unblock(waiting), _Growth(1.0, rows[:0], 0.0)
    if not missing_needs(facts, _SIZED):  # without sizes nothing shows what the search saves later
        growth = _find_growth(facts, rows, _describe(facts, rows))
        # A search on the way to a selection goes. A search of the program's own stays: it wants the places.
        selecting = facts.tree.under(named_operators(facts, *_SELECTIONS)) & inside
        searches = np.flatnonzero(facts.tree.outermost(named_operators(facts, "aten::nonzero")) & selecting)
        works = works_under(facts, facts.trace.mask_of(searches))
        edit = combine([edit, remove(searches, works, uncertainty=_UNCERTAINTY)])
    saved = replay(facts, edit).fraction
    if saved - _lost_to_growth(facts, growth, saved) < LOW_FROM:
        return
    many = per_step(facts, waiting)
    yield Suspicion(
        message=f"The host waits {times_a_step(facts, waiting)} for the device to count what a mask picks, or how "
        f"many values differ. Without that the step would be {format_share(saved)} shorter.",
        fix=_COUNT_FIX + (_GROUPS_FIX if many >= _MANY_GROUPS else ""),
        rows=rows,
        edit=edit,
        confidence=0.7,
        kind=_kind_of(facts, growth),
        evidence={"waits_per_step": round(many, 2)},
    )


def _lost_to_growth(facts: Facts, growth: _Growth, saved: float) -> float:
    """The share of the step that the device would need beyond the shorter step: where it idles, larger tensors cost
    nothing."""
    time = step_time(facts)
    longer_ns = growth.longer_ns / facts.steps.measured_count
    room_ns = 0.0 if time.device_ns is None else max(0.0, (1 - saved) * time.ns - time.device_ns)
    return max(0.0, longer_ns - room_ns) / max(time.ns, 1)


def _judge_copies(facts: Facts, rows: Rows) -> Suspicions:
    rows = rows[_describe(facts, rows).tensor_bytes >= _MIN_BYTES]
    if not in_most_steps(facts, rows):
        return
    found, nodes = _describe(facts, rows), backward_of(facts, rows)
    spent = float(spent_ns(facts, rows).sum() + spent_ns(facts, nodes).sum())
    passes_bytes = found.where_bytes.sum() * (1 + len(nodes) / len(rows))
    passes = passes_bytes / _bytes_per_ns(facts, rows, found) + call_ns(facts) * (len(rows) + len(nodes))
    growth = _find_growth(facts, rows, found)
    kept = (passes + growth.longer_ns) / max(spent, 1.0)
    steps, is_inside = facts.steps.measured_count, runs_inside_a_call(facts, rows)
    if spent * (1 - kept) / steps < LOW_FROM * step_time(facts).ns:
        return
    size = int(found.tensor_bytes.sum()) // steps
    yield Suspicion(
        message=f"A mask cuts {format_bytes(size)} a step down to {format_share(1 / growth.factor)} of the elements. "
        "Searching the mask, gathering and scattering takes longer than one pass over everything.",
        fix=_INSIDE_FIX if is_inside else _MASK_FIX,
        rows=rows,
        edit=scale_with_backward(facts, rows, kept, _UNCERTAINTY),
        confidence=0.8,
        kind=Kind.OPPORTUNITY if is_inside else _kind_of(facts, growth),
        evidence={"masked_bytes_per_step": size, "picked_share": round(1 / growth.factor, 3)},
    )


def _kind_of(facts: Facts, growth: _Growth) -> Kind:
    """If matrices are multiplied by what was picked, the selection has a purpose, and masking changes the structure."""
    return Kind.OPPORTUNITY if operators_of(facts.trace, MATRIX)[growth.takers].any() else Kind.FAULT


def _find_growth(facts: Facts, rows: Rows, found: _Selections) -> _Growth:
    picks = (found.picked > 0) & (found.elements > 0)
    factor = max(1.0, float(found.elements[picks].sum() / max(found.picked[picks].sum(), 1)))
    takers = _takers(facts, rows)
    computing = computing_ns(facts, np.concatenate([takers, backward_of(facts, takers)]))
    return _Growth(factor, takers, (factor - 1) * float((computing - call_ns(facts)).clip(min=0).sum()))


def _describe(facts: Facts, rows: Rows) -> _Selections:
    """The sizes of the selections. What is picked is what outlives the call."""
    # Results differ in size from step to step, so their shapes are not carried over; those of the masked tensors are.
    shaped = with_shapes(facts, rows)
    sizes = by_call(facts, shaped, _size_of, int).reshape(-1, 3)
    elements, item, mask = np.where(shaped >= 0, sizes.T, 0)
    picked = _outliving_bytes(facts, rows) // item.clip(min=1)
    return _Selections(elements * item, elements, picked, 2 * elements * item + mask)


def _size_of(call: Call) -> tuple[int, int, int]:
    """The elements of the tensor, the bytes of each, and the bytes of the mask."""
    shapes = call.shapes
    if len(shapes) < 2 or not shapes[0]:
        return 0, 0, 0
    return math.prod(shapes[0]), item_bytes(next(iter(call.types), "")), math.prod(shapes[1])


def _outliving_bytes(facts: Facts, rows: Rows) -> Int64s:
    """What each operator allocates and leaves behind: its result."""
    memory, tree = facts.memory, facts.tree
    owner = tree.nearest_ancestor(facts.trace.mask_of(rows), of=memory.rows)
    within = (memory.freed_by > owner) & (memory.freed_by < tree.stop[owner])
    leaves = (owner >= 0) & ~within
    size = np.zeros(len(facts.trace.events), dtype=np.int64)
    np.add.at(size, owner[leaves], memory.size_bytes[leaves])
    return size[rows]


def _takers(facts: Facts, rows: Rows) -> Rows:
    """The measured operators that take what was picked: in steps with shapes, later ones with an input of that size or
    of as many rows; and the operators that repeat these."""
    events, lines = facts.trace.events, facts.lines
    called = facts.operators.rows
    called = called[~(lines.backward | facts.updates.inside | facts.tree.under(facts.loading))[called]]
    same = called[among(called, rows) | among(called, facts.repeats.row[rows])]
    same = same[events.dims_code[same] >= 0]
    step = facts.steps.index_of(events.start_ns)
    mask = np.zeros(len(events), dtype=bool)
    found = _describe(facts, same)
    for size in distinct(found.picked[found.picked > 0])[-_MOST_SIZES:]:
        picking = same[found.picked == size]
        before = picking[(np.searchsorted(picking, called) - 1).clip(min=0)]
        later = called[(before < called) & (step[before] == step[called]) & ~among(called, same)]
        lengths = {_length(facts, row) for row in picking.tolist()}
        mask[later[_take(facts, later, int(size), {int(size) // n for n in lengths if n})]] = True
    return called[facts.measured[called] & (mask | mask[facts.repeats.row] & (facts.repeats.row >= 0))[called]]


def _length(facts: Facts, row: int) -> int:
    """The elements that a mask picks at once: those of the dimensions that it does not have."""
    shapes = shapes_of(facts, row)
    return math.prod(shapes[0][len(shapes[1]) :]) if len(shapes) > 1 else 0


def _take(facts: Facts, rows: Rows, size: int, lengths: set[int]) -> Bools:
    """The operators with an input of this size, or of one of these lengths."""

    def takes(shapes: Shapes) -> bool:
        known = (shape for shape in shapes if shape)
        return any(math.prod(shape) == size or (len(shape) > 1 and shape[0] in lengths) for shape in known)

    return by_shapes(facts, rows, takes)


def _bytes_per_ns(facts: Facts, rows: Rows, found: _Selections) -> float:
    """The rate at which the program's elementwise operators move large data or, if there are none, the selections."""
    called, traffic = program_operators(facts), program_traffic(facts)
    moved = traffic.read_bytes + traffic.written_bytes
    elementwise = program_elementwise(facts)[0] & (moved >= _MIN_BYTES)
    if elementwise.any():
        return float(moved[elementwise].sum() / max(spent_ns(facts, called[elementwise]).sum(), 1))
    return float(found.tensor_bytes.sum() / max(spent_ns(facts, rows).sum(), 1))
