"""What is wrong with the recording itself, so that no figure is taken for more than it is.

A check looks at the facts and returns one line, or None: what is wrong, how much of it, and what it means for the
figures. It stays silent where the effect is below a hundredth of what it counts.
"""

from __future__ import annotations

from profkit.derive.compiling import describe_left_out
from profkit.derive.facts import Facts
from profkit.health.clocks import check_hole, check_launch_order, check_wait_order
from profkit.health.device import (
    check_durations,
    check_kernels_present,
    check_launch_records,
    check_leading_kernels,
    check_missing_kernels,
    check_most_lost,
    check_trailing_kernels,
)
from profkit.health.overhead import check_own_work, check_slowdown
from profkit.health.window import (
    check_cut_off,
    check_inherited_work,
    check_located,
    check_nesting,
    check_steps,
    check_waits,
)

CHECKS = (
    check_steps,
    check_located,
    describe_left_out,
    check_kernels_present,
    check_leading_kernels,
    check_missing_kernels,
    check_trailing_kernels,
    check_launch_records,
    check_inherited_work,
    check_waits,
    check_hole,
    check_launch_order,
    check_wait_order,
    check_durations,
    check_nesting,
    check_slowdown,
    check_own_work,
)
"""In the order in which they matter."""
OBSTACLES = (check_kernels_present, check_most_lost, check_cut_off, check_steps)
"""What leaves too little to say that nothing is wrong with the program, whatever the rules found."""


def check_recording(facts: Facts) -> tuple[str, ...]:
    """One sentence per flaw: what the recorder said, what the reader said, and what the facts show."""
    notes = [note for check in CHECKS if (note := check(facts)) is not None]
    return (*facts.run.notes, *facts.trace.health, *notes)


def find_obstacles(facts: Facts) -> tuple[str, ...]:
    """The reasons for which a recording in which no fault was found is not one of a program without."""
    return tuple(note for check in OBSTACLES if (note := check(facts)) is not None)
