"""All rows are looked through for each group, to find those that belong to it.

What it detects
Eight comparisons in a step, or more, of one row of a thousand values or more (`groups == g`), each followed only by
picking rows where it is true (`scores[mask]`). All groups together pick each row about once. The tensor must be the
same in all of them, and nothing may write to it in between.

Why is this bad?
With k groups each of n rows is compared k times, and a mask is searched as often: the work grows with both. Sorted by
group once, the rows of a group lie side by side, and a slice of them costs nothing.

Example
    for user in users.unique():
        mask = users == user
        total += ndcg(scores[mask], clicks[mask])

Use instead
    order = users.argsort(stable=True)
    sizes = users.unique(return_counts=True)[1].tolist()
    for s, c in zip(scores[order].split(sizes), clicks[order].split(sizes)):
        total += ndcg(s, c)

How the saving is estimated
The recorded steps are replayed without the comparisons, and picking keeps the share of the rows that it picks. Sorting
once costs 50 ns for each row (29 to 58 were measured for 2,000 to 500,000 numbers on one processor), 1 ns on a GPU,
which is assumed.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns import spent_per_step_ns, times_per_step
from profkit.patterns.step_calls import first_seen, repeated_in_measured
from profkit.patterns.used.groups import GroupScan, group_scans, rows_of_scan
from profkit.rules.base import (
    LOW_FROM,
    CannotLook,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    Watch,
    format_share,
    rule,
    why_not_watched,
)
from profkit.savings import take_less

_LEAST_GROUPS = 8
"""With fewer, sorting costs about as much as the scans."""
_SORTING_NS, _SORTING_ON_DEVICE_NS = 50, 1
"""Per row."""
_UNCERTAINTY = 0.3
"""The values of a group are needed one by one in some programs, and numbers of groups must be read once."""
_NOT_FOLLOWED = "what the calls of a step take of each other was not recorded, or not the memory of their results"
_FIX = (
    "Sort the rows by group once: `order = groups.argsort(stable=True)`. Then `values[order].split(sizes)` gives each "
    "group's rows, with `sizes = groups.unique(return_counts=True)[1].tolist()`. What is only summed or averaged needs "
    "no loop: `index_add_` or `scatter_reduce` does it for all groups at once."
)


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES, Need.WHOLE_STEP)
def rows_scanned_per_group(facts: Facts) -> Suspicions:
    """One finding for each tensor of groups."""
    scans = group_scans(facts)
    if scans is None:
        raise CannotLook(why_not_watched(facts, Watch.CALLS, _NOT_FOLLOWED))
    for scan in scans:
        if len(scan.compared) >= _LEAST_GROUPS:
            yield _suspect(facts, scan)


def _suspect(facts: Facts, scan: GroupScan) -> Suspicion:
    rows = repeated_in_measured(facts, rows_of_scan(scan))
    spent_ns = spent_per_step_ns(facts, rows)
    each_ns = _SORTING_ON_DEVICE_NS if facts.device.present else _SORTING_NS
    sorting = min(1.0, each_ns * scan.elements / max(spent_ns, 1))
    kept = np.zeros(len(facts.trace.events))
    kept[scan.picking] = scan.shares
    groups = len(scan.compared)
    return Suspicion(
        message=f"For each of {groups:,} groups in a step all {scan.elements:,} rows are compared, and "
        f"{format_share(sum(scan.shares) / len(scan.shares))} are picked on average.",
        fix=_FIX,
        rows=rows,
        edit=take_less(facts, rows, (kept[first_seen(facts, rows)] + sorting).clip(max=1), _UNCERTAINTY),
        worth=LOW_FROM,
        confidence=0.85,
        count=times_per_step(facts, rows),
        spent_ns=spent_ns,
        evidence={"groups": groups, "rows_compared": scan.elements},
    )
