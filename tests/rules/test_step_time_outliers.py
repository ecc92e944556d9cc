"""Slow steps: several of them, far from the rest, and worth something; with what differs in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec import structs
from msgspec.structs import replace

from profkit.findings.values import Kind, Severity
from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.step_time_outliers import step_time_outliers
from profkit.run.directory import CallSite, Run
from profkit.run.whole_run import RunAccount
from tests.patterns.looks import (
    BATCH,
    BEGUN_NS,
    CALLED,
    EVALUATE,
    FORWARD,
    SCORE,
    UPDATE,
    looked_at,
    slow_steps,
)
from tests.traces import annotation, facts_of, mark, op, rows_named, step

Json = dict[str, Any]
MS = 1_000_000
BESIDE = (90 * MS, 10 * MS, 10 * MS, 50 * MS, 50 * MS)
"""The first step of the program and those beside the recording, which do not count."""


def recorded(*durations: int, inside: dict[int, list[Json]] | None = None) -> list[Json]:
    """Steps of these lengths in µs; ``inside`` has further events of some, by their time in the step."""
    events, at = [], 0
    for i, duration in enumerate(durations):
        events += [step(i, at, duration), op("aten::mm", at, 50)]
        events += [{**event, "ts": event["ts"] + at} for event in (inside or {}).get(i, [])]
        at += duration
    return events


def find(unprofiled: list[float], events: list[Json] | None = None, **run: Any) -> list[Suspicion]:
    """``unprofiled`` are the steps that count, in ms."""
    reference = (*BESIDE, *(int(ms * MS) for ms in unprofiled))
    facts = facts_of(events or recorded(*[100] * 4), run=Run(torch="2.13", reference_step_ns=reference, **run))
    return list(step_time_outliers.check(facts))


def with_slow(*at: int, ms: float = 50, count: int = 24) -> list[float]:
    """Steps of 10 ms, give or take 0.1, and slow ones."""
    return [ms if i in at else 10 + 0.1 * (i % 3 - 1) for i in range(count)]


OUTSIDE = "Of that time in the recorded ones, 0 % passes in PyTorch's operators, the rest outside."


def test_slow_steps_at_regular_intervals_are_found_without_a_recording_of_them():
    (found,) = find(with_slow(3, 11, 19))
    assert (found.count, found.severity) == (3, Severity.LOW)
    assert found.evidence == {"slow_steps": 3, "slowest_times_median": 5.0, "share_of_time": 0.3, "every_steps": 8}
    assert ", one in 8:" in found.message


def test_at_no_regular_interval_and_without_a_cause_they_are_for_information():
    (found,) = find(with_slow(3, 4, 19))
    assert (found.severity, found.confidence) == (Severity.INFO, 0.4)
    assert found.message.endswith("They ran while nothing was recorded: no more is known of them.")


def test_epochs_may_end_long_after_the_recording():
    later = tuple(int(ms * MS) for ms in with_slow(19, 49, 79, count=90))
    (found,) = find(with_slow(), later_step_ns=later)
    assert (found.count, found.severity, found.evidence["every_steps"]) == (3, Severity.LOW, 30)
    assert "If they end an epoch" in found.fix
    assert find(with_slow(), later_step_ns=tuple(int(ms * MS) for ms in with_slow(count=90))) == []


def test_an_accident_does_not_hide_the_intervals_of_slower_steps():
    steps = with_slow(3, 11, 19)
    (found,) = find([*steps[:6], 25.0, *steps[7:]])
    assert (found.count, found.evidence["every_steps"]) == (4, 8)
    (irregular,) = find([*steps[:6], 35.0, *steps[7:]])  # more than half as slow as the others
    assert "every_steps" not in irregular.evidence


def test_an_accident_as_slow_as_others_does_not_hide_many_intervals():
    (found,) = find(with_slow(3, 7, 11, 12, 15, 19, 23, 27, 31, 35, count=40))
    assert "every_steps" not in found.evidence  # two of nine intervals differ
    (found,) = find(with_slow(*range(3, 80, 4), 12, count=80))
    assert found.evidence["every_steps"] == 4


def test_one_far_slower_step_is_no_measure_of_the_others():
    steps = with_slow(*range(3, 40, 4), count=40)
    steps[7] = 120.0
    (found,) = find(steps)
    assert found.evidence["every_steps"] == 4


@pytest.mark.parametrize(
    ("at", "severity"),
    [((3, 4, 11, 15, 16, 22), Severity.LOW), ((0, 1, 2, 4, 5, 7), Severity.INFO)],
    ids=["to the last", "warm-up"],
)
def test_slow_steps_that_take_most_of_the_time_matter_unless_they_are_the_first(at, severity):
    (found,) = find(with_slow(*at, ms=100))
    assert (found.evidence["share_of_time"] > 0.5, found.severity) == (True, severity)


def test_one_slow_step_is_an_accident():
    assert find(with_slow(3)) == []


@pytest.mark.parametrize(("ms", "reported"), [(20.0, 1), (19.9, 0)])
def test_twice_the_median_is_the_least(ms, reported):
    assert len(find(with_slow(2, 9, 16, ms=ms))) == reported


def test_what_takes_less_than_a_twentieth_of_the_time_is_silent():
    assert len(find(with_slow(2, 9, ms=22))) == 1
    assert find(with_slow(2, 9, ms=22, count=50)) == []


@pytest.mark.parametrize("seed", range(20))
def test_a_noisy_run_without_a_fault_is_silent(seed):
    noise = np.random.default_rng(seed).lognormal(0, 0.25, 28)
    assert find((10 * noise).tolist()) == []


def test_the_first_steps_and_those_beside_the_recording_do_not_count():
    assert find([10.0] * 24) == []


def test_a_collection_in_the_slow_recorded_steps_is_the_cause_and_has_its_line():
    pauses = {i: [op("profkit.gc#2", 60, 350)] for i in (1, 3)}
    events = recorded(100, 450, 100, 450, 100, 100, inside=pauses)
    (found,) = find(with_slow(), events)
    assert "Python's garbage collections" in found.message
    assert found.rows.tolist() == rows_named(facts_of(events).trace, "profkit.gc#2")
    assert found.severity is Severity.LOW


def test_what_takes_less_than_half_of_the_excess_is_not_the_cause():
    pauses = {i: [op("profkit.gc#2", 60, 174)] for i in (1, 3)}
    (found,) = find(with_slow(), recorded(100, 450, 100, 450, 100, 100, inside=pauses))
    assert found.rows.size == 0
    assert found.message.endswith(OUTSIDE)


def test_a_batch_waited_for_in_every_step_is_not_what_differs():
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    inside = {i: [annotation(loader, 60, 40 if i not in (1, 3) else 390)] for i in range(6)}
    (found,) = find(with_slow(), recorded(100, 450, 100, 450, 100, 100, inside=inside))
    assert "the next batch is waited for" in found.message
    inside = {i: [annotation(loader, 60, 40)] for i in range(6)}
    (found,) = find(with_slow(), recorded(100, 450, 100, 450, 100, 100, inside=inside))
    assert found.message.endswith(OUTSIDE)


def test_new_memory_shows_without_a_recording():
    faults = tuple(40_000 if ms == 50 else 10 for ms in (0, 0, 0, 0, 0, *with_slow(3, 4, 19)))
    (found,) = find(with_slow(3, 4, 19), reference_step_faults=faults, page_fault_ns=1000)
    assert "page by page" in found.message
    assert found.severity is Severity.INFO
    (unexplained,) = find(with_slow(3, 4, 19), reference_step_faults=faults, page_fault_ns=400)
    assert "no more is known of them" in unexplained.message


def test_without_a_cause_it_is_said_on_which_side_of_the_program_the_slow_steps_spend_their_time():
    inside = {i: [op("aten::mm", 60, 300)] for i in (1, 3)}
    (found,) = find(with_slow(), recorded(100, 460, 100, 460, 100, 100, inside=inside))
    assert found.message.endswith(OUTSIDE.replace("0 %", "83 %"))


def test_a_recording_of_enough_steps_needs_no_others():
    events = recorded(900, *[100] * 6, 500, *[100] * 6, 500)
    (found,) = step_time_outliers.check(facts_of(events))
    assert found.count == 2


def test_located_steps_are_not_timed():
    events = recorded(*[5000] * 2, *[100] * 11, inside={i: [mark(0, 55, 10)] for i in (0, 1)})
    assert list(step_time_outliers.check(facts_of(events, callsites=(CallSite("a.py", 1, "f"),)))) == []


def test_too_few_steps_tell_nothing():
    with pytest.raises(CannotLook, match="fewer than 10 steps"):
        find([10.0] * 5)


def watched(stack: int, ms: int = 180) -> list[Suspicion]:
    """Steps after the recording that were looked at: one in eleven takes so much longer, in this stack."""
    columns, later_ms = slow_steps(stack, ms=ms)
    until_ns = BEGUN_NS + 100 * MS * len(columns)
    later = tuple(int(ms * MS) for ms in later_ms)
    reference = (*BESIDE, *(int(ms * MS) for ms in with_slow()))
    run = Run(torch="2.13", reference_step_ns=reference, later_step_ns=later, timed_until_ns=until_ns)
    facts = facts_of(recorded(*[100] * 4), run=run, account=looked_at(columns))
    return list(step_time_outliers.check(facts))


def test_what_makes_slow_steps_slow_is_named_with_its_share_of_the_run():
    (found,) = watched(SCORE)
    assert found.location is not None
    assert (found.location.line, [place.line for place in found.also]) == (12, [46])
    assert (found.kind, found.severity) == (Kind.OPPORTUNITY, Severity.LOW)
    assert found.run_ns == pytest.approx(4 * 180 * MS, rel=0.01)
    assert (
        "100 % of that passes at this line, in evaluation: 180 ms in each slow step, 42 % of the run." in found.message
    )
    assert found.fix.startswith("Evaluate less often")


def split(account: RunAccount, stack: int, into: int) -> RunAccount:
    """The same, with the time of this stack at so many lines of its function in turn."""
    first, place = len(account.places), account.places[account.stacks[stack].places[-1]]
    lines = [structs.replace(place, site=replace(place.site, line=100 + at)) for at in range(into)]
    way, seen = account.stacks[stack].places[:-1], account.stacks[stack]
    stacks = [structs.replace(seen, places=(*way, first + at), time_ns=seen.time_ns // into) for at in range(into)]
    columns = tuple(
        tuple(
            pair
            for number, ns in column
            for pair in (
                [(len(account.stacks) + at, ns // into) for at in range(into)] if number == stack else [(number, ns)]
            )
        )
        for column in account.columns
    )
    places = (*account.places, *lines)
    return structs.replace(account, places=places, stacks=(*account.stacks, *stacks), columns=columns)


@pytest.mark.parametrize(("into", "is_named"), [(2, True), (9, False)])
def test_what_happened_at_many_lines_is_told_by_its_phase(into, is_named):
    columns, later_ms = slow_steps(SCORE)
    later = tuple(int(ms * MS) for ms in later_ms)
    reference = (*BESIDE, *(int(ms * MS) for ms in with_slow()))
    until_ns = BEGUN_NS + 100 * MS * len(columns)
    run = Run(torch="2.13", reference_step_ns=reference, later_step_ns=later, timed_until_ns=until_ns)
    account = split(looked_at(columns), SCORE, into)
    (found,) = step_time_outliers.check(facts_of(recorded(*[100] * 4), run=run, account=account))
    assert (
        "By looks at the main thread that is: 100 % evaluation (such as train.py:10" in found.message
    ) is not is_named
    assert (found.run_ns > 0) is is_named
    assert found.severity is Severity.LOW
    assert found.fix.startswith("Evaluate less often")


def test_lines_that_take_half_of_the_run_are_of_medium_severity():
    (found,) = watched(SCORE, ms=380)
    assert "380 ms in each slow step, 61 % of the run." in found.message
    assert found.severity is Severity.MEDIUM


@pytest.mark.parametrize("stack", [EVALUATE, BATCH])
def test_work_between_epochs_and_at_their_start_is_named_but_priced_by_another_rule(stack):
    (found,) = watched(stack)
    assert (found.run_ns, found.severity) == (0, Severity.INFO)
    assert found.location is not None


def test_what_other_programs_stretch_is_not_named():
    (found,) = watched(UPDATE)
    assert found.location is None
    assert found.run_ns == 0


def recorded_alone(slow_ms: int, stack: int = FORWARD) -> list[Suspicion]:
    """A recording of the long step alone; beside it the looks at the whole run, ten seconds of training among them."""
    columns = [{UPDATE: 90 * MS, CALLED: 10 * MS}] * 100
    columns = [*columns[:50], {stack: slow_ms * MS}, *columns[50:]]
    run = Run(torch="2.13", reference_step_ns=(900 * MS,) * 4, one_in=40, share_of_time=0.9)
    return list(step_time_outliers.check(facts_of(recorded(900), run=run, account=looked_at(columns))))


@pytest.mark.parametrize(("slow_ms", "severity"), [(12_000, Severity.LOW), (4_000, Severity.LOW), (1_000, None)])
def test_of_a_long_step_that_was_recorded_alone_the_line_beside_the_training_is_told(slow_ms, severity):
    found = recorded_alone(slow_ms)
    assert [one.severity for one in found] == ([] if severity is None else [severity])
    for one in found:
        assert one.message.startswith("One step in 40 takes 90 % of the time, and was recorded alone. This line takes")
        assert [place.line for place in one.places.all()] == [12, 46]
        assert one.run_ns == slow_ms * MS


def test_what_is_recorded_alone_but_lies_in_the_training_s_own_lines_is_for_other_rules():
    assert recorded_alone(12_000, EVALUATE) == []
    assert recorded_alone(12_000, UPDATE) == []


def test_slow_steps_that_take_most_of_the_time_are_for_information_if_all_lines_share_in_them():
    """Other programs do that: looks at the same steps tell of no line that makes them slow."""
    columns = [{UPDATE: 80 * MS, CALLED: 20 * MS}] * 31
    at = (3, 4, 9, 17, 18, 25, 30, 38, 44, 45, 52, 59, 63, 70, 71, 77)
    slow = [120.0 if i in at else 10.0 for i in range(80)]
    later = tuple(int(ms * MS) for ms in slow)
    run = {"later_step_ns": later, "timed_until_ns": BEGUN_NS + 3_100 * MS}
    (unseen,) = find(with_slow(), later_step_ns=later)
    reference = (*BESIDE, *(int(ms * MS) for ms in with_slow()))
    facts = facts_of(
        recorded(*[100] * 4), run=Run(torch="2.13", reference_step_ns=reference, **run), account=looked_at(columns)
    )
    (seen,) = step_time_outliers.check(facts)
    assert unseen.evidence["share_of_time"] > 0.5
    assert "every_steps" not in unseen.evidence
    assert (unseen.severity, seen.severity) == (Severity.LOW, Severity.INFO)
