"""Garbage collections in a step that the program requests, and those that Python starts by itself."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.garbage_collection_in_step import garbage_collection_in_step
from profkit.run.directory import CallSite, Run
from profkit.savings.simulate import predict_saving
from profkit.trace.events import Category
from tests.traces import annotation, facts_of, mark, op, pause, rows_named, step, trace_of

Json = dict[str, Any]
ASKED, AUTOMATIC = "profkit.gc#2", "profkit.gc#2.automatic"


def facts_about(
    *parts: list[Json], run: Run | None = None, before: list[Json] | None = None, callsites: tuple[CallSite, ...] = ()
):
    """Steps of 1000 µs with a matrix product of 300 µs. ``parts`` are more events of each, timed from its start."""
    events = list(before or ())
    for i, part in enumerate(parts):
        at = 1000 * (i + bool(before))
        events += [step(i + 1, at, 1000), op("aten::mm", at, 300)]
        events += [{**event, "ts": event["ts"] + at} for event in part]
    return facts_of(events, run=run or Run(torch="2.13"), callsites=callsites)


def find(facts) -> list[Suspicion]:
    return list(garbage_collection_in_step.check(facts))


def test_a_requested_collection_in_each_step_costs_its_whole_time():
    facts = facts_about(*[[op(ASKED, 400, 250)]] * 4)
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, ASKED)
    assert found.evidence == {"collecting_ns_per_step": 250_000}
    assert predict_saving(facts, found.edit).fraction == 0.25
    assert "once a step" in found.message


def test_the_reported_time_is_scaled_to_the_median_step():
    """Collections take a sixth of 6,000 µs in all, so a sixth of the median step of 1,000 µs."""
    parts = [
        event
        for n, at in enumerate((0, 1000, 2000, 3000))
        for event in (step(n, at, 3000 if n == 3 else 1000), op("aten::mm", at, 300), op(ASKED, at + 400, 250))
    ]
    (found,) = find(facts_of(parts, run=Run(torch="2.13")))
    assert found.evidence == {"collecting_ns_per_step": 166_666}
    assert "takes 167 µs" in found.message


def test_each_line_that_requests_a_collection_gets_its_own_finding():
    sites = tuple(CallSite("train.py", line, "train", "gc.collect()") for line in (7, 9))
    located = [step(0, 0, 1000), mark(0, 400, 101), op(ASKED, 400, 100), mark(1, 600, 51), op(ASKED, 600, 50)]
    facts = facts_about(*[[op(ASKED, 400, 100), op(ASKED, 600, 50)]] * 4, before=located, callsites=sites)
    first, second = find(facts)
    assert [set(facts.lines.site[found.rows]) for found in (first, second)] == [{0}, {1}]
    assert predict_saving(facts, second.edit).fraction == 0.05


@pytest.mark.parametrize(("steps", "reported"), [(2, 1), (1, 0)])
def test_requests_in_fewer_than_half_of_the_steps_are_silent(steps, reported):
    assert len(find(facts_about(*[[op(ASKED, 400, 250)]] * steps, *[[]] * (4 - steps)))) == reported


def test_a_rare_full_collection_does_not_add_to_requested_young_ones():
    young = op("profkit.gc#0", 400, 40)
    facts = facts_about([young], [young], [young], [young, op(ASKED, 500, 400)])
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == 0.04


def test_a_recording_of_one_step_is_silent():
    assert find(facts_about([op(ASKED, 400, 250)])) == []


@pytest.mark.parametrize(("duration", "reported"), [(5, 1), (4.9, 0)])
def test_requested_collections_below_half_a_percent_of_the_step_are_silent(duration, reported):
    assert len(find(facts_about(*[[op(ASKED, 400, duration)]] * 4))) == reported


@pytest.mark.parametrize(("duration", "reported"), [(30, 1), (29, 0)])
def test_automatic_collections_below_three_percent_of_the_step_are_silent(duration, reported):
    found = find(facts_about(*[[op(AUTOMATIC, 400, duration)]] * 4))
    assert len(found) == reported


def test_an_automatic_collection_has_no_line():
    located = [step(0, 0, 1000), mark(0, 400, 101), op(AUTOMATIC, 400, 100)]
    facts = facts_about(*[[op(AUTOMATIC, 400, 100)]] * 4, before=located, callsites=(CallSite("a.py", 1, "f"),))
    (found,) = find(facts)
    assert (found.rows.size, found.location, found.count) == (0, None, 1)
    assert "gc.freeze()" in found.fix
    assert predict_saving(facts, found.edit).fraction == 0.1


@pytest.mark.parametrize(
    ("flags", "beginning"),
    [
        ({}, "Call `gc.freeze()` once after the set-up"),
        ({"gc_frozen": False}, "Call `gc.freeze()` once after the set-up"),
        ({"gc_frozen": True}, "`gc.freeze()` was called before this step."),
    ],
)
def test_a_program_that_froze_its_objects_is_not_told_to_do_so(flags, beginning):
    facts = facts_about(*[[op(AUTOMATIC, 400, 100)]] * 4, run=Run(torch="2.13", flags=flags))
    (found,) = find(facts)
    assert found.fix.startswith(beginning)


def test_a_single_automatic_collection_is_silent():
    assert find(facts_about([op(AUTOMATIC, 400, 500)], [], [], [])) == []
    assert find(facts_about([op(AUTOMATIC, 400, 500)])) == []


def test_a_rare_full_collection_does_not_add_to_automatic_young_ones():
    young = op("profkit.gc#0.automatic", 400, 40)
    facts = facts_about([young, op(AUTOMATIC, 500, 400)], [young], [young], [young])
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == 0.04


def test_collections_during_profkits_own_work_are_silent():
    assert find(facts_about(*[[pause(350, 400), op(ASKED, 400, 250)]] * 4)) == []


def test_collections_on_another_thread_are_silent():
    assert find(facts_about(*[[op(ASKED, 400, 250, tid=2)]] * 4)) == []


def test_it_cannot_look_at_a_recording_made_elsewhere():
    with pytest.raises(CannotLook, match="profkit made"):
        find(facts_about([], run=Run()))


def test_a_collection_mark_is_not_an_operator():
    trace = trace_of([op(ASKED, 0, 5), op(AUTOMATIC, 10, 5)])
    assert trace.events.category.tolist() == [Category.HOST_MARK] * 2


def test_collections_during_compilation_are_silent():
    within = [op("_compile.compile_inner (dynamo_timed)", 390, 300), op(AUTOMATIC, 400, 250)]
    assert find(facts_about(*[within] * 4)) == []
    assert len(find(facts_about(*[[*within, op(AUTOMATIC, 700, 250)]] * 4))) == 1


def test_automatic_collections_while_samples_are_picked_are_silent():
    picks = [op("aten::select", 400 + 5 * i, 2) for i in range(64)]
    collections = [op("profkit.gc#0.automatic", 403 + 50 * i, 1.5) for i in range(6)]
    alone = [[*collections]] * 4
    loading = [
        [annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 399, 400), *picks, *collections]
    ] * 4
    assert find(facts_about(*loading)) == []
    assert bool(find(facts_about(*[[*part, op("profkit.gc#0.automatic", 900, 80)] for part in alone])))


def test_a_collection_requested_while_samples_are_picked_is_reported():
    picks = [op("aten::select", 400 + 5 * i, 2) for i in range(64)]
    request = annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 399, 600)
    (found,) = find(facts_about(*[[request, *picks, op(ASKED, 750, 200)]] * 4))
    assert found.evidence == {"collecting_ns_per_step": 200_000}
