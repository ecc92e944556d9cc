"""JUnit XML, in the form of https://github.com/windyroad/JUnit-Schema (JUnit.xsd)."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree as Xml

import pytest

from profkit.diagnosis.settings import Settings
from profkit.findings.values import Diagnosis, Finding, Kind, Location, Severity, Verdict, VerdictKind
from profkit.report.junit import render_junit

RULES = ("launch-bound", "input-bound", "pageable-transfer")
ANY_FAULT = Settings(fail_on="low").fails
REQUIRED = {
    "testsuites": set(),
    "testsuite": {"name", "package", "id", "timestamp", "hostname", "tests", "failures", "errors", "time"},
    "properties": set(),
    "property": {"name", "value"},
    "testcase": {"name", "classname", "time"},
    "skipped": set(),
    "failure": {"type"},
    "system-out": set(),
    "system-err": set(),
}
"""The attributes that the schema requires of each element."""
OPTIONAL = {"testsuite": {"skipped"}, "skipped": {"message"}, "failure": {"message"}}
CHILDREN = {
    "testsuites": r"(testsuite )*",
    "testsuite": r"properties (testcase )*system-out system-err ",
    "properties": r"(property )*",
    "testcase": r"((skipped |failure ))?",
}
"""The order of the elements inside each."""


def suite_of(text: str) -> Xml.Element:
    """The only suite of the report, after a check against the schema."""
    assert text.startswith('<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n')
    root = Xml.fromstring(text.encode())
    for element in root.iter():
        assert REQUIRED[element.tag] <= set(element.attrib) <= REQUIRED[element.tag] | OPTIONAL.get(element.tag, set())
        assert re.fullmatch(CHILDREN.get(element.tag, ""), "".join(f"{child.tag} " for child in element))
    (suite,) = root
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.attrib["timestamp"])
    cases = suite.findall("testcase")
    counted = [len(cases), *(len(suite.findall(f"testcase/{kind}")) for kind in ("failure", "skipped", "error"))]
    assert counted == [int(suite.attrib[name]) for name in ("tests", "failures", "skipped", "errors")]
    return suite


def outcomes(suite: Xml.Element) -> dict[str, str]:
    return {case.attrib["name"]: case[0].tag if len(case) else "passed" for case in suite.findall("testcase")}


def test_each_rule_is_a_case_that_passed_failed_or_was_skipped(full_diagnosis: Diagnosis) -> None:
    suite = suite_of(render_junit(full_diagnosis, RULES, ANY_FAULT))
    assert outcomes(suite) == {
        "fragmentation": "skipped",
        "input-bound": "passed",
        "launch-bound": "passed",
        "pageable-transfer": "skipped",
        "retained-graph": "failure",
        "zero-filled-gradients": "passed",
    }
    why = suite.find("testcase[@name='fragmentation']/skipped")
    assert why is not None
    assert why.attrib == {"message": "the recording holds no GPU"}


def test_a_failure_states_place_cost_and_fix(full_diagnosis: Diagnosis) -> None:
    failure = suite_of(render_junit(full_diagnosis, RULES, ANY_FAULT)).find("testcase/failure")
    assert failure is not None
    assert failure.attrib == {"message": "The list `losses` keeps the graph of every step alive.", "type": "high fault"}
    assert failure.text == (
        "high fault: retained-graph\n"
        "The list `losses` keeps the graph of every step alive.\n"
        "where: train.py:31 in train_step\n"
        "    losses.append(loss)\n"
        "cost: 5.30 ms per step (43 % of the step; likely 30 to 50 %); memory grows by 4.00 MB per step\n"
        "fix:\n"
        "Append the number, not the graph:\n"
        "    losses.append(loss.detach())"
    )


@pytest.mark.parametrize(
    ("settings", "failed"),
    [
        (Settings(), set()),
        (Settings(fail_on="high"), {"retained-graph"}),
        (Settings(fail_on_opportunity="high"), set()),
        (Settings(fail_on_opportunity="medium"), {"launch-bound"}),
        (Settings(fail_on="low", fail_on_opportunity="low"), {"retained-graph", "launch-bound"}),
    ],
)
def test_a_rule_fails_whenever_the_command_does(
    full_diagnosis: Diagnosis, settings: Settings, failed: set[str]
) -> None:
    found = outcomes(suite_of(render_junit(full_diagnosis, RULES, settings.fails)))
    assert {name for name, outcome in found.items() if outcome == "failure"} == failed


def test_findings_that_fail_nothing_are_output_and_health_notes_are_errors(
    full_diagnosis: Diagnosis,
) -> None:
    suite = suite_of(render_junit(full_diagnosis, RULES, ANY_FAULT))
    output = suite.findtext("system-out", "")
    assert "medium opportunity: launch-bound" in output
    assert "gain: 1.00 ms per step" in output
    assert "retained-graph\n" not in output
    assert suite.findtext("system-err") == "The trace was cut off: 3 of 8 steps are missing."


def test_two_findings_of_a_rule_are_one_failure(full_diagnosis: Diagnosis, leak: Finding) -> None:
    low = replace(leak, severity=Severity.LOW, location=Location("eval.py", 7, "evaluate"))
    suite = suite_of(render_junit(replace(full_diagnosis, findings=(leak, low)), (), ANY_FAULT))
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.attrib["message"].endswith("every step alive. (and 1 more)")
    assert "low fault: retained-graph" in (failure.text or "")
    assert "where: eval.py:7 in evaluate" in (failure.text or "")


def test_no_rule_passes_if_nothing_can_be_judged(full_diagnosis: Diagnosis) -> None:
    """No finding in a recording that holds too little is no all-clear."""
    verdict = Verdict(VerdictKind.CANNOT_JUDGE, "Cannot judge: the recording holds no step")
    suite = suite_of(render_junit(replace(full_diagnosis, findings=(), verdict=verdict), RULES))
    assert set(outcomes(suite).values()) == {"skipped"}
    why = suite.find("testcase[@name='input-bound']/skipped")
    assert why is not None
    assert why.attrib["message"] == verdict.text


def test_an_empty_diagnosis_is_still_a_suite(empty_diagnosis: Diagnosis) -> None:
    assert outcomes(suite_of(render_junit(empty_diagnosis))) == {}


@pytest.mark.parametrize(
    ("started", "shown"),
    [("2026-01-02T03:04:05.678901+02:00", "2026-01-02T03:04:05"), ("2026-01-02T03:04:05", "2026-01-02T03:04:05")],
)
def test_the_timestamp_is_that_of_the_program(empty_diagnosis: Diagnosis, started: str, shown: str) -> None:
    run = replace(empty_diagnosis.run, started=started)
    assert suite_of(render_junit(replace(empty_diagnosis, run=run))).attrib["timestamp"] == shown


@pytest.mark.parametrize("started", [None, "", "yesterday", "2026-99-99"])
def test_an_invalid_timestamp_becomes_that_of_the_report(empty_diagnosis: Diagnosis, started: str | None) -> None:
    suite_of(render_junit(replace(empty_diagnosis, run=replace(empty_diagnosis.run, started=started))))


def test_hostile_text_is_escaped(full_diagnosis: Diagnosis, hostile_finding: Finding) -> None:
    """XML 1.0 allows no control characters, not even escaped."""
    odd = "]]><x/> \x00\x08\x1b[31m \ud800 \ufffe &amp; \" '"
    attack = replace(
        hostile_finding, rule=f"a{odd}", message=odd, fix=odd, kind=Kind.FAULT, location=Location(odd, 1, odd, odd)
    )
    diagnosis = replace(full_diagnosis, findings=(attack, hostile_finding), skipped={odd: odd}, health=(odd,))
    suite = suite_of(render_junit(diagnosis, (), ANY_FAULT))
    assert set(outcomes(suite).values()) == {"failure", "skipped"}
    (shown,) = [one.attrib["message"] for one in suite.iter("skipped")]
    assert shown == "]]><x/> \\x00\\x08\\x1b[31m \\ud800 \\ufffe &amp; \" '"
