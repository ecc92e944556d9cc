"""What is wrong with the recording itself, so that nobody trusts a figure too much.

A check looks at the facts and returns one line or None: what is wrong, how much of it, and what that means for the
figures. Below one hundredth of what it counts it stays silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from profkit.core.failures import attempt
from profkit.derive.facts import Facts
from profkit.diagnosis.health import device, starting, window
from profkit.diagnosis.health.clocks import check_hole, check_launch_order, check_wait_order
from profkit.diagnosis.health.memory import check_history, check_memory_failures, describe_end_of_memory
from profkit.diagnosis.health.overhead import check_crowding, check_own_work, check_slowdown
from profkit.diagnosis.health.program import (
    check_children,
    check_failure,
    check_light,
    check_operators,
    check_stacks,
    notes_of_run,
)
from profkit.diagnosis.interlude import describe_interlude
from profkit.patterns.compiling import describe_left_out
from profkit.patterns.time.start_up import describe_start_up

CHECKS = (
    window.check_foreign,
    check_memory_failures,
    check_light,
    check_children,
    window.check_steps,
    window.check_part,
    window.check_outdone,
    describe_start_up,
    window.check_located,
    window.check_later,
    describe_left_out,
    starting.check_cold_start,
    window.check_first_calls,
    device.check_leading_kernels,
    device.check_missing_kernels,
    device.check_trailing_kernels,
    device.check_launch_records,
    window.check_inherited_work,
    window.check_waits,
    window.check_queued,
    check_hole,
    check_launch_order,
    check_wait_order,
    device.check_durations,
    window.check_nesting,
    check_crowding,
    check_slowdown,
    check_own_work,
    check_stacks,
    check_history,
    describe_interlude,
)
"""In order of importance."""
OBSTACLES = (
    device.describe_unrecorded,
    describe_start_up,
    check_failure,
    check_light,
    check_children,
    device.check_most_lost,
    window.check_cut_off,
    check_operators,
    window.check_steps,
    window.check_part,
    window.check_outdone,
)
"""Flaws after which too little is left to call the program clean, whatever the rules found."""


def check_recording(facts: Facts) -> tuple[str, ...]:
    """One sentence per flaw: what was not recorded at all, what the recorder and the reader noted, and what the facts
    show."""
    read = (*facts.trace.health, *(facts.snapshot.notes if facts.snapshot else ()))
    known = [*notes_of_run(facts), *read, *facts.failures]
    return (*_check(facts, (describe_end_of_memory, device.describe_unrecorded)), *known, *_check(facts, CHECKS))


def check_snapshot(facts: Facts) -> tuple[str, ...]:
    """The same for a memory snapshot alone."""
    noted = facts.snapshot.notes if facts.snapshot is not None else ()
    return (*notes_of_run(facts), *noted, *_check(facts, (check_history,)))


def _check(facts: Facts, checks: Iterable[Callable[[Facts], str | None]]) -> Iterator[str]:
    for check in checks:
        note, failure = attempt(f"a check of the recording ({check.__name__})", partial(check, facts), None)
        yield from failure if note is None else (note,)


def find_obstacles(facts: Facts) -> tuple[str, ...]:
    """The reasons why a recording without findings does not prove a program without faults."""
    return tuple(_check(facts, OBSTACLES))


def find_obstacles_of_run(facts: Facts) -> tuple[str, ...]:
    """The same for a run that was only watched."""
    return tuple(_check(facts, (check_children,)))
