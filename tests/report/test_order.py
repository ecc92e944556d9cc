"""The title above the findings, which must be true of their order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profkit.findings.values import Diagnosis, Finding, Kind, Saving, Severity
from profkit.report.html.page import render_html
from profkit.report.markdown import render_markdown
from profkit.report.order import LARGEST_FIRST, SEVEREST_FIRST, order_note, what_to_change
from profkit.report.text import render_text


def finding(share: float | None, severity: Severity, rule: str = "input-bound") -> Finding:
    saving = None if share is None else Saving(int(share * 1000), share, share / 2, share, 0)
    return Finding(rule, Kind.FAULT, severity, "Slow.", 1, 1.0, "Make it fast.", saving=saving)


SURE_THEN_LARGE = (finding(0.074, Severity.MEDIUM), finding(0.26, Severity.LOW, "unattributed-time"))


@pytest.mark.parametrize(
    ("shares", "title"),
    [
        ((0.2, 0.1), LARGEST_FIRST),
        ((0.1, 0.104), LARGEST_FIRST),  # nobody minds
        ((0.1, 0.106), SEVEREST_FIRST),
        ((None, 0.1), SEVEREST_FIRST),  # memory that grows
        ((0.1, None), LARGEST_FIRST),
    ],
)
def test_the_title_says_in_which_order_they_are(shares, title):
    first, second = (finding(share, severity) for share, severity in zip(shares, Severity, strict=False))
    assert what_to_change([first, second]) == title
    assert bool(order_note([first, second])) is (title == SEVEREST_FIRST)


def test_among_equally_severe_ones_either_may_be_larger():
    assert what_to_change([finding(0.2, Severity.HIGH), finding(0.3, Severity.HIGH)]) == LARGEST_FIRST


def test_what_shortens_the_steps_shortens_the_run_by_no_greater_share():
    """So a quarter of the run is more than 7 % of a step. Whether 3 % of the run is more than 7 % of a step, and a
    quarter of a step more than 7 % of the run, nobody knows."""
    of_step = finding(0.074, Severity.MEDIUM)
    of_run = replace(of_step, saving=Saving(0, 0.074, 0.05, 0.1, run_ns=10**9))
    for share, is_larger in ((0.26, True), (0.03, False)):
        below = replace(SURE_THEN_LARGE[1], saving=Saving(0, share, 0.02, 0.4, run_ns=10**9))
        assert what_to_change([of_step, below]) == (SEVEREST_FIRST if is_larger else LARGEST_FIRST)
    assert what_to_change([of_run, SURE_THEN_LARGE[1]]) == LARGEST_FIRST


def test_the_note_names_the_largest_of_those_below():
    findings = [*SURE_THEN_LARGE, finding(0.3, Severity.LOW), finding(0.2, Severity.LOW)]
    assert order_note(findings) == (
        "Number 3 may save more time (30 % of the step): severity also counts how sure a gain is, "
        "and memory that grows."
    )


def test_no_findings_are_in_any_order():
    assert (what_to_change([]), order_note([])) == (LARGEST_FIRST, "")


@pytest.mark.parametrize("render", [lambda one: render_text(one, width=200), render_markdown, render_html])
def test_every_report_says_so(render, full_diagnosis: Diagnosis):
    report = render(replace(full_diagnosis, findings=SURE_THEN_LARGE))
    assert SEVEREST_FIRST in report
    assert LARGEST_FIRST not in report
    assert "Number 2 may save more time" in report
