"""The tensor is expanded, which copies nothing, in place of repeated. If a size does not fit, running it shows that."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import ProgramText, refuse_hidden_arguments, text_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.sharing import refuse_changed_result


def materialised_broadcast(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    call = text.call_at(finding.location.line, "repeat")
    refuse_hidden_arguments(call)
    if not isinstance(call.func, libcst.Attribute) or any(given.keyword for given in call.args):
        raise Refused("the call does not show how often each dimension is repeated")
    if all(text_of(given.value) != "1" for given in call.args):
        raise Refused("every dimension is repeated, and the call does not say which of them have one element")
    refuse_changed_result(text, call)
    kept = libcst.parse_expression("-1")
    sizes = [given.with_changes(value=kept) if text_of(given.value) == "1" else given for given in call.args]
    function = call.func.with_changes(attr=libcst.Name("expand"))
    return text.replaced(call, call.with_changes(func=function, args=sizes))
