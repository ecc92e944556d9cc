"""The backward pass is told which parameters the next step of an optimizer uses."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, ProgramText, called_name, text_of, with_new_argument
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import assigned_value, block_of

_NAMED = "Name what this loss trains"
"""How the rule's fix begins where an optimizer holds the parameters whose gradients are not used."""


def unused_gradients(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    if not finding.fix.startswith(_NAMED):
        raise Refused("no optimizer holds them: whether that part should be trained is its author's choice")
    statement = text.statement_at(finding.location.line)
    call = text.call_at(finding.location.line, "backward")
    if Argument("inputs").find(call) is not None:
        raise Refused("the pass says `inputs=` already")
    parameters = _stepping(text, statement)
    return text.replaced(call, with_new_argument(call, "inputs", f"list({parameters})"))


def _stepping(text: ProgramText, statement: libcst.SimpleStatementLine) -> str:
    """The source of the parameters of the optimizer that steps next in the same block."""
    block = block_of(text, statement)
    behind = block[next(number for number, one in enumerate(block) if one is statement) + 1 :]
    for line in behind:
        part = line.body[0] if isinstance(line, libcst.SimpleStatementLine) else None
        if not isinstance(part, libcst.Expr) or not isinstance(part.value, libcst.Call):
            continue
        if called_name(part.value) == "step" and isinstance(part.value.func, libcst.Attribute):
            return _parameters(text, text_of(part.value.func.value), statement)
    raise Refused("no optimizer steps behind it in the same block")


def _parameters(text: ProgramText, optimizer: str, near: libcst.CSTNode) -> str:
    made = assigned_value(text, optimizer, near)
    given = made.args[0].value if isinstance(made, libcst.Call) and made.args else None
    if not isinstance(given, libcst.Call) or called_name(given) != "parameters" or given.args:
        raise Refused(f"`{optimizer}` is not made of the parameters of one module")
    return text_of(given)
