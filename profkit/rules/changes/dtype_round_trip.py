"""The cast to the wider type goes, so the next one to the narrower type does nothing."""

from __future__ import annotations

import re

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import ProgramText, called_name, text_of
from profkit.rules.changes.refusing import Refused

_TOLD = re.compile(r"cast from (\w+) to (\w+) and straight back")
_METHODS = {"float64": "double", "double": "double", "float32": "float", "float": "float", "float16": "half"}
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
    return text.replaced(casts[0], casts[0].func.value)


def _casts(call: libcst.Call, method: str) -> bool:
    if not isinstance(call.func, libcst.Attribute):
        return False
    given = [text_of(one.value) for one in call.args]
    if called_name(call) == method:
        return not given
    return len(given) == 1 and given[0] in _NAMES.get(method, (f"torch.{method}",))
