"""What is kept is kept without its history."""

from __future__ import annotations

from profkit.findings.values import Finding
from profkit.rules.changes.base import ProgramText, detached
from profkit.rules.changes.keeping import kept_value


def retained_graph(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    value = kept_value(text.statement_at(finding.location.line).body[0])
    return text.replaced(value, detached(value))
