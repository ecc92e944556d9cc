"""Time outside of all that PyTorch records: how much, and under which line."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.findings import Severity
from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.unattributed_time import unattributed_time
from profkit.run import CallSite, Run
from tests.traces import annotation, facts_of, kernel, mark, op, pause, runtime, step

Json = dict[str, Any]
SITES = tuple(CallSite("train.py", line, "main") for line in (4, 5, 6))


def steps(*inside: Json, count: int = 3, before: list[Json] | None = None) -> list[Json]:
    """Steps of 2000 us, each with an operator in the first 1000 and what is given, by its time in the step."""
    events = list(before or [])
    for i in range(bool(before), count + bool(before)):
        at = 2000 * i
        events += [step(i, at, 2000), op("aten::mm", at, 1000)]
        events += [{**event, "ts": event["ts"] + at} for event in inside]
    return events


def find(events: list[Json], run: Run | None = None) -> list[Suspicion]:
    return list(unattributed_time.check(facts_of(events, run=run or Run(torch="2.13"), callsites=SITES)))


def test_half_of_the_step_outside_is_said_and_not_priced():
    (found,) = find(steps())
    assert found.evidence == {"unattributed_ns_per_step": 1_000_000, "unattributed_share": 0.5}
    assert (found.edit, found.severity, found.count, found.location) == (None, Severity.LOW, 1, None)


def test_the_line_is_that_with_most_of_it_in_the_located_step():
    located = [
        step(0, 0, 2000), op("aten::mm", 0, 300), mark(0, 0, 320),
        mark(1, 320, 1000), mark(2, 400, 900), mark(0, 1400, 600),
    ]  # fmt: skip
    (found,) = find(steps(before=located))
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("train.py", 6)
    assert [place.line for place in found.also] == [4]


@pytest.mark.parametrize(("covered", "reported"), [(600, 1), (601, 0)])
def test_a_fifth_of_the_step_is_the_least(covered, reported):
    assert len(find(steps(op("aten::add", 1000, covered)))) == reported


@pytest.mark.parametrize(("gap", "reported"), [(200, 1), (199, 0)])
def test_the_way_from_one_operator_to_the_next_is_something_else(gap, reported):
    parts = [op("aten::add", 1000 + gap + i * 200, 200 - gap) for i in range(5)] if gap < 200 else []
    parts = parts or [op("aten::add", 1000 + i * 300 + gap, 100) for i in range(3)]
    assert len(find(steps(*parts))) == reported


@pytest.mark.parametrize(
    "event",
    [
        annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1000, 1000),
        annotation("Optimizer.step#SGD.step", 1000, 1000),
        op("profkit.gc#2", 1000, 1000),
        op("profkit.save", 1000, 1000),
        op("_compile.compile_inner (dynamo_timed)", 1000, 1000),
        runtime("cudaStreamSynchronize", 1000, 1000),
        pause(1000, 1000),
    ],
    ids=lambda event: event["name"],
)
def test_what_other_rules_look_at_is_explained(event):
    assert find(steps(event)) == []


def test_a_range_of_the_program_explains_nothing():
    assert len(find(steps(annotation("evaluate", 1000, 1000)))) == 1


def test_what_another_thread_does_explains_nothing():
    assert len(find(steps(op("aten::mm", 1000, 1000, tid=2)))) == 1


def test_while_the_device_works_the_host_may_do_what_it_likes():
    busy = [runtime("cudaLaunchKernel", 990, 5, correlation=1), kernel("k", 1000, 1000, correlation=1)]
    assert find(steps(*busy)) == []
    assert len(find(steps(*busy[:1], kernel("k", 1000, 300, correlation=1)))) == 1


def test_a_list_read_into_a_tensor_is_the_matter_of_another_rule():
    made = [op("aten::empty", 1000, 20), op("aten::to", 1900, 20), op("aten::add", 1920, 80)]
    assert find(steps(*made)) == []
    assert len(find(steps(op("aten::zeros", 1000, 20), *made[1:]))) == 1


def test_what_the_recording_added_is_left_out():
    """Unprofiled, the step took 1995 us: the rest is the profiler's."""
    (found,) = find(steps(), Run(torch="2.13", reference_step_ns=(1_995_000,) * 3))
    assert found.evidence["unattributed_share"] == pytest.approx(995 / 1995, abs=1e-4)


def test_a_recording_made_elsewhere_cannot_tell():
    with pytest.raises(CannotLook, match="profkit made"):
        find(steps(), Run())
