"""Launches far below the roof: which they are, and the step with them at a rate that such launches do reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from profkit.derive.device.kernel_families import Family
from profkit.derive.facts import Facts
from profkit.patterns import Places, in_most_steps, name_lines, order_sites
from profkit.savings.cost_models.devices import PRESUMED
from profkit.savings.edits import Edit, combine, shrink, shrink_work
from profkit.savings.roofline.launches import Point, Roofline
from profkit.trace.events import Rows

LARGE_NS = 10_000
"""What a shorter launch takes is mostly its beginning and its end, whatever its size."""
_MOSTLY = 0.5
"""Of a call's time: one whose kernels run that long and end before it does has waited for them. Kernels of others run
behind it, or take far less."""


_A_DEVICE = "a device like "
_LEAST_NS = 2_000
"""By the roofline. A kernel takes as long to begin and to end, so a smaller one says nothing about rates."""


def points_below(roofline: Roofline, families: Sequence[Family], is_slow: Callable[[Point], bool]) -> list[Point]:
    """The launches of these families that are long enough to judge and slow by that test."""
    return [
        point
        for point in roofline.points
        if point.demand.kind in families and min(point.each_ns / LARGE_NS, point.least_ns / _LEAST_NS) >= 1
        if is_slow(point)
    ]


def rows_of(points: Sequence[Point]) -> Rows:
    """The calls of all these points."""
    return np.concatenate([point.rows for point in points]) if points else np.zeros(0, dtype=np.int64)


def in_steps(facts: Facts, points: Sequence[Point]) -> bool:
    """Whether most measured steps have one of them."""
    return bool(points) and in_most_steps(facts, rows_of(points))


def at_share(facts: Facts, points: Sequence[Point], reached: Callable[[Point], float], uncertainty: float) -> Edit:
    """The step with each of these launches at that share of what the device could do, or as it is if that is slower."""
    return keeping(
        facts,
        points,
        lambda point: min(1.0, point.least_ns / reached(point) / max(point.each_ns, 1.0)),
        uncertainty,
    )


def keeping(facts: Facts, points: Sequence[Point], share: Callable[[Point], float], uncertainty: float) -> Edit:
    """The step with each of these launches taking that share of its time."""
    return combine([_keep(facts, point, share(point), uncertainty) for point in points])


def _keep(facts: Facts, point: Point, share: float, uncertainty: float) -> Edit:
    """Kernels take that share, and a call that stayed until after the end of its own kernels gets as much shorter."""
    events = facts.trace.events
    took_ns = events.duration_ns[point.work]
    number = np.searchsorted(point.rows, point.owner)
    inside_ns = np.bincount(number, took_ns, len(point.rows))
    end_ns = np.zeros(len(point.rows), dtype=np.int64)
    np.maximum.at(end_ns, number, events.ends_of(point.work))
    length_ns = facts.tree.end_ns[point.rows] - events.start_ns[point.rows]
    waited = (end_ns <= facts.tree.end_ns[point.rows]) & (inside_ns >= _MOSTLY * length_ns)
    kept_ns = length_ns[waited] - (inside_ns[waited] * (1 - share)).astype(np.int64)
    kernels = shrink_work(point.work, (took_ns * share).astype(np.int64), uncertainty)
    return combine([kernels, shrink(point.rows[waited], kept_ns, uncertainty)]) if waited.any() else kernels


def places_of(facts: Facts, points: Sequence[Point]) -> Places:
    """The lines that call them, forward or backward, the one with most time first."""
    rows = rows_of(points)
    weights = np.concatenate([np.full(len(point.rows), int(point.each_ns)) for point in points])
    return name_lines(facts, order_sites(facts.lines.forward_site[rows], weights))


def counted_as(roofline: Roofline) -> str:
    """A sentence where the recording does not name the device."""
    device = roofline.rates.device
    if not device.startswith(PRESUMED):
        return ""
    return f" The recording does not name its device; by its kernels it is counted as {device.removeprefix(_A_DEVICE)}."


def spent_ns(points: Sequence[Point]) -> int:
    """Their time in a step."""
    return int(sum(point.step_ns for point in points))


def mean_share(points: Sequence[Point]) -> float:
    """The share of the possible that they reach together."""
    total_ns = sum(point.step_ns for point in points)
    return sum(point.of_possible * point.step_ns for point in points) / total_ns if total_ns else 0.0
