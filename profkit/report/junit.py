"""The report for CI systems that show test results: JUnit XML, a test case for each rule.

A rule fails where one of its findings fails the command (``--fail-on``). One that could not look is skipped, and so is
a silent one where the recording does not hold enough to judge by. The form is that of Ant's tasks, which every reader
of JUnit XML knows: https://github.com/windyroad/JUnit-Schema; Jenkins' is wider.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timezone
from xml.etree import ElementTree as Xml

from profkit.findings import Diagnosis, Finding, Kind, VerdictKind
from profkit.report.wording import cost, place, printable, printable_lines, verdict

_NAME = "profkit"
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>'
_NO_TIME = "0"
"""How long a rule took to look is not measured."""


def render_junit(
    diagnosis: Diagnosis, pages: Collection[str] = (), fails: Callable[[Finding], bool] = lambda _: False
) -> str:
    """The diagnosis as one suite. ``pages`` names every rule, ``fails`` says which findings fail the command."""
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
    passing = [line for one in diagnosis.findings if not fails(one) for line in ("", *_tell(one))]
    Xml.SubElement(suite, "system-out").text = "\n".join([verdict(diagnosis), *passing])
    Xml.SubElement(suite, "system-err").text = "\n".join(map(printable, diagnosis.health))
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    suites = Xml.Element("testsuites")
    suites.append(suite)
    Xml.indent(suites)
    return f'{_HEAD}\n{Xml.tostring(suites, encoding="unicode")}\n'


def _attributes(diagnosis: Diagnosis) -> dict[str, str]:
    """The host is not told: the report may be shared."""
    return {"name": _NAME, "package": _NAME, "id": "0", "hostname": "localhost", "errors": "0", "time": _NO_TIME,
            "timestamp": _begin_of(diagnosis)}  # fmt: skip


def _begin_of(diagnosis: Diagnosis) -> str:
    """When the program began, or now; the form knows no time zone."""
    try:
        begun = datetime.fromisoformat(diagnosis.run.started or "")
    except ValueError:
        begun = datetime.now(timezone.utc)
    return begun.replace(tzinfo=None).isoformat(timespec="seconds")


def _why_silence_says_nothing(diagnosis: Diagnosis) -> str:
    """Empty where a silent rule has found nothing to change."""
    told = diagnosis.verdict
    return told.text if told is not None and told.kind is VerdictKind.CANNOT_JUDGE else ""


def _add_case(suite: Xml.Element, rule: str, failed: Sequence[Finding], why: str) -> None:
    case = Xml.SubElement(suite, "testcase", name=printable(rule), classname=f"{_NAME}.rules", time=_NO_TIME)
    if failed:
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        first = failed[0]
        failure = Xml.SubElement(case, "failure", message=printable(first.message) + more, type=_kind_of(first))
        failure.text = "\n\n".join("\n".join(_tell(one)) for one in failed)
    elif why:
        Xml.SubElement(case, "skipped", message=printable(why))


def _kind_of(finding: Finding) -> str:
    return f"{finding.severity.value} {finding.kind.value}"


def _tell(finding: Finding) -> list[str]:
    where = finding.location
    lines = [f"{_kind_of(finding)}: {printable(finding.rule)}", printable(finding.message)]
    if where is not None:
        lines += [f"where: {place(where)}", *([f"    {printable(where.source)}"] if where.source else [])]
    lines.append(f"{'cost' if finding.kind is Kind.FAULT else 'gain'}: {cost(finding)}")
    return [*lines, *(["fix:", *printable_lines(finding.fix)] if finding.fix else [])]
