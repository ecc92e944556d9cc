"""The report for GitHub Actions: a workflow command per finding, which annotates its line in the changed files.

Their syntax: https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

from pathlib import Path

from profkit.core.printing import visible_row
from profkit.diagnosis.fixing.previews import preview
from profkit.findings.values import Diagnosis, Finding, Kind, Severity
from profkit.report.sharing.checkout import path_in_checkout
from profkit.report.wording import printable, summary, verdict

_COMMANDS = {Severity.HIGH: "error", Severity.MEDIUM: "warning", Severity.LOW: "notice", Severity.INFO: "notice"}


def render_github(diagnosis: Diagnosis) -> str:
    """A command for the verdict and one per finding. An opportunity is only a notice, because nothing is wrong."""
    lines = [f"::notice title=profkit::{_escape(verdict(diagnosis))}"]
    lines += [_command(finding) for finding in diagnosis.findings if finding.severity is not Severity.INFO]
    return "\n".join(lines) + "\n"


def _command(finding: Finding) -> str:
    place = finding.location
    properties = {"title": f"profkit {printable(finding.rule)}"}
    if place is not None:
        properties["file"] = printable(path_in_checkout(place.file, place.line, place.source))
        if place.line >= 1:
            properties["line"] = str(place.line)
    listed = ",".join(f"{name}={_escape_property(value)}" for name, value in properties.items())
    kind = _COMMANDS[finding.severity] if finding.kind is Kind.FAULT else "notice"
    return f"::{kind} {listed}::{_escape(summary(finding) + _suggestion(finding))}"


def _suggestion(finding: Finding) -> str:
    """The changed line as a block that a review can apply, if only the finding's line changes."""
    found = preview(finding, Path.cwd())
    if found.unsafe or len(found.pieces) != 1 or finding.location is None:
        return ""
    (piece,) = found.pieces
    if (piece.first, piece.end) != (finding.location.line, finding.location.line + 1) or "```" in piece.text:
        return ""
    rows = piece.text.split("\n")[:-1]
    if any(visible_row(row) != row for row in rows):
        return ""  # an escape would be put into the file
    return "\n".join(["", "```suggestion", *rows, "```"])


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")
