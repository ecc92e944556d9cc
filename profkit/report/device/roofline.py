"""The roofline in words and figures, the same in all reports."""

from __future__ import annotations

from profkit.core.units import format_share, format_time
from profkit.findings.roofline import Roofline, RooflinePoint
from profkit.report.wording import printable

ROOFLINE = "How near the device's work comes to what the device could do"
NAMED = 10
"""Points with a name: more labels would cover each other."""
_NEARLY_ALL = 0.9
"""Of the device's work: if less is counted, products may be missing."""
_LONGEST_SHAPES = 44
"""Characters."""


def rate_text(per_second: float, unit: str) -> str:
    """``3.35e12`` → ``3.35 TB/s``."""
    for prefix, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9)):
        if per_second >= scale:
            return f"{per_second / scale:.3g} {prefix}{unit}"
    return f"{per_second / 1e6:.3g} M{unit}"


def summary(roofline: Roofline) -> list[str]:
    """Sentences about the whole step: the roofs, what is counted, and the share of the peak."""
    used = {point.rate for point in roofline.points if point.operations} & set(roofline.peaks)
    peaks = ", ".join(f"{rate_text(roofline.peaks[one], 'FLOP/s')} in {one}" for one in sorted(used))
    roofs = f"{printable(roofline.device)} ({roofline.origin}): {rate_text(roofline.bandwidth, 'B/s')} of memory" + (
        f", {peaks}." if peaks else "."
    )
    worked = (
        f"On average a step of {format_time(roofline.step_ns)} has {format_time(roofline.worked_ns)} of work; the "
        f"operations and bytes of {format_share(roofline.counted)} of it are known by shapes."
    )
    if not roofline.operations:
        return [roofs, worked]
    least = "" if roofline.counted >= _NEARLY_ALL else "at least "
    used_share = (
        f"Its products have {least}{rate_text(roofline.operations, 'FLOP')}: {format_share(roofline.utilisation)} of "
        "what the device could compute in that time (MFU, recomputed operations included)."
    )
    return [roofs, worked, used_share]


FAMILY_HEAD = ("", "share", "a step", "FLOP/s", "B/s", "of possible")


def family_rows(roofline: Roofline) -> list[tuple[str, ...]]:
    """For each family of launches: its name, share of the device's work, time, achieved rates, share of the
    possible."""
    return [
        (
            one.family,
            format_share(one.fraction),
            format_time(one.step_ns),
            rate_text(one.operations_per_s, "") if one.operations_per_s else "",
            rate_text(one.bytes_per_s, ""),
            format_share(one.of_possible),
        )
        for one in roofline.families
    ]


POINT_HEAD = ("", "count", "a step", "FLOP/s", "B/s", "of possible")


def point_rows(roofline: Roofline, most: int = NAMED) -> list[tuple[str, ...]]:
    """The largest launches by time: name and shapes, calls a step, time, achieved rates, share of the possible."""
    return [
        (
            point_name(one),
            f"{one.count:,.3g}",
            format_time(one.step_ns),
            rate_text(one.operations_per_s, "") if one.operations else "",
            rate_text(one.bytes_per_s, ""),
            f"{format_share(one.of_possible)} {one.limit[0].upper()}",
        )
        for one in roofline.points[:most]
    ]


LIMITS = "M: the memory is the limit; A: arithmetic is."


def point_name(point: RooflinePoint) -> str:
    """The operator, the shapes of its first tensors, and the type of its products."""
    shapes = point.shapes if len(point.shapes) <= _LONGEST_SHAPES else point.shapes[: _LONGEST_SHAPES - 3] + "..."
    return printable(
        f"{point.operator.removeprefix('aten::')} {shapes} {point.rate if point.operations else ''}".strip()
    )
