"""Where the step's time goes: shares that exclude each other and add up to the step."""

from __future__ import annotations

from profkit.derive.facts import Facts, derived_once
from profkit.derive.timeline.intervals import Intervals, union
from profkit.patterns.time.idling import idle_parts, time_by_place, when_on_main
from profkit.trace.events import Category

Share = tuple[str, int]
"""A label, and nanoseconds of the median step."""
COMPUTING = "device: computing"
COMMUNICATING = "device: communicating, nothing computed meanwhile"
COPYING = "device: copying and clearing memory"
INHERITED = "device: at work launched before the recording"
IDLE = "idle: "
"""Prefix of the labels for what the host does while the device idles."""
HOST_COMPUTING = ("optimizer", "backward", "operators of the forward pass and others")
"""What counts as computing without a device."""
_BETWEEN_OPERATORS = "Python and all else between operators"


def time_shares(facts: Facts) -> tuple[Share, ...]:
    """Split the measured steps by what the device did and, while it idled or without one, by what the host did."""
    *parts, (_, left) = time_parts(facts)
    totals = [(label, when.total_ns) for label, when in parts]
    totals += _idle_places(facts, left) if facts.device.present else _host_places(facts, left)
    return tuple((label, facts.steps.per_step_ns(total_ns)) for label, total_ns in totals if total_ns > 0)


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
        *((IDLE + reason, when) for reason, when in idle_parts(facts)),
    ]


def _idle_places(facts: Facts, left: Intervals) -> list[Share]:
    """Splits the rest: the place with most of it, all other places together, and no place."""
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
