"""Waits for batches in a run of which only the beginning was recorded."""

from __future__ import annotations

import pytest

from profkit.findings.values import Kind, Severity
from profkit.rules.base import CannotLook
from profkit.rules.input_bound import input_bound
from profkit.run.directory import Run
from tests.rules.watched import StackActivity, doing, line, watched
from tests.traces import facts_of, op

BEGUN = Run(reference_step_ns=[10**8] * 3)
FIND = line(33, "i -= len(dataset)", "Joined.find")


def told(wait_s: int, *, run: Run = BEGUN, activity: StackActivity = StackActivity.DATA):
    """A run that trains for 20 s and waits so long for batches."""
    seen = doing(activity, wait_s, 30, 60, visits=9), FIND
    account = watched(seen, first_s=30, last_s=60, until_s=100).account
    return list(input_bound.check(facts_of([op("aten::mul", 0, 9)], run=run, account=account)))


def test_the_line_under_which_most_of_the_wait_passes_is_told():
    (found,) = told(60)
    assert found.location is not None
    assert (found.location.line, found.kind, found.severity) == (33, Kind.OPPORTUNITY, Severity.MEDIUM)
    assert found.message.startswith("The program waits for batches in 75 % of the run, 60.0 s, and 100 % of that")
    assert found.run_ns == 60 * 10**9


def test_it_is_of_low_severity_below_half_of_the_run():
    (found,) = told(15)
    assert found.severity is Severity.LOW


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"wait_s": 2}, id="little"),
        pytest.param({"wait_s": 60, "run": Run()}, id="no steps passed"),
        pytest.param({"wait_s": 60, "activity": StackActivity.SAVING}, id="no waits"),
    ],
)
def test_else_it_cannot_look(more):
    with pytest.raises(CannotLook):
        told(**more)
