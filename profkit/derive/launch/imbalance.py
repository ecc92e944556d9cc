"""How much of the ranks' work the size of their inputs explains.

Sizes and times are measured against the mean of the ranks in the same step. Pearson's coefficient shows whether they
correlate, and Student's t whether that is more than chance (R. A. Fisher, Statistical Methods for Research Workers,
1925, section 34). If sizes vary from step to step, the means of the ranks are removed too, as in panels with fixed
effects (Y. Mundlak, On the Pooling of Time Series and Cross Section Data, Econometrica 1978), so that a slower device
is not mistaken for larger inputs.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct, structs

from profkit.derive.launch.chance import LEAST_STEPS, LEVEL, upper_tail
from profkit.derive.launch.late import MOST_OF_IT
from profkit.derive.launch.launch import Launch
from profkit.derive.launch.work_by_rank import WorkByRank, step_index
from profkit.trace.events import NONE, Float64s, Int64s

MOST_STEEP = 2.0
"""Attention's work grows with the square of the length, and nothing common is steeper. A rank whose time is further
above the others' than that is slow for another reason."""
_LEAST_STEEP = 0.5
"""If one rank's inputs are always larger, its time has to be longer by about as much: most work grows with the size."""


class Imbalance(Struct, frozen=True):
    """By rank and step: the ``ratio`` of the input's size to the mean of the ranks, and how much ``longer_ns`` the own
    work is for it than at the mean, negative if shorter. ``correlation`` is Pearson's, for the kind of ranks where it
    is lowest; NaN if nothing is explained. ``compared`` says whether there were inputs to compare."""

    ratio: Float64s
    longer_ns: Float64s
    correlation: float
    compared: bool

    @property
    def steps(self) -> Int64s:
        """The places of the steps in which inputs explain something."""
        return np.flatnonzero((self.longer_ns > 0).any(axis=0))


def find_imbalance(launch: Launch, own: WorkByRank) -> Imbalance:
    """Compare the ranks of each kind whose inputs are known."""
    ratio, longer_ns = np.ones_like(own.total_ns), np.zeros_like(own.total_ns)
    found: list[float] = []
    compared = False
    kinds = np.unique(own.kind)
    for code in kinds:
        size, ranks, at = _comparable(launch, own, np.flatnonzero(own.kind == code))
        if len(ranks) < 2 or len(at) < LEAST_STEPS:
            continue
        compared = True
        place = np.ix_(ranks, at)
        slope, correlation = _explain(size, own.total_ns[place], len(kinds))
        if slope > 0:
            ratio[place] = size / size.mean(axis=0)
            longer_ns[place] = slope * (size - size.mean(axis=0))
            found.append(correlation)
    return Imbalance(ratio, longer_ns, min(found, default=math.nan), compared)


def without_imbalance(own: WorkByRank, imbalance: Imbalance) -> WorkByRank:
    """The own work if all inputs of a step had the same size."""
    kept = kept_share(own, imbalance)
    return structs.replace(own, total_ns=own.total_ns * kept, place_ns=own.place_ns * kept[:, :, None])


def kept_share(own: WorkByRank, imbalance: Imbalance) -> Float64s:
    """By rank and step, the share of the own work that would remain."""
    kept: Float64s = (1 - imbalance.longer_ns / np.maximum(own.total_ns, 1)).clip(min=0)
    return kept


def _comparable(launch: Launch, own: WorkByRank, mine: Int64s) -> tuple[Float64s, Int64s, Int64s]:
    """Sizes by rank and step, the ranks, and the places of the steps in which all of them call equally many operators.
    The measure of size is the first one that all ranks know in enough steps."""
    operators = _column(launch, own, mine, "operators")
    ranks = np.flatnonzero((operators != NONE).any(axis=1))
    best = np.zeros((0, 0)), mine[ranks], np.zeros(0, dtype=np.int64)
    if len(ranks) < 2:
        return best
    operators = operators[ranks]
    alike = (operators == operators[0]).all(axis=0) & (operators[0] != NONE)
    for measure in ("elements", "allocated_bytes"):
        size = _column(launch, own, mine[ranks], measure)
        at = np.flatnonzero(alike & (size != NONE).all(axis=0))
        if len(at) >= LEAST_STEPS:
            return size[:, at].astype(np.float64), mine[ranks], at
    return best


def _column(launch: Launch, own: WorkByRank, ranks: Int64s, name: str) -> Int64s:
    """A column of the inputs by rank and step, `NONE` where unknown."""
    found = np.full((len(ranks), len(own.steps)), NONE, dtype=np.int64)
    for row, rank in zip(found, ranks.tolist(), strict=True):
        table = launch.tables[rank]
        if table.inputs is not None:
            at, known = step_index(own.steps, table.steps.number)
            row[at[known]] = getattr(table.inputs, name)[known]
    return found


def _explain(size: Float64s, time_ns: Float64s, comparisons: int) -> tuple[float, float]:
    """How much longer the ranks work per unit of size, and the correlation; 0 if it is not beyond chance."""
    x, y = size - size.mean(axis=0), time_ns - time_ns.mean(axis=0)
    own_x, own_y = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
    ranks, steps = size.shape
    varies = (own_x**2).sum() >= MOST_OF_IT * (x**2).sum()
    if varies:
        slope, correlation = _slope(own_x, own_y, (ranks - 1) * (steps - 1) - 1, comparisons)
    else:
        slope, correlation = _slope(x, y, (ranks - 1) * steps - 1, comparisons)
    steepness = slope * size.mean() / max(time_ns.mean(), 1)
    is_like_it = varies or (steepness >= _LEAST_STEEP and correlation**2 >= MOST_OF_IT)
    return (slope, correlation) if 0 < steepness <= MOST_STEEP and is_like_it else (0.0, math.nan)


def _slope(x: Float64s, y: Float64s, freedom: int, comparisons: int) -> tuple[float, float]:
    of_x, of_y, both = float((x**2).sum()), float((y**2).sum()), float((x * y).sum())
    if both <= 0 or freedom < 1:
        return 0.0, 0.0
    correlation = min(both / math.sqrt(of_x * of_y), 1.0)
    rest = 1 - correlation**2
    if rest > 0 and upper_tail(correlation * math.sqrt(freedom / rest), freedom) * comparisons >= LEVEL:
        return 0.0, correlation
    return both / of_x, correlation
