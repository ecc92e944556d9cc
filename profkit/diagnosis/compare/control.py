"""The control group: operators, or device kernels, that both sides run equally often on equal shapes.

If they take another time, the machine or a setting changed. This shows how far step times can be trusted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from profkit.diagnosis.compare.recorded import Recorded, merge

_LEAST_SHARE = 0.5
"""Of either side's work. A smaller part cannot represent the whole."""
_MOST_STEP_SHARE = 0.9
"""Pages cannot take more of a step than this; a price per page that says so is wrong."""


def machine_change(before: Sequence[Recorded], after: Sequence[Recorded]) -> float | None:
    """How the control group changed, as a difference of logarithms; None if the group is too small.

    The machine's speed is the median over kinds of work, weighted by their time, so a single slower kind does not move
    it. The change in disturbance is added.
    """
    one, other = (merge([run.control for run in side]) for side in (before, after))
    kinds = [kind for kind in one if kind in other and one[kind].calls == other[kind].calls]
    pairs = [(one[kind].median_ns, other[kind].median_ns) for kind in kinds]
    times = np.array([pair for pair in pairs if min(pair) > 0], dtype=np.float64).reshape(-1, 2)
    wholes = np.array([sum(work.median_ns for work in table.values()) for table in (one, other)])
    if not times.size or (times.sum(axis=0) < _LEAST_SHARE * wholes).any():
        return None
    ratios = np.log(times[:, 1] / times[:, 0])
    order = np.argsort(ratios)
    weights = np.cumsum(times.mean(axis=1)[order])
    speed = float(ratios[order][np.searchsorted(weights, weights[-1] / 2)])
    return speed + float(np.mean([run.disturbance for run in after]) - np.mean([run.disturbance for run in before]))


def pages_change(before: Sequence[Recorded], after: Sequence[Recorded]) -> float | None:
    """How new pages of memory changed the step, as a difference of logarithms; None if their number or price is
    unknown.

    glibc takes large blocks from the system and gives them back at once. It moves the limit for "large" as blocks come
    and go (``M_MMAP_THRESHOLD`` in mallopt(3)), so two runs of one program may differ by all these pages.
    """
    found = [_pages_on_top(side) for side in (before, after)]
    return None if None in found else found[1] - found[0]  # type: ignore[operator]  # None is excluded


def _pages_on_top(side: Sequence[Recorded]) -> float | None:
    """How much longer pages make the step, as a logarithm."""
    runs = [run.run for run in side]
    if not all(run.page_fault_ns and run.reference_step_faults and run.reference_step_ns for run in runs):
        return None
    shares = [
        float(np.median(run.reference_step_faults)) * (run.page_fault_ns or 0) / float(np.median(run.reference_step_ns))
        for run in runs
    ]
    return -math.log(1 - min(float(np.mean(shares)), _MOST_STEP_SHARE))
