"""What counts as a change of a long run."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat

import pytest

from profkit.collect.boundaries.changes import BLOCK_STEPS, Change, ChangeKind, Changes

MS, MB = 10**6, 1 << 20
USUAL = 20 * MS
"""Thirty of them take longer than half a second."""
FIRST = 5 * BLOCK_STEPS
"""Steps in the block that is left out and in those that say what is usual."""


class Run:
    """Steps of given lengths, with what the process held and waited for at the end of each block."""

    def __init__(self, held: Iterable[int] = (), waited: Iterable[int] = ()) -> None:
        self.held, self.waited = iter(held), iter(waited)
        self.now_ns = 0
        self.changes = Changes(lambda: next(self.waited, 0), lambda: next(self.held, 100 * MB))
        self.changes.note(0)

    def steps(self, *took_ns: int) -> Change | None:
        for took in took_ns:
            self.now_ns += took
            if (change := self.changes.note(self.now_ns)) is not None:
                return change
        return None


@pytest.mark.parametrize(("factor", "is_told"), [(1.9, False), (2.0, True), (30.0, True)])
def test_steps_of_twice_the_time_are_told_after_two_blocks(factor, is_told):
    run = Run()
    assert run.steps(*[USUAL] * FIRST) is None
    long = [round(factor * USUAL)] * BLOCK_STEPS
    assert run.steps(*long) is None
    change = run.steps(*long)
    assert (change is not None) is is_told
    if change is not None:
        assert (change.kind, change.factor, change.steps) == (ChangeKind.STEP_TIME, factor, FIRST + 1 + 60)
        assert change.first_ns == (USUAL,) * (FIRST - BLOCK_STEPS)
        assert change.until_ns == FIRST * USUAL
        assert change.note == f"at step 211 the steps took {factor:.1f} times as long as at first"


def test_one_slow_block_such_as_an_evaluation_is_no_change():
    run = Run()
    for _ in range(20):
        assert run.steps(*[USUAL] * FIRST, *[5 * USUAL] * BLOCK_STEPS) is None


def test_a_slow_first_block_says_nothing():
    run = Run()
    assert run.steps(*[9 * USUAL] * BLOCK_STEPS, *[USUAL] * FIRST * 3) is None


def test_steps_that_get_longer_little_by_little_are_told():
    change = Run().steps(*(USUAL + USUAL * step // 500 for step in range(2000)))
    assert change is not None
    assert change.kind is ChangeKind.STEP_TIME


def test_what_passes_beside_most_steps_counts_as_lost_throughput_after_four_blocks():
    run = Run()
    assert run.steps(*[USUAL] * FIRST) is None
    block = [USUAL] * (BLOCK_STEPS - 1) + [40 * USUAL]
    assert run.steps(*block * 3) is None
    change = run.steps(*block)
    assert change is not None
    assert change.kind is ChangeKind.THROUGHPUT


def test_waiting_for_a_processor_is_left_out():
    waited = [0] * 6  # asked once at the beginning, and at the end of each of the first blocks
    crowded = [at * BLOCK_STEPS * 2 * USUAL for at in range(1, 9)]
    run = Run(waited=[*waited, *crowded])
    assert run.steps(*[USUAL] * FIRST, *[3 * USUAL] * 8 * BLOCK_STEPS) is None


@pytest.mark.parametrize(
    ("held_mb", "is_told"),
    [
        ([400, 450, 500, 550, 600, 650], True),
        ([400, 450, 500, 550, 590, 599], False),  # less than half as much again
        ([100, 120, 140, 160, 180, 200], False),  # less than 128 MB
        ([400, 400, 400, 700, 700, 700, 700, 700], False),  # at once
        ([400, 600, 700, 705, 706, 706, 706, 706], False),  # it levels off
    ],
)
def test_memory_that_each_quarter_adds_to_is_told(held_mb, is_told):
    run = Run(held=[mb * MB for mb in held_mb])
    change = run.steps(*[USUAL] * (FIRST + len(held_mb) * BLOCK_STEPS))
    assert (change is not None) is is_told
    assert change is None or change.kind is ChangeKind.MEMORY


def test_little_is_kept_of_a_million_short_steps():
    run = Run()
    assert run.steps(*repeat(MS // 10, 1_000_000)) is None
    assert len(run.changes._held) < 64
    assert len(run.changes._first_ns) == 4000


def test_other_steps_have_their_own_usual_length():
    run = Run()
    assert run.steps(*[USUAL] * FIRST) is None
    run.changes.begin_again()
    assert run.steps(*[4 * USUAL] * FIRST * 2) is None


@pytest.mark.parametrize(("step_ns", "together"), [(20 * MS, 1), (MS, 5), (MS // 10, 50), (1000, 100)])
def test_short_steps_are_noted_together(step_ns, together):
    run = Run()
    assert run.changes.together == 1
    run.steps(*repeat(step_ns, 2000))
    assert run.changes.together == together


def test_thirty_steps_tell_how_short_they_are():
    run = Run()
    run.steps(*repeat(MS, BLOCK_STEPS - 1))
    assert run.changes.together == 1
    run.steps(MS)
    assert run.changes.together == 5


def test_a_step_that_waited_leaves_the_next_ones_together():
    run = Run()
    run.steps(*repeat(MS // 10, 50), 30 * MS)
    assert run.changes.together == 50
    run.steps(*repeat(30 * MS, 12))
    assert run.changes.together == 1


def test_steps_noted_together_count_each():
    run = Run()
    run.steps(*repeat(MS, 2500))
    run.now_ns += 10 * 3 * MS
    run.changes.note(run.now_ns, 10)
    assert (run.changes.steps, run.changes.last_ns) == (2511, 3 * MS)
