"""Elementwise operations on large tensors move their data far below the memory's rate.

What it detects
Elementwise operations that each move 256 MB or more and reach less than 40 % of the memory's rate by the data sheet, if
the step would be 3 % shorter at 70 % of it. Smaller tensors may lie in caches, and the bias that a convolution adds is
the library's. It is an opportunity: layouts, types or versions have to change.

Why is this bad?
Such an operation is nothing but reading and writing. A vectorised kernel over contiguous tensors reaches 70 to 90 % of
the memory's rate. Transposed or broadcast inputs, mixed types and odd offsets take kernels that load single elements; a
device that is shared, throttled, or that a library was not built for, is slow at all of them.

Example
    y = x.transpose(1, 2) + bias.t()     # no two neighbours of y are neighbours in x

Use instead
    y = x + bias                         # in the order that x has in memory; transpose a view of the result

How the saving is estimated
Each such operation takes what its tensors take to be read and written once at 70 % of the memory's rate. Recorded ones
with contiguous tensors reach 0.75 to 0.9 on an H100. Nothing else changes.
"""

from __future__ import annotations

import re

from profkit.derive.device.kernel_families import Family
from profkit.derive.families import MATRIX, operators_of
from profkit.rules.base import (
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_bytes,
    format_count,
    format_share,
    format_time,
    known_roofline,
    nothing_below,
    pick_form,
    rule,
)
from profkit.savings.roofline.below import at_share, gather, points_below
from profkit.savings.roofline.launches import LARGEST_CACHE, Point

_SLOW, _REACHED = 0.4, 0.7
"""Shares of the memory's rate."""
_VECTORISED = re.compile(r"vectorized")
_MIN_FRACTION = 0.03
"""Of the step: nobody changes layouts for less."""
_UNCERTAINTY = 0.4
"""What slows them down may be on the device, and then no change of the program helps."""


@rule(Kind.OPPORTUNITY, Need.DEVICE, Need.OPERATORS, Need.SHAPES)
def slow_elementwise(facts: Facts) -> Suspicions:
    """One finding for all of them, at the line that spends most in them."""
    roofline = known_roofline(facts)
    within = facts.tree.under(operators_of(facts.trace, MATRIX))
    passes = points_below(roofline, (Family.ELEMENTWISE,), _is_slow)
    slow = gather(facts, roofline, [point for point in passes if not within[point.rows].any()])
    if slow is None:
        return nothing_below(roofline, Family.ELEMENTWISE)
    vectorised = any(_VECTORISED.search(facts.trace.name_of(row)) for row in slow.worst.work.tolist())
    yield Suspicion(
        message=f"{format_count(slow.count, 'elementwise operation')} a step on "
        f"{format_bytes(slow.worst.demand.bytes)} each {pick_form(slow.count, 'takes', 'take')} "
        f"{format_time(slow.taken_ns)}, at {format_share(slow.share)} of the memory's rate"
        + (
            ", although the kernel is vectorised."
            if vectorised
            else (
                ". The kernel loads single elements, as those of a tensor do not lie side by side, or tensors "
                "differ in type."
            )
        )
        + slow.note,
        fix=(
            "Check whether the device is shared or throttled, and whether this PyTorch was built for it. Or "
            "compile the function: a kernel made for these shapes then replaces the library's."
            if vectorised
            else "Keep all inputs in one layout and type (`.contiguous()` once, not in each step). Or compile the "
            "function, which joins the operations into one pass."
        ),
        rows=slow.rows,
        edit=at_share(facts, slow, lambda _: _REACHED, _UNCERTAINTY),
        worth=_MIN_FRACTION,
        confidence=0.6,
        count=slow.count,
        spent_ns=slow.taken_ns,
        places=slow.places,
        evidence={"operations_per_step": slow.count, "share_of_possible": round(slow.share, 4)},
    )


def _is_slow(point: Point) -> bool:
    return point.demand.bytes >= LARGEST_CACHE and point.of_possible < _SLOW
