"""A matrix product has so few tiles that most of the device has no work.

What it detects
Matrix products whose result divides into at most half as many tiles as the
device has multiprocessors, and that reach less than a quarter of what the device could do, if the step would be 3 %
shorter with all of them at work. The sizes of a tile are those in the kernel's name. A kernel that splits its sum and
does not say into how many parts is left out. It is an opportunity: sums in another order change the last digits.

Why is this bad?
Each multiprocessor computes whole tiles of the result, such as 256x128. A result of 256x512 has four, and a device with
304 multiprocessors leaves 300 idle, however long the sum is. The gradient of a weight of few columns over a large batch
has this shape.

Example
    gradient = activations.T @ errors            # (256, 131072) @ (131072, 512): 4 tiles, a sum of 131,072

Use instead
    parts = activations.view(64, 2048, 256).transpose(1, 2) @ errors.view(64, 2048, 512)
    gradient = parts.sum(0)                      # 256 tiles; or torch.compile(mode="max-autotune"), which splits it

How the saving is estimated
Each such product takes the share of its time that its tiles are of the multiprocessors, but no less than what the
roofline allows at the share of the peak that large products reach: three quarters, on an MI300X 0.54 (AMD, Measuring
Max-Achievable FLOPs, 2025). Splitting the sum gives all of them work (Osama et al., Stream-K, PPoPP 2023). Adding up
the parts is included as a tenth of the time that is left.
"""

from __future__ import annotations

from functools import partial

from profkit.derive.device.kernel_families import Family
from profkit.rules.base import (
    CannotLook,
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
from profkit.savings.cost_models.alignment import achievable
from profkit.savings.roofline.below import at_share, gather, points_below
from profkit.savings.roofline.launches import Point
from profkit.savings.roofline.products import sizes_of
from profkit.savings.roofline.tiles import multiprocessors, tiling_of

_SLOW = 0.25
"""Of the possible. A product with half as many tiles as multiprocessors may reach 0.37; less has a reason."""
_FULL = 0.5
"""Of the multiprocessors: twice as many tiles at once are the least that is worth a change."""
_ADDING_UP = 1.1
"""The parts are far smaller than the factors that they are sums over."""
_MIN_FRACTION = 0.03
"""Of the step: nobody rewrites a product for less."""
_UNCERTAINTY = 0.4
"""How well a split product fills the device depends on the kernel that the library then chooses."""


@rule(Kind.OPPORTUNITY, Need.DEVICE, Need.OPERATORS, Need.SHAPES)
def few_tiles(facts: Facts) -> Suspicions:
    """One finding for all of them, at the line that spends most in them."""
    roofline = known_roofline(facts)
    places = multiprocessors(roofline.rates.device)
    if places is None:
        raise CannotLook("the number of this device's multiprocessors is not known")
    slow = gather(facts, roofline, points_below(roofline, (Family.PRODUCT,), partial(_has_few, facts, places)))
    if slow is None:
        return nothing_below(roofline, Family.PRODUCT)
    tiles, product, best = _tiles(facts, slow.worst), sizes_of(slow.worst.call), achievable(roofline.rates)
    sizes = "" if product is None else f"{product.rows:,} x {product.columns:,}"
    length = 0 if product is None else product.inner

    def reached(point: Point) -> float:
        wanted = point.of_possible * places / max(_tiles(facts, point), 1) / _ADDING_UP
        return max(point.of_possible, min(best, wanted))

    yield Suspicion(
        message=f"{format_count(slow.count, 'product')} a step {pick_form(slow.count, 'takes', 'take')} "
        f"{format_time(slow.taken_ns)} at {format_share(slow.share)} of what the device could do. A result of "
        f"{sizes} has {format_count(tiles, 'tile')} for {places} multiprocessors, and each sums over {length:,}."
        + slow.note,
        fix="Divide the long sum: reshape both factors into a batch of shorter products and add these up. Or let "
        '`torch.compile(mode="max-autotune")` choose a kernel that splits it. On AMD, '
        "`PYTORCH_TUNABLEOP_ENABLED=1` measures the library's kernels for each shape.",
        rows=slow.rows,
        edit=at_share(facts, slow, reached, _UNCERTAINTY),
        worth=_MIN_FRACTION,
        confidence=0.75,
        count=slow.count,
        spent_ns=slow.taken_ns,
        places=slow.places,
        evidence={"tiles": tiles, "multiprocessors": places, "share_of_possible": round(slow.share, 4)},
    )


def _has_few(facts: Facts, places: int, point: Point) -> bool:
    return point.of_possible < _SLOW and 0 < _tiles(facts, point) <= _FULL * places


def _tiles(facts: Facts, point: Point) -> int:
    """How many tiles are computed at once at most; 0 if the kernels do not tell."""
    names = {facts.trace.name_of(row) for row in point.work.tolist()}
    tiling, product = tiling_of(tuple(sorted(names))), sizes_of(point.call)
    return tiling.count(product) if tiling is not None and product is not None else 0
