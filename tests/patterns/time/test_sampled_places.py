"""Lines of what marks ran out for, by samples; and what samples say nothing of."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.derive.facts import Facts
from profkit.diagnosis.costly_places import tell_costliest
from profkit.findings.values import Activity
from profkit.patterns.time.sampled_places import sampled_places
from profkit.run.directory import CallSite, Run, SampledStack, SampledThread, StackSamples
from tests.traces import kernel, mark, op, runtime, step, trace_of

MS = 1_000_000
SITES = tuple(CallSite("/w/train.py", line, "main", f"line {line}") for line in range(4))
LOCATED = [step(0, 0, 1000), mark(0, 0, 300), op("aten::mm", 0, 300)]
"""The marks ran out behind line 0."""
MEASURED = [step(1, 1000, 1000), op("aten::mm", 1000, 300), op("aten::addmm", 1300, 600), op("aten::cos", 1900, 100)]


def facts_with(*shares: float, events: list[dict[str, Any]] | None = None) -> Facts:
    """The measured step has 0.3 at line 0, and the rest nowhere. Samples give each line its share."""
    stacks = tuple(SampledStack(0, (line,), "", round(share * 1000 * MS)) for line, share in enumerate(shares))
    threads = (SampledThread("main", "", 1000 * MS),)
    samples = StackSamples(period_ns=5 * MS, steps=9, threads=threads, sites=SITES, stacks=stacks)
    return Facts(trace_of(events or [*LOCATED, *MEASURED]), Run(torch="2.13"), callsites=SITES, stacks=samples)


def told(facts: Facts) -> dict[int, float]:
    return {place.site.line: round(place.share, 3) for place in sampled_places(facts)}


def test_what_samples_see_beyond_the_placed_is_the_unplaced():
    assert told(facts_with(0.3, 0.5, 0.2)) == {1: 0.5, 2: 0.2}


def test_more_than_is_unplaced_is_not_given_out():
    assert told(facts_with(0.0, 0.8, 0.2)) == {1: 0.56, 2: 0.14}


def test_the_placed_part_of_a_line_counts_once():
    assert told(facts_with(1.0)) == {0: 0.7}


@pytest.mark.parametrize(("share", "is_told"), [(0.35, True), (0.34, False)])
def test_silent_if_the_lines_explain_less_than_half(share, is_told):
    assert bool(told(facts_with(0.3, share))) is is_told


def test_silent_without_samples_without_marks_and_if_all_is_placed():
    assert told(facts_with()) == {}
    assert told(facts_with(0.3, 0.7, events=[step(0, 0, 100), op("aten::mm", 0, 100)])) == {}
    marked = [step(0, 0, 1000), mark(0, 0, 1000), op("aten::mm", 0, 1000)]
    marked += [step(1, 1000, 100), op("aten::mm", 1000, 100)]
    assert told(facts_with(0.3, 0.7, events=marked)) == {}


def test_beside_a_device_the_hosts_lines_do_not_tell():
    launched = [runtime("cudaLaunchKernel", 1000, 5, correlation=1), kernel("gemm", 1010, 900, correlation=1)]
    assert told(facts_with(0.3, 0.7, events=[*LOCATED, *MEASURED, *launched])) == {}


def test_a_backward_pass_is_at_the_line_that_runs_it():
    node = "autograd::engine::evaluate_function: MmBackward0"
    traced = [
        *(step(0, 0, 1000), mark(0, 0, 300), op("aten::mm", 0, 300, sequence=5)),
        *(mark(1, 300, 300), op(node, 300, 300, sequence=5)),
    ]
    measured = [
        *(step(1, 1000, 1000), op("aten::mm", 1000, 300, sequence=6), op(node, 1300, 300, sequence=6)),
        op("aten::cos", 1600, 400),
    ]
    assert told(facts_with(0.3, 0.3, 0.4, events=[*traced, *measured])) == {2: 0.4}


def test_the_shares_can_be_saved():
    assert {type(place.share) for place in sampled_places(facts_with(0.3, 0.5, 0.2))} == {float}


def test_the_costliest_places_have_these_lines():
    first, second, third = tell_costliest(facts_with(0.3, 0.5, 0.2))
    assert [one.location.line for one in (first, second, third) if one.location] == [1, 0, 2]
    assert [one.fraction for one in (first, second, third)] == [0.5, 0.3, 0.2]
    assert first.does[0].activity is Activity.PRODUCTS
    assert first.unjudged.startswith("no line was marked there")


def test_without_samples_they_keep_their_names():
    assert {one.name for one in tell_costliest(facts_with()) if one.location is None} == {"aten::addmm", "aten::cos"}
