"""The backward pass frees its graph."""

from __future__ import annotations

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, ProgramText, without_argument


def needless_retain_graph(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    call = text.call_at(finding.location.line, "backward", "grad")
    return text.replaced(call, without_argument(call, Argument("retain_graph"), "True"))
