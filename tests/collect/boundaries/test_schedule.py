"""What each step is to the recording: without torch, without a clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profkit.collect.boundaries.schedule import _COUNT_NS, Phase, Schedule
from profkit.run.plan import EXPLICIT, Plan

SECOND_NS = 1_000_000_000


def play(plan: Plan, steps: int, length_ns: int = 10) -> tuple[list[Phase], Schedule]:
    """The phases of ``steps`` steps that take ``length_ns`` each, with a long pause between them."""
    schedule = Schedule(plan)
    if plan.prologue:
        assert schedule.phase is Phase.PROLOGUE
        schedule.restart()
    phases, now = [], 0
    for _ in range(steps):
        phases.append(schedule.phase)
        schedule.begin(now)
        schedule.advance(now + length_ns)
        now += length_ns + SECOND_NS
    return phases, schedule


def test_steps_go_through_all_phases_in_order():
    phases, schedule = play(Plan(wait=2, warmup=1, active=3, after=2), 8)
    before_and_between = [Phase.REFERENCE, Phase.LOCATED, Phase.REFERENCE]
    assert phases == before_and_between + [Phase.ACTIVE] * 3 + [Phase.AFTER] * 2
    assert schedule.phase is Phase.DONE


def test_unprofiled_steps_are_timed_without_the_pauses_between_them():
    _, schedule = play(Plan(wait=2, warmup=1, active=3, after=2), 8, length_ns=7)
    assert schedule.reference_step_ns == [7] * 4


def test_page_faults_of_unprofiled_and_of_measured_steps_are_counted():
    schedule = Schedule(Plan(wait=1, warmup=1, active=2, after=1, prologue=False))
    at = 100
    for faults in (1, 2, 3, 4, 5):  # located, settling, two measured, after
        schedule.begin(0, at)
        schedule.advance(10, at + faults)
        at += 1000
    assert schedule.counted == {
        "reference_step_ns": (10, 10),
        "later_step_ns": (),
        "reference_step_device_ns": (),
        "later_step_device_ns": (),
        "measured_step_device_ns": (),
        "reference_step_faults": (2, 5),
        "measured_step_faults": (3, 4),
        "measured_step_crowded_ns": (),
    }


def test_the_wait_for_a_cpu_is_counted_in_measured_steps_if_the_system_tells_it():
    schedule = Schedule(Plan(wait=1, warmup=1, active=2, after=1, prologue=False))
    for begun_ns, ended_ns in ((None, None), (None, None), (100, 130), (130, 130), (None, None)):
        schedule.begin(0, crowded_ns=begun_ns)
        schedule.advance(10, crowded_ns=ended_ns)
    assert schedule.counted["measured_step_crowded_ns"] == (30, 0)
    schedule.forget_measured()
    assert schedule.counted["measured_step_crowded_ns"] == ()


@pytest.mark.parametrize(
    ("plan", "first"),
    [
        (Plan(wait=0), Phase.LOCATED),
        (Plan(wait=0, warmup=0), Phase.ACTIVE),
        (Plan(wait=1, warmup=0), Phase.REFERENCE),
        (Plan(wait=0, prologue=False), Phase.LOCATED),
    ],
)
def test_without_a_wait_the_first_step_is_recorded(plan, first):
    assert play(plan, 1)[0] == [first]


def test_without_a_prologue_the_first_step_begins_at_once():
    assert Schedule(Plan(prologue=False)).phase is Phase.REFERENCE


def test_no_step_before_the_requested_one_is_recorded():
    phases, schedule = play(Plan(wait=3, at_step=7, active=1), 12)
    assert [number for number, phase in enumerate(phases) if phase.recorded] == [7, 9]
    assert schedule.recorded == 2


def test_an_early_requested_step_leaves_the_warmup_step_timed():
    phases, _ = play(Plan(wait=3, at_step=1), 4)
    assert phases.index(Phase.LOCATED) == 2


def test_of_many_steps_before_the_requested_one_the_last_are_timed():
    schedule = Schedule(Plan(at_step=1000))
    schedule.restart()
    for number in range(1000):
        schedule.begin(0)
        schedule.advance(number)
    assert schedule.reference_step_ns == list(range(970, 1000))
    assert len(schedule.reference_step_faults) == 30


def test_only_complete_recorded_steps_count():
    schedule = play(Plan(wait=2, warmup=1, active=2), 1)[1]
    assert schedule.phase is Phase.LOCATED
    assert schedule.recorded == 0
    schedule.advance(0)
    assert schedule.recorded == 1


def test_nothing_follows_the_last_step():
    phases, schedule = play(Plan(wait=0, warmup=0, active=1, after=0), 3)
    assert phases == [Phase.ACTIVE, Phase.DONE, Phase.DONE]
    assert schedule.phase is Phase.DONE


def test_long_steps_are_recorded_until_there_is_one_of_each_kind():
    phases, schedule = play(Plan(wait=1, warmup=2, active=4, after=1, limit_s=30), 4, length_ns=31 * SECOND_NS)
    assert phases == [Phase.LOCATED, Phase.REFERENCE, Phase.ACTIVE, Phase.AFTER]
    assert schedule.was_cut_short


def test_a_complete_recording_is_not_cut_short():
    assert not play(Plan(), 18)[1].was_cut_short


def test_after_a_better_signal_the_next_step_is_the_first():
    schedule = play(Plan(wait=2), 2)[1]
    assert schedule.restart() is Phase.REFERENCE
    assert (schedule.step, schedule.recorded, schedule.reference_step_ns) == (0, 0, [])


def test_a_step_passes_unrecorded_if_the_schedule_must_wait():
    schedule = Schedule(Plan(wait=0))
    assert schedule.restart(must_wait=True) is Phase.REFERENCE
    assert schedule.advance(1) is Phase.LOCATED
    assert schedule.restart() is Phase.LOCATED


def test_more_steps_pass_after_the_located_ones_while_something_settles():
    schedule = Schedule(Plan(wait=0, active=1, prologue=False))
    assert schedule.advance(1) is Phase.ACTIVE
    assert schedule.let_settle(2) is Phase.REFERENCE
    assert schedule.is_settling
    assert (schedule.advance(1), schedule.advance(1)) == (Phase.REFERENCE, Phase.ACTIVE)
    assert not schedule.is_settling
    assert schedule.let_settle(1) is Phase.ACTIVE


@pytest.mark.parametrize("at_step", [0, 1, 2, 59, 60, 61, 200])
def test_steps_that_pass_by_are_counted_like_others(at_step):
    plan = Plan(wait=3, warmup=1, active=2, after=2, prologue=False, at_step=at_step)
    passed, advanced, skipped = Schedule(plan), Schedule(plan), 0
    for now in range(_COUNT_NS, 500 * _COUNT_NS, _COUNT_NS):
        advanced.advance(now, now // 2)
        advanced.begin(now, now // 2)
        if skipped:
            skipped -= 1
        elif done := passed.pass_by(now, lambda: now // 2):  # noqa: B023  # called at once
            skipped = done - 1
        else:
            passed.advance(now, now // 2)
            passed.begin(now, now // 2)
        assert (passed.phase, passed.step - skipped) == (advanced.phase, advanced.step)
        if passed.phase is not Phase.REFERENCE:
            assert passed.counted == advanced.counted


def test_page_faults_of_short_steps_are_counted_together_and_spread_evenly():
    """Five steps fit between two counts. Each has three faults, the first thirty more."""
    schedule = Schedule(Plan(wait=13, warmup=0, active=1, after=1, prologue=False))
    schedule.begin(_COUNT_NS, 1000)
    counts = []
    for step in range(1, 13):
        now = _COUNT_NS + step * _COUNT_NS // 5
        assert schedule.pass_by(now, lambda: counts.append(step) or 1030 + 3 * step)  # noqa: B023  # called at once
    assert counts == [1, 6, 11]
    assert schedule.advance(_COUNT_NS + 13 * _COUNT_NS // 5, 1030 + 3 * 13) is Phase.ACTIVE
    assert schedule.reference_step_ns == [_COUNT_NS // 5] * 13
    assert schedule.reference_step_faults == [33, *[3] * 12]


def test_short_steps_after_the_planned_ones_pass_by():
    plan = Plan(wait=1, warmup=0, active=1, after=1, prologue=False)
    schedule = Schedule(plan)
    for now in (10, 20, 30):
        assert schedule.pass_behind(now, lambda: 7, 100) == 0, "planned"
        schedule.advance(now, 7)
        schedule.begin(now, 7)
    assert schedule.phase is Phase.DONE
    assert schedule.pass_behind(40, lambda: 7, 100) == 0, "timing has not gone on"
    schedule.go_on_timing()
    assert schedule.pass_behind(45, lambda: 9, 15) == 15
    assert schedule.pass_behind(65, lambda: 9, 15) == 0
    assert schedule.advance(65, 11) is Phase.DONE
    assert schedule.after_ns == [10, 15, 20]
    assert schedule.after_faults == [0, 2, 2]


def test_progress_counts_up_to_the_end_of_the_recording():
    plan = Plan(wait=1, warmup=1, active=1, after=5)
    assert play(plan, 2)[1].progress == (2, 3)
    assert play(plan, 6)[1].progress == (3, 3)


@pytest.mark.parametrize("wrong", [{"wait": -1}, {"warmup": -1}, {"after": -1}, {"active": 0}])
def test_a_plan_without_a_measured_step_is_refused(wrong):
    with pytest.raises(ValueError, match="active at least 1"):
        Plan(**wrong)


def test_a_postponed_recording_begins_a_step_later():
    schedule = Schedule(Plan(wait=1, warmup=1, active=1, after=0, prologue=False))
    phases = []
    for postponed in (True, True, False, False, False):
        if postponed:
            schedule.postpone()
        phases.append(schedule.phase)
        schedule.begin(0)
        schedule.advance(10)
    assert phases == [Phase.REFERENCE, Phase.REFERENCE, Phase.LOCATED, Phase.REFERENCE, Phase.ACTIVE]


BETTER = Plan(wait=1, warmup=1, active=2, after=1).for_better(EXPLICIT)


@pytest.mark.parametrize(
    ("plan", "is_enough"),
    [
        (BETTER, True),
        (replace(BETTER, anew=1), False),
        (replace(BETTER, is_second=False), False),
    ],
    ids=["of a better signal", "of steps recorded anew", "the first"],
)
def test_one_located_step_suffices_only_for_a_better_signal(plan, is_enough):
    """If no other can be afforded, or the program ends first."""
    schedule = Schedule(plan)
    schedule.begin(0)
    assert not schedule.has_enough
    assert schedule.advance(10) is not Phase.AFTER
    assert schedule.measured == 0
    assert schedule.has_enough is is_enough


def test_waiting_for_a_busy_cpu_brings_no_fewer_recorded_steps():
    """The recorded steps may last 10 ns. Each takes 8 on the wall, 6 of which others had the CPU."""
    for crowded_ns, measured in ((6, 3), (0, 2)):
        schedule = Schedule(Plan(wait=0, warmup=0, active=3, after=0, prologue=False, limit_s=10e-9))
        for number in range(4):
            if schedule.phase.recorded:
                schedule.begin(8 * number, crowded_ns=0)
                schedule.advance(8 * number + 8, crowded_ns=crowded_ns)
        assert schedule.measured == measured


LONG = Plan().for_long_step(5, 0.8)


def test_of_a_cycle_only_the_last_step_is_recorded_twice():
    phases, schedule = play(replace(LONG, known_step_ns=(70, 80), known_step_faults=(1, 2)), 10)
    passing = [Phase.REFERENCE] * 4
    assert phases == [*passing, Phase.LOCATED, *passing, Phase.ACTIVE]
    assert schedule.phase is Phase.DONE
    counted = schedule.counted
    assert (counted["reference_step_ns"], counted["reference_step_faults"]) == ((70, 80), (1, 2))
    assert "later_step_ns" not in counted


@pytest.mark.parametrize(("more", "passing"), [(0, 4), (4, 4), (5, 9), (9, 9), (10, 14)])
def test_whatever_must_settle_the_measured_step_of_a_cycle_is_its_last(more, passing):
    schedule = Schedule(LONG)
    for _ in range(5):
        schedule.advance(10)
    schedule.let_settle(more)
    passed = 0
    while schedule.phase is Phase.REFERENCE:
        schedule.advance(10)
        passed += 1
    assert (passed, schedule.phase) == (passing, Phase.ACTIVE)


def test_a_postponed_recording_of_the_last_step_waits_for_the_next_cycle():
    schedule = Schedule(LONG)
    for _ in range(4):
        schedule.advance(10)
    assert schedule.phase is Phase.LOCATED
    assert schedule.postpone() is Phase.REFERENCE
    for _ in range(5):
        assert schedule.phase is Phase.REFERENCE
        schedule.advance(10)
    assert schedule.phase is Phase.LOCATED


@pytest.mark.parametrize(("most", "measured", "is_enough"), [(4, 0, False), (4, 1, True), (1, 0, True)])
def test_a_located_cycle_suffices_if_no_more_may_be_recorded(most, measured, is_enough):
    schedule = Schedule(Plan().for_cycles(4, 3))
    schedule.limit_recorded(most)
    for _ in range(1 + measured):
        schedule.advance(10)
    assert schedule.has_enough == is_enough


def test_a_step_that_is_left_out_passes_before_the_measured_ones():
    schedule = Schedule(Plan(wait=1, warmup=1, prologue=False))
    for expected in (Phase.LOCATED, Phase.REFERENCE, Phase.ACTIVE):
        assert schedule.phase is expected
        if expected is not Phase.ACTIVE:
            schedule.advance(10)
    assert schedule.let_another_pass() is Phase.REFERENCE
    assert schedule.advance(10) is Phase.ACTIVE
