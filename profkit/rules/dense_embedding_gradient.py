"""A table gets a gradient for every one of its rows, though a step looks up only a few of them.

What it detects
The backward pass of `nn.Embedding` or `nn.EmbeddingBag` where at most a quarter of the table's rows were looked up, and
an optimizer that passes over the whole table afterwards and could do with those rows: SGD without momentum, Adagrad,
or Adam, whose sparse form is SparseAdam. Silent where the gradient has to be dense: with momentum, weight decay or
AMSGrad, where another part of the model adds to it (an output layer that shares the table), where its norm is taken to
clip it, and with `scale_grad_by_freq` or a maximum over bags, which know no sparse form. Fused updates show neither
momentum nor weight decay, so of these Adam's alone counts.

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
The zero-fill, the additions to the gradient and the optimizer's passes over the table shrink to the rows looked up, for
each of which a sparse gradient takes twice as long as a dense one, as it is sorted and summed first. On a GPU each pass
keeps one of its launches, as so few rows need no second, and the host's time for it. Of an operator that passes over
several parameters, the table's part is its share of the elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.families import VIEW, operators_of
from profkit.derive.operators.operators import parse_dims, parse_types
from profkit.evidence.averaging.gradients import FORWARD
from profkit.evidence.frequency import in_most_steps, per_step
from profkit.evidence.program import ACCUMULATES, clearing_ranges, named_operators
from profkit.findings import Kind
from profkit.rules.base import CannotLook, Need, Suspicion, rule
from profkit.ruling.places import costliest_lines
from profkit.ruling.pricing import computing_ns, scale_operators
from profkit.savings.edits import Edit
from profkit.trace.events import Bools, Float64s, Rows
from profkit.trace.values import distinct, distinct_rows
from profkit.units import format_count, format_time

Shape = tuple[int, int]
_BACKWARD = "aten::embedding_dense_backward"
_BAG_BACKWARD = "aten::_embedding_bag_dense_backward"
_ARGUMENTS = {_BACKWARD: (2, 4), _BAG_BACKWARD: (5, 6)}
"""Of each the places of the number of rows and of ``scale_grad_by_freq`` (``native_functions.yaml``); the first two are
the gradient and the indices."""
_MODE, _MAXIMUM = 7, "2"
_FILLS = ("aten::zero_", "aten::fill_")
_ADDS = ("aten::add", "aten::add_")
_NORMS = ("aten::linalg_vector_norm", "aten::norm", "aten::_foreach_norm")
"""What `clip_grad_norm_` takes, which refuses sparse gradients."""
_NEED_DENSE = {"SGD": ("add", "mul_", "_fused_sgd_"), "Adagrad": ("add", "_fused_adagrad_"),
               "Adam": ("add", "maximum", "maximum_")}  # fmt: skip
"""Optimizers with a sparse form (torch.optim's documentation), and what in an update says that it will not do: an
addition that is not in place is weight decay, a product of SGD momentum, a maximum AMSGrad. AdamW always decays."""
_MOST_LOOKED_UP = 0.25
"""With half of the rows a sparse step took as long as a dense one: SGD, Adagrad and SparseAdam on tables of 20,000 and
200,000 rows of 64, on one CPU."""
_SPARSE_COST = 2.0
"""There, for 1/16 to 1/4 of the rows, a sparse row took 0.6 to 3 times as long as a dense one."""
_UNCERTAINTY = 0.3


class _Table(Struct, frozen=True):
    """A table's ``shape``, the backward nodes of its look-ups, how many rows a step looks up at most, and of all
    gradients of that shape the share that are such tables'."""

    shape: Shape
    nodes: Rows
    looked_up: int
    share: float
    is_bag: bool


class _Passes(Struct, frozen=True):
    """What passes over whole tables of one shape, the share of each that the tables are, and the class of the optimizer
    whose update is among it."""

    rows: Rows
    share: Float64s
    optimizer: str


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES, Need.WHOLE_STEP)
def dense_embedding_gradient(facts: Facts) -> Iterator[Suspicion]:
    """One finding for each shape of table."""
    tables = [table for table in _find_tables(facts) if in_most_steps(facts, table.nodes)]
    if tables and facts.trace.named(FORWARD).any():
        raise CannotLook("the gradients are averaged over processes, and not every backend averages sparse ones")
    for table in tables:
        passes = _find_passes(facts, table)
        if passes is not None:
            yield _suspect(facts, table, passes)


def _find_tables(facts: Facts) -> Iterator[_Table]:
    """Those of which a step looks up few rows, and whose gradients come from look-ups alone."""
    trace, events = facts.trace, facts.trace.events
    nodes = facts.measured_rows(named_operators(facts, *_ARGUMENTS))
    first, kind = distinct_rows(events.name_code[nodes], events.dims_code[nodes], events.concrete_code[nodes])
    read = [_read_lookup(trace.name_of(row), trace.text_of(events.dims_code[row]),
                         trace.text_of(events.concrete_code[row])) for row in nodes[first].tolist()]  # fmt: skip
    for shape in dict.fromkeys(shape for shape, _ in filter(None, read)):
        mine = np.array([one is not None and one[0] == shape for one in read])[kind]
        of_shape = nodes[mine]
        counts = np.bincount(kind[mine], minlength=len(read))
        indices = sum(one[1] * int(count) for one, count in zip(read, counts, strict=True) if one is not None)
        tables, share = _stored(facts, shape, of_shape)
        looked_up = math.ceil(indices / max(tables, 1))
        if share and looked_up <= _MOST_LOOKED_UP * shape[0]:
            is_bag = bool(facts.trace.named(_BAG_BACKWARD)[of_shape].all())
            yield _Table(shape, of_shape, looked_up, share, is_bag)


def _read_lookup(name: str, dims: str, concrete: str) -> tuple[Shape, int] | None:
    """The table's shape and how many indices were looked up; None where no sparse gradient can take the place."""
    shapes, given = parse_dims(dims), parse_types(concrete)
    rows_at, scaled_at = _ARGUMENTS[name]
    if len(shapes) < 2 or not shapes[0] or len(given) <= scaled_at or not given[rows_at].isdecimal():
        return None
    is_maximum = name == _BAG_BACKWARD and given[_MODE : _MODE + 1] == [_MAXIMUM]
    if given[scaled_at] == "True" or is_maximum:
        return None
    return (int(given[rows_at]), shapes[0][-1]), math.prod(shapes[1])


def _stored(facts: Facts, shape: Shape, nodes: Rows) -> tuple[int, float]:
    """How many gradients of that shape are stored for the look-ups of ``nodes``, and their share of all stored ones;
    0 where one of them is the sum of a look-up's and something else's."""
    of_shape = _share_of(facts, shape) > 0
    storing = facts.trace.named(ACCUMULATES)
    stored = len(facts.measured_rows(storing & of_shape))
    sums = facts.trace.named(*_ADDS) & of_shape & facts.tree.under(_backward_ranges(facts)) & ~facts.tree.under(storing)
    added = len(facts.measured_rows(facts.tree.outermost(sums)))
    if not stored or (added and stored + added != len(nodes)):
        return 0, 0.0
    return stored if added else min(stored, len(nodes)), min(1.0, len(nodes) / stored)


def _backward_ranges(facts: Facts) -> Bools:
    ranges: Bools = facts.trace.where_name(lambda name: name.startswith("autograd::engine::evaluate_function"))
    return ranges | facts.lines.backward


def _share_of(facts: Facts, shape: Shape) -> Float64s:
    """For each event what share of its inputs' elements is in tensors of that shape."""
    codes, inverse = np.unique(facts.trace.events.dims_code, return_inverse=True)
    shares = np.zeros(len(codes))
    for i, code in enumerate(codes.tolist()):
        shapes = [tuple(one) for one in parse_dims(facts.trace.text_of(code)) if one] if code >= 0 else []
        whole = sum(map(math.prod, shapes))
        shares[i] = shapes.count(shape) * math.prod(shape) / whole if whole else 0.0
    found: Float64s = shares[inverse]
    return found


def _find_passes(facts: Facts, table: _Table) -> _Passes | None:
    """What passes over the table; None where the gradient has to be dense, or no optimizer with a sparse form is seen
    to update it."""
    trace, tree, share = facts.trace, facts.tree, _share_of(facts, table.shape)
    moving = (share > 0) & trace.where_name(lambda name: name.startswith("aten::")) & ~operators_of(trace, VIEW)
    if facts.measured_rows(moving & trace.named(*_NORMS) & ~facts.lines.backward).size:
        return None
    filling = tree.under(trace.mask_of(table.nodes)) & trace.named(*_FILLS)
    storing = tree.under(trace.named(ACCUMULATES)) & ~trace.named(ACCUMULATES)
    wanted = moving & (filling | storing | tree.under(clearing_ranges(facts)) | facts.updates.inside)
    rows = facts.measured_rows(tree.outermost(wanted))
    updating = rows[facts.updates.inside[rows]]
    optimizer = _optimizer_of(facts, updating)
    if optimizer is None or not in_most_steps(facts, updating):
        return None
    return _Passes(rows, share[rows], optimizer)


def _optimizer_of(facts: Facts, updating: Rows) -> str | None:
    """The class of the one optimizer that runs these operators, if its updates have a sparse form."""
    steps = facts.tree.nearest_ancestor(facts.optimizing, of=updating)
    names = {facts.trace.names[code].partition("#")[2].partition(".")[0]
             for code in distinct(facts.trace.events.name_code[steps[steps >= 0]]).tolist()}  # fmt: skip
    name = names.pop() if len(names) == 1 else ""
    if name not in _NEED_DENSE:
        return None
    called = {facts.trace.names[code].removeprefix("aten::").removeprefix("_foreach_")
              for code in distinct(facts.trace.events.name_code[updating]).tolist()}  # fmt: skip
    return None if called & set(_NEED_DENSE[name]) else name


def _suspect(facts: Facts, table: _Table, passes: _Passes) -> Suspicion:
    rows, columns = table.shape
    spent = (computing_ns(facts, passes.rows) * passes.share * table.share).sum()
    looked_up = facts.lines.forward[table.nodes].astype(np.int64)
    looked_up = distinct(looked_up[looked_up >= 0])
    taken = facts.steps.per_step_ns(int(spent))
    return Suspicion(
        message=f"A table of {rows:,} rows of {columns} gets a gradient for all of them, while a step looks up at most "
        f"{table.looked_up:,}: {format_count(round(per_step(facts, passes.rows)), 'pass', 'passes')} over it, from the "
        f"zero-fill to {passes.optimizer}'s update, take {format_time(taken)}.",
        fix=_advise(table, passes.optimizer),
        rows=table.nodes,
        places=costliest_lines(facts, looked_up),
        edit=_sparse(facts, table, passes),
        kind=Kind.OPPORTUNITY if passes.optimizer == "Adam" else Kind.FAULT,
        count=max(1, round(per_step(facts, table.nodes))),
        evidence={"rows": rows, "looked_up_at_most": table.looked_up, "passes_ns_per_step": taken},
    )


def _advise(table: _Table, optimizer: str) -> str:
    module = "EmbeddingBag" if table.is_bag else "Embedding"
    sparse = f"Make the table with `nn.{module}(…, sparse=True)`: its gradient then holds the rows looked up alone"
    if optimizer == "Adam":
        return (
            f"{sparse}, and `torch.optim.SparseAdam` updates these; give it the table, and Adam the rest. The moments "
            "of the other rows stand still meanwhile, which Adam lets decay, so the training differs a little."
        )
    return (
        f"{sparse}, and {optimizer} updates these. It has to stay without momentum and weight decay: SGD, Adagrad and "
        "SparseAdam alone take sparse gradients."
    )


def _sparse(facts: Facts, table: _Table, passes: _Passes) -> Edit:
    left = min(1.0, _SPARSE_COST * table.looked_up / table.shape[0])
    part = passes.share * table.share
    launches = facts.launches.call[facts.launches.call >= 0]
    made = facts.tree.total_under(np.bincount(launches, minlength=len(facts.trace.events)))[passes.rows]
    called = 1 - part * (1 - 1 / np.maximum(made, 1))
    return scale_operators(facts, passes.rows, 1 - part * (1 - left), _UNCERTAINTY, launch_kept=called)
