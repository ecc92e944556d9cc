"""The cast to the wider type goes, so the next one to the narrower type does nothing."""

from __future__ import annotations

import re

import libcst
from libcst import matchers

from profkit.findings.values import Finding
from profkit.rules.changes.base import ProgramText, called_name, text_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import is_set, scope_of, uses

_TOLD = re.compile(r"cast from (\w+) to (\w+) and straight back")
_METHODS = {"float64": "double", "double": "double", "float32": "float", "float": "float", "float16": "half"}
_CASTS = frozenset(("bfloat16", "double", "float", "half", "to", "type", "type_as"))
_NAMES = {"double": ("torch.float64", "torch.double"), "float": ("torch.float32", "torch.float")}


def dtype_round_trip(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    told = _TOLD.search(finding.message)
    if told is None:
        raise Refused("the finding does not say which types are cast")
    method = _METHODS.get(told[2], told[2])
    line = finding.location.line
    casts = [call for call in text.calls(method, "to", "type") if text.covers(call, line) and _casts(call, method)]
    if len(casts) != 1:
        raise Refused(f"{len(casts) or 'no'} cast{'s' * (len(casts) != 1)} to {told[2]} on that line")
    assert isinstance(casts[0].func, libcst.Attribute)
    _refuse_other_reads(text, casts[0])
    return text.replaced(casts[0], casts[0].func.value)


def _refuse_other_reads(text: ProgramText, cast: libcst.Call) -> None:
    """Raise `Refused` if the variable that the cast sets is read without being cast back."""
    assignment = next(text.ancestors(cast))
    if not isinstance(assignment, libcst.Assign):
        return
    own = {id(use) for use in matchers.findall(assignment, matchers.Name())}
    for name in (text_of(one.target) for one in assignment.targets):
        for use in uses(text, scope_of(text, assignment), name):
            around = next(text.ancestors(use))
            is_cast = isinstance(around, libcst.Attribute) and around.attr.value in _CASTS
            if id(use) not in own and not is_cast and not is_set(text, use):
                raise Refused(f"line {text.line_of(use)} reads `{name}` in the wider type")


def _casts(call: libcst.Call, method: str) -> bool:
    if not isinstance(call.func, libcst.Attribute):
        return False
    given = [text_of(one.value) for one in call.args]
    if called_name(call) == method:
        return not given
    return len(given) == 1 and given[0] in _NAMES.get(method, (f"torch.{method}",))
