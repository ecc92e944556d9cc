"""The call that empties the cache goes."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import ProgramText, called_name
from profkit.rules.changes.refusing import Refused


def allocator_flush_in_step(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    statement = text.statement_at(finding.location.line)
    part = statement.body[0]
    if not isinstance(part, libcst.Expr) or not isinstance(part.value, libcst.Call):
        raise Refused("the line does more than call `empty_cache()`")
    if called_name(part.value) != "empty_cache":
        raise Refused("the memory is not handed back by `empty_cache()` on that line")
    return text.without(statement)
