"""Runs whose steps get longer, and runs whose steps only vary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from profkit.derive.facts import Facts
from profkit.findings.values import Kind, Severity
from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.growing_step_time import growing_step_time
from profkit.run.directory import CallSite, LiveHolder, LiveSample, Remark, Run
from profkit.run.whole_run import Place, RunAccount, StackActivity, StackTime, StepSpan
from profkit.trace.events import no_trace
from tests.patterns.looks import BEGUN_NS, SCORE, UPDATE, looked_at
from tests.traces import facts_of, memory, op, step

MS = 1_000_000
GROWING_MS = np.linspace(10, 20, 80)


def find(later_ms: np.ndarray, **more: Any) -> list[Suspicion]:
    events = [event for i in range(4) for event in (step(i, 1000 * i, 1000), op("aten::mm", 1000 * i, 900))]
    run = Run(torch="2.13", reference_step_ns=(MS,) * 20, later_step_ns=tuple((later_ms * MS).astype(int).tolist()))
    return list(growing_step_time.check(facts_of([*events, *more.pop("events", [])], run=run, **more)))


def test_steps_that_get_longer_all_the_time_are_reported_with_the_fastest_of_both_ends():
    (found,) = find(np.linspace(10, 20, 80))
    assert found.kind is None
    assert growing_step_time.kind is Kind.OPPORTUNITY
    assert found.severity is Severity.MEDIUM
    assert found.evidence == {
        "steps_after_the_recording": 80,
        "fastest_ns_at_first": pytest.approx(10.63 * MS, abs=MS / 50),
        "fastest_ns_at_last": pytest.approx(18.23 * MS, abs=MS / 50),
    }
    assert (
        "Steps get 71 % longer within 80 steps after the recording: the fastest went from 10.6 ms to 18.2 ms."
        in found.message
    )


@pytest.mark.parametrize("seed", range(20))
def test_noise_of_a_busy_machine_neither_hides_growth_nor_looks_like_it(seed):
    """Half of the steps take up to three times as long."""
    noise = np.random.default_rng(seed)
    stretched = np.where(noise.random(120) < 0.5, noise.uniform(1, 3, 120), 1)
    assert len(find(np.linspace(10, 20, 120) * stretched)) == 1
    assert find(10 * stretched) == []


@pytest.mark.parametrize("seed", range(20))
def test_batches_of_different_sizes_are_no_growth(seed):
    assert find(np.random.default_rng(seed).uniform(5, 50, 200)) == []


def test_a_jump_is_no_growth():
    """Another program starts in the middle."""
    assert find(np.repeat([10.0, 20.0], 40) + np.tile([0, 0.1], 40)) == []


def test_an_evaluation_now_and_then_is_no_growth():
    steps = np.full(100, 10.0)
    steps[::10] = 40
    assert find(steps) == []


@pytest.mark.parametrize(("last", "found"), [(1.40, 1), (1.30, 0)])
def test_a_quarter_is_the_least(last, found):
    """From the mean of the first two blocks to that of the last two."""
    assert len(find(np.linspace(10, 10 * last, 80))) == found


@pytest.mark.parametrize(("last", "severity"), [(1.6, Severity.LOW), (1.8, Severity.MEDIUM)])
def test_by_half_it_is_medium(last, severity):
    assert [one.severity for one in find(np.linspace(10, 10 * last, 80))] == [severity]


def test_steps_that_get_shorter_are_no_matter():
    assert find(np.linspace(20, 10, 80)) == []


def test_with_fewer_than_sixty_four_steps_nothing_can_be_told():
    with pytest.raises(CannotLook, match="fewer than 64 steps were timed after the recording"):
        find(np.linspace(10, 20, 63))


@pytest.mark.parametrize(("kept_bytes", "is_named"), [(4_095, False), (4_096, True), (200_000, True)])
def test_what_is_kept_more_and_more_is_named_but_for_single_numbers(kept_bytes, is_named):
    site = CallSite("train.py", 9, "main", "outputs.append(model(x))")
    samples = tuple(
        LiveSample(n, (LiveHolder("outputs", site, 0, 0, kept_bytes * (n + 1), n + 1, kept_bytes * (n + 1), False),))
        for n in range(4)
    )
    kept = [memory(1000 * n + 5, kept_bytes, 1000 + n) for n in range(4)]
    (found,) = find(np.linspace(10, 20, 80), live=samples, events=kept)
    assert found.message.endswith("Meanwhile `outputs` holds more and more.") is is_named
    assert (found.location is not None and found.location.line == 9) is is_named


def watched(time_ms: float, cpu_ms: float, activity: StackActivity = StackActivity.BACKWARD) -> RunAccount:
    """A run whose main thread was seen in the steps' work for so long, and had the CPU for a part of it."""
    place = Place(CallSite("train.py", 4, "main"), loop=3, trains=True)
    times = int(time_ms * MS), int(cpu_ms * MS)
    stacks = [StackTime(activity.value, (0,), *times, MS, 2_000 * MS, 99, 1)]
    if activity is not StackActivity.BACKWARD:
        stacks.append(StackTime(StackActivity.BACKWARD.value, (0,), 1_000 * MS, 990 * MS, MS, 2_000 * MS, 99, 1))
    return RunAccount(0, MS, 3_000 * MS, (place,), tuple(stacks), 100 * MS, is_over=True)


def test_steps_that_get_longer_with_the_cpu_are_the_programs():
    (found,) = find(GROWING_MS, account=watched(1_200, 1_150))
    assert found.severity is Severity.MEDIUM
    assert "CPU" not in found.message


def test_steps_that_get_longer_without_the_cpu_tell_nothing():
    """Other programs start one after another: the steps compute no more than before."""
    with pytest.raises(CannotLook, match="in them the main thread was without the CPU for so long"):
        find(GROWING_MS, account=watched(1_200, 700))


def test_half_of_what_they_got_longer_by_is_too_much():
    longer_ms = float((GROWING_MS - 10.632911).clip(0).sum())
    assert len(find(GROWING_MS, account=watched(1_200, 1_200 - 0.49 * longer_ms))) == 1
    with pytest.raises(CannotLook):
        find(GROWING_MS, account=watched(1_200, 1_200 - 0.51 * longer_ms))


def test_steps_that_do_not_get_longer_are_looked_at_without_the_cpu_as_well():
    assert find(np.full(80, 10.0), account=watched(1_200, 100)) == []


@pytest.mark.parametrize("cpu_ms", [0, -1])
def test_a_system_that_tells_no_cpu_time_changes_nothing(cpu_ms):
    (found,) = find(GROWING_MS, account=watched(1_200, cpu_ms))
    assert found.severity is Severity.MEDIUM


def test_waiting_for_data_that_takes_longer_and_longer_is_the_programs():
    (found,) = find(GROWING_MS, account=watched(900, 10, StackActivity.DATA))
    assert found.severity is Severity.MEDIUM


def test_a_device_that_bounds_the_steps_is_timed_by_itself():
    """The host's clock tells only how long its steps took to launch."""
    events = [event for i in range(4) for event in (step(i, 1000 * i, 1000), op("aten::mm", 1000 * i, 900))]
    device = tuple((np.linspace(10, 20, 80) * MS).astype(int).tolist())
    run = Run(torch="2.13", reference_step_device_ns=(MS,) * 20, later_step_device_ns=device)
    assert len(list(growing_step_time.check(facts_of(events, run=run)))) == 1
    shorter = replace(run, later_step_device_ns=device[::-1])
    assert list(growing_step_time.check(facts_of(events, run=shorter))) == []


def looked(update_ms: tuple[int, int], score_ms: tuple[int, int], **more: Any) -> list[Suspicion]:
    """Two lines that take so much of a step at first and at last, in eight parts of a second each, with looks."""
    parts = more.pop("parts", np.linspace(0, 1, 8))
    columns, later = [{UPDATE: 100 * MS}], list[float]()
    for part in parts:
        update, score = (first + (last - first) * part for first, last in (update_ms, score_ms))
        scale = 100 * MS / (update + score)
        columns += [{UPDATE: int(update * scale), SCORE: int(score * scale)}] * 10
        later += [update + score] * round(1_000 / (update + score))
    events = [event for i in range(4) for event in (step(i, 1000 * i, 1000), op("aten::mm", 1000 * i, 900))]
    later_ns = tuple(int(ms * MS) for ms in later)
    until_ns = BEGUN_NS + 100 * MS * len(columns)
    run = Run(torch="2.13", reference_step_ns=(MS,) * 20, later_step_ns=later_ns, timed_until_ns=until_ns)
    run = replace(run, remarks=more.pop("remarks", ()))
    return list(growing_step_time.check(facts_of(events, run=run, account=looked_at(columns), **more)))


def test_the_line_that_got_longer_is_where_and_what_it_took_beyond_its_beginning_is_the_price():
    (found,) = looked((10, 10), (10, 30))
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("train.py", 12)
    assert "of that is at this line, as looks at the main thread show" in found.message
    assert found.severity is Severity.MEDIUM
    assert 0.15 * 8_000 * MS < found.run_ns < 0.5 * 8_000 * MS


def test_where_all_lines_got_longer_none_is_named():
    (found,) = looked((10, 20), (10, 20))
    assert (found.location, found.run_ns) == (None, 0)


def run_through(step_ms: list[float], update_ms: list[float], **more: Any) -> list[Suspicion]:
    """A run that was only watched: ten spans of 100 ms for each of these steps, of which a line takes so much."""
    columns, steps, until_ns = [{UPDATE: 100 * MS}], list[StepSpan](), 100 * MS
    for took, update in zip(step_ms, update_ms, strict=True):
        for _ in range(10):
            columns.append({UPDATE: int(100 * MS * update / took), SCORE: int(100 * MS * (took - update) / took)})
            until_ns += 100 * MS
            count = round(100 / took)
            steps.append(StepSpan(until_ns, count, 100 * MS, int(took * MS), int(2 * took * MS)))
    account = structs.replace(looked_at(columns), steps=tuple(steps[:: more.pop("every", 1)]))
    return list(growing_step_time.check(Facts(no_trace(), Run(), account=account)))


EVEN = np.linspace(5, 20, 8).tolist()


def test_a_run_that_was_only_watched_tells_growth_and_its_line():
    (found,) = run_through(EVEN, [4] * 8)
    assert found.location is not None
    assert found.location.line == 12
    assert found.severity is Severity.MEDIUM
    assert "longer within 780 steps of the run: those of the first quarter took 5." in found.message
    assert 0.3 * 8_000 * MS < found.run_ns < 0.6 * 8_000 * MS
    assert found.evidence["steps_in_run"] == 780


def test_a_watched_run_whose_lines_all_get_longer_names_none():
    (found,) = run_through(EVEN, [ms / 2 for ms in EVEN])
    assert (found.location, found.run_ns) == (None, 0)
    assert "the fastest went from 6.07 ms to 18.9 ms." in found.message


@pytest.mark.parametrize(
    "steps", [[10.0] * 8, [10.0] * 4 + [20.0] * 4, [5.0] * 3 + [10.0] * 3 + [20.0] * 2, EVEN[::-1], [10, *[12.0] * 7]]
)
def test_a_watched_run_of_equal_steps_or_of_a_few_sizes_does_not_grow(steps):
    assert run_through(steps, [4] * 8) == []


LATE = [5.0] * 8 + EVEN
SIZES = [5.0] * 10 + [10.0] * 3 + [20.0] * 3


def test_growth_that_begins_late_is_told_with_its_beginning_and_priced_from_there_on():
    (found,) = run_through(LATE, [4] * 16)
    assert found.location is not None
    assert found.location.line == 12
    assert "steps of the run, from 7.50 s after its start on:" in found.message
    assert "those before took 5.00 ms, the last ones 1" in found.message
    assert found.severity is Severity.MEDIUM
    (early,) = run_through(EVEN, [4] * 8)
    assert found.run_ns == pytest.approx(early.run_ns, rel=0.25)


@pytest.mark.parametrize("steps", [SIZES, [5.0] * 14 + [20.0] * 2, [5.0] * 8 + [20.0] * 8, EVEN[::-1] + [5.0] * 8])
def test_a_late_jump_and_an_early_shrinking_are_no_late_growth(steps):
    assert run_through(steps, [4] * 16) == []


def behind_a_recording(step_ms: list[float], **more: Any) -> list[Suspicion]:
    """80 steps of 10 ms were timed near the recording; the account knows all those behind it as well."""
    columns, steps, until_ns = [{UPDATE: 100 * MS}], list[StepSpan](), 100 * MS
    for took in step_ms:
        for _ in range(10):
            columns.append({UPDATE: int(400 * MS / took), SCORE: int(100 * MS * (took - 4) / took)})
            until_ns += 100 * MS
            steps.append(StepSpan(until_ns, round(100 / took), 100 * MS, int(took * MS), int(2 * took * MS)))
    account = structs.replace(looked_at(columns), steps=tuple(steps))
    return find(more.pop("later", np.full(80, 5.0)), account=account)


def test_growth_long_after_the_recording_is_seen():
    (found,) = behind_a_recording(LATE)
    assert found.location is not None
    assert found.location.line == 12
    assert found.run_ns > 0
    assert behind_a_recording([5.0] * 16) == []


def test_growth_near_the_recording_counts_if_the_whole_run_shows_none():
    (found,) = behind_a_recording([5.0] * 16, later=GROWING_MS)
    assert "longer within 80 steps after the recording" in found.message


def test_of_a_watched_run_too_few_steps_are_too_few():
    with pytest.raises(CannotLook, match="fewer than 64 steps were timed, or for less than two seconds"):
        run_through(EVEN, [4] * 8, every=6)


def test_a_recording_without_later_steps_and_a_run_without_any_are_not_looked_at():
    with pytest.raises(CannotLook, match="fewer than 64 steps were timed after the recording"):
        find(np.full(10, 10.0))
    assert missing_needs(Facts(no_trace(), Run(), account=looked_at([{UPDATE: MS}])), growing_step_time.needs) == [
        Need.TRACE
    ]


def test_an_innocent_list_that_grows_beside_the_line_is_not_named():
    site = CallSite("train.py", 9, "main", "losses.append(loss)")
    samples = tuple(
        LiveSample(n, (LiveHolder("losses", site, 0, 0, 9_000 * (n + 1), n + 1, 9_000 * (n + 1), False),))
        for n in range(4)
    )
    kept = [memory(1000 * n + 5, 9_000, 1000 + n) for n in range(4)]
    (found,) = find(np.linspace(10, 20, 80), live=samples, events=kept)
    assert "`losses`" in found.message
    (found,) = looked((10, 10), (10, 30), live=samples)
    assert "losses" not in found.message
    assert [place.line for place in found.places.all()] == [12]


@pytest.mark.parametrize(("used_at", "until", "leads"), [(10, 14, True), (13, 14, False)])
def test_the_place_that_registers_the_hook_around_the_line_leads(used_at, until, leads):
    site = CallSite("train.py", 20, "watch", "layer.register_forward_hook(keep)")
    (found,) = looked((10, 10), (10, 30), remarks=(Remark("hook-registered", site, until, used_at),))
    assert [place.line for place in found.places.all()] == ([20, 12] if leads else [12])
    assert ("a hook, which train.py:20 registers" in found.message) is leads


def test_a_jump_counts_if_one_line_alone_got_longer():
    jump = np.repeat([0.0, 1.0], 4)
    (found,) = looked((10, 10), (10, 30), parts=jump)
    assert found.location is not None
    assert (found.location.line, found.severity) == (12, Severity.LOW)
    assert looked((10, 20), (10, 20), parts=jump) == []


def recorded_again(
    update_ms: int, score_ms: int, earlier_ms: np.ndarray | None = None, later_ms: np.ndarray | None = None
) -> list[Suspicion]:
    """30 steps of 20 ms, of which each line takes a half, then a second recording, then 40 steps of that length. Single
    steps may differ."""
    step_ms = update_ms + score_ms
    later = {UPDATE: 100 * MS * update_ms // step_ms, SCORE: 100 * MS * score_ms // step_ms}
    first = [{UPDATE: 50 * MS, SCORE: 50 * MS}] * 6
    columns = [*first, {UPDATE: 100 * MS}, {UPDATE: 100 * MS}, *([later] * (40 * step_ms // 100))]
    events = [event for i in range(4) for event in (step(i, 1000 * i, 1000), op("aten::mm", 1000 * i, 900))]
    run = Run(
        torch="2.13",
        reference_step_ns=(MS,) * 20,
        later_step_ns=_ns(np.full(40, step_ms) if later_ms is None else later_ms),
        timed_until_ns=BEGUN_NS + 100 * MS * len(columns),
        earlier_step_ns=_ns(np.full(30, 20) if earlier_ms is None else earlier_ms),
        earlier_until_ns=BEGUN_NS + 600 * MS,
    )
    return list(growing_step_time.check(facts_of(events, run=run, account=looked_at(columns))))


def _ns(steps_ms: np.ndarray) -> tuple[int, ...]:
    return tuple((steps_ms * MS).astype(int).tolist())


def test_steps_between_two_recordings_are_the_first_ones():
    (found,) = recorded_again(10, 90)
    assert found.message.startswith("Steps got 400 % longer: earlier ones took 20.0 ms, the last ones 100")
    assert found.location is not None
    assert (found.location.line, found.severity) == (12, Severity.MEDIUM)
    assert found.run_ns == pytest.approx(40 * 80 * MS, rel=0.01)


def test_even_growth_across_both_recordings_began_with_the_programs_first_step():
    """Earlier steps grew from 15 ms to 25, later ones from 70 to 130: of the first line's 10 ms, too, nothing is left
    in the program's first step, so all that it takes is growth."""
    even = recorded_again(10, 90, np.linspace(15, 25, 30), np.linspace(70, 130, 40))
    jump = recorded_again(10, 90)
    assert even[0].run_ns == pytest.approx((40 * 90 + 30 * 10) * MS, rel=0.01)
    assert jump[0].run_ns == pytest.approx(40 * 80 * MS, rel=0.01)


def test_if_all_lines_got_longer_between_two_recordings_the_later_steps_decide():
    with pytest.raises(CannotLook, match="fewer than 64 steps"):
        recorded_again(50, 50)
