"""The backward pass computes gradients of parameters that nobody uses.

What it detects
In the located step, nodes of a backward pass that add to the gradients of parameters which no optimizer then updates.
Other gradients of the same pass are of use, an optimizer's or those of an input; or a later pass of the same step makes
the gradients with which an optimizer steps. Either the gradient is cleared
before the optimizer that holds the parameter steps, like a discriminator's after the generator's loss went through it,
or all weights' after an attack on the inputs; or no optimizer holds the parameter and nothing changes it, like a
pretrained part of which only the head is trained. Nothing is reported if an
operator reads the gradient (to log or clip its norm), if hooks receive it, if it is kept, or if it waits for a later
step, as in gradient accumulation.

Why is this bad?
A layer's backward node makes up to two products: the gradient of its input, which the layers before it need, and that
of its weight. If this loss does not train the weight, the second one is wasted: half of what the backward pass takes
there. If nothing before the layer is trained either, the whole backward pass through it is wasted.

Example
    optimizer_g.zero_grad()
    loss = criterion(discriminator(generator(noise)), real)
    loss.backward()
    optimizer_g.step()

Use instead
    optimizer_g.zero_grad()
    loss = criterion(discriminator(generator(noise)), real)
    loss.backward(inputs=list(generator.parameters()))
    optimizer_g.step()

How the saving is estimated
The nodes that store the gradients vanish, and so does what makes them in the node before: the product or the sum whose
result has the gradient's shape, half of a convolution's backward, and all of an embedding's. Nodes that run after the
last gradient of the pass that somebody needs vanish whole, and so do those of a branch whose first layer needs no
gradient of its input, such as a second encoder. Savings in other nodes, such as those of normalisations, do not count,
nor does the work of clearing the gradients.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from profkit.derive.operators.operators import parse_dims
from profkit.patterns import (
    ACCUMULATES,
    Places,
    call_of,
    frequent_lines,
    name_lines,
    named_operators,
    sites_by_time,
    spent_ns,
    times_per_step,
)
from profkit.patterns.loops.located import in_located_step, marks_before
from profkit.rules.base import (
    CannotLook,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    Watch,
    derived_once,
    format_count,
    pick_form,
    rule,
    why_not_watched,
)
from profkit.savings import Edit, combine, drop_operators, scale_operators
from profkit.trace import NONE, Bools, Float64s, Int64s, Rows, among, distinct, distinct_rows

_PRODUCTS = ("aten::mm", "aten::bmm")
_SUM = "aten::sum"
_CONVOLUTION = "aten::convolution_backward"
_EMBEDDING = "aten::embedding_dense_backward"
_OUTPUT_MASK = 10
"""Argument of a convolution's backward: whether the gradients of its input, weight and bias are wanted."""
_HALF = 0.5
"""Of a convolution's backward: the gradients of input and weight take equally many multiplications."""
_MOST_LINES = 2
_MOVES_NOTHING = tuple(
    f"autograd::engine::evaluate_function: {name}Backward0"
    for name in ("Expand", "Permute", "ReshapeAlias", "Squeeze", "T", "Transpose", "UnsafeView", "Unsqueeze", "View")
)
"""Nodes between the one that makes a gradient and the one that stores it."""
_UNCERTAINTY = 0.3
"""A layer's two gradients seldom take equally long, and a kernel that makes only one may take another way."""


class _Stores(Struct, frozen=True):
    """Nodes that add to a gradient, in time order (``rows``). For each: the outermost node around it, the number of its
    backward pass, whether its result is ``unused`` or ``taken`` by an optimizer (if neither, nobody knows), and whether
    no optimizer holds the parameter (``unheld``)."""

    rows: Rows
    nodes: Rows
    backward_pass: Int64s
    unused: Bools
    taken: Bools
    unheld: Bools


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES, Need.WHOLE_STEP)
def unused_gradients(facts: Facts) -> Suspicions:
    """Look at each line that runs a backward pass with a useless part."""
    stores = _find_stores(facts)
    is_whole = ~among(stores.backward_pass, stores.backward_pass[~stores.unused])
    useless = stores.unused & (~is_whole | _is_followed_by_step(facts, stores))
    for rows in frequent_lines(facts, stores.rows[useless & facts.measured[stores.rows]]):
        mine = among(stores.rows, rows)
        is_held = not stores.unheld[mine].mean() > 0.5
        count = times_per_step(facts, rows)
        yield Suspicion(
            message=f"{format_count(count, 'gradient')} a step that this backward pass computes "
            f"{pick_form(count, *(_CLEARED if is_held else _BELONGS))}.",
            fix=_WHOLE if is_whole[mine].all() else _HELD if is_held else _UNHELD,
            rows=rows,
            places=_places(facts, rows, stores, useless, is_held),
            edit=_without(facts, stores, mine),
            confidence=0.7 if is_whole[mine].all() else 0.9,  # a hook may take what the other nodes make
            evidence={"gradients_per_step": count},
        )


_CLEARED = (
    "is cleared before the optimizer that holds its parameter steps; nothing reads it",
    "are cleared before the optimizer that holds their parameters steps; nothing reads them",
)
_BELONGS = (
    "belongs to a parameter that no optimizer holds; nothing reads it",
    "belong to parameters that no optimizer holds; nothing reads them",
)
_HELD = (
    "Name what this loss is differentiated by: `loss.backward(inputs=list(model.parameters()))`, with the parameters "
    "of the optimizer that steps next, or with the input that is changed. Autograd then computes no other gradient. If "
    "the other model only hands its output to the trained one, `detach()` that output. If it stands behind the trained "
    "one, call `requires_grad_(False)` on it before this forward pass, and with True before its own."
)
_WHOLE = (
    "If this pass serves parameters alone, remove it: other gradients take the place of these before the optimizer "
    "steps. If a hook takes something of it, ask for that by `torch.autograd.grad(loss, [tensor])`."
)
_UNHELD = (
    "Call `requires_grad_(False)` before the training on the part of the model that no optimizer holds. If it is meant "
    "to be trained, give its parameters to the optimizer."
)


_NOT_WATCHED = "what becomes of gradients was not recorded (run a program that trains under profkit)"


@derived_once
def _find_stores(facts: Facts) -> _Stores:
    """What the run says of the located step's gradients, and the same of the steps that repeat it."""
    use, events = facts.run.gradients, facts.trace.events
    if use is None:
        raise CannotLook(why_not_watched(facts, Watch.GRADIENTS, _NOT_WATCHED))
    rows = np.flatnonzero(named_operators(facts, ACCUMULATES))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    nodes = facts.tree.nearest_ancestor(facts.tree.outermost(facts.lines.backward), include_self=True, of=rows)
    repeated = np.where(facts.repeats.exact[rows], facts.repeats.row[rows], rows)

    def are_among(numbers: tuple[int, ...]) -> Bools:
        known = np.array([number for number in numbers if 0 <= number < len(rows)], dtype=np.int64)
        return among(repeated, in_located_step(facts, rows[known]))

    unheld, taken = are_among(use.unheld), are_among(use.taken)
    unused = (unheld | are_among(use.thrown_away)) & ~taken
    return _Stores(rows, nodes, _number_passes(facts, rows), unused, taken, unheld)


def _number_passes(facts: Facts, rows: Rows) -> Int64s:
    """For each event, how many operators the program called before it outside any backward pass. This is the same for
    everything that one backward pass runs."""
    called = facts.operators.nodes
    called = called[~facts.lines.backward[called]]
    starts = facts.trace.events.start_ns
    return np.searchsorted(np.sort(starts[called]), starts[rows])


def _places(facts: Facts, rows: Rows, stores: _Stores, useless: Bools, is_held: bool) -> Places:
    """The rows have no line if the pass runs on a thread of the autograd engine; then that of the main thread
    meanwhile. Of a part that no optimizer holds also the lines that run it forward."""
    located = in_located_step(facts, stores.rows[useless])
    backward = Places()
    if facts.lines.site[rows[0]] < 0 and located.size:
        marks = marks_before(facts, int(located[0]))
        marks = marks[facts.tree.end_ns[marks] > facts.trace.events.start_ns[located[0]]]
        backward = name_lines(facts, facts.trace.events.site[marks[:1]])
    if is_held:
        return backward
    makers = _makers(facts)[useless]
    forward = facts.lines.forward[makers[makers >= 0]].astype(np.int64)
    lines = name_lines(facts, sites_by_time(facts, forward[forward >= 0])[:_MOST_LINES])
    return Places(backward.location, (*backward.also, *lines.all()))


@derived_once
def _nodes(facts: Facts) -> Rows:
    """The backward nodes of the measured steps, in time order on each thread."""
    nodes = np.flatnonzero(facts.tree.outermost(facts.lines.backward) & facts.measured)
    return nodes[np.lexsort((facts.trace.events.start_ns[nodes], facts.trace.events.lane[nodes]))]


def _is_followed_by_step(facts: Facts, stores: _Stores) -> Bools:
    """For each store, whether an optimizer steps later in the same step of the program. A whole pass in vain is one
    that is given up, as with a loss that is NaN, if nothing steps."""
    starts, step = facts.trace.events.start_ns, facts.step_of(stores.rows)
    updates = facts.updates.rows
    last_ns = np.full(len(facts.steps.start_ns) + 1, -1, dtype=np.int64)  # the last one is for no step
    np.maximum.at(last_ns, facts.step_of(updates), starts[updates])
    return np.asarray(last_ns[step] > starts[stores.rows])


def _without(facts: Facts, stores: _Stores, mine: Bools) -> Edit:
    """Without these stores, without what makes their gradients, and without what runs for nothing else."""
    nodes = _nodes(facts)
    rest = _rest(facts, stores, mine)
    single = mine & ~among(stores.nodes, rest)
    made, kept = _products(facts, stores, single)
    before = nodes[:-1][among(nodes[1:], stores.nodes[single]) & facts.trace.named(*_MOVES_NOTHING)[nodes[:-1]]]
    gone = distinct(np.concatenate([rest, stores.nodes[single], before]))
    return combine(
        [
            drop_operators(facts, gone, _UNCERTAINTY),
            scale_operators(facts, made, kept, _UNCERTAINTY, launch_kept=0.0),
        ]
    )


def _rest(facts: Facts, stores: _Stores, mine: Bools) -> Rows:
    """The nodes that lead to no other gradient than these: those after the last store of a pass that may be of use, and
    those from the maker of ``mine`` to a later one of the same branch, which ends there. Autograd runs the last branch
    of the forward pass first, and one after the other."""
    starts, nodes, makers = facts.trace.events.start_ns, _nodes(facts), _makers(facts)
    passes = _number_passes(facts, nodes)
    inside = np.zeros(len(nodes), dtype=bool)
    for one in distinct(stores.backward_pass[mine]).tolist():
        of_pass = np.flatnonzero(stores.backward_pass == one)
        bounds = np.flatnonzero(np.diff(mine[of_pass].astype(np.int8))) + 1
        for branch in np.split(of_pass, bounds):
            first, last = branch[[0, -1]].tolist()
            if not mine[first]:
                continue
            begin_ns = starts[makers[first]]
            if last == of_pass[-1]:
                begin_ns = (
                    starts[stores.rows[first - 1]] + 1 if first > of_pass[0] else starts[nodes[passes == one]].min()
                )
            elif makers[first] < 0 or makers[last] < 0 or not _makes_no_input_gradient(facts, int(makers[last])):
                continue
            inside |= (starts[nodes] >= begin_ns) & (starts[nodes] <= starts[stores.rows[last]])
    return nodes[inside]


def _makes_no_input_gradient(facts: Facts, node: int) -> bool:
    """Whether this node of a layer computes the gradients of its parameters alone: the layer's input needs none."""
    inside = facts.tree.under(facts.trace.mask_of(np.array([node])))
    made = np.flatnonzero(facts.tree.outermost(named_operators(facts, *_PRODUCTS, _CONVOLUTION, _EMBEDDING) & inside))
    if len(made) != 1:
        return False
    name = facts.trace.name_of(int(made[0]))
    if name != _CONVOLUTION:
        return True
    return call_of(facts, int(made[0])).argument(_OUTPUT_MASK).startswith("[False")


@derived_once
def _makers(facts: Facts) -> Rows:
    """For each store the last node before it that computes anything, of the same pass; `NONE` without one, and outside
    the measured steps."""
    stores, nodes = _find_stores(facts), _nodes(facts)
    computes = ~(among(nodes, stores.nodes) | facts.trace.named(*_MOVES_NOTHING)[nodes])
    last = np.append(np.maximum.accumulate(np.where(computes, np.arange(len(nodes)), NONE)), NONE)
    order = np.argsort(nodes, kind="stable")
    place = np.append(order, len(nodes))[np.searchsorted(nodes[order], stores.nodes)]
    maker = np.append(nodes, NONE)[last[place]]
    known = among(stores.nodes, nodes) & (maker >= 0)
    known &= _number_passes(facts, maker) == stores.backward_pass
    return np.where(known, maker, NONE)


def _products(facts: Facts, stores: _Stores, single: Bools) -> tuple[Rows, Float64s]:
    """The operators that make the gradients, and the share of each that is left. Such an operator is in the gradient's
    maker and told by its shape; of several, the shortest. A gradient may have none."""
    trace, events = facts.trace, facts.trace.events
    rows, maker = stores.rows[single], _makers(facts)[single]
    rows, maker = rows[maker >= 0], maker[maker >= 0]
    kinds = named_operators(facts, *_PRODUCTS, _SUM, _CONVOLUTION, _EMBEDDING)
    candidates = np.flatnonzero(facts.tree.outermost(kinds & facts.tree.under(trace.mask_of(maker))))
    owner = facts.tree.nearest_ancestor(trace.mask_of(maker), of=candidates)
    row, candidate = _join(rows, maker, candidates, owner)
    codes = events.name_code[candidate], events.dims_code[candidate], events.dims_code[row]
    first, inverse = distinct_rows(*codes)
    kept = np.array(
        [
            _kept(trace.name_of(int(candidate[i])), *(trace.text_of(int(code[i])) for code in codes[1:]))
            for i in first.tolist()
        ]
    )[inverse]
    found = np.flatnonzero(kept < 1)
    found = found[np.lexsort((spent_ns(facts, candidate[found]), row[found]))]
    _, shortest = np.unique(row[found], return_index=True)
    made, index = np.unique(candidate[found[shortest]], return_index=True)
    return made, kept[found[shortest]][index]


def _join(left: Rows, left_key: Rows, right: Rows, right_key: Rows) -> tuple[Rows, Rows]:
    """All pairs with equal keys."""
    order = np.argsort(right_key, kind="stable")
    first, behind = (np.searchsorted(right_key[order], left_key, side=side) for side in ("left", "right"))
    count = behind - first
    place = np.arange(count.sum()) + np.repeat(first - (np.cumsum(count) - count), count)
    return np.repeat(left, count), right[order[place]]


def _kept(name: str, dims: str, of_gradient: str) -> float:
    """The share of an operator that is left without a gradient of that shape; 1 if it does not make that gradient."""
    shapes, gradient = parse_dims(dims), next(iter(parse_dims(of_gradient)), ())
    if name == _EMBEDDING:
        return 0.0
    if name == _CONVOLUTION:
        return _HALF if len(gradient) > 2 else 1.0  # a bias's is hardly any work
    if name == _SUM:
        return float(not (shapes and shapes[0] and shapes[0][-1] == math.prod(gradient)))
    if len(shapes) < 2 or len(shapes[0]) < 2 or len(shapes[1]) < 2:
        return 1.0
    made = [*shapes[0][:-1], shapes[1][-1]]
    return float(list(gradient) not in (made, [*made[:-2], made[-1], made[-2]]))
