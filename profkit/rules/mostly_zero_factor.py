"""A product of matrices multiplies by zeros, as one factor holds little else.

What it detects
Products of two matrices, written by the program, of which one factor is to 98 % or more exact zeros: the adjacency of a
graph, a mask that averages a few neighbours of each node, a bag of words. Some rows of the factor are read in one step.
Not reported: factors that have gradients; results of activations such as ReLU; rows with at most one number each, which
are `one-hot-product`; and small matrices. Of a factor that `to_dense` makes of a sparse tensor in the step, 95 % are
enough, and it may have such rows. Tensors on a device are not looked at. Of a step with so many calls that only some
were seen, a factor only counts if it was made by one of those.

Why is this bad?
A dense product takes as long for a zero as for any number. If each of 1,000 rows has 5 neighbours among 2,000, it does
400 times the arithmetic that is needed, and so does its backward pass.

Example
    mask = torch.zeros(len(nodes), len(unique))
    mask[rows, columns] = 1
    means = (mask / mask.sum(1, keepdim=True)) @ features

Use instead
    means = F.embedding_bag(columns, features, offsets, mode="mean")  # each bag is a node's neighbours

How the saving is estimated
The product and its backward nodes keep twenty times the share of the numbers that are not zero, since a sparse product
takes longer for each, but at least what the program's cheapest operators take. `to_dense` goes. Anything else that
makes the dense factor is not counted. The share may differ in other steps.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns import (
    Places,
    by_call,
    costliest_lines,
    each_step,
    in_most_steps,
    location_at,
    program_operators,
    spent_ns,
    times_per_step,
)
from profkit.patterns.loops.located import call_marks, marks_around
from profkit.patterns.program import shares_below
from profkit.rules.base import (
    MEDIUM_FROM,
    CannotLook,
    Facts,
    Kind,
    Location,
    Need,
    Suspicion,
    Suspicions,
    format_share,
    known_recomputation,
    rule,
)
from profkit.run.directory import SparseFactor
from profkit.savings import call_ns, combine, take_less
from profkit.savings.pricing import scale_backward
from profkit.trace import Float64s, Rows

_TIMES_AS_LONG = 20
"""For each number, sparse beside dense. On one thread of a CPU a sparse matrix took 4 to 45 times as long for each
(`.to_sparse_csr()`, 98 to 99.8 % of zeros), `embedding_bag` 2 to 6 times."""
_UNCERTAINTY = 0.3
"""The factor has to be made or kept in another form, and the next step's has other zeros."""
_MAKES_DENSE = frozenset(("to_dense",))
_NOT_LOOKED_AT = "factors were not looked at: they lie on a device, or the step has too many calls to see all"
_FIX = (
    "Keep the indices, not the matrix: sums or means of a few rows are `F.embedding_bag(indices, rows, offsets, "
    "mode='mean')` or `index_add_`. If the matrix is the same in each step, make it sparse once "
    "(`.to_sparse_csr()`) and call `torch.sparse.mm`."
)
_KEEP_SPARSE = (
    "Leave it sparse: `torch.sparse.mm(matrix, rows)` multiplies the numbers that there are, and so does its backward "
    "pass. If it is needed often, make it `.to_sparse_csr()` once."
)


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS)
def mostly_zero_factor(facts: Facts) -> Suspicions:
    """One finding for the products of a line."""
    known = known_recomputation(facts)
    if known.sparse is None:
        raise CannotLook(_NOT_LOOKED_AT)
    marks, around, by_line = call_marks(facts), marks_around(facts), dict[Location, list[SparseFactor]]()
    for product in (one for one in known.sparse if not one.picks):
        line = around[marks[product.call]] if 0 <= product.call < len(marks) and marks[product.call] >= 0 else -1
        if (where := location_at(facts, int(line))) is not None:
            by_line.setdefault(where, []).append(product)
    for where, products in by_line.items():
        rows, share = _products(facts, products)
        if rows.size and in_most_steps(facts, rows):
            yield _suspect(facts, where, products, rows, share)


def _products(facts: Facts, products: list[SparseFactor]) -> tuple[Rows, Float64s]:
    """The measured steps' operators of these calls, and the share of its time that each keeps."""
    mark_of = call_marks(facts)
    kept_of = {int(mark_of[one.call]): min(1.0, _TIMES_AS_LONG * (1 - one.zero)) for one in products}
    return shares_below(facts, kept_of)


def _made_dense(facts: Facts, products: list[SparseFactor]) -> Rows:
    """The measured steps' operators that make these factors of sparse tensors."""
    shapes = {one.shape for one in products if one.was_sparse}
    rows = program_operators(facts, _MAKES_DENSE)
    known = by_call(facts, rows, lambda call: tuple(call.shapes[0]) in shapes if call.shapes else False)
    return rows[known] if shapes and rows.size else rows[:0]


def _suspect(facts: Facts, where: Location, products: list[SparseFactor], rows: Rows, share: Float64s) -> Suspicion:
    most, count = max(products, key=lambda one: one.shape[0] * one.shape[1]), times_per_step(facts, rows)
    kept = np.maximum(share, call_ns(facts) / np.maximum(spent_ns(facts, rows), 1)).clip(max=1)
    edits = [take_less(facts, rows, kept, _UNCERTAINTY), scale_backward(facts, rows, share, _UNCERTAINTY)]
    made = _made_dense(facts, products)
    was = " It is sparse before the step makes it dense." if made.size else ""
    return Suspicion(
        message=f"{each_step(count, 'product', 'has', 'have')} a factor that is nearly all zeros: of its "
        f"{most.shape[0]:,} x {most.shape[1]:,} numbers {format_share(1 - most.zero)} are not.{was}",
        fix=_KEEP_SPARSE if made.size else _FIX,
        rows=rows,
        edit=combine([*edits, take_less(facts, made, 0.0, _UNCERTAINTY)]) if made.size else combine(edits),
        worth=MEDIUM_FROM,
        confidence=0.8,
        count=count,
        places=Places.of([where, *costliest_lines(facts, made).all()]) if made.size else Places.of([where]),
        evidence={"zero_share": round(most.zero, 4), "rows": most.shape[0], "columns": most.shape[1]},
    )
