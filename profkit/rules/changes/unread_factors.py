"""The decomposition gives its values alone, or factors without the columns that complete them."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import (
    Argument,
    Edit,
    ProgramText,
    called_name,
    refuse_hidden_arguments,
    text_of,
    with_argument,
    without_argument,
)
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import is_set, scope_of, uses

_FULL, _SOME = Argument("full_matrices", 1), Argument("some", 1)
_VALUES = {"eig": "eigvals", "eigh": "eigvalsh", "svd": "svdvals"}
_PLACE = {"eig": (0, 2), "eigh": (0, 2), "svd": (1, 3)}
"""Which result the values are, and of how many."""
_FIELDS = {"eig": ("eigenvalues",), "eigh": ("eigenvalues",), "svd": ("S",)}


def unread_factors(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    call = text.call_at(finding.location.line, *_VALUES)
    if "vals" in finding.fix:
        return _values_alone(text, call)
    if finding.fix.startswith("Leave"):
        return text.replaced(call, without_argument(call, _SOME, "False"))
    return text.replaced(call, with_argument(call, _FULL, "False"))


def _values_alone(text: ProgramText, call: libcst.Call) -> bytes:
    around = next(text.ancestors(call))
    name = called_name(call)
    alone, imported = _asked_for_values(text, call), _imported(text, call)
    if isinstance(around, libcst.Attribute) and around.attr.value in _FIELDS[name]:
        return text.edited({around: lambda _: alone, **imported})
    if isinstance(around, libcst.Subscript) and text_of(around).endswith(f")[{_PLACE[name][0]}]"):
        return text.edited({around: lambda _: alone, **imported})
    if not isinstance(around, libcst.Assign) or len(around.targets) != 1:
        raise Refused("the line does not show which result is read")
    target = around.targets[0].target
    at, of = _PLACE[name]
    if not isinstance(target, libcst.Tuple) or len(target.elements) != of:
        raise Refused("the line does not show which result is read")
    names = [one.value for one in target.elements]
    for number, one in enumerate(names):
        if number != at and not _is_never_read(text, one):
            raise Refused(f"`{text_of(one)}` is named elsewhere")
    values = names[at]
    if not isinstance(values, libcst.Name):
        raise Refused(f"`{text_of(values)}` is no variable")
    changed = around.with_changes(targets=[libcst.AssignTarget(values)], value=alone)
    return text.edited({around: lambda _: changed, **imported})


def _imported(text: ProgramText, call: libcst.Call) -> dict[libcst.CSTNode, Edit]:
    """The import of the function for the values, where the file imports this one by its own name."""
    if not isinstance(call.func, libcst.Name):
        return {}
    name, values = call.func.value, _VALUES[call.func.value]
    lines = [one for one in text.nodes(libcst.ImportFrom) if one.module and text_of(one.module) == "torch.linalg"]
    given = [one.names for one in lines if not isinstance(one.names, libcst.ImportStar)]
    listed = [text_of(alias.name) for aliases in given for alias in aliases if alias.asname is None]
    if len(lines) != 1 or name not in listed or len(listed) != sum(map(len, given)):
        raise Refused(f"`{name}` is imported by its own name: import `{values}` and call that")
    is_needed = len(uses(text, text.module, name)) > 2  # here and in the import
    names = [*listed, values] if is_needed else [values if one == name else one for one in listed]
    aliases = [libcst.ImportAlias(libcst.Name(one)) for one in dict.fromkeys(names)]
    return {lines[0]: lambda line: line.with_changes(names=aliases)}


def _is_never_read(text: ProgramText, target: libcst.BaseExpression) -> bool:
    """Whether it is a variable that the code around never names again; `_` may be set again."""
    if not isinstance(target, libcst.Name):
        return False
    named = uses(text, scope_of(text, target), target.value)
    return all(is_set(text, one) for one in named) if target.value == "_" else named == [target]


def _asked_for_values(text: ProgramText, call: libcst.Call) -> libcst.Call:
    refuse_hidden_arguments(call)
    called, name = text_of(call.func), called_name(call)
    is_own = isinstance(call.func, libcst.Name)
    is_old = not (is_own or called.endswith(f"linalg.{name}"))
    if is_old and called != f"{text.known_as('torch')}.svd":
        raise Refused(f"`{called}` may be another function than PyTorch's")
    kept = [one for one in call.args if one.keyword is None or one.keyword.value in ("A", "UPLO", "input")]
    kept = kept[: 2 if name == "eigh" else 1]
    kept[-1] = kept[-1].with_changes(comma=libcst.MaybeSentinel.DEFAULT)
    if is_own:
        function: libcst.BaseExpression = libcst.Name(_VALUES[name])
    elif is_old:
        kept[-1] = kept[-1].with_changes(keyword=None, equal=libcst.MaybeSentinel.DEFAULT)
        function = libcst.parse_expression(f"{called.rpartition('.')[0]}.linalg.svdvals")
    else:
        assert isinstance(call.func, libcst.Attribute)
        function = call.func.with_changes(attr=libcst.Name(_VALUES[name]))
    return call.with_changes(func=function, args=kept)
