"""Launches far below the roof: which they are, and the step with them at a rate that such launches do reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from profkit.derive.device.kernel_families import Family
from profkit.derive.facts import Facts
from profkit.patterns import Places, in_most_steps, name_lines, order_sites, times_per_step
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


class SlowLaunches(Struct, frozen=True):
    """Launches far below the roof, the costliest kind first, as a finding tells them: their calls as ``rows`` of the
    trace, how many a step has and how long they take in it, the share of the possible that they reach together, and the
    lines that call them, forward or backward, the one with most time first. ``note`` is a sentence where the recording
    does not name the device."""

    points: tuple[Point, ...]
    rows: Rows
    count: int
    taken_ns: int
    share: float
    places: Places
    note: str

    @property
    def worst(self) -> Point:
        return self.points[0]


def gather(facts: Facts, roofline: Roofline, points: Sequence[Point]) -> SlowLaunches | None:
    """None unless most measured steps have one of them."""
    rows = np.concatenate([point.rows for point in points]) if points else np.zeros(0, dtype=np.int64)
    if not points or not in_most_steps(facts, rows):
        return None
    total_ns = sum(point.step_ns for point in points)
    reached_ns = sum(point.of_possible * point.step_ns for point in points)
    weights = np.concatenate([np.full(len(point.rows), int(point.each_ns)) for point in points])
    return SlowLaunches(
        points=tuple(points),
        rows=rows,
        count=times_per_step(facts, rows),
        taken_ns=int(total_ns),
        share=reached_ns / total_ns if total_ns else 0.0,
        places=name_lines(facts, order_sites(facts.lines.forward_site[rows], weights)),
        note=_counted_as(roofline),
    )


def _counted_as(roofline: Roofline) -> str:
    device = roofline.rates.device
    if not device.startswith(PRESUMED):
        return ""
    return f" The recording does not name its device; by its kernels it is counted as {device.removeprefix(_A_DEVICE)}."


def at_share(facts: Facts, slow: SlowLaunches, reached: Callable[[Point], float], uncertainty: float) -> Edit:
    """The step with each of these launches at that share of what the device could do, or as it is if that is slower."""
    return keeping(
        facts,
        slow,
        lambda point: min(1.0, point.least_ns / reached(point) / max(point.each_ns, 1.0)),
        uncertainty,
    )


def keeping(facts: Facts, slow: SlowLaunches, share: Callable[[Point], float], uncertainty: float) -> Edit:
    """The step with each of these launches taking that share of its time."""
    return combine([_keep(facts, point, share(point), uncertainty) for point in slow.points])


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
