"""The backward pass is told which parameters the coming steps of optimizers use."""

from __future__ import annotations

from collections.abc import Iterator

import libcst
from libcst import matchers

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, ProgramText, called_name, text_of, with_new_argument
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import assigned_value, block_of, loops_around

_NAMED = "Name what this loss is differentiated by"
"""How the rule's fix begins where an optimizer holds the parameters whose gradients are not used."""


def unused_gradients(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    if not finding.fix.startswith(_NAMED):
        raise Refused("no optimizer holds them: whether that part should be trained is its author's choice")
    statement = text.statement_at(finding.location.line)
    call = text.call_at(finding.location.line, "backward")
    if Argument("inputs").find(call) is not None:
        raise Refused("the pass says `inputs=` already")
    stepping = _stepping(text, statement)
    if not stepping:
        raise Refused("no optimizer steps with what this pass computes: its gradients may be read otherwise")
    parameters = [_parameters(text, optimizer, statement) for optimizer in stepping]
    inputs = f"list({parameters[0]})" if len(parameters) == 1 else f"[{', '.join(f'*{one}' for one in parameters)}]"
    return text.replaced(call, with_new_argument(call, "inputs", inputs))


def _stepping(text: ProgramText, statement: libcst.SimpleStatementLine) -> list[str]:
    """The optimizers that step with the gradients of this pass: those that step behind it in its block before they, or
    their module, clear the gradients, and in a loop those that do so at the beginning of the next round."""
    block = block_of(text, statement)
    at = next(number for number, one in enumerate(block) if one is statement)
    loops = loops_around(text, statement)
    is_round = bool(loops) and loops[0].body is next(text.ancestors(statement))
    if not _steps_in(block[at + 1 :]):
        raise Refused("no optimizer steps behind it in the same block")
    found: dict[str, bool] = {}
    for line in [*block[at + 1 :], *(block[:at] if is_round else ())]:
        only = line.body[0] if isinstance(line, libcst.SimpleStatementLine) and len(line.body) == 1 else None
        is_sure = isinstance(only, libcst.Expr)
        for optimizer in _called_on(line, "step"):
            made_for = _made_for(text, optimizer, statement)
            found.setdefault(optimizer, made_for.removesuffix(".parameters()") not in found)
        for cleared in _called_on(line, "zero_grad") if is_sure else ():
            found.setdefault(cleared, False)
    return [optimizer for optimizer, uses in found.items() if uses]


def _steps_in(block: list[libcst.CSTNode]) -> bool:
    """Whether a statement of the block itself is a step; one inside of it may not be made."""
    plain = (line for line in block if isinstance(line, libcst.SimpleStatementLine))
    return any(isinstance(line.body[0], libcst.Expr) and any(_called_on(line, "step")) for line in plain)


def _called_on(node: libcst.CSTNode, method: str) -> Iterator[str]:
    """``opt`` of each ``opt.step()``, and of ``scaler.step(opt)``."""
    for call in matchers.findall(node, matchers.Call()):
        if isinstance(call, libcst.Call) and called_name(call) == method and isinstance(call.func, libcst.Attribute):
            owner = text_of(call.func.value)
            yield text_of(call.args[0].value) if call.args and "scaler" in owner.lower() else owner


def _made_for(text: ProgramText, name: str, near: libcst.CSTNode) -> str:
    """What an optimizer is made with, such as ``net.parameters()``. A scheduler is made with an optimizer."""
    made = assigned_value(text, name, near)
    return text_of(made.args[0].value) if isinstance(made, libcst.Call) and made.args else ""


def _parameters(text: ProgramText, optimizer: str, near: libcst.CSTNode) -> str:
    made = assigned_value(text, optimizer, near)
    given = made.args[0].value if isinstance(made, libcst.Call) and made.args else None
    if not isinstance(given, libcst.Call) or called_name(given) != "parameters" or given.args:
        raise Refused(f"`{optimizer}` is not made of the parameters of one module")
    return text_of(given)
