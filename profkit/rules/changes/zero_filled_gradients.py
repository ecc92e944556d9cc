"""``zero_grad`` no longer asks for zeros."""

from __future__ import annotations

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, ProgramText, without_argument


def zero_filled_gradients(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    call = text.call_at(finding.location.line, "zero_grad")
    return text.replaced(call, without_argument(call, Argument("set_to_none"), "False"))
