"""The step pauses while Python's garbage collector looks through the program's objects.

What it detects
Calls of `gc.collect()` in most steps, and Python's automatic collections if they come in most steps and take at least
3 % of the time. profkit marks both in its own recordings; others do not show them.

Why is this bad?
A full collection visits every list, dict, tuple and object of the process: those of the data, of the model and of all
imported modules, half a million in an ordinary program, whatever the step created. Tensors do not need it: they are
freed when the last name that holds them goes. Only cycles of references need a collection.

Example
    for x, y in loader:
        loss = train_step(x, y)
        del x, y
        gc.collect()

Use instead
    gc.collect()
    gc.freeze()  # once, after the set-up: what lives as long as the program is never looked at again
    for x, y in loader:
        loss = train_step(x, y)

How the saving is estimated
The steps are replayed without the collections. Garbage that the steps leave in cycles still has to be collected, by
young collections, which look only at new objects, or by occasional full ones; the range of the saving allows for them.
"""

from __future__ import annotations

import numpy as np

from profkit.core.marks import GC_AUTOMATIC
from profkit.derive.steps.boundaries import compiling
from profkit.patterns import (
    by_line,
    garbage_collections,
    in_most_steps,
    spent_per_step_ns,
    times_a_step,
    times_per_step,
)
from profkit.patterns.requests import picked_one_by_one
from profkit.rules.base import (
    LOW_FROM,
    MEDIUM_FROM,
    CannotLook,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_count,
    format_time,
    rule,
)
from profkit.savings import remove
from profkit.trace import Bools, Category, Rows, distinct

_WORTH_TUNING = MEDIUM_FROM
"""Python's own collections take about a percent of any program that creates many small objects."""
_LEAST_STEPS = 2
"""A recording of one step does not show how often either comes."""
_UNCERTAINTY = 0.2
"""A collection every few hundred steps stays, and it has more to visit than each of those that go."""

_FREEZE = (
    "Call `gc.freeze()` once after the set-up, so that long-lived objects are not visited again. If that is not "
    "enough, call `gc.disable()`, and `gc.collect()` yourself every few hundred steps."
)
_FREEZE_LATER = (
    "`gc.freeze()` was called before this step. Call it when the set-up is complete. If it was, call "
    "`gc.disable()`, and `gc.collect()` yourself every few hundred steps."
)


@rule(Kind.FAULT, Need.WHOLE_STEP)
def garbage_collection_in_step(facts: Facts) -> Suspicions:
    """One finding for each line that calls for collections, and one for all that Python began."""
    if facts.run.torch is None:
        raise CannotLook("garbage collections show only in recordings that profkit made")
    events = facts.trace.events
    # Compilation creates many objects, which triggers collections.
    aside = facts.tree.under((events.category == Category.PAUSE) | compiling(facts.trace))
    rows = facts.measured_rows(garbage_collections(facts) & (events.lane == facts.steps.main_lane) & ~aside)
    own = facts.trace.where_name(lambda name: name.endswith(GC_AUTOMATIC))[rows]
    for at_line in by_line(facts, rows[~own]):
        if (asked := _frequent(facts, at_line)).size:
            yield _asked_for(facts, asked)
    if (frequent := _frequent(facts, rows[own & ~facts.tree.under(_picking(facts))[rows]])).size:
        yield _automatic(facts, frequent)


def _picking(facts: Facts) -> Bools:
    """Requests for batches made of samples picked one by one: their objects trigger collections, which vanish with the
    picking (`per-sample-fetch`)."""
    requests = np.flatnonzero(facts.tree.outermost(facts.loading))
    return facts.trace.mask_of(requests[picked_one_by_one(facts, requests)] if requests.size else requests)


def _frequent(facts: Facts, rows: Rows) -> Rows:
    """The collections of generations that are collected in most steps. A single full collection shows no rate."""
    names = facts.trace.events.name_code[rows]
    kinds = [rows[names == code] for code in distinct(names)]
    return np.concatenate([kind for kind in kinds if in_most_steps(facts, kind, _LEAST_STEPS)] or [rows[:0]])


def _asked_for(facts: Facts, rows: Rows) -> Suspicion:
    spent = spent_per_step_ns(facts, rows)
    return Suspicion(
        message=f"`gc.collect()` takes {format_time(spent)} and runs {times_a_step(facts, rows)}: it visits every "
        "object of the process. Tensors are freed without it.",
        fix="Remove the call. If steps leave cycles that hold much memory, break these. Or collect every few "
        "hundred steps, after one `gc.freeze()` at the end of the set-up.",
        rows=rows,
        edit=remove(rows, uncertainty=_UNCERTAINTY),
        worth=LOW_FROM,
        confidence=0.95,
        spent_ns=spent,
        evidence={"collecting_ns_per_step": spent},
    )


def _automatic(facts: Facts, rows: Rows) -> Suspicion:
    """No line is at fault: a collection begins wherever one object too many is created."""
    spent, times = spent_per_step_ns(facts, rows), times_per_step(facts, rows)
    return Suspicion(
        message=f"Python pauses each step for {format_count(times, 'garbage collection')} of its own, "
        f"{format_time(spent)} in all.",
        fix=_FREEZE_LATER if facts.run.flags.get("gc_frozen") is True else _FREEZE,
        edit=remove(rows, uncertainty=_UNCERTAINTY),
        worth=_WORTH_TUNING,
        confidence=0.8,
        count=times,
        spent_ns=spent,
        evidence={"collecting_ns_per_step": spent},
    )
