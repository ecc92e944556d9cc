"""A convolution or a linear layer adds a bias that the normalisation after it takes out again.

What it detects
`conv…` and `linear` with a bias whose result the next operator normalises with the statistics of the batch:
`batch_norm` in training mode, or `instance_norm`, over as many channels as the layer has outputs. Nothing is reported
in evaluation mode, where the statistics are constants, nor before layer and group norm, whose mean is taken over
several channels. If the program's text shows which line makes the layers, they are one finding at that line.

Why is this bad?
Normalising subtracts each channel's mean, and a constant added to a channel is part of that mean: the result is the
same without it, and the bias's gradient is zero except for rounding. Still it is added, its gradient is summed over the
whole output in each backward pass, and the optimizer updates it.

Example
    nn.Sequential(nn.Conv2d(64, 128, 3), nn.BatchNorm2d(128), nn.ReLU())

Use instead
    nn.Sequential(nn.Conv2d(64, 128, 3, bias=False), nn.BatchNorm2d(128), nn.ReLU())

How the saving is estimated
What the recording shows of the bias vanishes: the operator that adds it, if it runs apart from the product; the sum
that makes its gradient; the node that stores this gradient. If the bias is copied to where the product is added to it,
the call vanishes and the moving of data stays, because the product is then the first to write there. The optimizer's
loops over all parameters, in `step` and in `zero_grad`, shrink by the biases' share of the parameters. Most CPU kernels
add the bias within the product; that part is not known and not counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from profkit.derive.families import VIEW, base_name, operators_of
from profkit.patterns import (
    ACCUMULATES,
    Call,
    Places,
    Shapes,
    backward_of,
    by_call,
    by_shapes,
    clearing_ranges,
    each_step,
    first_shape,
    frequent_lines,
    name_lines,
    named_operators,
    program_operators,
    spent_ns,
    times_per_step,
)
from profkit.patterns.attribution import leading_site
from profkit.patterns.named_lines import layer_makers
from profkit.rules.base import CannotLook, Facts, Kind, Need, Suspicion, Suspicions, rule
from profkit.savings import Edit, call_ns, combine, drop_operators, scale_operators, shrink
from profkit.trace import NONE, Bools, Category, Rows

_LAYERS = frozenset(
    (
        "addmm",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "convolution",
        "linear",
    )
)
"""As the program calls them: ``nn.Conv2d`` is ``conv2d``, ``nn.Linear`` ``linear``, on older versions ``addmm``."""
_NORMALISES = frozenset(("batch_norm", "instance_norm"))
"""Both take the tensor first, and sixth whether its own statistics are used (``native_functions.yaml``)."""
_USES_ITS_OWN = 5
_LOOK_AHEAD = 3
"""The bias's gradient is stored within this many nodes after the layer's backward node; the weight's may come first."""
_UNCERTAINTY = 0.3
"""Another input may change the choice of a kernel, and later operators find other data in the cache."""


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES)
def bias_before_batchnorm(facts: Facts) -> Suspicions:
    """Look at each layer with a bias whose result is normalised next."""
    for places, rows in _by_maker(facts, frequent_lines(facts, _biased_layers(facts))):
        count = times_per_step(facts, rows)
        yield Suspicion(
            message=f"{each_step(count, 'layer', 'adds', 'add')} a bias that the normalisation right after it removes "
            "with the mean.",
            fix="Pass `bias=False` to the layer: the normalisation has its own bias. To load weights saved before, "
            "drop the layer's `bias` from them and subtract it from the running mean.",
            rows=rows,
            places=places,
            edit=_without_bias(facts, rows),
            evidence={"layers_per_step": count},
        )


def _by_maker(facts: Facts, lines: Iterable[Rows]) -> Iterator[tuple[Places, Rows]]:
    """The lines whose layers are made by the same lines together, with these leading: nothing can be changed where a
    layer is called. A line of which no maker is known stays alone."""
    found: dict[object, tuple[Places, Rows]] = {}
    for rows in lines:
        called = name_lines(facts, [leading_site(facts.lines.site[rows])])
        makers = layer_makers(facts, called.location)
        before, others = found.get(makers or called, (Places(), rows[:0]))
        places = Places.of([*makers, *before.all(), *called.all()])
        found[makers or called] = places, np.sort(np.concatenate([others, rows]))
    yield from found.values()


def _biased_layers(facts: Facts) -> Rows:
    """The layers with a bias whose result the next operator on data normalises by its own statistics."""
    called = program_operators(facts)
    counting = ~operators_of(facts.trace, VIEW)[called] & (facts.operators.elements[called] > 0)
    called = called[counting]  # a batch norm first counts its batches in a tensor without dimensions
    layer, norm = called[:-1], called[1:]
    pairs = operators_of(facts.trace, _LAYERS)[layer] & operators_of(facts.trace, _NORMALISES)[norm]
    pairs &= facts.step_of(layer) == facts.step_of(norm)
    layer, norm = layer[pairs], norm[pairs]
    channels = by_call(facts, layer, _bias_of, int)
    normalised = by_shapes(facts, norm, lambda shapes: next(iter(first_shape(shapes)[1:2]), 0), int)
    undone = (channels > 0) & (channels == normalised)
    chosen: Rows = layer[undone][by_call(facts, norm[undone], _trains)]
    return chosen


def _trains(norm: Call) -> bool:
    if len(norm.arguments) <= _USES_ITS_OWN:
        raise CannotLook("whether a batch norm trains is not recorded (PyTorch 2.1 or later records it)")
    return norm.arguments[_USES_ITS_OWN].lower() == "true"


def _bias_of(call: Call) -> int:
    """The number of outputs of a layer with a bias, 0 without."""
    shapes = call.shapes
    if base_name(call.name) == "addmm":
        shapes = [*shapes[1:3], *shapes[:1]]
    bias = shapes[2] if len(shapes) > 2 else ()
    return bias[0] if len(bias) == 1 else 0


def _without_bias(facts: Facts, rows: Rows) -> Edit:
    """Drop the operators that add the biases, sum up their gradients, and store and use these."""
    tree, trace = facts.tree, facts.trace
    nodes, layers = backward_of(facts, rows), tree.under(trace.mask_of(rows))
    spread = by_shapes(facts, slice(None), _spreads) | named_operators(facts, "aten::addmm")[facts.calling]
    sums = named_operators(facts, "aten::sum") & tree.under(trace.mask_of(nodes))
    stores = facts.measured & named_operators(facts, ACCUMULATES)
    vectors = stores & by_shapes(facts, slice(None), _begins_with_vector)
    stored = _storing(facts, nodes, vectors)
    gone = tree.outermost(layers & named_operators(facts, "aten::add_") | sums | trace.mask_of(stored))
    copies = np.flatnonzero(layers & named_operators(facts, "aten::copy_") & spread & ~tree.under(gone))
    spent = spent_ns(facts, copies)
    without_call = (spent - call_ns(facts)).clip(min=0) / spent.clip(min=1)  # the product writes there instead
    share, of_vectors = (len(stored) / max(int(kind.sum()), 1) for kind in (stores, vectors))
    return combine(
        [
            drop_operators(facts, np.flatnonzero(gone), _UNCERTAINTY),
            scale_operators(facts, copies, without_call, _UNCERTAINTY),
            _fewer_parameters(facts, share, of_vectors),
        ]
    )


def _storing(facts: Facts, nodes: Rows, vectors: Bools) -> Rows:
    """The nodes that store the biases' gradients: after each layer's backward, the first node that stores a vector."""
    run = np.flatnonzero(facts.tree.outermost(facts.lines.backward))
    holds = facts.tree.holding(vectors)
    at = np.searchsorted(run, nodes)
    found = np.full(len(nodes), NONE, dtype=np.int64)
    for ahead in range(_LOOK_AHEAD, 0, -1):
        there = run[(at + ahead).clip(max=len(run) - 1)] if run.size else found
        found = np.where((at + ahead < len(run)) & holds[there], there, found)
    return found[found >= 0]


def _fewer_parameters(facts: Facts, share: float, of_vectors: float) -> Edit:
    """The optimizers' loops over all parameters shrink by the biases' share of these, and their work on vectors by the
    share of the vectors."""
    events, tree = facts.trace.events, facts.tree
    loops = tree.outermost(facts.optimizing | clearing_ranges(facts)) & (events.lane == facts.steps.main_lane)
    rows = facts.measured_rows(loops)
    owner = tree.nearest_ancestor(facts.trace.mask_of(rows))
    inside = np.flatnonzero(tree.outermost(events.category == Category.OPERATOR) & (owner >= 0))
    working = np.bincount(owner[inside], spent_ns(facts, inside), len(events))[rows]
    inside = inside[by_shapes(facts, inside, _begins_with_vector)]
    on_vectors = np.bincount(owner[inside], spent_ns(facts, inside), len(events))[rows]
    spent = spent_ns(facts, rows)
    saved = share * (spent - working).clip(min=0) + of_vectors * on_vectors
    return shrink(rows, (spent - saved).astype(np.int64), _UNCERTAINTY)


def _spreads(shapes: Shapes) -> bool:
    """Whether the second input is a vector along the second dimension of the first, as a bias is of an image."""
    whole, part = shapes[:2] if len(shapes) > 1 else ((), ())
    return len(whole) > 2 and math.prod(part) == whole[1] == max(part, default=0) < math.prod(whole)


def _begins_with_vector(shapes: Shapes) -> bool:
    return len(first_shape(shapes)) == 1
