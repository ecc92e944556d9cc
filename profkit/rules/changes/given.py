"""What callers give to a function: a meter that keeps losses may be given numbers too."""

from __future__ import annotations

import libcst
from libcst import matchers

from profkit.rules.changes.base import Edit, ProgramText, called_name, text_of
from profkit.rules.changes.kinds import OTHER, kind_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import assignment_of, names_in, scope_of, uses

_TENSOR, _NUMBER, _EITHER = "tensor", "number", "either"
_NUMBERS = frozenset(("float", "int", "item", "len", "numel", "perf_counter", "round", "size", "time"))
"""Functions and methods that give numbers of Python."""
_ARITHMETIC = (libcst.BinaryOperation, libcst.UnaryOperation)


def detached_if_tensor(text: ProgramText, value: libcst.BaseExpression) -> dict[libcst.CSTNode, Edit]:
    """The edit that keeps a value without its history if it is a tensor, where callers decide whether it is one; none
    if it is one for certain. Raises `Refused` where several variables may be numbers."""
    names = [value] if isinstance(value, libcst.Name) else _operands(text, value)
    kinds = [_kind_of_given(text, one) for one in names]
    if not names or _TENSOR in kinds:
        return {}
    either = [one for one, kind in zip(names, kinds, strict=True) if kind == _EITHER]
    if len(either) != 1:
        raise Refused("whether tensors or numbers are kept is decided by who calls the function")
    source = _guarded(text, either[0].value, either[0] is value)
    return {either[0]: lambda _: libcst.parse_expression(source)}


def _operands(text: ProgramText, value: libcst.BaseExpression) -> list[libcst.Name]:
    """The variables that arithmetic is made of, without attributes, which may be anything; none of other values, which
    are taken for tensors."""
    if not isinstance(value, _ARITHMETIC):
        return []
    found = [one for one in matchers.findall(value, matchers.Name()) if isinstance(one, libcst.Name)]
    return [one for one in found if not isinstance(next(text.ancestors(one)), libcst.Attribute)]


def _guarded(text: ProgramText, name: str, is_whole: bool) -> str:
    try:
        asked = f"{text.known_as('torch')}.is_tensor({name})"
    except Refused:
        asked = f'hasattr({name}, "detach")'  # a file of meters need not know PyTorch
    source = f"{name}.detach() if {asked} else {name}"
    return source if is_whole else f"({source})"


def _kind_of_given(text: ProgramText, name: libcst.Name) -> str:
    """What a variable holds. One that the function makes itself is taken for a tensor: a finding says so. So is what a
    module's ``forward`` gets. Another parameter, or one of ``**values``, is what the callers in the file pass for
    certain, or else a tensor or a number."""
    function = scope_of(text, name)
    if not isinstance(function, libcst.FunctionDef) or function.name.value == "forward":
        return _TENSOR
    given = _parameter(function, name.value)
    if given is None:
        return _EITHER if _is_one_of(text, function, name.value) else _TENSOR
    if given.annotation is not None:
        said = text_of(given.annotation.annotation).strip("'\"")
        return _TENSOR if said.endswith("Tensor") else _NUMBER if said in ("int", "bool") else _EITHER
    callers = [call for call in text.calls(function.name.value) if not any(one.star for one in call.args)]
    passed = [_passed(call, name.value, _place(function, given)) or given.default for call in callers]
    kinds = {_kind_of_value(text, one) for one in [*passed, given.default] if one is not None}
    return kinds.pop() if passed and len(kinds) == 1 else _EITHER


def _parameter(function: libcst.FunctionDef, name: str) -> libcst.Param | None:
    every = [*function.params.posonly_params, *function.params.params, *function.params.kwonly_params]
    return next((one for one in every if one.name.value == name), None)


def _is_one_of(text: ProgramText, function: libcst.FunctionDef, name: str) -> bool:
    """Whether a loop over what a parameter holds sets the variable: ``for name, value in values.items()``."""
    stars = [one for one in (function.params.star_arg, function.params.star_kwarg) if isinstance(one, libcst.Param)]
    known = {one.name.value for one in (*function.params.params, *stars)} - {"self"}
    loops = [one for one in text.nodes(libcst.For) if scope_of(text, one) is function]
    return any(name in names_in(one.target) and known & names_in(one.iter) for one in loops)


def _place(function: libcst.FunctionDef, given: libcst.Param) -> int | None:
    """At which place callers pass a parameter; None if only by its name."""
    row = [*function.params.posonly_params, *function.params.params]
    begins_with_self = bool(row) and row[0].name.value in ("self", "cls")
    return row.index(given) - begins_with_self if given in row else None


def _passed(call: libcst.Call, name: str, place: int | None) -> libcst.BaseExpression | None:
    for number, one in enumerate(call.args):
        if (one.keyword is not None and one.keyword.value == name) or (one.keyword is None and number == place):
            return one.value
    return None


def _kind_of_value(text: ProgramText, value: libcst.BaseExpression) -> str:
    """Whether a value is a tensor beyond doubt, such as a loss or what is computed of one, or a number."""
    if isinstance(value, (libcst.Integer, libcst.Float)):
        return _NUMBER
    if isinstance(value, libcst.Call):
        return _NUMBER if called_name(value) in _NUMBERS else _TENSOR if kind_of(text, value) == OTHER else _EITHER
    return _kind_of_variable(text, value) if isinstance(value, libcst.Name) else _EITHER


def _kind_of_variable(text: ProgramText, name: libcst.Name) -> str:
    for use in uses(text, scope_of(text, name), name.value):
        parent = next(text.ancestors(use))
        if isinstance(parent, libcst.Attribute) and parent.attr.value == "backward":
            return _TENSOR
    try:
        made = assignment_of(text, name.value, name).value
    except Refused:
        return _EITHER
    return _kind_of_value(text, made) if not isinstance(made, libcst.Name) else _EITHER
