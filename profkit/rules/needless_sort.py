"""All elements are put in order, and only the first few of them are read.

What it detects
`sort` or `argsort` of a tensor, where all that takes the result are slices and selections of the first or last elements
along the sorted dimension, an eighth of them at most: the twenty best of 12,000 items, the greatest score, the lowest
of a beam. The rule is silent if anything else takes a tensor of that shape before the next one is made. Also
`torch.quantile` of many elements, for one or two quantiles: it sorts them all.

Why is this bad?
Sorting n elements takes n log n comparisons, and indices as large as the data. Looking for the k greatest is one pass
over the data and sorts k elements: of 12,000 elements, the first twenty cost a hundredth of sorting all.

Example
    ranking = torch.argsort(scores, dim=1, descending=True)
    hits = (ranking[:, :20, None] == wanted[:, None]).any(1)

Use instead
    best = scores.topk(20, dim=1).indices
    hits = (best[..., None] == wanted[:, None]).any(1)

How the saving is estimated
On a CPU `topk` takes a hundredth of the sort's time and twice the share that is read (measured for rows of 200 to
200,000 elements). A quantile by `kthvalue` takes 8 to 14 % of the time for 10,000 to a million elements, 30 % for rows
of a thousand; two neighbours are needed to interpolate. On a GPU nothing was measured: a tenth to seven tenths of the
sort are assumed to stay.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns import times_per_step
from profkit.patterns.step_calls import first_seen
from profkit.patterns.used.parts import SortedHead, cut_by_line, makers_and_cuts, quantiles, rows_of_cuts, sorted_heads
from profkit.rules.base import LOW_FROM, Facts, Kind, Need, Suspicion, Suspicions, format_count, pick_form, rule
from profkit.savings import take_less
from profkit.trace import Rows

_MOST_USED = 1 / 8
"""Of the elements: beyond it `topk` takes a third of the sort's time or more."""
_LEAST_KEPT, _PER_USED = 0.01, 2.0
"""Of the sort's time on a CPU, without and for each share of the elements that is read."""
_KEPT_ON_DEVICE = 0.4
"""Assumed, not measured: a GPU selects by sorting digits, in part of the passes that sorting takes."""
_MOST_QUANTILES, _KEPT_OF_QUANTILE = 2, 0.25
"""More of one tensor share the sort. Each keeps that share: two elements of rank, by the time of a million or fewer."""
_UNCERTAINTY, _UNCERTAINTY_ON_DEVICE = 0.15, 0.5
"""Rows of 1,000 elements differ from rows of 200,000 by so much."""


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES, Need.WHOLE_STEP)
def needless_sort(facts: Facts) -> Suspicions:
    """One finding for each line that sorts, or that has quantiles found by sorting."""
    needless = [head for head in sorted_heads(facts) if head.used <= _MOST_USED * head.length]
    for heads, rows in cut_by_line(facts, needless):
        yield _suspect(facts, heads, rows)
    for heads, rows in cut_by_line(facts, [one for one in quantiles(facts) if one.used <= _MOST_QUANTILES]):
        yield _suspect_quantiles(facts, heads, rows)


def _suspect(facts: Facts, heads: list[SortedHead], rows: Rows) -> Suspicion:
    used = np.ones(len(facts.trace.events))
    for head in heads:
        used[head.rows] = head.used / head.length
    on_device = facts.device.present
    kept = _LEAST_KEPT + _PER_USED * used[first_seen(facts, rows)]
    count, largest = times_per_step(facts, rows), max(heads, key=lambda head: head.length)
    some = "the first or last one" if largest.used == 1 else f"{largest.used:,} at one end"
    return Suspicion(
        message=f"{format_count(count, 'operator')} a step {pick_form(count, 'sorts', 'sort')} rows of "
        f"{largest.length:,} elements, but only {some} {'is' if largest.used == 1 else 'are'} read.",
        fix=f"`topk({largest.used}, dim=…)` finds only these, with their indices; `largest=False` finds the lowest. "
        "For a single one use `max`, `min` or `kthvalue`. The order of equal elements may differ.",
        rows=rows,
        edit=take_less(
            facts,
            rows,
            _KEPT_ON_DEVICE if on_device else kept.clip(max=1),
            _UNCERTAINTY_ON_DEVICE if on_device else _UNCERTAINTY,
        ),
        worth=LOW_FROM,
        confidence=0.85,
        count=count,
        places=makers_and_cuts(facts, rows, rows_of_cuts(facts, heads)),
        evidence={"elements": largest.length, "used": largest.used},
    )


def _suspect_quantiles(facts: Facts, heads: list[SortedHead], rows: Rows) -> Suspicion:
    on_device, largest = facts.device.present, max(heads, key=lambda head: head.length)
    most, count = max(head.used for head in heads), times_per_step(facts, rows)
    return Suspicion(
        message=f"{format_count(count, 'operator')} a step {pick_form(count, 'sorts', 'sort')} {largest.length:,} "
        f"elements in a row to find {'one quantile' if most == 1 else 'two quantiles'} of them.",
        fix="`kthvalue` finds an element of a rank without sorting: `x.kthvalue(1 + round(q * (n - 1))).values`. "
        "Between two ranks `quantile` interpolates: take both, or leave it. "
        "For a range of values `torch.histc`, or a sample of them, may be exact enough.",
        rows=rows,
        edit=take_less(
            facts,
            rows,
            _KEPT_ON_DEVICE if on_device else _KEPT_OF_QUANTILE * most,
            _UNCERTAINTY_ON_DEVICE if on_device else _UNCERTAINTY,
        ),
        worth=LOW_FROM,
        confidence=0.85,
        count=count,
        evidence={"elements": largest.length, "quantiles": most},
    )
