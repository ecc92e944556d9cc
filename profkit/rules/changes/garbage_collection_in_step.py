"""The call for a collection goes."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import ProgramText, called_name
from profkit.rules.changes.refusing import Refused


def garbage_collection_in_step(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    statement = text.statement_at(finding.location.line)
    part = statement.body[0]
    if (
        not isinstance(part, libcst.Expr)
        or not isinstance(part.value, libcst.Call)
        or called_name(part.value) != "collect"
    ):
        raise Refused("the line does more than call `gc.collect()`")
    return text.without(statement)
