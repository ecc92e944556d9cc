"""Numbers become float32 where they enter. Where the program asks for doubles itself, that is its author's choice."""

from __future__ import annotations

from contextlib import suppress

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import (
    Edit,
    ProgramText,
    called_name,
    followed_by,
    refuse_hidden_arguments,
    text_of,
    with_new_argument,
)
from profkit.rules.changes.refusing import AltersNumbers, Refused
from profkit.rules.changes.scopes import assigned_value, lies_in, mutated, scope_of, variables_in
from profkit.rules.changes.sharing import root_of

_FROM_NUMPY = ("from_numpy", "as_tensor", "tensor")
_WIDE = frozenset(("torch.float64", "torch.double", '"float64"', '"double"'))
_NAMES = "cos exp linspace log mean normal rand randn random sin sqrt standard_normal std tanh uniform"
_FRACTIONAL = frozenset(_NAMES.split())
"""Functions of NumPy that never give whole numbers."""
_ASKED = "the program asks for float64 itself"


def float64_compute(text: ProgramText, finding: Finding) -> bytes:
    asked = _asked(text)
    if asked:
        raise AltersNumbers(_ASKED, text.edited({**asked, **_entering(text, finding)}))
    edits = _entering(text, finding)
    if not edits:
        raise Refused("that line does not show where the doubles come from")
    return text.edited(edits)


def _asked(text: ProgramText) -> dict[libcst.CSTNode, Edit]:
    """Where the file says that it wants float64: ``.double()``, ``torch.float64``."""
    found: dict[libcst.CSTNode, Edit] = {}
    for call in text.calls("double"):
        if isinstance(call.func, libcst.Attribute) and not call.args:
            found[call.func.attr] = lambda _: libcst.Name("float")
    for kind in (libcst.Attribute, libcst.SimpleString):
        for node in text.nodes(kind):
            if text_of(node) in _WIDE and not isinstance(next(text.ancestors(node)), libcst.Attribute):
                found[node] = lambda _: libcst.parse_expression(f"{text.known_as('torch')}.float32")
    return found


def _entering(text: ProgramText, finding: Finding) -> dict[libcst.CSTNode, Edit]:
    """The calls on the lines of the finding that make tensors of doubles out of NumPy's."""
    assert finding.location is not None
    here = [one.line for one in (finding.location, *finding.also) if one.file == finding.location.file]
    calls = [call for call in text.calls(*_FROM_NUMPY) if any(text.covers(call, line) for line in here)]
    found = _with_operands(text, [call for call in calls if _is_as_it_comes(text, call)])
    for call in found:
        refuse_hidden_arguments(call)
        beside = [other for other in found if text.line_of(call) == text.line_of(other)]
        if len(beside) > 1 and not all(_is_fractional(text, other.args[0].value) for other in beside if other.args):
            raise Refused("several tensors are made on that line, which does not say which of them hold doubles")
        root = root_of(call.args[0].value) if call.args else None
        if root is not None and mutated(text, scope_of(text, call), {root}):
            raise Refused(f"`{root}` is changed in place, and the tensor shares its memory")
    return dict.fromkeys(found, _as_float)


def _is_as_it_comes(text: ProgramText, call: libcst.Call) -> bool:
    return not _says_type(call) and not _is_cast(text, call)


def _with_operands(text: ProgramText, calls: list[libcst.Call]) -> list[libcst.Call]:
    """And the calls that make what these are added to or multiplied with: a product of matrices takes one type."""
    found, of_them = [*calls], set[str]()
    scopes = {id(scope_of(text, call)) for call in calls}
    lines = [one for one in text.nodes(libcst.Assign) if id(scope_of(text, one)) in scopes]
    sums = [one for one in text.nodes(libcst.BinaryOperation) if id(scope_of(text, one)) in scopes]
    while True:
        known = len(found) + len(of_them)
        for line in lines:
            target = line.targets[0].target
            if isinstance(target, libcst.Name) and _reads(text, line.value, found, of_them):
                of_them.add(target.value)
        for one in sums:
            for side, other in ((one.left, one.right), (one.right, one.left)):
                made = _made_of_numpy(text, other) if _reads(text, side, found, of_them) else None
                found += [made] if made is not None and made not in found else []
        if len(found) + len(of_them) == known:
            return found


def _reads(text: ProgramText, value: libcst.BaseExpression, calls: list[libcst.Call], names: set[str]) -> bool:
    is_there = any(call is value or lies_in(text, call, value) for call in calls)
    return is_there or bool(variables_in(text, value) & names)


def _made_of_numpy(text: ProgramText, value: libcst.BaseExpression) -> libcst.Call | None:
    """The call that makes the only value of a variable out of NumPy's numbers."""
    with suppress(Refused):
        made = assigned_value(text, value.value, value) if isinstance(value, libcst.Name) else None
        is_plain = isinstance(made, libcst.Call) and called_name(made) in _FROM_NUMPY
        return made if is_plain and isinstance(made, libcst.Call) and _is_as_it_comes(text, made) else None
    return None


def _is_fractional(text: ProgramText, value: libcst.BaseExpression, known: frozenset[str] = frozenset()) -> bool:
    """Whether an array of NumPy's holds no whole numbers, as the text shows: labels would no longer be any."""
    if isinstance(value, libcst.Name) and value.value not in known:
        with suppress(Refused):
            return _is_fractional(text, assigned_value(text, value.value, value), known | {value.value})
    if isinstance(value, libcst.Subscript):
        return _is_fractional(text, value.value, known)
    if isinstance(value, libcst.BinaryOperation):
        sides = value.left, value.right
        return isinstance(value.operator, libcst.Divide) or any(_is_fractional(text, one, known) for one in sides)
    return isinstance(value, libcst.Float) or (isinstance(value, libcst.Call) and called_name(value) in _FRACTIONAL)


def _as_float(call: libcst.Call) -> libcst.Call:
    if called_name(call) == "from_numpy" or not isinstance(call.func, libcst.Attribute):
        return followed_by(call, "float")
    return with_new_argument(call, "dtype", f"{text_of(call.func.value)}.float32")


def _says_type(call: libcst.Call) -> bool:
    return any(given.keyword is not None and given.keyword.value == "dtype" for given in call.args)


def _is_cast(text: ProgramText, call: libcst.Call) -> bool:
    around = next(text.ancestors(call))
    return isinstance(around, libcst.Attribute) and around.attr.value in ("float", "double", "half", "long", "int")
