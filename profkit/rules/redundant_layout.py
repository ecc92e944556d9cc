"""A tensor is copied into another order before an operator that could read it as it lies.

What it detects
`contiguous()`, or `clone` into order, of a transposed or sliced view, if the copy takes 2 % of the step and the next
operator that computes with the result takes any strides: attention whose tensors keep their last dimension in order, a
product of matrices that are transposed or cut out of wider ones, and a convolution of an image with the channels last.
Arithmetic in between keeps the order. Also a tensor that is copied into another order, computed with element by element
and copied back. Not reported: copies for `view`, for a layer or a product that would copy the tensor itself, for
attention by plain products, and of repeated tensors; and for attention on a CPU, which reads a transposed tensor slower
by what the copy takes. Another operator that reads the copy later is not seen, so it is an opportunity.

Why is this bad?
A copy reads and writes the whole tensor and computes nothing. Libraries for products take transposed matrices, kernels
for attention take strides, and convolutions are fastest with the channels last.

Example
    q = self.q(x).view(batch, tokens, heads, width).transpose(1, 2).contiguous()
    y = functional.scaled_dot_product_attention(q, k, v)

Use instead
    q = self.q(x).view(batch, tokens, heads, width).transpose(1, 2)
    y = functional.scaled_dot_product_attention(q, k, v)

How the saving is estimated
The copies vanish from host and device. The operator that reads the tensor keeps its time. Measured on a CPU: 60 % of
the step for a transposed matrix (52 % said), 30 % for a convolution (18 %), 37 % for a copy and back (39 %). What
convolutions, norms and maxima take with the channels last depends on their shapes on a CPU. Of six convolutions one
gained 28 %, one lost 53 %, and four stayed within 6 %: so the range begins at nothing there, and the severity is low.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from profkit.derive.families import ELEMENTWISE, base_name, operators_of, writes_in_place
from profkit.patterns import (
    Call,
    distinct_calls,
    in_most_steps,
    name_lines,
    named_operators,
    program_operators,
    sites_by_time,
    spent_per_step_ns,
    sum_per_step,
    times_per_step,
    works_under,
)
from profkit.patterns.layouts import Layout, Ordering, inputs_of, ordering_copies
from profkit.rules.base import (
    Facts,
    Kind,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    format_bytes,
    format_count,
    format_time,
    pick_form,
    rule,
)
from profkit.savings import drop_operators
from profkit.trace import NONE, Bools, Int64s, Rows, distinct_rows

_LOOK_AHEAD = 32
"""Operators between a copy and its reader: turning queries by their positions takes some ten, for keys the same."""
_MIN_FRACTION = 0.02
"""Of the step: a layer's detail is less."""
_UNCERTAINTY = 0.2
"""Strided reads may take a little longer than those of a tensor in order."""
_UNCERTAINTY_OF_CONVOLUTIONS = 1.0
"""Without a device: a network over points, for which 6.5 % were said, gained nothing (-0.1, -1.5 %)."""
_ATTENDS = re.compile(r"scaled_dot_product_attention|flash_attn|flash_attention|efficient_attention|memory_efficient")
_BY_HAND = "aten::_scaled_dot_product_attention_math"
"""Attention by products of four dimensions, which copy what they cannot fold."""
_PRODUCTS = frozenset(("mm", "bmm", "addmm", "baddbmm", "matmul"))
_WITH_A_SUM = frozenset(("addmm", "baddbmm"))
"""Their first tensor is added to the product."""
_CONVOLUTIONS = frozenset(("conv2d", "conv3d", "convolution"))
_NOTHING = frozenset(("alias", "clone", "contiguous", "detach", "requires_grad", "result_type"))
"""They read nothing, or another tensor's memory."""
_TAKES_APART = frozenset(("select", "unbind"))
_TURNS = frozenset(("movedim", "mT", "numpy_T", "permute", "swapaxes", "swapdims", "t", "transpose"))

_ATTENTION, _PRODUCT, _CONVOLUTION, _BACK = range(4)
_BEFORE: Mapping[int, str] = {
    _ATTENTION: "before attention, which reads it by its strides",
    _PRODUCT: "before a product, which takes transposed and cut-out matrices",
    _CONVOLUTION: "before a convolution, which takes the channels last",
    _BACK: "and back, and only arithmetic on single elements lies between",
}
_FIXES: Mapping[int, str] = {
    _ATTENTION: "Leave `.contiguous()` out: attention takes any strides if the last dimension is in order. (On a GPU, "
    "PyTorch before 2.2 needs it with a mask.) Measure the step before and after.",
    _PRODUCT: "Leave `.contiguous()` out, and pass the view: products read transposed matrices as they lie. If the "
    "same matrix is transposed in each step, and nothing changes it, transpose it once.",
    _CONVOLUTION: "Leave `.contiguous()` out, and convert the model once, "
    "`model.to(memory_format=torch.channels_last)`: its convolutions then pass on what they get. Measure before and "
    "after: the last digits may change.",
    _BACK: "Leave both copies out, and the transpositions with them: arithmetic on single elements gives the same in "
    "any order.",
}


@rule(Kind.OPPORTUNITY, Need.COMPUTE, Need.OPERATORS, Need.SHAPES)
def redundant_layout(facts: Facts) -> Suspicions:
    """One finding for each kind of reader."""
    copies = ordering_copies(facts)
    if not len(copies):
        return
    reader = _readers(facts, copies)
    for kind, before in _BEFORE.items():
        rows = copies.rows[reader == kind]
        if not rows.size or not in_most_steps(facts, rows):
            continue
        count, moved = times_per_step(facts, rows), sum_per_step(facts, 2 * facts.operators.input_bytes[rows])
        taken_ns, is_open = _taken_ns(facts, rows), kind == _CONVOLUTION and not facts.device.present
        yield Suspicion(
            message=f"{format_count(count, 'copy', 'copies')} a step {pick_form(count, 'puts', 'put')} a tensor in "
            f"order {before}: {format_bytes(moved)} are moved in {format_time(taken_ns)}.",
            fix=_FIXES[kind],
            rows=rows,
            edit=drop_operators(facts, rows, _UNCERTAINTY_OF_CONVOLUTIONS if is_open else _UNCERTAINTY),
            severity=Severity.LOW if is_open else None,
            worth=_MIN_FRACTION,
            confidence=0.7,
            count=count,
            spent_ns=taken_ns,
            places=name_lines(facts, sites_by_time(facts, rows)),
            evidence={"copies_per_step": count, "moved_bytes_per_step": moved},
        )


def _taken_ns(facts: Facts, rows: Rows) -> int:
    """Per step: on the device if the copies run there, else on the host."""
    if not facts.device.present:
        return spent_per_step_ns(facts, rows)
    work = works_under(facts, facts.trace.mask_of(rows))
    return facts.steps.per_step_ns(int(facts.trace.events.duration_ns[work].sum()))


def _readers(facts: Facts, copies: Ordering) -> Int64s:
    """For each copy the kind of the operator that reads it, `NONE` for one that needs it."""
    called = program_operators(facts)
    inputs, step = inputs_of(facts, called), facts.step_of(called)
    sizes = [layout.sizes for layout in copies.layouts]
    whole = np.array([inputs.number(one) for one in sizes], dtype=np.int64)[copies.number]
    parts = np.array([inputs.number(one[1:]) for one in sizes], dtype=np.int64)[copies.number]
    passing, apart = _passing(facts, called), operators_of(facts.trace, _TAKES_APART)[called]
    searched, searching = whole.copy(), np.ones(len(copies), dtype=bool)
    reader = np.full(len(copies), NONE, dtype=np.int64)
    for ahead in range(1, _LOOK_AHEAD + 1):
        there = (copies.at + ahead).clip(max=len(called) - 1)
        searching &= (copies.at + ahead < len(called)) & (step[there] == step[copies.at])
        reads = searching & ~passing[there]
        # Of a tensor that is taken apart the parts are followed, and it may be taken apart more than once.
        takes = reads & apart[there] & (inputs.of[there] == whole[:, None]).any(axis=1)
        searched[takes] = parts[takes]
        reads &= ~takes & (inputs.of[there] == searched[:, None]).any(axis=1)
        reader[reads] = there[reads]
        searching &= ~reads
    return _fitting(facts, called, copies, reader, searched != whole)


def _passing(facts: Facts, called: Rows) -> Bools:
    """Operators that read nothing, or whose result lies as their input does. What writes into its input is none: it
    would change the tensor that was copied."""
    in_place = facts.trace.where_name(writes_in_place)
    passing: Bools = operators_of(facts.trace, ELEMENTWISE, _NOTHING) & ~in_place
    return passing[called]


def _kinds(facts: Facts, called: Rows) -> Int64s:
    """The kinds of readers that take strides, by the operators' names."""
    trace = facts.trace
    by_hand = facts.tree.holding(named_operators(facts, _BY_HAND, "aten::bmm"))
    attends = trace.matching(_ATTENDS) & ~by_hand & facts.device.present
    kinds = np.full(len(called), NONE, dtype=np.int64)
    for kind, mask in (
        (_ATTENTION, attends),
        (_PRODUCT, operators_of(trace, _PRODUCTS)),
        (_CONVOLUTION, operators_of(trace, _CONVOLUTIONS)),
        (_BACK, operators_of(trace, _TURNS)),
    ):
        kinds[mask[called]] = kind
    return kinds


def _fitting(facts: Facts, called: Rows, copies: Ordering, reader: Int64s, in_parts: Bools) -> Int64s:
    """The kinds of those readers that could read the views as they lay."""
    at = np.flatnonzero(reader >= 0)
    kind = _kinds(facts, called)[reader[at]]
    calls, call = distinct_calls(facts, called[reader[at]])
    first, number = distinct_rows(kind, copies.number[at], call, in_parts[at])
    fits = np.zeros(len(first), dtype=bool)
    for one, place in enumerate(first.tolist()):
        layout, told = copies.layouts[int(copies.number[at[place]])], calls[int(call[place])]
        if not layout.is_repeated and not layout.is_in_order:
            fits[one] = _fits(int(kind[place]), layout.part() if in_parts[at[place]] else layout, told)
    found = np.full(len(copies), NONE, dtype=np.int64)
    found[at] = np.where(fits[number], kind, NONE)
    return _with_those_back(copies, reader, found)


def _fits(kind: int, layout: Layout, reader: Call) -> bool:
    if kind == _ATTENTION:
        return layout.strides[-1] == 1
    if kind == _PRODUCT:
        factors = reader.shapes[1:3] if base_name(reader.name) in _WITH_A_SUM else reader.shapes[:2]
        return _is_matrix(layout) and len({len(shape) for shape in factors}) == 1
    if kind == _CONVOLUTION:
        _, weight = [*reader.shapes, (), ()][:2]
        dims = range(len(layout.sizes))
        last = layout.turned([0, *dims[2:], 1])
        return len(dims) == len(weight) and weight[1] == layout.sizes[1] and last.is_in_order  # of groups, each is less
    return kind == _BACK


def _is_matrix(layout: Layout) -> bool:
    """Whether products take it: its matrices lie row by row or column by column, and more than one dimension of them
    can be counted as one."""
    *ahead, rows, columns = layout.sizes
    *steps, row, column = layout.strides
    folds = all(steps[at] == ahead[at + 1] * steps[at + 1] for at in range(len(ahead) - 1))
    return folds and ((column == 1 and row >= columns) or (row == 1 and column >= rows))


def _with_those_back(copies: Ordering, reader: Int64s, found: Int64s) -> Int64s:
    """Where the next thing done is to turn the tensor and to copy it, and it then lies as it did, both copies count."""
    following = np.searchsorted(copies.at, reader)
    back = found == _BACK
    for one in np.flatnonzero(back).tolist():
        other = int(following[one])
        undone = other < len(copies) and copies.at[other] == reader[one] + 1
        if undone and _undoes(copies.layouts[copies.number[one]], copies.layouts[copies.number[other]]):
            found[other] = _BACK
        else:
            found[one] = NONE
    return found


def _undoes(before: Layout, after: Layout) -> bool:
    """Whether the second order takes the first one back. Its strides are those of a tensor that the first put in
    order, and the larger a stride the earlier the dimension."""
    order = sorted(range(len(after.strides)), key=lambda at: -after.strides[at])
    place = sorted(range(len(order)), key=lambda at: order[at])
    return len(before.sizes) == len(after.sizes) and before.turned(place).is_in_order
