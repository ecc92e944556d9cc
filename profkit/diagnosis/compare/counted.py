"""How much more or less work a step does, judging by its calls: unlike times, counts have no noise.

If a line calls an operator more often on one side, and equally often in each step, work came or went. Its time is what
such a call took in the recordings. Work that both sides do equally often does not show here, only in the step times. So
counts can confirm a change that the times leave open, but never deny one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from profkit.diagnosis.compare.comparison import StepTime, Verdict
from profkit.diagnosis.compare.recorded import NOTHING, Recorded, merge
from profkit.diagnosis.compare.step_times import LEAST_CHANGE

_DOUBTFUL_SHARE = 0.3
"""Of the time of calls that came or went: the same operator varies by this much between runs, and Python's work around
it is not counted."""
_LEAST_STEPS = 3
"""Fewer steps do not show that every step makes the same number of calls."""


@dataclass(frozen=True, slots=True)
class CountedChange:
    """How much longer the calls make the step, as a difference of logarithms, with its range."""

    value: float
    low: float
    high: float


def counted_change(before: Sequence[Recorded], after: Sequence[Recorded]) -> CountedChange | None:
    """The change; None if a side has too few steps, does not know the lines of its calls, or has a device that works
    beside the host.

    Calls whose number varies between steps or runs may all have come or gone, so they widen the range.
    """
    if any(not run.calls or len(run.measured_ns) < _LEAST_STEPS for run in (*before, *after)):
        return None
    one, other = (merge([run.calls for run in side]) for side in (before, after))
    net_ns = moved_ns = unknown_ns = 0.0
    for key in {**one, **other}:
        a, b = one.get(key, NOTHING), other.get(key, NOTHING)
        if not (a.is_steady and b.is_steady):
            unknown_ns += max(a.median_ns, b.median_ns)
        elif a.calls != b.calls:
            more_ns = (b.calls - a.calls) * (a.median_ns + b.median_ns) / (a.calls + b.calls)
            net_ns += more_ns
            moved_ns += abs(more_ns)
    step_ns = float(np.median([np.median(run.unprofiled_ns or run.measured_ns) for run in before]))
    doubt_ns = _DOUBTFUL_SHARE * moved_ns + unknown_ns
    return CountedChange(*(_log_ratio(ns / step_ns) for ns in (net_ns, net_ns - doubt_ns, net_ns + doubt_ns)))


def confirm(time: StepTime, counted: CountedChange | None) -> StepTime:
    """``time``; if it is inconclusive and agrees with a sure change in the calls, with that change as its verdict."""
    if counted is None or time.verdict is not Verdict.INCONCLUSIVE or time.low is None or time.high is None:
        return time
    change, low, high = (math.expm1(value) for value in (counted.value, counted.low, counted.high))
    is_sure = (low > 0 or high < 0) and abs(change) >= LEAST_CHANGE
    low, high = max(low, time.low), min(high, time.high)
    if not is_sure or low > high:
        return time
    verdict = Verdict.WORSE if change > 0 else Verdict.BETTER
    change = min(max(change, low), high)
    return replace(time, verdict=verdict, change=change, low=low, high=high, is_counted=True)


def _log_ratio(share: float) -> float:
    return math.log1p(max(share, -0.99))
