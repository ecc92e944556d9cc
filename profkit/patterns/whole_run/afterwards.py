"""What the program did once it was no longer recorded: whether lines that were recorded came again.

Of a step that was too large only a part is recorded, or of a whole program its beginning. The looks at the main thread
went on, so they tell whether what was recorded is what the program does, or what it did once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.patterns.whole_run.phases import MOST_COLUMNS, PROFKIT, phase_labels

_FEWEST_LOOKS = 20
"""Of fewer, one look more or less is a fault of medium severity more or less."""


class Afterwards(Struct, frozen=True):
    """The time of the run after the recording without profkit's own, in nanoseconds, by the stacks of the account."""

    of_stack: dict[int, int]
    total_ns: int


@derived_once
def time_afterwards(facts: Facts) -> Afterwards | None:
    """None if the run was not watched, its clock is another than the recording's, or too little came after it."""
    account = facts.account
    if not account.stacks or account.column_ns <= 0 or not facts.has_trace:
        return None
    ended_ns = int(facts.steps.done_ns[-1]) + facts.trace.base_ns
    if not account.begun_ns <= ended_ns <= account.until_ns:
        return None
    first = (ended_ns - account.begun_ns) // account.column_ns + 1
    labels, times = phase_labels(facts), Counter[int]()
    for column in account.columns[first:MOST_COLUMNS]:
        for number, time_ns in column:
            if 0 <= number < len(labels) and labels[number] != PROFKIT:
                times[number] += time_ns
    looks = sum(stack.looks for stack in account.stacks)
    look_ns = sum(stack.time_ns for stack in account.stacks) / max(looks, 1)
    total_ns = times.total()
    return Afterwards(dict(times), total_ns) if 0 < _FEWEST_LOOKS * look_ns <= total_ns else None


def share_afterwards(facts: Facts, lines: Collection[tuple[str, int]]) -> float | None:
    """The share of the run after the recording that passed at one of these ``lines``, by file and number, or in what it
    calls. None if that is not known."""
    after = time_afterwards(facts)
    if after is None or not lines:
        return None
    places = facts.account.places
    wanted = {at for at, place in enumerate(places) if (place.site.file, place.site.line) in lines}
    stacks = facts.account.stacks
    spent = sum(time for number, time in after.of_stack.items() if not wanted.isdisjoint(stacks[number].places))
    return spent / after.total_ns
