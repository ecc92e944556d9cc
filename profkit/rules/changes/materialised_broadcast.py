"""The tensor is expanded, which copies nothing, in place of repeated, or joined with itself. If a size does not fit,
running it shows that.

Where it only meets the tensor whose rows it is repeated for, as in ``x + places`` of ``x.size(0)`` rows, it can stay as
it is.
"""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import Edit, ProgramText, refuse_hidden_arguments, text_of
from profkit.rules.changes.joined_copies import JOINING, expanded
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import are_set, block_of, is_set, lies_in, names_in, scope_of, uses
from profkit.rules.changes.sharing import refuse_changed_result

_BROADCASTING = (libcst.Add, libcst.Subtract, libcst.Multiply, libcst.Divide)


def materialised_broadcast(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    line = finding.location.line
    if not text.calls_at(line, "repeat") and text.calls_at(line, *JOINING):
        joined = text.call_at(line, *JOINING)
        refuse_changed_result(text, joined)
        return text.replaced(joined, expanded(text, joined))
    call = text.call_at(line, "repeat")
    refuse_hidden_arguments(call)
    if not isinstance(call.func, libcst.Attribute) or any(given.keyword for given in call.args):
        raise Refused("the call does not show how often each dimension is repeated")
    if all(text_of(given.value) != "1" for given in call.args):
        raise Refused("every dimension is repeated, and the call does not say which of them have one element")
    refuse_changed_result(text, call)
    if edits := _as_it_is(text, call):
        return text.edited(edits)
    kept = libcst.parse_expression("-1")
    sizes = [given.with_changes(value=kept) if text_of(given.value) == "1" else given for given in call.args]
    function = call.func.with_changes(attr=libcst.Name("expand"))
    return text.replaced(call, call.with_changes(func=function, args=sizes))


def _as_it_is(text: ProgramText, call: libcst.Call) -> dict[libcst.CSTNode, Edit]:
    """Of ``repeated = places.repeat(x.size(0), 1, 1)``, read by ``x + repeated`` alone, in a later line beside it."""
    assert isinstance(call.func, libcst.Attribute)
    rows, others = text_of(call.args[0].value), [text_of(given.value) for given in call.args[1:]]
    line = next((one for one in text.ancestors(call) if isinstance(one, libcst.SimpleStatementLine)), None)
    part = line.body[0] if line is not None and len(line.body) == 1 else None
    if line is None or not isinstance(part, libcst.Assign) or part.value is not call or len(part.targets) != 1:
        return {}
    target, source = part.targets[0].target, call.func.value
    is_plain = isinstance(target, libcst.Name) and isinstance(source, (libcst.Name, libcst.Attribute))
    if not isinstance(target, libcst.Name) or not is_plain or {*others} != {"1"}:
        return {}
    named = uses(text, scope_of(text, call), target.value)
    read = [one for one in named if not is_set(text, one)]
    if len(named) != 2 or len(read) != 1:
        return {}
    met = _met(text, read[0])
    after = block_of(text, line)[block_of(text, line).index(line) + 1 :]
    reader = next((one for one in after if lies_in(text, read[0], one)), None)
    if rows not in (f"{met}.size(0)", f"{met}.shape[0]") or not isinstance(reader, libcst.SimpleStatementLine):
        return {}
    between = after[: after.index(reader)]
    if any(are_set(text, one, names_in(source) | {met}) for one in between):
        return {}
    return {line: lambda _: libcst.RemoveFromParent(), read[0]: lambda _: source}


def _met(text: ProgramText, read: libcst.Name) -> str:
    """The variable that a tensor is added to, or joined with in another way that broadcasts."""
    around = next(text.ancestors(read))
    if not isinstance(around, libcst.BinaryOperation) or not isinstance(around.operator, _BROADCASTING):
        return ""
    other = around.right if around.left is read else around.left
    return other.value if isinstance(other, libcst.Name) else ""
