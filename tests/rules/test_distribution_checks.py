"""Checks of distributions' arguments, and comparisons that are none."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.findings.values import Kind, Severity
from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.distribution_checks import distribution_checks
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, mark, op, step

Json = dict[str, Any]
STEP = 1000
SITES = (CallSite("/a/agent.py", 7, "act", "policy = Normal(mean, deviation)"),)


def steps_of(*events: Json, count: int = 3) -> list[Json]:
    found: list[Json] = []
    for i in range(count):
        found.append(step(i, STEP * i, STEP))
        found += [{**event, "ts": event["ts"] + STEP * i} for event in events]
    return found


def run_of(names: str, at: float) -> list[Json]:
    """Operators of 5 µs, 10 µs apart."""
    return [op(f"aten::{name}", at + 10 * i, 5) for i, name in enumerate(names.split())]


CHECK = "eq _is_all_true is_nonzero"


def find(*events: Json) -> list[Suspicion]:
    return list(distribution_checks.check(facts_of(steps_of(*events))))


def test_the_checks_of_a_step_are_one_finding():
    facts = facts_of(steps_of(op("aten::linear", 0, 50), *run_of(CHECK, 100), *run_of(CHECK, 300)))
    (found,) = distribution_checks.check(facts)
    assert found.message == (
        "Arguments and values of distributions are checked 2 times a step, which takes 74.0 µs; on a GPU, each would "
        "be a wait for the device."
    )
    assert found.evidence == {"checks_per_step": 2, "check_ns_per_step": 74_000}
    assert predict_saving(facts, found.edit).time_ns_per_step == 74_000  # from 88 to 125, and from 288 to 325
    assert distribution_checks.kind is Kind.OPPORTUNITY


def test_python_between_two_constraints_goes_too():
    facts = facts_of(steps_of(op("aten::linear", 0, 50), *run_of(CHECK, 100), *run_of(CHECK, 145)))
    (found,) = distribution_checks.check(facts)
    assert predict_saving(facts, found.edit).time_ns_per_step == 82_000  # from 88 to 170


@pytest.mark.parametrize(
    ("names", "took_us"),
    [
        ("ge le bitwise_and _is_all_true is_nonzero", 57),
        ("eq reshape all _is_all_true is_nonzero", 57),
        ("reshape view eq _is_all_true is_nonzero", 30),  # the program's own, before the check
        ("mul eq _is_all_true is_nonzero", 30),
        ("eq mul _is_all_true", 10),
        ("eq _is_all_true", 27),
    ],
)
def test_a_check_is_the_run_of_comparisons_before_its_end(names, took_us):
    (found,) = find(op("aten::linear", 0, 50), *run_of(names, 100), op("aten::linear", 200, 50))
    assert found.evidence["check_ns_per_step"] == took_us * 1000


@pytest.mark.parametrize("names", ["eq all is_nonzero", "gt lt bitwise_and", "is_nonzero"])
def test_silent_for_comparisons_of_the_programs_own(names):
    assert find(op("aten::linear", 0, 50), *run_of(names, 100)) == []


@pytest.mark.parametrize(("steps", "fires"), [(1, False), (2, True)])
def test_boundary_at_half_of_the_steps(steps, fires):
    events = steps_of(op("aten::linear", 0, 50), count=4)
    for i in range(steps):
        events += run_of(CHECK, STEP * i + 100)
    assert bool(list(distribution_checks.check(facts_of(events)))) is fires


def test_a_check_at_the_end_of_a_step_does_not_reach_into_the_next():
    events = steps_of(*run_of("eq _is_all_true", 980), *run_of("is_nonzero eq _is_all_true", 0))
    (found,) = distribution_checks.check(facts_of(events))
    assert found.evidence == {"checks_per_step": 2, "check_ns_per_step": 47_000}


def test_the_line_is_the_one_that_makes_the_distribution():
    events = [*steps_of(op("aten::linear", 0, 50), *run_of(CHECK, 100)), mark(0, 90, 60)]
    (found,) = distribution_checks.check(facts_of(events, callsites=SITES))
    assert found.places.location is not None
    assert (found.places.location.file, found.places.location.line) == ("/a/agent.py", 7)


def test_where_lines_were_marked_in_all_steps_the_severity_is_low():
    facts = facts_of([step(0, 0, STEP), mark(0, 90, 60), op("aten::linear", 0, 50), *run_of(CHECK, 100)])
    (found,) = distribution_checks.check(facts)
    assert found.severity is Severity.LOW
    assert found.edit is not None
    assert found.edit.uncertainty == 0.6
    (unmarked,) = find(op("aten::linear", 0, 50), *run_of(CHECK, 100))
    assert unmarked.severity is None


def test_missing_data():
    assert Need.OPERATORS in distribution_checks.needs
    assert missing_needs(facts_of([step(0, 0, 10)]), distribution_checks.needs)
