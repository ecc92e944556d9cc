"""What the callers of a function or a class in the same file pass for a parameter."""

from __future__ import annotations

import libcst

from profkit.rules.changes.base import ProgramText, called_name, text_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import uses


def passed_literals(text: ProgramText, name: libcst.Name, literal: str) -> list[libcst.BaseExpression]:
    """Each literal that says what a parameter is: in the calls, and as its default. Raises `Refused` if the name is no
    parameter, if the function uses it elsewhere too, or if one of the calls passes anything else."""
    function = next((one for one in text.ancestors(name) if isinstance(one, libcst.FunctionDef)), None)
    given = _parameter(function, name.value) if function is not None else None
    if function is None or given is None:
        raise Refused(f"`{name.value}` is a variable, which may have a reason")
    parameter, place = given
    others = [one for one in uses(text, function, name.value) if one not in (name, parameter.name)]
    if others:
        raise Refused(f"line {text.line_of(others[0])} uses `{name.value}`, too")
    calls = _calls_of(text, function)
    found = [] if parameter.default is None else [parameter.default]
    for call in calls:
        if any(one.star for one in call.args):
            raise Refused(f"line {text.line_of(call)} passes arguments that cannot be read")
        named = [one.value for one in call.args if one.keyword is not None and one.keyword.value == name.value]
        plain = [one.value for one in call.args if one.keyword is None][place : place + 1] if place >= 0 else []
        found += named or plain
    if not calls or any(text_of(one) != literal for one in found):
        raise Refused(f"`{name.value}` is not `{literal}` for all callers in this file")
    return found


def _parameter(function: libcst.FunctionDef, name: str) -> tuple[libcst.Param, int] | None:
    """A parameter, and which argument it is, not counting ``self``; -1 if it has to be named."""
    plain = [*function.params.posonly_params, *function.params.params]
    begins = 1 if plain and plain[0].name.value in ("self", "cls") else 0
    for number, one in enumerate(plain):
        if one.name.value == name:
            return one, number - begins
    return next(((one, -1) for one in function.params.kwonly_params if one.name.value == name), None)


def _calls_of(text: ProgramText, function: libcst.FunctionDef) -> list[libcst.Call]:
    """The calls of a function, or of the class that it makes objects of."""
    around = next((one for one in text.ancestors(function) if isinstance(one, libcst.ClassDef)), None)
    if function.name.value == "__init__" and around is not None:
        bases = {text_of(base.value) for kind in text.nodes(libcst.ClassDef) for base in kind.bases}
        if around.name.value in bases:
            raise Refused(f"another class is derived from `{around.name.value}`")
        return text.calls(around.name.value)
    return [call for call in text.calls(function.name.value) if called_name(call)]
