"""Findings with one cause: one card, one line."""

from __future__ import annotations

from dataclasses import replace

from profkit.findings.values import Diagnosis, Finding, Location, Saving, Severity
from profkit.report.groups import group_cost, major_groups, minor_groups, other_places
from profkit.report.html.page import render_html
from profkit.report.markdown import render_markdown
from profkit.report.text import render_text


def _at(finding: Finding, line: int, fraction: float, beyond: float | None) -> Finding:
    saving = Saving(int(fraction * 10_000_000), fraction, fraction, fraction, beyond=beyond)
    return replace(finding, location=Location("net.py", line, "forward"), saving=saving, evidence={}, also=(), count=1)


def _three(leak: Finding) -> tuple[Finding, ...]:
    """The first and the third have one fix."""
    other = replace(leak, rule="input-bound", fix="More workers.")
    return _at(leak, 3, 0.3, None), _at(other, 9, 0.2, 0.2), _at(leak, 5, 0.1, 0.05)


def test_findings_of_one_rule_and_fix_are_one_card(clean_diagnosis: Diagnosis, leak: Finding) -> None:
    groups = major_groups(replace(clean_diagnosis, findings=_three(leak)))
    assert [(group.label, group.first.rule) for group in groups] == [("1, 3", "retained-graph"), ("2", "input-bound")]
    assert other_places(groups[0]) == ["net.py:5 in forward, 10 % of the step"]


def test_each_line_of_a_card_shows_its_text(clean_diagnosis: Diagnosis, leak: Finding) -> None:
    place = Location("net.py", 5, "forward", "    seen.append(" + "x" * 90 + ")")
    second = replace(_at(leak, 5, 0.1, 0.05), location=place)
    (group,) = major_groups(replace(clean_diagnosis, findings=(_at(leak, 3, 0.3, None), second)))
    assert other_places(group) == [f"net.py:5 in forward, 10 % of the step: seen.append({'x' * 68}…"]


def test_another_fix_is_another_card(clean_diagnosis: Diagnosis, leak: Finding) -> None:
    two = _at(leak, 3, 0.3, None), replace(_at(leak, 5, 0.1, 0.05), fix="Another one.")
    assert [group.label for group in major_groups(replace(clean_diagnosis, findings=two))] == ["1", "2"]


def test_many_in_a_row_are_told_as_a_range(clean_diagnosis: Diagnosis, leak: Finding) -> None:
    alike = tuple(_at(leak, line, 0.1, 0.05) for line in range(1, 13))
    (group,) = major_groups(replace(clean_diagnosis, findings=alike))
    assert group.label == "1 to 12"
    assert other_places(group)[-1] == "and 3 more lines"


def test_a_card_tells_what_all_give_back_together(clean_diagnosis: Diagnosis, leak: Finding) -> None:
    (group, single) = major_groups(replace(clean_diagnosis, findings=_three(leak)))
    assert group_cost(group) == "3.50 ms per step (35 % of the step) together"
    assert group_cost(single) == "2.00 ms per step (20 % of the step)"


def test_what_was_not_priced_together_is_not_added_up(clean_diagnosis: Diagnosis, leak: Finding) -> None:
    two = _at(leak, 3, 0.3, None), _at(leak, 5, 0.1, None)
    (group,) = major_groups(replace(clean_diagnosis, findings=two))
    assert group_cost(group) == "3.00 ms per step (30 % of the step) at the first of 2 lines"


def test_small_findings_of_one_rule_are_one_line_in_every_format(clean_diagnosis: Diagnosis, leak: Finding) -> None:
    small = tuple(replace(_at(leak, line, 0.001, None), severity=Severity.INFO) for line in (3, 5, 7))
    diagnosis = replace(clean_diagnosis, findings=small)
    assert len(minor_groups(diagnosis)) == 1
    line = "at net.py:3 and 2 more lines: The list"
    text = render_text(diagnosis)
    assert f"- retained-graph {line}" in text
    assert text.count("retained-graph") == 2  # once more as the rule to be explained
    assert render_markdown(diagnosis).count("net.py") == 1
    page = render_html(diagnosis)
    assert f"<summary>retained-graph {line}" in page
    assert page.count("<article") == 1


def test_each_number_of_a_card_is_an_anchor(clean_diagnosis: Diagnosis, leak: Finding) -> None:
    page = render_html(replace(clean_diagnosis, findings=_three(leak)))
    assert all(f'id="finding-{number}"' in page for number in (1, 2, 3))


def test_what_to_change_comes_before_the_account_of_the_step(full_diagnosis: Diagnosis) -> None:
    page = render_html(full_diagnosis)
    assert page.index("What to change, the largest gain first") < page.index("<h2>Where the step")
