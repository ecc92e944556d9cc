"""The call of a model on a line."""

from __future__ import annotations

import builtins

import libcst

from profkit.rules.changes.base import ProgramText
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import names_in


def model_call(text: ProgramText, line: int) -> libcst.Call:
    """The only call of a variable or an attribute on the line whose name looks like an object, not a function."""
    nodes = text.nodes(libcst.Call)
    imported = {name for one in text.nodes(libcst.ImportFrom) for name in names_in(one)}
    imported |= {name for one in text.nodes(libcst.Import) for name in names_in(one)}
    imported |= {one.name.value for one in text.nodes(libcst.FunctionDef)}
    found = [
        call
        for call in nodes
        if text.covers(call, line)
        and len(call.args) == 1
        and call.args[0].keyword is None
        and not call.args[0].star
        and _is_object(call.func, imported)
    ]
    if len(found) != 1:
        raise Refused(f"{len(found) or 'no'} call{'s' * (len(found) != 1)} of a model with one argument on that line")
    return found[0]


def _is_object(function: libcst.BaseExpression, imported: set[str]) -> bool:
    if isinstance(function, libcst.Name):
        return function.value not in imported and function.value not in dir(builtins)
    if not isinstance(function, libcst.Attribute) or not isinstance(function.value, libcst.Name):
        return False
    return function.value.value not in imported
