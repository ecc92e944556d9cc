"""What was seen during the whole run beside its phases."""

from __future__ import annotations

import pytest

from profkit.derive.facts import Facts
from profkit.findings.values import RunCurve, StepsInRun
from profkit.patterns.whole_run.curves import MEMORY, curves_of, recorded_within, steps_in_run
from profkit.run.directory import Run
from profkit.run.whole_run import DeviceSample, DeviceUse, RunAccount, StepSpan
from profkit.trace.events import no_trace
from tests.traces import facts_of, op, step

S = 1_000_000_000
BEGUN = 1_000 * S


def account(**more):
    return RunAccount(BEGUN - 2 * S, BEGUN, BEGUN + 100 * S, **more)


def test_times_count_from_the_start_of_the_process():
    (found,) = curves_of(account(memory=((0, 5), (10 * S, 7))))
    assert found == RunCurve(MEMORY, ((2 * S, 5.0), (12 * S, 7.0)), is_bytes=True)


def test_each_device_that_was_looked_at_has_its_use():
    looks = tuple(DeviceSample(at * S, busy) for at, busy in enumerate((0.5, -1.0, 0.25)))
    blind = DeviceUse(1, "", 0, 0, (DeviceSample(0), DeviceSample(S)))
    (found,) = curves_of(account(devices=(DeviceUse(0, "", 0, 0, looks), blind)))
    assert found == RunCurve("use of GPU 0", ((2 * S, 0.5), (4 * S, 0.25)))


def test_of_many_points_the_highest_of_each_part_are_kept():
    memory = tuple((at * S // 10, at % 10) for at in range(1000))
    (found,) = curves_of(account(memory=memory))
    assert len(found.points) == 200
    assert {value for _, value in found.points} == {4.0, 9.0}


def test_a_single_point_is_no_curve():
    assert curves_of(account(memory=((0, 5),))) == ()


def recorded(shift_us):
    trace = facts_of([step(i, shift_us + 1000 * i, 1000) for i in range(3)] + [op("aten::mul", shift_us + 10, 5)])
    return Facts(trace.trace, trace.run, account=account()), trace.trace.base_ns


def test_the_recorded_steps_lie_on_the_same_axis():
    facts, _ = recorded((BEGUN + 3 * S) // 1000)
    assert recorded_within(facts) == (5 * S, 5 * S + 3_000_000)


@pytest.mark.parametrize("at_ns", [0, BEGUN - S, BEGUN + 100 * S])
def test_a_recording_by_another_clock_is_not_placed(at_ns):
    assert recorded_within(recorded(at_ns // 1000)[0]) is None


def test_the_steps_of_a_watched_run_lie_on_the_same_axis():
    seen = (StepSpan(3 * S, 10, S, S // 20, S // 2), StepSpan(4 * S, 1, S, S, S))
    found = steps_in_run(Facts(no_trace(), Run(), account=account(steps=seen)))
    typical = S // 18
    assert found == (
        StepsInRun(4 * S, 5 * S, 10, typical, S // 20, S // 2),
        StepsInRun(5 * S, 6 * S, 1, S, S, S),
    )


def test_the_steps_around_a_recording_are_those_that_were_timed():
    run = Run(
        later_step_ns=(S,) * 3, timed_until_ns=BEGUN + 9 * S, earlier_step_ns=(S, S), earlier_until_ns=BEGUN + 4 * S
    )
    found = steps_in_run(Facts(no_trace(), run, account=account()))
    assert [(one.from_ns // S, one.until_ns // S, one.steps) for one in found] == [
        (4, 5, 1),
        (5, 6, 1),
        (8, 9, 1),
        (9, 10, 1),
        (10, 11, 1),
    ]


def test_steps_of_another_clock_are_not_shown():
    run = Run(later_step_ns=(S,) * 3, timed_until_ns=BEGUN + 101 * S)
    assert steps_in_run(Facts(no_trace(), run, account=account())) == ()
    assert steps_in_run(Facts(no_trace(), Run(), account=account(steps=(StepSpan(S, 0, 0, 0, 0),)))) == ()


def test_of_many_steps_those_in_a_row_are_told_together():
    seen = tuple(StepSpan(at * S // 10, 2, S // 10, S // 30, S // 15) for at in range(1, 601))
    found = steps_in_run(Facts(no_trace(), Run(), account=account(steps=seen)))
    assert len(found) == 200
    assert {one.steps for one in found} == {6}
