"""Whether the step takes longer, from few steps of few runs, without reporting noise as a change.

The lower quartiles of the runs' steps are compared on a logarithmic scale, so differences are ratios. Other programs
only make steps longer, so a quarter of undisturbed steps says as much as half; a change that three in four steps do not
have stays unseen. Steps of one run are not independent samples. They share the process, its memory layout and the
machine's load, and two runs of one program differ by more than the steps within either (Mytkowicz, Diwan, Hauswirth,
Sweeney: Producing wrong data without doing anything obviously wrong, ASPLOS 2009; Kalibera, Jones: Rigorous
benchmarking in reasonable time, ISMM 2013). So the run is the unit:

- Several runs on both sides: Welch's t interval over the runs (Welch, Biometrika 34, 1947). A bootstrap over so few
  would be too narrow (Hesterberg: What teachers should know about the bootstrap, The American Statistician 69, 2015).
- Several on one side: the other side's run is another draw with the same variance.
- One on each: nothing shows how much runs differ, so a model replaces it. Steps are cut into four to twelve blocks, of
  eight steps or more if there are enough. Another run is assumed to differ as much as the quartile of one block from
  another's. This holds if noise is alike on all scales (flicker noise, whose two-sample variance does not fall with the
  averaging time; Allan, Proceedings of the IEEE 54, 1966). White noise would average out, making the interval too wide,
  not too narrow.

The machine may also have changed: a neighbour's load or another clock rate outlasts a run and does not show in its
spread. The control group, operators that both sides run equally often on equal shapes, shows how much the machine's
speed and disturbances may have contributed. Time for new pages of memory may also differ by chance, as malloc asks for
more or fewer. The interval spans the change with and without both, unless the runs of the two sides took turns, so that
chance already divides the load between them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profkit.core.units import format_share
from profkit.diagnosis.compare.comparison import StepTime, Verdict

EQUIVALENCE_BAND = 0.05
"""An interval within 5 % either way is no difference: about the least that two single runs can distinguish."""
LEAST_CHANGE = 0.03
"""An estimated change below 3 % is nothing to act on, however certain. A finding of that size is low, too
(`findings.severity_of`)."""
RUN_DEVIATION = 0.01
"""If each side has one run, the assumed standard deviation between runs beyond what their steps show. Memory layout
alone changes run times by a percent and more (Mytkowicz et al.). Two single runs never show a change below 2.8 %."""
_BLOCKS, _MOST_BLOCKS = 4, 12
_STEPS_OF_BLOCK = 8
"""With fewer, a block's quartile would rest on one or two of them."""
_LEAST_STEPS = 4
"""One for each of the fewest blocks."""
_Z = 1.959964
"""The 97.5 % quantile of the normal distribution, so that intervals hold 95 %."""
Logs = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A difference of logarithms, half the width of its 95 % interval, and the method."""

    value: float
    half_width: float
    method: str


def compare_step_times(
    before: Sequence[Sequence[int]],
    after: Sequence[Sequence[int]],
    machine: float | None = None,
    steps: str = "unprofiled steps",
    pages: float | None = None,
) -> StepTime:
    """Judge the step durations of each side's runs, in the order of the steps.

    ``machine`` is the change of the control group and ``pages`` the change due to new pages of memory, both as
    differences of logarithms.
    """
    estimate = _estimate([_logs(run) for run in before], [_logs(run) for run in after])
    change = math.expm1(estimate.value)
    low = high = None
    if math.isfinite(estimate.half_width):
        chance = pages if pages is not None and abs(pages) >= LEAST_CHANGE else 0.0
        centres = [estimate.value - cause for cause in (0.0, machine or 0.0, chance)]
        low = math.expm1(min(centres) - estimate.half_width)
        high = math.expm1(max(centres) + estimate.half_width)
        reasons = _doings_of_the_machine(estimate, machine or 0.0, chance)
    else:
        reasons = [f"with fewer than {_LEAST_STEPS} steps a run cannot tell noise from a change"]
    return StepTime(
        verdict=_verdict(change, low, high),
        before_ns=_centre_ns(before),
        after_ns=_centre_ns(after),
        change=change,
        low=low,
        high=high,
        band=EQUIVALENCE_BAND,
        steps=steps,
        method=estimate.method,
        machine_change=None if machine is None else math.expm1(machine),
        reasons=tuple(reasons),
    )


def _doings_of_the_machine(estimate: Estimate, machine: float, pages: float) -> list[str]:
    """What else may explain the difference, besides the program's work."""
    reasons = []
    if abs(machine) > estimate.half_width:
        reasons.append(
            f"operators that are the same on both sides took {format_share(abs(math.expm1(machine)))} "
            f"{'longer' if machine > 0 else 'less'}: the machine or its settings changed as well"
        )
    if pages:
        reasons.append(
            f"new pages of memory made the step {format_share(abs(math.expm1(pages)))} "
            f"{'longer' if pages > 0 else 'shorter'}, by chance; to prevent that, set "
            "MALLOC_MMAP_THRESHOLD_=1073741824 and MALLOC_TRIM_THRESHOLD_=1073741824 for both sides"
        )
    return reasons


def _logs(run: Sequence[int]) -> Logs:
    return np.log(np.maximum(np.asarray(run, dtype=np.float64), 1.0))


def _centre_ns(runs: Sequence[Sequence[int]]) -> int:
    """The geometric mean of the runs' quartiles, which is what the logarithms compare."""
    return round(math.exp(float(np.mean([_quartile(_logs(run)) for run in runs]))))


def _quartile(logs: Logs) -> float:
    return float(np.quantile(logs, 0.25))


def _verdict(change: float, low: float | None, high: float | None) -> Verdict:
    if low is None or high is None:
        return Verdict.INCONCLUSIVE
    if (low > 0 or high < 0) and abs(change) >= LEAST_CHANGE:
        return Verdict.WORSE if change > 0 else Verdict.BETTER
    return Verdict.NO_DIFFERENCE if max(-low, high) <= EQUIVALENCE_BAND else Verdict.INCONCLUSIVE


def _estimate(before: list[Logs], after: list[Logs]) -> Estimate:
    centres = [np.array([_quartile(run) for run in side]) for side in (before, after)]
    value = float(centres[1].mean() - centres[0].mean())
    numbers = [len(side) for side in centres]
    if min(numbers) >= 2:
        shares = [float(side.var(ddof=1)) / len(side) for side in centres]
        half = student_quantile(_welch_freedom(shares, numbers)) * math.sqrt(sum(shares))
        return Estimate(value, half, "Welch's t interval over the runs")
    if max(numbers) >= 2:
        several = max(centres, key=len)
        deviation = math.sqrt(float(several.var(ddof=1)) * (1 + 1 / len(several)))
        half = student_quantile(len(several) - 1) * deviation
        return Estimate(value, half, "t interval from the side with several runs")
    half = _half_width_of_single_runs(before[0], after[0])
    return Estimate(value, half, "one run each, with others assumed to vary as much as parts of these do")


def _half_width_of_single_runs(before: Logs, after: Logs) -> float:
    variance, freedom = 0.0, 0
    for run in (before, after):
        if len(run) < _LEAST_STEPS:
            return math.inf
        number = min(max(_BLOCKS, len(run) // _STEPS_OF_BLOCK), _MOST_BLOCKS)
        blocks = [_quartile(block) for block in np.array_split(run, number)]
        variance += float(np.var(blocks, ddof=1))
        freedom += len(blocks) - 1
    return math.hypot(student_quantile(freedom) * math.sqrt(variance), _Z * math.sqrt(2) * RUN_DEVIATION)


def _welch_freedom(shares: list[float], numbers: list[int]) -> float:
    """The degrees of freedom by Welch and Satterthwaite."""
    below = sum(share**2 / (number - 1) for share, number in zip(shares, numbers, strict=True))
    return sum(shares) ** 2 / below if below > 0 else float(min(numbers) - 1)


def student_quantile(freedom: float) -> float:
    """The 97.5 % quantile of Student's t. ``freedom`` is rounded down, which widens intervals.

    Exact for 1 and 2; otherwise the expansion of Abramowitz and Stegun 26.7.5, accurate to 0.15 %.
    """
    n, z = max(int(freedom + 1e-9), 1), _Z
    if n == 1:
        return math.tan(math.pi * 0.475)
    if n == 2:
        return 0.95 * math.sqrt(2 / (1 - 0.95**2))
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return float(sum(term / n**power for power, term in enumerate(terms)))
