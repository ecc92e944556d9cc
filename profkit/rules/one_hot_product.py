"""Rows of a matrix are picked by a product with one-hot vectors.

What it detects
`torch.nn.functional.one_hot`, whose result goes, converted to another type or not, into a product with a matrix
(`nn.Linear`, `@`, `mm`) and nowhere else, or into a recurrent layer, which begins with such a product. Without these
operators the step would be at least 3 % shorter. If anything else takes or makes a tensor of that shape, as a loss or a
mask does, only products count of which some rows were read in one step and are one-hot; so do vectors made by hand
(`zeros.scatter_(1, item, 1)`). Those on a device, and of fewer than 65,536 numbers, are not read. Products with the
vectors on the other side (`one_hot(group).T @ rows`) add up the rows of each group. With few classes such a product is
as good as any other form.

Why is this bad?
Of n classes each vector holds n numbers, of which one is not zero. They are written as 64-bit integers, read and
written again as floats, and multiplied: n times the work of looking a row up. The backward pass multiplies once more,
where adding one row would do.

Example
    hot = F.one_hot(item, 50_000).float()
    vectors = self.project(hot)                # nn.Linear(50_000, 64, bias=False)

Use instead
    vectors = self.table(item)                 # nn.Embedding(50_000, 64)

    states, _ = self.rnn(self.table(letters))  # instead of self.rnn(F.one_hot(letters, 2_000).float())

How the saving is estimated
These operators and their backward nodes go, but for the time of the program's cheapest operators, which the look-up
and its own backward node take. A recurrent layer that is one operator loses the part of its input's weights in all of
its weights. That node still fills a gradient as large as the matrix, which is left out.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns import in_most_steps, spent_ns, times_per_step
from profkit.patterns.one_hots import OneHot, one_hot_factors, one_hot_products
from profkit.patterns.step_calls import first_seen
from profkit.rules.base import MEDIUM_FROM, Facts, Kind, Need, Suspicion, Suspicions, format_count, pick_form, rule
from profkit.savings import call_ns, combine, scale_with_backward
from profkit.trace import Category, Rows, among

_LOOK_UP = (
    "Look the rows up: `nn.Embedding(classes, width)` in place of `nn.Linear`, or `F.embedding(index, matrix)`. A "
    "linear layer's own weight is `F.embedding(index, layer.weight.t())`, plus its bias."
)
_BEFORE_THE_LAYER = (
    "Put an `nn.Embedding(classes, width)` of moderate width before the recurrent layer, which then takes `width` "
    "features instead of all classes."
)
_UNCERTAINTY = 0.2
"""The gradient of the matrix is filled with zeros in either form, but the look-up adds to single rows of it."""


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES, Need.WHOLE_STEP)
def one_hot_product(facts: Facts) -> Suspicions:
    """One finding for each shape of such vectors."""
    known = one_hot_products(facts)
    told = {row for found in known for row in (*found.products.tolist(), *found.layers.tolist())}
    further = (one for one in one_hot_factors(facts) if told.isdisjoint((*one.products.tolist(), *one.layers.tolist())))
    for found in (*known, *further):
        if in_most_steps(facts, _in_measured(facts, np.concatenate([found.rows, found.layers]))):
            yield _suspect(facts, found)


def _suspect(facts: Facts, found: OneHot) -> Suspicion:
    rows, products, layers = (_in_measured(facts, part) for part in (found.rows, found.products, found.layers))
    kept = (call_ns(facts) / np.maximum(spent_ns(facts, rows), 1)).clip(max=1)
    picking = scale_with_backward(facts, rows, kept, _UNCERTAINTY)
    count, classes = times_per_step(facts, np.concatenate([products, layers])), found.shape[-1]
    vectors = int(np.prod(found.shape[:-1]))
    return Suspicion(
        message=f"{format_count(count, 'product')} a step {pick_form(count, 'picks', 'pick')} rows of a matrix with "
        f"{vectors:,} one-hot vectors of {classes:,} numbers, one of which is not zero.",
        fix=_BEFORE_THE_LAYER if found.is_recurrent else _LOOK_UP,
        rows=rows if not layers.size else np.sort(np.concatenate([rows, layers])),
        edit=combine([picking, scale_with_backward(facts, layers, found.kept, _UNCERTAINTY)]),
        worth=MEDIUM_FROM,
        confidence=0.9,
        count=count,
        evidence={"vectors": vectors, "classes": classes},
    )


def _in_measured(facts: Facts, rows: Rows) -> Rows:
    """The measured steps' operators that repeat these, which may lie inside others, or are these."""
    every = facts.measured_rows(facts.trace.events.category == Category.OPERATOR)
    return every[among(first_seen(facts, every), rows)]
