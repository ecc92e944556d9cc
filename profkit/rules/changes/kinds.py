"""Which kind of numbers a tensor holds, as far as the text shows it: whole ones, or others."""

from __future__ import annotations

import libcst
from libcst import matchers

from profkit.rules.changes.base import ProgramText, called_name, text_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import assignment_of, scope_of, uses

WHOLE, OTHER = "whole", "other"

_COMPARING = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "isclose", "logical_and"))
"""Functions and methods whose result is true or false in each place."""
_ADDING = frozenset(("sum", "count_nonzero"))
"""What they give of whole numbers is int64."""
_OTHER = frozenset(
    (
        "cross_entropy",
        "double",
        "exp",
        "float",
        "half",
        "log",
        "mean",
        "nll",
        "norm",
        "sigmoid",
        "softmax",
        "sqrt",
        "std",
        "var",
    )
)
"""What they give is never whole numbers, whatever it is computed of."""
_KEEPING = frozenset(("clone", "cpu", "detach", "flatten", "max", "min", "reshape", "squeeze", "view", *_ADDING))
"""What they give is of the kind that they are called on."""


def kind_of(text: ProgramText, value: libcst.BaseExpression) -> str:
    """Whole numbers, others, or empty if it does not show. Whole ones are those whose sum is int64."""
    if isinstance(value, libcst.BinaryOperation):
        if isinstance(value.operator, libcst.Divide):
            return OTHER
        return OTHER if OTHER in (kind_of(text, value.left), kind_of(text, value.right)) else ""
    if isinstance(value, libcst.Float):
        return OTHER
    if isinstance(value, libcst.Name):
        return _of_variable(text, value)
    return _of_call(text, value) if isinstance(value, libcst.Call) else ""


def _of_variable(text: ProgramText, name: libcst.Name) -> str:
    """Only what is not whole has gradients."""
    for use in uses(text, scope_of(text, name), name.value):
        parent = next(text.ancestors(use))
        if isinstance(parent, libcst.Attribute) and parent.value is use and parent.attr.value == "backward":
            return OTHER
    try:
        made = assignment_of(text, name.value, name).value
    except Refused:
        return ""
    return "" if matchers.findall(made, matchers.Name(name.value)) else kind_of(text, made)


def _of_call(text: ProgramText, call: libcst.Call) -> str:
    name = called_name(call)
    if name in _OTHER or name.lower().endswith(("loss", "criterion")):
        return OTHER
    inner = _subject(call)
    if inner is None:
        return ""
    if name in _ADDING and _is_comparison(text, inner):
        return WHOLE
    return kind_of(text, inner) if name in _KEEPING else ""


def _subject(call: libcst.Call) -> libcst.BaseExpression | None:
    """``x`` of ``x.sum()`` and of ``torch.sum(x)``."""
    if isinstance(call.func, libcst.Attribute) and text_of(call.func.value) != "torch":
        return call.func.value
    return call.args[0].value if call.args and not call.args[0].star else None


def _is_comparison(text: ProgramText, value: libcst.BaseExpression) -> bool:
    if isinstance(value, libcst.Name):
        try:
            value = assignment_of(text, value.value, value).value
        except Refused:
            return False
    return isinstance(value, libcst.Comparison) or (isinstance(value, libcst.Call) and called_name(value) in _COMPARING)
