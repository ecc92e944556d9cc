"""A matrix product is so narrow that it only reads and writes, and does that far below the memory's rate.

What it detects
Matrix products with a side of at most 64 whose time is bound by memory, and that reach less than half of the memory's
rate by the data sheet, if the step would be 3 % shorter at 70 % of it. Batches of products do not count: written-out
attention has those, and another fix. It is an opportunity: another kernel, and sums in another order.

Why is this bad?
With a narrow side each number that is read takes part in a few operations, so the units for tiles wait for memory. The
libraries' kernels have wide tiles, of which such a product uses a stripe, and threads for rows that do not exist. A
layer of 32 features over many rows, and a weight that meets a batch of a few, have this shape.

Example
    y = x @ w                                    # (131072, 32) @ (32, 32), and the same for three more weights

Use instead
    y = x @ torch.cat([w1, w2, w3, w4], dim=1)   # one product reads x once
    y = torch.compile(block)(x)                  # a kernel of its own, with what comes before and after in it

How the saving is estimated
Each such product takes what its matrices take to be read and written once at 70 % of the memory's rate. Kernels that
pass over large tensors reach 0.7 to 0.9 on an H100 (recorded). Nothing else changes.
"""

from __future__ import annotations

from profkit.derive.device.kernel_families import Family
from profkit.rules.base import (
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_count,
    format_share,
    format_time,
    known_roofline,
    nothing_below,
    pick_form,
    rule,
)
from profkit.savings.roofline.below import at_share, gather, points_below
from profkit.savings.roofline.launches import Point
from profkit.savings.roofline.products import sizes_of

_NARROW = 64
"""The least side of the tiles that libraries have for large products."""
_SLOW, _REACHED = 0.5, 0.7
"""Shares of the memory's rate."""
_MIN_FRACTION = 0.03
"""Of the step: nobody rewrites layers for less."""
_UNCERTAINTY = 0.4
"""Part of the traffic may come from caches, and then the product could be faster still."""


@rule(Kind.OPPORTUNITY, Need.DEVICE, Need.OPERATORS, Need.SHAPES)
def skinny_product(facts: Facts) -> Suspicions:
    """One finding for all of them, at the line that spends most in them."""
    roofline = known_roofline(facts)
    slow = gather(facts, roofline, points_below(roofline, (Family.PRODUCT,), _is_skinny))
    if slow is None:
        return nothing_below(roofline, Family.PRODUCT)
    product = sizes_of(slow.worst.call)
    sizes = "" if product is None else f"({product.rows:,} x {product.inner:,} by {product.columns:,}) "
    yield Suspicion(
        message=f"{format_count(slow.count, 'narrow product')} a step {sizes}{pick_form(slow.count, 'takes', 'take')} "
        f"{format_time(slow.taken_ns)}: bound by memory, {pick_form(slow.count, 'it reaches', 'they reach')} "
        f"{format_share(slow.share)} of its rate." + slow.note,
        fix="Join narrow products of one input into a wide one, or give them more rows at once. Or compile the "
        "block, so that what comes before and after runs in the same kernel. Where a weight meets few rows, "
        "weights in 8 bits take half the time to read.",
        rows=slow.rows,
        edit=at_share(facts, slow, lambda _: _REACHED, _UNCERTAINTY),
        worth=_MIN_FRACTION,
        confidence=0.7,
        count=slow.count,
        spent_ns=slow.taken_ns,
        places=slow.places,
        evidence={
            "products_per_step": slow.count,
            "share_of_possible": round(slow.share, 4),
            "bytes_per_s": round(slow.worst.bytes_per_s),
        },
    )


def _is_skinny(point: Point) -> bool:
    product = sizes_of(point.call)
    if product is None or product.batch > 1 or point.of_possible >= _SLOW:
        return False
    return point.is_memory_bound and min(product.rows, product.inner, product.columns) <= _NARROW
