"""The control group: operators, or the device's kernels, that both sides run equally often on equal shapes.

Whatever these do differently is due to the machine or a setting, and shows how far step times can be trusted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from profkit.comparing.recorded import Recorded, merge

_LEAST_SHARE = 0.5
"""Of the work of either side; a smaller part cannot speak for the whole."""
_MOST_STEP_SHARE = 0.9
"""A price per page that leaves less of the step than the rest cannot be right."""


def machine_change(before: Sequence[Recorded], after: Sequence[Recorded]) -> float | None:
    """What the machine did to the control group, as a difference of logarithms; None if the group is too small.

    The machine's speed is the median over kinds of work, weighted by their time, so that one kind that became slower
    does not move it. How much more the operators were disturbed is added.
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
    """What new pages of memory did to the step, as a difference of logarithms; None if their number or price is
    unknown.

    glibc moves the limit above which it takes blocks from the system and gives them back at once, as it sees blocks
    come and go (``M_MMAP_THRESHOLD`` in mallopt(3)). Two runs of one program may differ by all of that.
    """
    found = [_pages_on_top(side) for side in (before, after)]
    return None if None in found else found[1] - found[0]  # type: ignore[operator]  # None is excluded


def _pages_on_top(side: Sequence[Recorded]) -> float | None:
    """How much longer its pages make the step, as a logarithm."""
    runs = [run.run for run in side]
    if not all(run.page_fault_ns and run.reference_step_faults and run.reference_step_ns for run in runs):
        return None
    shares = [
        float(np.median(run.reference_step_faults)) * (run.page_fault_ns or 0) / float(np.median(run.reference_step_ns))
        for run in runs
    ]
    return -math.log(1 - min(float(np.mean(shares)), _MOST_STEP_SHARE))
