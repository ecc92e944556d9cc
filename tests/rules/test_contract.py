"""What all rules have in common."""

from __future__ import annotations

import pkgutil

import numpy as np
import pytest

from profkit import rules
from profkit.findings.values import Kind, Location
from profkit.patterns.attribution import order_sites
from profkit.patterns.frequency import in_most_steps, times_per_step
from profkit.patterns.named_lines import Places
from profkit.rules import all_rules
from profkit.rules.base import Suspicion, rule
from profkit.savings import replay as replaying
from profkit.savings.edits import remove
from profkit.savings.replay import replay
from tests.traces import facts_of, op, rows_named, step


def test_every_file_in_the_rules_package_except_base_is_a_rule_of_that_name():
    files = {one.name.replace("_", "-") for one in pkgutil.iter_modules(rules.__path__) if not one.ispkg}
    assert files - set(all_rules()) == {"base"}


def test_an_edit_is_replayed_once(monkeypatch):
    facts = facts_of([event for i in range(2) for event in (step(i, 100 * i, 100), op("aten::mm", 100 * i, 40))])
    edit = remove(np.array(rows_named(facts.trace, "aten::mm")))
    first = replay(facts, edit)
    assert first.fraction == pytest.approx(0.4)
    monkeypatch.setattr(replaying, "_run", None)
    assert replay(facts, edit) is first


@pytest.mark.parametrize(("worth", "reported"), [(0.0, 1), (0.4, 1), (0.41, 0)])
def test_a_finding_whose_edit_saves_less_than_its_worth_is_dropped(worth, reported):
    def judge(facts):
        yield Suspicion("slow", "faster", edit=remove(np.array(rows_named(facts.trace, "aten::mm"))), worth=worth)

    facts = facts_of([event for i in range(2) for event in (step(i, 100 * i, 100), op("aten::mm", 100 * i, 40))])
    assert len(list(rule(Kind.FAULT)(judge).check(facts))) == reported


@pytest.mark.parametrize(
    ("steps_with", "least", "expected"), [(2, 1, True), (1, 1, False), (2, 3, False), (3, 3, True), (0, 1, False)]
)
def test_an_event_in_half_of_the_steps_is_in_most_steps(steps_with, least, expected):
    events = [step(i, 100 * i, 100) for i in range(4)] + [op("aten::mm", 100 * i, 40) for i in range(steps_with)]
    facts = facts_of([*events, op("aten::add", 350, 5)])
    rows = np.array(rows_named(facts.trace, "aten::mm"), dtype=np.int64)
    assert in_most_steps(facts, rows, least) is expected
    assert times_per_step(facts, rows) == 1


@pytest.mark.parametrize(
    ("sites", "weights", "expected"),
    [
        pytest.param([3, 1, 1, -1], None, [1, 3], id="the most events lead"),
        pytest.param([3, 1, 1, 3], None, [3, 1], id="of as many the first to run"),
        pytest.param([2, 1], [76, 100], [2, 1], id="within a quarter the first to run"),
        pytest.param([2, 1], [74, 100], [1, 2], id="beyond it the costliest"),
        pytest.param([-1], None, [], id="no line known"),
    ],
)
def test_the_line_with_the_most_events_or_cost_leads(sites, weights, expected):
    assert order_sites(np.array(sites), None if weights is None else np.array(weights)) == expected


def test_no_line_is_named_twice():
    first, second = Location("a.py", 3, "main"), Location("a.py", 5, "main")
    assert Places.of([None, second, first, second]) == Places(second, (first,))
    assert Places.of([None]) == Places()
