"""The tables of the studies, and the causes that can be judged in a moment."""

from __future__ import annotations

import ast

import pytest

from profkit.diagnosis.catalogue import scenario_names
from profkit.rules import all_rules
from tests.field_studies import LOW_UTILISATION, PROBLEMS, PROGRAMS, Cause, reported, share_covered
from tests.field_studies.__main__ import judge
from tests.field_studies.savings import REPAIRS, Repair

PLAYED = [cause for cause in (*LOW_UTILISATION, *PROBLEMS) if callable(cause.shown_by)]
WATCHED = [
    cause
    for cause in LOW_UTILISATION
    if isinstance(cause.shown_by, str) and cause.rules and cause.rules[0] in ("blocked-upload", "late-release")
]


def test_the_counts_are_those_of_the_studies():
    assert (len(LOW_UTILISATION), sum(cause.count for cause in LOW_UTILISATION)) == (15, 706)
    assert (len(PROBLEMS), sum(cause.count for cause in PROBLEMS)) == (15, 224)
    assert share_covered(LOW_UTILISATION, {"Improper Batch Size"}) == pytest.approx(0.2564, abs=1e-4)


@pytest.mark.parametrize("cause", [*LOW_UTILISATION, *PROBLEMS], ids=lambda cause: cause.name)
def test_each_cause_has_rules_and_something_that_shows_it(cause: Cause):
    assert bool(cause.shown_by and cause.rules) is not bool(cause.why_not)
    assert set(cause.rules) <= set(all_rules())
    if isinstance(cause.shown_by, str) and cause.shown_by.endswith(".py"):
        assert (PROGRAMS / cause.shown_by).is_file()
    elif isinstance(cause.shown_by, str) and cause.shown_by:
        assert cause.shown_by in scenario_names()


@pytest.mark.parametrize("cause", PLAYED, ids=lambda cause: cause.name)
def test_what_only_a_driver_shows_is_reported(cause: Cause):
    assert reported(cause.shown_by(), cause.rules) == list(cause.rules)


@pytest.mark.parametrize("repair", REPAIRS, ids=lambda repair: repair.program)
def test_each_repair_fits_its_program(repair: Repair):
    text = (PROGRAMS / repair.program).read_text(encoding="utf-8")
    assert [text.count(old) for old, _ in repair.changes] == [1] * len(repair.changes)
    assert repair.rule in all_rules()
    ast.parse(repair.repaired())


@pytest.mark.slow
@pytest.mark.parametrize("cause", WATCHED, ids=lambda cause: cause.name)
def test_waits_of_a_whole_run_are_reported(cause: Cause):
    is_covered, said = judge(cause)
    assert is_covered, said
