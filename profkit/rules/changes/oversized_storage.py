"""What is kept is a copy of the part, not a view of the whole."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import ProgramText, called_name, followed_by
from profkit.rules.changes.keeping import stored_value
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import mutated, scope_of
from profkit.rules.changes.sharing import root_of

_PARTS = frozenset(("detach", "narrow", "select", "squeeze", "view", "unsqueeze", "transpose", "permute"))
"""Methods that give a view, of a part too if they stand behind one."""


def oversized_storage(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    value = _kept_view(text, text.statement_at(finding.location.line).body[0])
    if isinstance(value, libcst.Call) and called_name(value) == "clone":
        raise Refused("a copy is kept already")
    root = root_of(value)
    if root is not None and mutated(text, scope_of(text, value), {root}):
        raise Refused(f"`{root}` is changed in place, and what is kept may have to follow")
    return text.replaced(value, followed_by(value, "clone"))


def _kept_view(text: ProgramText, part: libcst.BaseSmallStatement) -> libcst.BaseExpression:
    """What a line keeps; of several values, or of those that it hands to a function that may keep them, the only one
    that is a part of something."""
    value = stored_value(part)
    call = part.value if isinstance(part, libcst.Expr) else None
    if value is None and isinstance(call, libcst.Call):
        _refuse_changes_there(text, call)
        return _only_part([one.value for one in call.args if not one.star])
    if value is None:
        raise Refused("the line neither appends nor stores a value by its key")
    if isinstance(value, (libcst.Tuple, libcst.List, libcst.Set)):
        return _only_part([one.value for one in value.elements])
    if isinstance(value, libcst.Call) and isinstance(value.func, libcst.Name) and value.func.value[:1].isupper():
        return _only_part([one.value for one in value.args if not one.star])  # an object that holds several
    if isinstance(value, libcst.Dict):
        return _only_part([one.value for one in value.elements])
    return value


def _only_part(values: list[libcst.BaseExpression]) -> libcst.BaseExpression:
    parts = [one for one in values if _is_part(one)]
    if len(parts) != 1:
        raise Refused("several values are kept at once: the line does not say which of them are views")
    return parts[0]


def _is_part(value: libcst.BaseExpression) -> bool:
    """``x[i]``, ``x[:, 0].detach()`` or ``x.select(0, i)``, not ``row["name"]``."""
    is_of_part = False
    while isinstance(value, libcst.Call) and isinstance(value.func, libcst.Attribute):
        if called_name(value) not in _PARTS:
            return False
        is_of_part |= called_name(value) in ("narrow", "select")
        value = value.func.value
    if not isinstance(value, libcst.Subscript):
        return is_of_part
    index = value.slice[0].slice
    return not (isinstance(index, libcst.Index) and isinstance(index.value, libcst.BaseString))


def _refuse_changes_there(text: ProgramText, call: libcst.Call) -> None:
    """Raise `Refused` if a function of this file by that name changes what it is given in place."""
    for one in text.nodes(libcst.FunctionDef):
        takes = (*one.params.posonly_params, *one.params.params, *one.params.kwonly_params)
        given = {item.name.value for item in takes}
        if one.name.value == called_name(call) and (changed := mutated(text, one.body, given - {"self"})):
            raise Refused(f"`{called_name(call)}` changes `{min(changed)}` in place")
