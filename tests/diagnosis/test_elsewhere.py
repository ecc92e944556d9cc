"""How much of the time the judged steps do not stand for, and where that lies."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.derive.facts import Facts
from profkit.diagnosis.elsewhere import find_elsewhere
from profkit.findings.values import Elsewhere
from profkit.run.directory import CallSite, Run
from profkit.run.whole_run import Place, RunAccount, StackActivity, StackTime
from tests.traces import annotation, facts_of, kernel, mark, op, runtime, step

MS, S = 1_000_000, 1_000_000_000
BESIDE = (10 * MS,) * 5
UPDATE = Place(CallSite("train.py", 26, "update"), loop=23, trains=True)
ACT = Place(CallSite("train.py", 19, "rollout"), loop=15, without_gradients=True)


def account(between_s: float) -> RunAccount:
    """A training of 2 s, with work without gradients beside it."""
    update = StackTime(StackActivity.BACKWARD.value, (0,), 2 * S, 0, 0, 9 * S, 40, 10)
    act = StackTime(StackActivity.FORWARD.value, (1,), int(between_s * S), 0, S, 8 * S, 40, 10)
    return RunAccount(0, S, 11 * S, (UPDATE, ACT), (update, act), S)


def facts(steps_ms: list[float], seen: RunAccount | None = None, **run: Any) -> Facts:
    """``steps_ms`` are the unprofiled steps that count."""
    reference = (*BESIDE, *(int(ms * MS) for ms in steps_ms))
    events = [event for i in range(4) for event in (step(i, 10_000 * i, 10_000), op("aten::mm", 10_000 * i, 50))]
    return facts_of(events, run=Run(torch="2.13", reference_step_ns=reference, **run), account=seen)


def one_in_four(count: int = 10, long_ms: float = 200) -> list[float]:
    return [10, 10, 10, long_ms] * count


def test_of_updates_after_a_rollout_most_of_the_time_is_elsewhere():
    assert find_elsewhere(facts(one_in_four())) == Elsewhere(pytest.approx(1 - 40 / 230), 4)


def test_where_that_is_comes_from_the_account_of_the_run():
    found = find_elsewhere(facts(one_in_four(), account(between_s=6)))
    assert found is not None
    assert (found.every, found.what, found.at) == (4, "work without gradients", "train.py:19")


@pytest.mark.parametrize(("long_ms", "is_told"), [(51, True), (49, False)])
def test_it_is_told_from_half_of_the_time_on(long_ms, is_told):
    assert (find_elsewhere(facts(one_in_four(long_ms=long_ms))) is not None) == is_told


@pytest.mark.parametrize(("between_s", "is_told"), [(6.0, True), (0.1, False)])
def test_long_steps_at_no_equal_distances_need_work_that_is_seen_outside_the_steps(between_s, is_told):
    irregular = [200 if i in (1, 2, 5, 11, 13, 14, 20, 27) else 10 for i in range(30)]
    found = find_elsewhere(facts(irregular, account(between_s)))
    assert (found is not None) == is_told
    assert found is None or found.every == 0


def test_too_few_steps_tell_nothing():
    assert find_elsewhere(facts([10, 10, 200] * 3)) is None


@pytest.mark.parametrize("run", [{"signals_per_step": 4}, {"one_in": 4}, {"is_part": True}])
def test_where_whole_cycles_or_their_long_steps_were_recorded_nothing_is_elsewhere(run):
    assert find_elsewhere(facts(one_in_four(), **run)) is None


def looping(
    first_us: int, beside_us: int, *, first_work_us: int = 50, numbered: bool = False, loading_us: int = 0
) -> Facts:
    """Work of ``beside_us``, then ten rounds of 1 ms with a kernel each, the first longer if need be."""
    events, at = (
        [op("aten::linspace", 0, max(beside_us, 1)), runtime("cuModuleLoadData", 0, max(loading_us, 1))],
        beside_us,
    )
    for i in range(10):
        took = first_us if i == 0 else 1000
        named = step(i, at, took) if numbered else annotation(f"iteration {i}", at, took)
        launched = runtime("cudaLaunchKernel", at + 10, 5, correlation=i + 1)
        work = kernel("gemm", at + 20, first_work_us if i == 0 else 50, correlation=i + 1)
        events += [named, op("aten::mm", at, 50), launched, work]
        at += took
    return facts_of(events)


def test_in_a_recording_alone_the_share_is_that_beside_measured_steps():
    found = find_elsewhere(looping(1000, 30_000))
    assert found == Elsewhere(pytest.approx(0.75, abs=0.001), of_recording=True)


@pytest.mark.parametrize(
    ("first_us", "beside_us", "more", "is_told"),
    [
        (1000, 10_100, {}, True),
        (1000, 9_900, {}, False),  # less than half
        (1000, 30_000, {"numbered": True}, False),  # the profiler's marks hold all that was to be recorded
        (1000, 30_000, {"loading_us": 20_000}, False),  # start-up is told apart
        (30_000, 0, {}, False),  # a cold start
        (30_000, 0, {"first_work_us": 25_000}, True),  # the device has more to do: no cold start
    ],
)
def test_what_counts_as_beside_the_steps_of_a_recording(first_us, beside_us, more, is_told):
    found = find_elsewhere(looping(first_us, beside_us, **more))
    assert (found is not None) == is_told


FIT = Place(CallSite("attack.py", 77, "fit"), loop=74, trains=True)
ATTACK = Place(CallSite("attack.py", 94, "attack"), loop=91, trains=True)
PENALTY = Place(CallSite("attack.py", 80, "fit"), loop=74, trains=True)


def two_loops(other: Place, other_s: float, *, marks: bool = True) -> Facts:
    """A run of 10 s: a recorded loop, and for ``other_s`` the line of another place; the rest is before the steps."""
    fit = StackTime(StackActivity.BACKWARD.value, (0,), 2 * S, 0, 0, 3 * S, 40, 10)
    later = StackTime(StackActivity.BACKWARD.value, (1,), int(other_s * S), 0, 3 * S, 10 * S, 40, 10)
    rest = StackTime(StackActivity.OTHER.value, (), int((8 - other_s) * S), 0, 0, 1, 40, 10)
    seen = RunAccount(0, 0, 10 * S, (FIT, other), (fit, later, rest), S)
    events = [event for i in range(4) for event in (step(i, 10_000 * i, 10_000), op("aten::mm", 10_000 * i + 9, 50))]
    located = [mark(0, 5, 60)] if marks else []
    sites = (FIT.site,)
    return facts_of([*events, *located], run=Run(torch="2.13"), callsites=sites, account=seen)


def test_a_loop_with_backward_passes_of_which_no_step_was_recorded():
    assert find_elsewhere(two_loops(ATTACK, 6)) == Elsewhere(pytest.approx(0.6), at="attack.py:94", of_run=True)


@pytest.mark.parametrize(("other_s", "is_told"), [(3.1, True), (2.9, False)])
def test_such_a_loop_is_told_from_three_tenths_of_the_run_on(other_s, is_told):
    assert (find_elsewhere(two_loops(ATTACK, other_s)) is not None) == is_told


def test_another_line_of_the_recorded_loop_is_no_other_loop():
    assert find_elsewhere(two_loops(PENALTY, 6)) is None


def test_without_lines_nobody_knows_which_loop_was_recorded():
    assert find_elsewhere(two_loops(ATTACK, 6, marks=False)) is None
