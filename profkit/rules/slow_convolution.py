"""Convolutions of a shape or type for which the library's kernels stay far below what the device could do.

What it detects
Convolutions, forward or backward, that reach less than 15 % of what the device could do by its data sheet (the longer
of arithmetic and traffic), if the step would be 3 % shorter at the rate that other convolutions reach. The finding
names what is unusual: a group for each channel (depthwise), few channels, a transposed or dilated weight, a long and
narrow one, images of few pixels. Convolutions of at most four channels, as a network's first layer has, and those with
a group for each channel only count below 5 %: no library computes those fast. It is an opportunity: other algorithms
and layouts change the last digits.

Why is this bad?
Libraries have fast kernels for the shapes that many networks use: many channels, weights of 3x3 and 1x1, channels last,
16 bits or TF32. For others they fall back to kernels that gather single elements, copy the image into another layout
first, or leave most of the device without work. The arithmetic is small there, so the layer looks cheap on paper.

Example
    x = nn.Conv2d(1024, 1024, 3, padding=1, groups=1024)(images)  # depthwise, float32, channels first

Use instead
    torch.backends.cudnn.benchmark = True                         # measure the algorithms once for fixed shapes
    model = model.to(memory_format=torch.channels_last)
    with torch.autocast("cuda", dtype=torch.bfloat16): ...

How the saving is estimated
Each such convolution takes what it would at 30 % of what the device could do; with few channels, or groups of one, at
20 %. Recorded convolutions of bfloat16 reach 32 % on an H100 with the channels first and more than half with them last;
a first layer of three channels reaches 22 %. The rates come from the data sheet. Nothing else changes.
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
from profkit.savings.roofline.convolutions import Geometry, geometry_of
from profkit.savings.roofline.launches import Point

_SLOW, _REACHED = 0.15, 0.3
"""Shares of the possible. Half of what convolutions reach in a bad layout is no matter of noise or of a clock."""
_SLOW_NARROW, _REACHED_NARROW = 0.05, 0.2
"""The same for few channels: first layers of healthy networks reach 9 to 22 %."""
_NARROW = 4
"""Channels. A unit for tiles takes 8 of 16 bits or 4 of TF32; fewer are padded."""
_FEW_PIXELS = 64
"""Of a result: a tile has more rows, so an image does not fill one."""
_MIN_FRACTION = 0.03
"""Of the step: other algorithms change results and take trials, which nobody makes for less."""
_UNCERTAINTY = 0.5
"""Another algorithm may be anywhere between no faster and as fast as the device allows."""


@rule(Kind.OPPORTUNITY, Need.DEVICE, Need.OPERATORS, Need.SHAPES)
def slow_convolution(facts: Facts) -> Suspicions:
    """One finding for all of them, at the line that spends most in them."""
    roofline = known_roofline(facts)
    slow = gather(facts, roofline, points_below(roofline, (Family.CONVOLUTION,), _is_slow))
    if slow is None:
        return nothing_below(roofline, Family.CONVOLUTION)
    yield Suspicion(
        message=f"{format_count(slow.count, 'convolution')} a step {pick_form(slow.count, 'takes', 'take')} "
        f"{format_time(slow.taken_ns)} and {pick_form(slow.count, 'reaches', 'reach')} {format_share(slow.share)} of "
        f"what the device could do: {_why(slow.worst)}." + slow.note,
        fix=_fix(slow.worst),
        rows=slow.rows,
        edit=at_share(facts, slow, _reached, _UNCERTAINTY),
        worth=_MIN_FRACTION,
        confidence=0.7,
        count=slow.count,
        spent_ns=slow.taken_ns,
        places=slow.places,
        evidence={
            "convolutions_per_step": slow.count,
            "share_of_possible": round(slow.share, 4),
            "operations_per_s": round(slow.worst.operations_per_s),
        },
    )


def _geometry(point: Point) -> Geometry | None:
    return geometry_of(point.call)


def _is_narrow(point: Point) -> bool:
    found = _geometry(point)
    return found is None or min(found.image[1] // found.groups, found.result[1] // found.groups) <= _NARROW


def _is_depthwise(point: Point) -> bool:
    found = _geometry(point)
    return found is not None and found.is_depthwise


def _is_slow(point: Point) -> bool:
    return point.of_possible < (_SLOW_NARROW if _is_narrow(point) else _SLOW)


def _reached(point: Point) -> float:
    return _REACHED_NARROW if _is_narrow(point) else _REACHED


def _why(point: Point) -> str:
    """What is unusual about the costliest."""
    found = _geometry(point)
    if found is None:
        return "its shape is unusual"
    kernel, pixels = ("x".join(map(str, sizes[2:])) for sizes in (found.weight, found.result))
    channels = found.image[1], found.result[1]
    reasons = (
        (found.is_depthwise, f"each of its {channels[0]:,} channels is a group of its own (depthwise)"),
        (found.is_transposed, f"the weight of {kernel} is transposed, for a result of {pixels}"),
        (_is_narrow(point), f"{channels[0]:,} channels become {channels[1]:,}"),
        (found.groups > 1, f"the channels are in {found.groups} groups"),
        (found.dilation > 1, f"the weight of {kernel} is dilated by {found.dilation}"),
        (len(set(found.weight[2:])) > 1, f"the weight of {kernel} is long and narrow"),
        (_pixels(found) <= _FEW_PIXELS, f"a result of {pixels} pixels does not fill a tile"),
        (True, f"a weight of {kernel} for {channels[0]:,} channels, and a result of {pixels}"),
    )
    reason = next(text for holds, text in reasons if holds)
    is_wide = point.demand.type == "float32" and point.rate != "tf32"
    return f"{reason}{', in float32' if is_wide else ''}"


def _pixels(found: Geometry) -> int:
    count = 1
    for size in found.result[2:]:
        count *= size
    return count


def _fix(point: Point) -> str:
    steps = []
    if point.demand.type == "float32" and point.rate != "tf32":
        steps.append("run the layer in 16 bits or TF32 (`torch.autocast`, `torch.backends.cudnn.allow_tf32 = True`)")
    steps.append("convert the model and its input to `memory_format=torch.channels_last`")
    steps.append("if the shapes are always the same, set `torch.backends.cudnn.benchmark = True`")
    if _is_depthwise(point):
        steps.append("or compile the model, which computes such a layer in a kernel of its own")
    first, *rest = steps
    return ". ".join(one[0].upper() + one[1:] for one in (first, *rest)) + ". Measure each alone."
