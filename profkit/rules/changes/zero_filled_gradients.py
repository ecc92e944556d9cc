"""Gradients go instead of becoming zeros: ``zero_grad`` no longer asks for these, and ``p.grad.zero_()`` becomes
``p.grad = None``."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, ProgramText, called_name, text_of, without_argument
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import prepared_at

_READING = (libcst.Assign, libcst.AnnAssign, libcst.List, libcst.Tuple, libcst.ListComp, libcst.GeneratorExp)
"""What may keep a gradient, and look for its next numbers there."""


def zero_filled_gradients(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    line = finding.location.line
    filled = [call for call in text.calls("zero_") if text.covers(call, line)]
    if len(filled) == 1 and not text.calls_at(line, "zero_grad"):
        return _let_go(text, text.statement_at(line), filled[0])
    if not text.calls_at(line, "zero_grad") and (prepared := prepared_at(text, line, "zero_grad")) is not None:
        plain = without_argument(prepared, Argument("set_to_none"), "False")
        return text.replaced(prepared, plain if len(plain.args) > 1 else plain.args[0].value)
    call = text.call_at(line, "zero_grad")
    return text.replaced(call, without_argument(call, Argument("set_to_none"), "False"))


def _let_go(text: ProgramText, statement: libcst.SimpleStatementLine, call: libcst.Call) -> bytes:
    """``p.grad = None`` for ``p.grad.zero_()`` and ``p.grad.data.zero_()``."""
    gradient = call.func.value if isinstance(call.func, libcst.Attribute) else None
    if isinstance(gradient, libcst.Attribute) and gradient.attr.value == "data":
        gradient = gradient.value
    part = statement.body[0]
    is_alone = isinstance(part, libcst.Expr) and part.value is call
    if not is_alone or not isinstance(gradient, libcst.Attribute) or gradient.attr.value != "grad":
        raise Refused("the line does not fill one gradient with zeros")
    _refuse_kept(text)
    gone = libcst.Assign([libcst.AssignTarget(gradient)], libcst.Name("None"))
    return text.replaced(part, gone)


def _refuse_kept(text: ProgramText) -> None:
    """Raise `Refused` if something keeps a gradient itself: it would no longer see the next one."""
    for one in text.nodes(libcst.Attribute):
        if one.attr.value != "grad" or text_of(one.value) in ("autograd", "torch.autograd"):
            continue
        around = next(text.ancestors(one))
        is_element = isinstance(around, (libcst.Element, libcst.Arg)) and not _computes(text, around)
        if is_element or (isinstance(around, _READING) and getattr(around, "value", one) is one):
            raise Refused(f"line {text.line_of(one)} keeps a gradient, whose numbers it may read again")


def _computes(text: ProgramText, argument: libcst.CSTNode) -> bool:
    """Whether a gradient is passed to a function that makes something else of it, not to ``append``."""
    call = next(text.ancestors(argument))
    return isinstance(call, libcst.Call) and called_name(call) not in ("append", "add", "insert", "setdefault", "put")
