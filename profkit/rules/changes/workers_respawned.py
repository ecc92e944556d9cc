"""The loader keeps its workers between epochs."""

from __future__ import annotations

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, ProgramText, with_argument


def workers_respawned(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    call = text.call_at(finding.location.line, "DataLoader")
    return text.replaced(call, with_argument(call, Argument("persistent_workers"), "True"))
