"""A table gets a gradient for every one of its rows, though a step looks up only a few of them.

What it detects
The backward pass of `nn.Embedding` or `nn.EmbeddingBag` if at most a quarter of the table's rows were looked up, and an
optimizer that then passes over the whole table although those rows would do: SGD without momentum, Adagrad, or Adam,
whose sparse form is SparseAdam. Silent if the gradient has to be dense: with momentum, weight decay or AMSGrad, if
another part of the model adds to it (an output layer that shares the table), if its norm is taken to clip it, and with
`scale_grad_by_freq` or a maximum over bags, which have no sparse form. Fused updates show neither momentum nor weight
decay, so only Adam's count.

Why is this bad?
The gradient is as large as the table. It is filled with zeros, a few rows are written, and then the optimizer reads and
writes the whole table and its state, several times if nothing is fused, to change those rows.

Example
    table = nn.Embedding(2_000_000, 128)
    optimizer = torch.optim.Adagrad(table.parameters())

Use instead
    table = nn.Embedding(2_000_000, 128, sparse=True)
    optimizer = torch.optim.Adagrad(table.parameters())

How the saving is estimated
The backward node with its zero-fill, the additions to the gradient and the optimizer's passes over the table shrink to
the rows looked up. A sparse gradient is sorted and summed first, and the update looks its rows up in the state: per row
it takes three times as long as a dense one with Adagrad, four times with SparseAdam, and about as long with SGD, which
keeps no state. On a GPU each pass keeps one of its launches, enough for so few rows, and the host's time for it. Of an
operator that passes over several parameters, the table's part is its share of the elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
from msgspec import Struct

from profkit.derive.families import VIEW, operators_of
from profkit.patterns import (
    ACCUMULATES,
    Call,
    Shapes,
    by_shapes,
    clearing_ranges,
    costliest_lines,
    distinct_calls,
    in_most_steps,
    named_operators,
    times_per_step,
)
from profkit.patterns.averaging.gradients import FORWARD
from profkit.rules.base import CannotLook, Facts, Kind, Need, Suspicion, Suspicions, format_count, format_time, rule
from profkit.savings import computing_ns, scale_operators
from profkit.trace import Float64s, Rows, distinct

Shape = tuple[int, int]
_BACKWARD = "aten::embedding_dense_backward"
_BAG_BACKWARD = "aten::_embedding_bag_dense_backward"
_ARGUMENTS = {_BACKWARD: (2, 4), _BAG_BACKWARD: (5, 6)}
"""The places of the number of rows and of ``scale_grad_by_freq`` among the arguments (``native_functions.yaml``). The
first two arguments are the gradient and the indices."""
_MODE, _MAXIMUM = 7, "2"
_ADDS = ("aten::add", "aten::add_")
_NORMS = ("aten::linalg_vector_norm", "aten::norm", "aten::_foreach_norm")
"""`clip_grad_norm_` takes these, and refuses sparse gradients."""
_NEED_DENSE = {
    "SGD": ("add", "mul_", "_fused_sgd_"),
    "Adagrad": ("add", "_fused_adagrad_"),
    "Adam": ("add", "maximum", "maximum_"),
}
"""Optimizers with a sparse form (torch.optim's documentation), and the operators in an update that rule it out: an
addition that is not in place is weight decay, a product is SGD momentum, a maximum AMSGrad. AdamW always decays."""
_MOST_LOOKED_UP = 0.25
"""With half of the rows a sparse step took as long as a dense one: SGD, Adagrad and SparseAdam on tables of 20,000 and
200,000 rows of 64, on one CPU."""
_SPARSE_COST = {"SGD": 1.0, "Adagrad": 3.0, "Adam": 4.0}
"""How many times as long a sparse row takes as a dense one, backward pass and update together. In eleven runs, for
1/1000 to a quarter of the rows of seven tables, that was 0.3 to 3.1 with SGD, 1.6 to 5.3 with Adagrad and 1.7 to 10
with SparseAdam, half of them 0.4 to 1.3, 2.7 to 3.6 and 2.9 to 5.8 (torch 2.13, one thread of a busy Xeon)."""
_UNCERTAINTY = 0.3
"""What these ranges mean for the saving if a seventh of the rows is looked up; for fewer it means less."""


class _Table(Struct, frozen=True):
    """A table's ``shape``, the backward nodes of its lookups, how many rows a step looks up at most, and the share that
    such tables have of all gradients of that shape."""

    shape: Shape
    nodes: Rows
    looked_up: int
    share: float


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES, Need.WHOLE_STEP)
def dense_embedding_gradient(facts: Facts) -> Suspicions:
    """One finding for each shape of table."""
    tables = [table for table in _find_tables(facts) if in_most_steps(facts, table.nodes)]
    if tables and facts.trace.named(FORWARD).any():
        raise CannotLook("the gradients are averaged over processes, and not every backend averages sparse ones")
    for table in tables:
        share = by_shapes(facts, slice(None), partial(_share_of, table.shape), float)
        share[table.nodes] = 1.0
        rows = _find_passes(facts, table, share)
        updating = rows[facts.updates.inside[rows]]
        optimizer = _optimizer_of(facts, updating)
        if optimizer and in_most_steps(facts, updating):
            yield _suspect(facts, table, rows, share[rows] * table.share, optimizer)


def _find_tables(facts: Facts) -> Iterator[_Table]:
    """Tables of which a step looks up few rows, and whose gradients come from lookups alone."""
    nodes = facts.measured_rows(named_operators(facts, *_ARGUMENTS))
    calls, which = distinct_calls(facts, nodes)
    read = [_read_lookup(call) for call in calls]
    for shape in dict.fromkeys(shape for shape, _ in filter(None, read)):
        indices = np.array([one[1] if one and one[0] == shape else -1 for one in read])[which]
        of_shape = nodes[indices >= 0]
        tables, share = _stored(facts, shape, of_shape)
        looked_up = math.ceil(indices[indices >= 0].sum() / max(tables, 1))
        if share and looked_up <= _MOST_LOOKED_UP * shape[0]:
            yield _Table(shape, of_shape, looked_up, share)


def _read_lookup(call: Call) -> tuple[Shape, int] | None:
    """The table's shape and how many indices were looked up; None if a sparse gradient cannot take its place."""
    shapes, given = call.shapes, call.arguments
    rows_at, scaled_at = _ARGUMENTS[call.name]
    if len(shapes) < 2 or not shapes[0] or len(given) <= scaled_at or not given[rows_at].isdecimal():
        return None
    is_maximum = call.name == _BAG_BACKWARD and given[_MODE : _MODE + 1] == [_MAXIMUM]
    if given[scaled_at] == "True" or is_maximum:
        return None
    return (int(given[rows_at]), shapes[0][-1]), math.prod(shapes[1])


def _stored(facts: Facts, shape: Shape, nodes: Rows) -> tuple[int, float]:
    """How many gradients of that shape are stored for the lookups of ``nodes``, and their share of all stored ones; 0
    if one of them is the sum of a lookup's gradient and another one."""
    of_shape = by_shapes(facts, slice(None), lambda shapes: shape in map(tuple, shapes))
    storing = facts.trace.named(ACCUMULATES)
    stored = len(facts.measured_rows(storing & of_shape))
    ranges = facts.trace.where_name(lambda name: name.startswith("autograd::engine::evaluate_function"))
    sums = facts.trace.named(*_ADDS) & of_shape & facts.tree.under(ranges | facts.lines.backward)
    added = len(facts.measured_rows(facts.tree.outermost(sums & ~facts.tree.under(storing))))
    if not stored or (added and stored + added != len(nodes)):
        return 0, 0.0
    return stored if added else min(stored, len(nodes)), min(1.0, len(nodes) / stored)


def _share_of(of: Shape, shapes: Shapes) -> float:
    """The share of the inputs' elements in tensors of that shape."""
    whole = sum(math.prod(shape) for shape in shapes if shape)
    return sum(math.prod(shape) for shape in shapes if tuple(shape) == of) / whole if whole else 0.0


def _find_passes(facts: Facts, table: _Table, share: Float64s) -> Rows:
    """The operators that pass over the table. None if the gradient's norm is taken, for which it has to be dense."""
    trace, tree = facts.trace, facts.tree
    moving = (share > 0) & trace.where_name(lambda name: name.startswith("aten::")) & ~operators_of(trace, VIEW)
    storing = tree.under(trace.named(ACCUMULATES)) & ~trace.named(ACCUMULATES)
    wanted = moving & (trace.mask_of(table.nodes) | storing | tree.under(clearing_ranges(facts)) | facts.updates.inside)
    clipped = facts.measured_rows(moving & trace.named(*_NORMS) & ~facts.lines.backward).size
    return facts.measured_rows(tree.outermost(wanted & (not clipped)))


def _optimizer_of(facts: Facts, updating: Rows) -> str:
    """The class of the one optimizer that runs these operators, empty if its updates have no sparse form."""
    steps = facts.tree.nearest_ancestor(facts.optimizing, of=updating)
    names = {name.partition("#")[2].partition(".")[0] for name in _names(facts, steps[steps >= 0])}
    name = names.pop() if len(names) == 1 else ""
    called = {one.removeprefix("aten::").removeprefix("_foreach_") for one in _names(facts, updating)}
    return name if name in _NEED_DENSE and not called & set(_NEED_DENSE[name]) else ""


def _names(facts: Facts, rows: Rows) -> list[str]:
    return [facts.trace.names[code] for code in distinct(facts.trace.events.name_code[rows]).tolist()]


def _suspect(facts: Facts, table: _Table, rows: Rows, share: Float64s, optimizer: str) -> Suspicion:
    """``share`` is the part of each pass that the tables take. A pass needs one launch for so few rows."""
    left = min(1.0, _SPARSE_COST[optimizer] * table.looked_up / table.shape[0])
    launches = facts.launches.call[facts.launches.call >= 0]
    made = facts.tree.total_under(np.bincount(launches, minlength=len(facts.trace.events)))[rows]
    launched = 1 - share * (1 - 1 / np.maximum(made, 1))
    looked_up = facts.lines.forward[table.nodes].astype(np.int64)
    spent = facts.steps.per_step_ns(int((computing_ns(facts, rows) * share).sum()))
    return Suspicion(
        message=f"At most {table.looked_up:,} of a table's {table.shape[0]:,} rows of {table.shape[1]} are looked up "
        "in a step, but all get a gradient. That makes "
        f"{format_count(times_per_step(facts, rows), 'pass', 'passes')} over it, from the backward pass to "
        f"{optimizer}'s update: {format_time(spent)} a step in all.",
        fix=_advise(facts, table, optimizer),
        rows=table.nodes,
        places=costliest_lines(facts, distinct(looked_up[looked_up >= 0])),
        edit=scale_operators(facts, rows, 1 - share * (1 - left), _UNCERTAINTY, launch_kept=launched),
        kind=Kind.OPPORTUNITY if optimizer == "Adam" else Kind.FAULT,
        evidence={"rows": table.shape[0], "looked_up_at_most": table.looked_up, "passes_ns_per_step": spent},
    )


def _advise(facts: Facts, table: _Table, optimizer: str) -> str:
    module = "EmbeddingBag" if facts.trace.named(_BAG_BACKWARD)[table.nodes].all() else "Embedding"
    sparse = f"Make the table with `nn.{module}(…, sparse=True)`: its gradient then holds only the rows looked up"
    if optimizer == "Adam":
        return (
            f"{sparse}, and `torch.optim.SparseAdam` updates these. Give it the table, and Adam the rest. The "
            "moments of the other rows then stay as they are, whereas Adam lets them decay: training differs a "
            "little."
        )
    return (
        f"{sparse}, and {optimizer} updates these. It must stay without momentum and weight decay: only SGD, "
        "Adagrad and SparseAdam take sparse gradients."
    )
