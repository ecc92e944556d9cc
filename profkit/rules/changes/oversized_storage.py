"""What is kept is a copy of the part, not a view of the whole."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import ProgramText, called_name, followed_by
from profkit.rules.changes.keeping import stored_value
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import mutated, scope_of
from profkit.rules.changes.sharing import root_of


def oversized_storage(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    value = stored_value(text.statement_at(finding.location.line).body[0])
    if value is None:
        raise Refused("the line neither appends nor stores a value by its key")
    if isinstance(value, (libcst.Tuple, libcst.List, libcst.Dict, libcst.Set)):
        raise Refused("several values are kept at once: the line does not say which of them are views")
    if isinstance(value, libcst.Call) and called_name(value) == "clone":
        raise Refused("a copy is kept already")
    root = root_of(value)
    if root is not None and mutated(text, scope_of(text, value), {root}):
        raise Refused(f"`{root}` is changed in place, and what is kept may have to follow")
    return text.replaced(value, followed_by(value, "clone"))
