"""Where most of the step's time goes, at fault or not: lines of the program, and operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from profkit.derive.timeline.intervals import Intervals, union
from profkit.patterns.attribution import leading_site
from profkit.patterns.places.events import call_site
from profkit.patterns.time.idling import own_time
from profkit.trace.events import Category, Int32s, Int64s, Rows

if TYPE_CHECKING:
    from profkit.derive.facts import Facts

MOST = 5
_LEAST_SHARE = 0.01
"""A smaller share is no place to begin."""
_FEW_OF, _MANY_TIMES = 8, 5
"""Of eight runs of a line, one may be no rule: a time slice that another process gets is 3 ms or more, and a line of a
dataset takes a tenth of that. Also the least share of the time that a run must have taken to be looked at."""
_LEAST_UPDATE_SHARE = 0.1
"""An optimizer is named from a tenth of the step on: a fault that costs as much has high severity."""
BACKWARD = "autograd::engine::evaluate_function: "
"""What the autograd engine puts before the name of a node that it runs."""


class Hot(Struct, frozen=True):
    """``site`` is the call site of a line, ``name`` the name of an operator; ``fraction`` is of the steps looked at. An
    optimizer's step has both if its line is known."""

    fraction: float
    site: int = -1
    name: str = ""


def hottest_lines(facts: Facts) -> tuple[Hot, ...]:
    """The lines of the main thread in the located steps. A line has the time of everything it calls, except for time
    under other lines of the program. Empty if no lines were recorded."""
    steps = facts.steps
    return lines_by_time(facts, union(steps.start_ns[steps.located], steps.end_ns[steps.located]))


def lines_by_time(facts: Facts, spent: Intervals) -> tuple[Hot, ...]:
    """The lines of the main thread at which these times were spent, with their shares."""
    events = facts.trace.events
    marks = np.flatnonzero((events.category == Category.LINE_MARK) & (events.lane == facts.steps.main_lane))
    own_ns = own_time(facts, marks, spent)
    known = events.site[marks] >= 0
    sites, inverse = np.unique(events.site[marks][known], return_inverse=True)  # numbers from a file may be anything
    by_site = np.bincount(inverse, own_ns[known], len(sites)) / max(spent.total_ns, 1)
    return tuple(Hot(fraction, site=int(sites[at])) for at, fraction in _largest(by_site))


class HotFunction(Struct, frozen=True):
    """A function of the program, the share of the times looked at that its lines take with everything they call, and
    its costliest line with the share that this takes except for other lines of the program."""

    name: str
    fraction: float
    line: Hot


def hottest_function(facts: Facts, spent: Intervals, share: float, without: int) -> HotFunction | None:
    """The function of the line of the main thread that takes this share of these times itself: with everything it calls
    except for other lines of the program. None if no line does. The line ``without`` is no answer."""
    events, marked = facts.trace.events, _Marked.of(facts, spent)
    sites, number = np.unique(events.site[marked.rows], return_inverse=True)
    by_site = np.bincount(number, marked.own_ns, len(sites)) / marked.whole_ns
    by_site[(sites < 0) | (sites == without)] = 0.0
    line = next((Hot(fraction, site=int(sites[at])) for at, fraction in _largest(by_site)), None)
    site = call_site(facts, line.site) if line is not None else None
    if line is None or site is None or line.fraction < share:
        return None
    known = [call_site(facts, one) for one in sites.tolist()]
    same = [one is not None and (one.file, one.function) == (site.file, site.function) for one in known]
    mine = (np.array(same) & (sites != without))[number]
    outermost = facts.tree.outermost(facts.trace.mask_of(marked.rows[mine]))[marked.rows] & mine
    return HotFunction(site.function, min(int(marked.taken_ns[outermost].sum()) / marked.whole_ns, 1.0), line)


class _Marked(Struct, frozen=True):
    """The line marks of the main thread, what each took of some time with all within it and without other lines, and
    how long the time was. What held a line up once is left out of all of them."""

    rows: Rows
    taken_ns: Int64s
    own_ns: Int64s
    whole_ns: int

    @classmethod
    def of(cls, facts: Facts, spent: Intervals) -> _Marked:
        events, end_ns = facts.trace.events, facts.tree.end_ns
        rows = np.flatnonzero((events.category == Category.LINE_MARK) & (events.lane == facts.steps.main_lane))
        own_ns = own_time(facts, rows, spent)
        held_ns = _held_up_ns(own_ns, events.site[rows])
        so_far_ns = np.concatenate([[0], np.cumsum(held_ns)])
        within_ns = so_far_ns[np.searchsorted(events.start_ns[rows], end_ns[rows])] - so_far_ns[:-1]
        taken_ns = spent.covered_within(events.start_ns[rows], end_ns[rows]) - within_ns.clip(min=0)
        return cls(rows, taken_ns.clip(min=0), own_ns - held_ns, max(spent.total_ns - int(held_ns.sum()), 1))


def _held_up_ns(own_ns: Int64s, sites: Int32s) -> Int64s:
    """How much longer than usual a run of a line took, where a few of its many runs in one step took many times as
    long: another program had the CPU meanwhile, or it was the first time. 0 for all others."""
    held_ns = np.zeros_like(own_ns)
    for site in np.unique(sites[own_ns * _FEW_OF > own_ns.sum()]).tolist():
        runs = np.flatnonzero((sites == site) & (own_ns > 0))
        usual = int(np.median(own_ns[runs])) if len(runs) >= _FEW_OF else 0
        slow = runs[own_ns[runs] > _MANY_TIMES * usual]
        if usual and len(slow) * _FEW_OF <= len(runs):
            held_ns[slow] = own_ns[slow] - usual
    return held_ns


def narrowest_line(facts: Facts, spent: Intervals, share: float) -> Hot | None:
    """The line of the main thread that, with all that it calls, takes at least this share of these times; the innermost
    if there are several. The share has to be a half or more, so that they lie inside each other."""
    events, tree, marked = facts.trace.events, facts.tree, _Marked.of(facts, spent)
    marks, taken_ns = marked.rows, marked.taken_ns
    found: list[tuple[int, Hot]] = []
    sites, number = np.unique(events.site[marks], return_inverse=True)
    most_ns = np.bincount(number, taken_ns, len(sites))  # a line inside itself counts twice
    for site in sites[most_ns >= share * marked.whole_ns].tolist():
        mine = events.site[marks] == site
        outermost = tree.outermost(facts.trace.mask_of(marks[mine]))[marks] & mine
        fraction = float(taken_ns[outermost].sum()) / marked.whole_ns
        if fraction >= share:
            found.append((int(tree.depth[marks[outermost & (taken_ns > 0)]].max()), Hot(min(fraction, 1.0), site=site)))
    return max(found, key=lambda one: one[0])[1] if found else None


def hottest_operators(facts: Facts) -> tuple[Hot, ...]:
    """By their time on the device if it was recorded, else on the main thread. Backward work counts towards the
    operator that it belongs to."""
    rows, taken_ns, whole_ns = _device_work(facts) if facts.device.present else _host_work(facts)
    names = facts.trace.names
    by_name = np.bincount(facts.trace.events.name_code[rows], taken_ns, len(names)) / max(whole_ns, 1)
    return tuple(Hot(fraction, name=names[code].removeprefix(BACKWARD)) for code, fraction in _largest(by_name))


def hottest_updates(facts: Facts) -> tuple[Hot, ...]:
    """Optimizers that take a tenth of the measured steps or more, with the line that calls most of their steps. Each of
    their many operators is too short to show. None with a device: the host's time then says nothing about the
    update."""
    steps, updates, names = facts.steps, facts.updates, facts.trace.names
    if facts.device.present:
        return ()
    chosen = facts.measured[updates.rows]
    rows, taken_ns = updates.rows[chosen], (updates.end_ns - updates.start_ns)[chosen]
    whole_ns = max(int((steps.end_ns[steps.measured] - steps.start_ns[steps.measured]).sum()), 1)
    codes, sites = facts.trace.events.name_code[rows], facts.lines.site[rows]
    by_name = np.bincount(codes, taken_ns, len(names)) / whole_ns
    return tuple(
        Hot(fraction, site=leading_site(sites[codes == code]), name=names[code])
        for code, fraction in _largest(by_name)
        if fraction >= _LEAST_UPDATE_SHARE
    )


def _host_work(facts: Facts) -> tuple[Rows, Int64s, int]:
    events, steps = facts.trace.events, facts.steps
    rows = facts.operators.rows[facts.measured[facts.operators.rows]]
    whole_ns = int((steps.end_ns[steps.measured] - steps.start_ns[steps.measured]).sum())
    return rows, events.duration_ns[rows], whole_ns


def _device_work(facts: Facts) -> tuple[Rows, Int64s, int]:
    """The operators that launched the work, and how long it took. Streams that work at the same time both count."""
    events, launches = facts.trace.events, facts.launches
    wanted = facts.steps.in_measured(launches.launched_ns) & (launches.operator >= 0)
    duration_ns = events.duration_ns[launches.work[wanted]]
    steps = facts.steps
    whole_ns = int((steps.done_ns[steps.measured] - steps.begun_ns[steps.measured]).sum())
    return launches.operator[wanted].astype(np.int64), duration_ns, whole_ns


def _largest(fractions: np.ndarray) -> list[tuple[int, float]]:
    order = np.argsort(-fractions, kind="stable")[:MOST]
    return [(int(code), min(float(fractions[code]), 1.0)) for code in order if fractions[code] >= _LEAST_SHARE]
