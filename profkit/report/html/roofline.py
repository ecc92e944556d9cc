"""The picture of the roofline: both roofs, a point for each kind of launch, the largest with their numbers.

Both axes are logarithmic. Positions are in the units of the picture's view box, which the template draws in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from profkit.core.units import format_share, format_time
from profkit.findings.roofline import Roofline, RooflinePoint
from profkit.report.device.roofline import NAMED, point_name, rate_text

WIDTH, HEIGHT = 900, 420
"""Of the view box. The page is about as wide, so text keeps its size."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 96, 20, 20, 40
"""Margins, with room for the labels of both axes."""
_LEAST_RADIUS, _MOST_RADIUS = 3.0, 14.0
"""A smaller point cannot be pointed at; a larger one covers others."""
_NUMBER_WIDTH, _NUMBER_HEIGHT = 40.0, 14.0
"""Room that a number takes beside its point."""
_LEAST_INTENSITY = 0.01
"""Operations a byte. Additions and copies have no products at all; they are drawn at the left edge."""
_BELOW = 2.0
"""Powers of ten that the picture shows below the highest roof, at least."""
_DECADE = 10.0
"""The axes are labelled at powers of it, and show at least one on either side of the ridge."""
_FAMILIES = ("matrix products", "convolutions", "attention", "layers of experts", "normalisation", "softmax")
_HUES = ("compute", "copy", "backward", "data", "update", "talk")


class Dot(Struct, frozen=True):
    """A point: its place, its radius by time, its colour's class, its number or those of several if it is among the
    largest, and what it says when pointed at."""

    x: float
    y: float
    radius: float
    hue: str
    number: str
    title: str


class Roof(Struct, frozen=True):
    """A line of several corners, and what it stands for at its right end."""

    path: str
    label: str
    x: float
    y: float


class Tick(Struct, frozen=True):
    """A line of the grid and its label."""

    at: float
    label: str


class RooflinePicture(Struct, frozen=True):
    """What the template draws."""

    roofs: tuple[Roof, ...]
    dots: tuple[Dot, ...]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    families: tuple[tuple[str, str], ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    bottom: int = HEIGHT - _BOTTOM
    right: int = WIDTH - _RIGHT
    top: int = _TOP


class _Axes(Struct, frozen=True):
    """The span of both axes, as powers of ten."""

    least_x: float
    most_x: float
    least_y: float
    most_y: float

    def x(self, intensity: float) -> float:
        share = (math.log10(intensity) - self.least_x) / (self.most_x - self.least_x)
        return round(_LEFT + min(max(share, 0.0), 1.0) * (WIDTH - _LEFT - _RIGHT), 1)

    def y(self, rate: float) -> float:
        share = (math.log10(rate) - self.least_y) / (self.most_y - self.least_y)
        return round(HEIGHT - _BOTTOM - min(max(share, 0.0), 1.0) * (HEIGHT - _TOP - _BOTTOM), 1)


def draw_roofline(roofline: Roofline | None) -> RooflinePicture | None:
    """None without a launch that computes products: only those have an intensity."""
    computing = [one for one in roofline.points if one.operations] if roofline is not None else []
    if roofline is None or not computing:
        return None
    used = sorted({one.rate for one in computing} & set(roofline.peaks))
    peaks = [roofline.peaks[one] for one in used] or list(roofline.peaks.values())
    intensities = [_intensity(one) for one in computing]
    ridge = max(peaks) / roofline.bandwidth
    least_y = min(math.log10(max(peaks)) - _BELOW, math.log10(min(one.operations_per_s for one in computing)) - 0.1)
    axes = _Axes(
        math.floor(math.log10(min(*intensities, ridge / _DECADE))),
        math.ceil(math.log10(max(*intensities, ridge * _DECADE))),
        least_y,
        math.log10(max(peaks)) + 0.2,
    )
    dots = tuple(_with_joint_numbers([_dot(axes, roofline.points, one) for one in reversed(computing)]))
    families = tuple(dict.fromkeys((one.family, _hue(one)) for one in computing))
    return RooflinePicture(_roofs(axes, roofline, used), dots, _across(axes), _up(axes), families)


def _intensity(point: RooflinePoint) -> float:
    return max(point.operations / point.bytes, _LEAST_INTENSITY)


def _roofs(axes: _Axes, roofline: Roofline, used: Sequence[str]) -> tuple[Roof, ...]:
    """The slope of the memory, and a ceiling for each type that products have."""
    highest = max((roofline.peaks[one] for one in used), default=roofline.bandwidth)
    start = 10.0**axes.least_x
    ridge = highest / roofline.bandwidth
    first = max(start, 10.0**axes.least_y / roofline.bandwidth)
    slope = f"{axes.x(first)},{axes.y(first * roofline.bandwidth)} {axes.x(ridge)},{axes.y(highest)}"
    middle = math.sqrt(first * ridge)
    roofs = [
        Roof(slope, rate_text(roofline.bandwidth, "B/s"), axes.x(middle) - 8, axes.y(middle * roofline.bandwidth) - 8)
    ]
    for one in used:
        peak = roofline.peaks[one]
        path = f"{axes.x(peak / roofline.bandwidth)},{axes.y(peak)} {WIDTH - _RIGHT},{axes.y(peak)}"
        roofs.append(Roof(path, f"{rate_text(peak, 'FLOP/s')} {one}", WIDTH - _RIGHT, axes.y(peak) - 6))
    return tuple(roofs)


def _dot(axes: _Axes, points: Sequence[RooflinePoint], point: RooflinePoint) -> Dot:
    number = points.index(point)
    share = point.step_ns / max(points[0].step_ns, 1)
    title = (
        f"{point_name(point)}: {format_time(point.step_ns)} a step, {rate_text(point.operations_per_s, 'FLOP/s')}, "
        f"{rate_text(point.bytes_per_s, 'B/s')}, {format_share(point.of_possible)} of possible"
    )
    return Dot(
        axes.x(_intensity(point)),
        axes.y(max(point.operations_per_s, 1.0)),
        round(max(_LEAST_RADIUS, _MOST_RADIUS * math.sqrt(share)), 1),
        _hue(point),
        str(number + 1) if number < NAMED else "",
        title,
    )


def _with_joint_numbers(dots: Sequence[Dot]) -> list[Dot]:
    """Numbers that would cover each other stand together at the largest of their points, which comes last here."""
    at: list[int] = []
    numbers = {place: [dot.number] for place, dot in enumerate(dots) if dot.number}
    for place in sorted(numbers, reverse=True):
        near = (one for one in at if _is_near(dots[one], dots[place]))
        if (first := next(near, None)) is None:
            at.append(place)
        else:
            numbers[first] += numbers.pop(place)
    return [replace(dot, number=", ".join(numbers.get(place, []))) for place, dot in enumerate(dots)]


def _is_near(one: Dot, other: Dot) -> bool:
    return abs(one.x - other.x) < _NUMBER_WIDTH and abs(one.y - other.y) < _NUMBER_HEIGHT


def _hue(point: RooflinePoint) -> str:
    return _HUES[_FAMILIES.index(point.family)] if point.family in _FAMILIES else "other"


def _across(axes: _Axes) -> tuple[Tick, ...]:
    whole = range(math.ceil(axes.least_x), math.floor(axes.most_x) + 1)
    return tuple(Tick(axes.x(10.0**one), f"{10.0**one:g}") for one in whole)


def _up(axes: _Axes) -> tuple[Tick, ...]:
    whole = range(math.ceil(axes.least_y), math.floor(axes.most_y) + 1)
    return tuple(Tick(axes.y(10.0**one), rate_text(10.0**one, "FLOP/s")) for one in whole)
