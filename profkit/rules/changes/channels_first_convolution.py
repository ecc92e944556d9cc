"""The model and what it is given keep the channels last."""

from __future__ import annotations

import builtins

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import Edit, ProgramText, followed_by, text_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import are_set, loops_around, names_in, variables_in, with_statements


def channels_first_convolution(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    call = _model_call(text, finding.location.line)
    loops = loops_around(text, call)
    if not loops:
        raise Refused("the model is called in no loop of its function: where it could be converted once does not show")
    model = text_of(call.func)
    if are_set(text, loops[-1], variables_in(text, call.func)):
        raise Refused(f"`{model}` is set inside of the loop")
    layout = f"memory_format={text.known_as('torch')}.channels_last"
    given = call.args[0]
    argument = libcst.parse_expression(f"x.to({layout})")
    assert isinstance(argument, libcst.Call)
    edits: dict[libcst.CSTNode, Edit] = {
        given.value: lambda value: followed_by(value, "to", *argument.args),
        loops[-1]: lambda loop: with_statements(text, (_converted(call.func, f"{model}.to({layout})"),), loop),
    }
    return text.edited(edits)


def _converted(model: libcst.BaseExpression, source: str) -> str:
    """A module is converted in place: an attribute needs no assignment, which it might not allow."""
    return f"{model.value} = {source}" if isinstance(model, libcst.Name) else source


def _model_call(text: ProgramText, line: int) -> libcst.Call:
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
