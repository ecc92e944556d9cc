"""The report for code scanning and editors: SARIF 2.1.0.

Section numbers below refer to https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html. A rule's page is its
``help``. There is no ``helpUri``, because the pages exist only inside profkit.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from profkit.diagnosis.fixing.previews import Preview, preview
from profkit.findings.values import Diagnosis, Finding, Kind, Location, Severity
from profkit.report.sharing.checkout import path_in_checkout
from profkit.report.wording import printable, summary, verdict

_SCHEMA_URI = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {Severity.HIGH: "error", Severity.MEDIUM: "warning", Severity.LOW: "note", Severity.INFO: "note"}
_WINDOWS_DRIVE = re.compile(r"^[A-Za-z]:[\\/]")


def render_sarif(diagnosis: Diagnosis, pages: Mapping[str, str] | None = None) -> str:
    """The findings as one SARIF run. ``pages`` maps a rule's name to the text of its page."""
    names = list(dict.fromkeys(finding.rule for finding in diagnosis.findings))
    rules = [_rule(name, (pages or {}).get(name, "")) for name in names]
    whole = _location_of_program(diagnosis)
    run = {
        "tool": {"driver": {"name": "profkit", **_version(), "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(diagnosis)],
        "results": [_result(finding, names.index(finding.rule), whole) for finding in diagnosis.findings],
        "properties": {"verdict": verdict(diagnosis)},
    }
    return json.dumps({"$schema": _SCHEMA_URI, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(name: str, page: str) -> dict[str, Any]:
    """A reportingDescriptor (3.49)."""
    rule: dict[str, Any] = {"id": name, "shortDescription": {"text": _plain(printable(name.replace("-", " ")))}}
    if page.strip():
        rule["help"] = {"text": page.strip()}
    return rule


def _invocation(diagnosis: Diagnosis) -> dict[str, Any]:
    """What was wrong with the recording, and which rules could not look, as notifications (3.20.21)."""
    notes = [{"level": "warning", "message": {"text": _plain(printable(note))}} for note in diagnosis.health]
    notes += [
        {"level": "note", "message": {"text": _plain(f"{printable(rule)} did not look: {printable(why)}")}}
        for rule, why in diagnosis.skipped.items()
    ]
    return {"executionSuccessful": True, "toolExecutionNotifications": notes}


def _result(finding: Finding, rule_index: int, whole: dict[str, Any] | None) -> dict[str, Any]:
    """A result (3.27). An opportunity is at most a note, because nothing is wrong with the program. A finding without a
    place gets that of the ``whole`` program: GitHub refuses a file with a single result without a place."""
    result: dict[str, Any] = {
        "partialFingerprints": {"lineText/v1": _fingerprint(finding)},
        "ruleId": finding.rule,
        "ruleIndex": rule_index,
        "level": _LEVELS[finding.severity] if finding.kind is Kind.FAULT else "note",
        "message": {"text": _plain(summary(finding))},
        "occurrenceCount": max(finding.count, 1),
        "properties": _properties(finding),
    }
    place = _location(finding.location) if finding.location is not None else whole
    if place is not None:
        result["locations"] = [place]
    if finding.also:
        result["relatedLocations"] = [
            {"id": number, **_location(location)} for number, location in enumerate(finding.also, 1)
        ]
    if fixed := _artifact_change(finding):
        result["fixes"] = [
            {"description": {"text": _plain(printable(finding.fix)) or "Change the line."}, "artifactChanges": [fixed]}
        ]
    return result


def _artifact_change(finding: Finding) -> dict[str, Any]:
    """The fix of the line, else the change that `profkit fix` would try without ``--unsafe``; empty without one."""
    region = _changed_region(finding)
    if region is not None and finding.change is not None:
        replaced = [{"deletedRegion": region, "insertedContent": {"text": finding.change.after}}]
        uri = _uri(path_in_checkout(finding.change.file, finding.change.line, finding.change.before))
        return {"artifactLocation": {"uri": uri}, "replacements": replaced}
    found = preview(finding, Path.cwd()) if finding.change is None else Preview()
    if found.unsafe or not found.pieces:
        return {}
    pieces = [
        {
            "deletedRegion": {"startLine": piece.first, "startColumn": 1, "endLine": piece.end, "endColumn": 1},
            "insertedContent": {"text": piece.text},
        }
        for piece in found.pieces
    ]
    return {"artifactLocation": {"uri": _uri(found.name)}, "replacements": pieces}


def _changed_region(finding: Finding) -> dict[str, int] | None:
    """The text that the fix replaces (3.57), without its indentation. None if there is no such fix, or if the line in
    the file, and so its indentation, is unknown."""
    change, place = finding.change, finding.location
    if change is None or place is None or (place.file, place.line) != (change.file, change.line) or change.line < 1:
        return None
    at = change.line - place.around_from
    line = place.around[at] if 0 <= at < len(place.around) else ""
    if not change.before or line.strip() != change.before or not change.after.isprintable():
        return None
    if not change.after:
        return {"startLine": change.line, "startColumn": 1, "endLine": change.line + 1, "endColumn": 1}
    first = line.index(change.before) + 1
    return {"startLine": change.line, "startColumn": first, "endColumn": first + len(change.before)}


def _plain(text: str) -> str:
    """The text of a message, without what a viewer would take for a link (3.11.6): ``hooks[0](x)`` is none."""
    return text.replace("](", "] (")


def _version() -> dict[str, str]:
    try:
        return {"version": version("profkit")}
    except PackageNotFoundError:  # run from its sources
        return {}


def _fingerprint(finding: Finding) -> str:
    """Stays the same if the finding's line moves (3.27.17): from rule, file, function and source text."""
    place = finding.location
    parts = [
        finding.rule,
        *((_path(place), place.function, place.source.strip()) if place else ()),
    ]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:32]


def _properties(finding: Finding) -> dict[str, Any]:
    saving = finding.saving
    properties: dict[str, Any] = {
        "kind": finding.kind.value,
        "severity": finding.severity.value,
        "confidence": finding.confidence,
    }
    if saving is not None:
        properties |= {"timeNsPerStep": saving.time_ns_per_step, "fraction": saving.fraction, "bytes": saving.bytes}
    return properties


def _location_of_program(diagnosis: Diagnosis) -> dict[str, Any] | None:
    """The script that was run or, if unknown, the recording."""
    scripts = (argument for argument in diagnosis.run.command if argument.endswith(".py"))
    file = next(scripts, diagnosis.run.files.get("trace"))
    return _location(Location(file, 0, "")) if file else None


def _path(location: Location) -> str:
    return path_in_checkout(location.file, location.line, location.source)


def _location(location: Location) -> dict[str, Any]:
    """A location (3.28). An unknown line is left out, because line numbers start at 1 (3.30.5)."""
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(_path(location))}}
    if location.line >= 1:
        physical["region"] = {"startLine": location.line}
        if location.source:
            physical["region"]["snippet"] = {"text": location.source}
    result: dict[str, Any] = {"physicalLocation": physical}
    if location.function:
        result["logicalLocations"] = [{"name": location.function, "kind": "function"}]
    return result


def _uri(file: str) -> str:
    """A URI reference (3.10.1): relative as it is, absolute as ``file:///``, percent-encoded (RFC 3986)."""
    if _WINDOWS_DRIVE.match(file):
        return "file:///" + quote(file.replace("\\", "/"), safe="/:", errors="replace")
    encoded = quote(file, safe="/", errors="replace")
    return f"file://{encoded}" if file.startswith("/") else encoded
