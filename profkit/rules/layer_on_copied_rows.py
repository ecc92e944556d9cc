"""A layer is applied to rows that were gathered or repeated, and computes the same for each copy.

What it detects
A linear layer, a product with one matrix, or a convolution of size 1, on rows that come from at most half as many: by
`x[index]`, `index_select`, `gather`, `repeat`, `repeat_interleave`, `expand`, an embedding, `interpolate`, or `cat` or
`stack` of one tensor many times. Sums, differences or a concatenation of such rows may lie in between. How many rows
there are, the shapes tell; what the layer takes, the memory that PyTorch's calls read and write in one step. Nothing is
reported if fewer rows are gathered than there are, or if something that is not linear lies between the copies and the
layer. One tensor that is only repeated along a dimension of size one is `materialised-broadcast`.

Why is this bad?
A graph has more edges than nodes, and n things have n * n pairs. A layer on each edge or pair multiplies each row as
often as it was copied, and so does its backward pass. What it would give for a copy is a copy of what it gives.

Example
    edges = torch.cat([nodes[source], nodes[target]], dim=1)
    messages = linear(edges)

Use instead
    left, right = linear.weight.chunk(2, dim=1)
    messages = (nodes @ left.T)[source] + (nodes @ right.T + linear.bias)[target]

How the saving is estimated
The layer and its backward nodes keep the share that the rows before the copies have in all. Concatenations and copies
on the way vanish, also from the backward pass. Gathering and adding take the time that they take for as many numbers as
the layer gives; adding the parts of a concatenation takes the time of their bytes.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns import (
    Places,
    backward_of,
    busiest_site,
    costliest_lines,
    each_step,
    in_most_steps,
    spent_ns,
    times_per_step,
)
from profkit.patterns.flow.copied_rows import CopiedRows, copied_rows
from profkit.patterns.step_calls import repeated_in_measured
from profkit.rules.base import MEDIUM_FROM, Facts, Kind, Need, Suspicion, Suspicions, format_share, rule
from profkit.savings import Edit, combine, computing_ns, memory_bytes_per_ns, scale_with_backward
from profkit.trace import Rows

_MOST_LEFT = 0.5
"""Of the layer's arithmetic. With more, the sums that are needed instead may take as long."""
_BYTES_OF_A_SUM = 12
"""Two numbers read and one written, float32."""
_UNCERTAINTY = 0.3
"""Wider rows are gathered, and smaller products reach a lower rate."""


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.LINES, Need.SHAPES)
def layer_on_copied_rows(facts: Facts) -> Suspicions:
    """One finding for the layers of a line."""
    by_line: dict[int, list[CopiedRows]] = {}
    for found in copied_rows(facts):
        if found.share <= _MOST_LEFT and not found.is_broadcast:
            by_line.setdefault(busiest_site(facts, np.array([found.row])), []).append(found)
    for layers in by_line.values():
        rows = _measured(facts, [layer.row for layer in layers])
        if in_most_steps(facts, rows):
            yield _suspect(facts, layers, rows)


def _suspect(facts: Facts, layers: list[CopiedRows], rows: Rows) -> Suspicion:
    largest, count = max(layers, key=lambda layer: layer.rows), times_per_step(facts, rows)
    makers = [row for layer in layers for row, _ in layer.gathers] + [
        row for layer in layers for row in (*layer.joined, *layer.others)
    ]
    return Suspicion(
        message=f"{each_step(count, 'layer', 'multiplies', 'multiply')} rows that are "
        f"{'resampled' if largest.is_resampled else 'copies'}: {_made_of(largest)}.",
        fix=(_RESAMPLED if largest.is_resampled else _FIX) + _PARTS * any(layer.parts > 1 for layer in layers),
        rows=rows,
        edit=combine([_apply_before(facts, layer) for layer in layers]),
        worth=MEDIUM_FROM,
        confidence=0.85,
        count=count,
        places=Places.of(
            [*costliest_lines(facts, rows).all(), *costliest_lines(facts, _measured(facts, makers)).all()]
        ),
        evidence={"rows": largest.rows, "distinct_rows": largest.distinct, "share_left": round(largest.share, 4)},
    )


def _made_of(layer: CopiedRows) -> str:
    if layer.distinct < layer.rows:
        return f"{layer.rows:,} made of at most {layer.distinct:,}"
    return f"of the numbers in {layer.rows:,} rows, {format_share(1 - layer.share)} are repeated"


_FIX = (
    "Apply the layer before the copies are made, and gather or repeat its results. They are the same for each copy, "
    "up to rounding."
)
_RESAMPLED = (
    "Apply the layer before `interpolate`, to the fewer positions. Those in between are sums of these with weights "
    "that add up to one. So the results are the same, up to rounding, with the bias as well. Norms and activations "
    "come after it, as now."
)
_PARTS = (
    " Where parts were joined side by side, add up each part times its own columns of the weight "
    "(`weight.split(sizes, dim=1)`), and the bias once. Where rows were added or subtracted, do that with the layer's "
    "results. Norms and activations come after it, as now."
)


def _measured(facts: Facts, rows: list[int]) -> Rows:
    return repeated_in_measured(facts, np.array(sorted(rows), dtype=np.int64))


def _apply_before(facts: Facts, layer: CopiedRows) -> Edit:
    """What the layer saves, less what wider gathers and sums take more."""
    rows = _measured(facts, [layer.row])
    spent = int(_with_backward_ns(facts, rows))
    wider_ns, edits = 0.0, list[Edit]()
    for row, features in (*layer.gathers, *layer.sums):
        times, mine, goes = layer.results / features, _measured(facts, [row]), row not in layer.shared
        wider_ns += max(times - goes, 0.0) * _with_backward_ns(facts, mine)
        if goes and times < 1:
            edits.append(scale_with_backward(facts, mine, times, _UNCERTAINTY))
    added = layer.rows * layer.results * _BYTES_OF_A_SUM * (layer.parts - 1) * len(rows)
    wider_ns += added / memory_bytes_per_ns(facts)
    kept = min(1.0, layer.share + wider_ns / max(spent, 1))
    gone = _measured(facts, [row for row in (*layer.others, *layer.joined) if row not in layer.shared])
    edits.append(scale_with_backward(facts, gone, 0.0, _UNCERTAINTY))
    return combine([scale_with_backward(facts, rows, kept, _UNCERTAINTY), *edits])


def _with_backward_ns(facts: Facts, rows: Rows) -> float:
    """How long the operators and their backward nodes compute."""
    nodes = backward_of(facts, rows)
    nodes = nodes[facts.measured[nodes]]
    on_device = facts.device.present
    return float(sum((computing_ns if on_device else spent_ns)(facts, part).sum() for part in (rows, nodes)))
