"""The report for CI systems that show test results: JUnit XML, with a test case per rule.

A rule fails if one of its findings fails the command (``--fail-on``). It is skipped if it could not look, or if it is
silent about a recording that holds too little to judge by. The schema is that of Ant's tasks, which every reader of
JUnit XML knows (https://github.com/windyroad/JUnit-Schema); Jenkins accepts more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timezone
from xml.etree import ElementTree as Xml

from profkit.findings.values import Diagnosis, Finding, VerdictKind
from profkit.report.wording import cost, place, price_label, printable, printable_lines, verdict

_NAME = "profkit"
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>'
_NO_TIME = "0"
"""The time that a rule takes is not measured."""


def render_junit(
    diagnosis: Diagnosis, pages: Collection[str] = (), fails: Callable[[Finding], bool] = lambda _: False
) -> str:
    """The diagnosis as a test suite. ``pages`` has the names of all rules; ``fails`` says which findings fail the
    command."""
    found: dict[str, list[Finding]] = {}
    for finding in diagnosis.findings:
        found.setdefault(finding.rule, []).append(finding)
    silent = _why_silence_says_nothing(diagnosis)
    suite = Xml.Element("testsuite", _attributes(diagnosis))
    properties = Xml.SubElement(suite, "properties")
    Xml.SubElement(properties, "property", name="verdict", value=verdict(diagnosis))
    for rule in sorted({*pages, *found, *diagnosis.skipped}):
        why = diagnosis.skipped.get(rule, "" if rule in found else silent)
        _add_case(suite, rule, [one for one in found.get(rule, []) if fails(one)], why)
    passing = [line for one in diagnosis.findings if not fails(one) for line in ("", *_describe(one))]
    Xml.SubElement(suite, "system-out").text = "\n".join([verdict(diagnosis), *passing])
    Xml.SubElement(suite, "system-err").text = "\n".join(map(printable, diagnosis.health))
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    suites = Xml.Element("testsuites")
    suites.append(suite)
    Xml.indent(suites)
    return f"{_HEAD}\n{Xml.tostring(suites, encoding='unicode')}\n"


def _attributes(diagnosis: Diagnosis) -> dict[str, str]:
    """The host's name is left out, because the report may be shared."""
    return {
        "name": _NAME,
        "package": _NAME,
        "id": "0",
        "hostname": "localhost",
        "errors": "0",
        "time": _NO_TIME,
        "timestamp": _begin_of(diagnosis),
    }


def _begin_of(diagnosis: Diagnosis) -> str:
    """When the program started, or now. The schema has no time zones."""
    try:
        begun = datetime.fromisoformat(diagnosis.run.started or "")
    except ValueError:
        begun = datetime.now(timezone.utc)
    return begun.replace(tzinfo=None).isoformat(timespec="seconds")


def _why_silence_says_nothing(diagnosis: Diagnosis) -> str:
    """Why a silent rule proves nothing; empty if it does prove that there is nothing to change."""
    verdict = diagnosis.verdict
    return verdict.text if verdict is not None and verdict.kind is VerdictKind.CANNOT_JUDGE else ""


def _add_case(suite: Xml.Element, rule: str, failed: Sequence[Finding], why: str) -> None:
    case = Xml.SubElement(suite, "testcase", name=printable(rule), classname=f"{_NAME}.rules", time=_NO_TIME)
    if failed:
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        first = failed[0]
        failure = Xml.SubElement(case, "failure", message=printable(first.message) + more, type=_kind_of(first))
        failure.text = "\n\n".join("\n".join(_describe(one)) for one in failed)
    elif why:
        Xml.SubElement(case, "skipped", message=printable(why))


def _kind_of(finding: Finding) -> str:
    return f"{finding.severity.value} {finding.kind.value}"


def _describe(finding: Finding) -> list[str]:
    where = finding.location
    lines = [f"{_kind_of(finding)}: {printable(finding.rule)}", printable(finding.message)]
    if where is not None:
        lines += [f"where: {place(where)}", *([f"    {printable(where.source)}"] if where.source else [])]
    lines.append(f"{price_label(finding)}: {cost(finding)}")
    return [*lines, *(["fix:", *printable_lines(finding.fix)] if finding.fix else [])]
