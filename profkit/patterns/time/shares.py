"""Where the step's time goes: shares that exclude each other and add up to the step."""

from __future__ import annotations

from profkit.derive.facts import Facts, derived_once
from profkit.derive.timeline.intervals import Intervals, union
from profkit.patterns.time.idling import PROFILER, between_queued, idle_parts, time_by_place, when_on_main
from profkit.trace.events import Category

Share = tuple[str, int]
"""A label, and nanoseconds of the median step."""
DEVICE = "device: "
"""Prefix of the labels for the device's time."""
COMPUTING = f"{DEVICE}computing"
COMMUNICATING = f"{DEVICE}communicating, nothing computed meanwhile"
COPYING = f"{DEVICE}copying and clearing memory"
INHERITED = f"{DEVICE}at work launched before the recording"
BETWEEN = f"{DEVICE}between two queued kernels"
IDLE = "idle: "
"""Prefix of the labels for what the host does while the device idles."""
FIRST_LAG = f"{IDLE}before the first kernel began, cause not recorded"
PROFILING = f"{IDLE}{PROFILER}"
HOST_COMPUTING = ("optimizer", "backward", "operators of the forward pass and others")
"""What counts as computing without a device."""
NO_HOST = f"{IDLE}the host was not recorded"
"""The rest of a recording without any event of the host: nothing shows what the device waits for."""
_BETWEEN_OPERATORS = "Python and all else between operators"


def time_shares(facts: Facts) -> tuple[Share, ...]:
    """Split the measured steps by what the device did and, while it idled or without one, by what the host did."""
    *parts, (_, left) = time_parts(facts)
    totals = [(label, when.total_ns) for label, when in parts]
    totals += _idle_places(facts, left) if facts.device.present else _host_places(facts, left)
    return tuple((label, facts.steps.per_step_ns(total_ns)) for label, total_ns in totals if total_ns > 0)


def unmarked_shares(facts: Facts) -> tuple[Share, ...]:
    """The same rows without what line marks added where every step has them, which slows Python most."""
    added, (*parts, (_, left)) = facts.marks_by_line, time_parts(facts)
    totals = [(label, when.minus(added).total_ns) for label, when in parts] + _host_places(facts, left.minus(added))
    return tuple((label, facts.steps.per_step_ns(total_ns)) for label, total_ns in totals if total_ns > 0)


def kept_shares(facts: Facts) -> tuple[Share, ...]:
    """The same rows without what the recording added within each: the host's waits, and the compiler's long work, lose
    less than a row of many short calls."""
    taken = dict[str, float]()
    for label, when in time_parts(facts):
        added_ns = int(facts.overhead.covered_within(when.start_ns, when.end_ns).sum())
        taken[label] = added_ns / max(when.total_ns, 1)
    rest = taken[time_parts(facts)[-1][0]]
    return tuple((label, int(time_ns * (1 - taken.get(label, rest)))) for label, time_ns in facts.once(time_shares))


@derived_once
def time_parts(facts: Facts) -> tuple[tuple[str, Intervals], ...]:
    """When the measured steps did what, one thing at a time. The last part is all the rest."""
    steps = facts.steps
    left, parts = union(steps.begun_ns[steps.measured], steps.done_ns[steps.measured]), []
    for label, covered in _device_parts(facts) if facts.device.present else _host_parts(facts):
        rest = left.minus(covered)
        parts.append((label, left.minus(rest)))
        left = rest
    rest_label = f"{IDLE}elsewhere" if facts.device.present else _BETWEEN_OPERATORS
    return (*parts, (rest_label, left))


def _device_parts(facts: Facts) -> list[tuple[str, Intervals]]:
    device = facts.device
    return [
        (COMPUTING, device.computing),
        (COMMUNICATING, device.communicating),
        (COPYING, device.busy),
        (INHERITED, device.inherited),
        (FIRST_LAG, device.first_lag),
        (BETWEEN, between_queued(facts)),
        *((IDLE + reason, when) for reason, when in idle_parts(facts)),
    ]


def _idle_places(facts: Facts, left: Intervals) -> list[Share]:
    """Splits the rest: the place with most of it, all other places together, and no place."""
    if not (facts.tree.depth >= 0).any():
        return [(NO_HOST, left.total_ns)]
    places = time_by_place(facts, left)
    elsewhere = sum(time_ns for _, time_ns in places[1:])
    return [
        *((f"{IDLE}in {place}", time_ns) for place, time_ns in places[:1]),
        (f"{IDLE}elsewhere in Python", elsewhere),
        (f"{IDLE}nothing recorded", left.total_ns - elsewhere - sum(time_ns for _, time_ns in places[:1])),
    ]


def _host_parts(facts: Facts) -> list[tuple[str, Intervals]]:
    optimizer, backward, operators = HOST_COMPUTING
    category, on_main = facts.trace.events.category, facts.trace.events.lane == facts.steps.main_lane
    return [
        ("profkit itself, left out of the step", when_on_main(facts, category == Category.PAUSE)),
        ("waiting for data", when_on_main(facts, facts.loading)),
        (optimizer, facts.updates.on(on_main)),
        (backward, when_on_main(facts, facts.lines.backward)),
        (operators, when_on_main(facts, facts.trace.in_categories(Category.OPERATOR, Category.COMPILED_CODE))),
    ]


def _host_places(facts: Facts, left: Intervals) -> list[Share]:
    """Splits the rest: the place with most of it, and everything else."""
    largest = time_by_place(facts, left)[:1]
    return [
        *((f"Python in {place}", time_ns) for place, time_ns in largest),
        (_BETWEEN_OPERATORS, left.total_ns - sum(time_ns for _, time_ns in largest)),
    ]
