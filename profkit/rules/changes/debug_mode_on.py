"""The mode is switched off where it is switched on."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, ProgramText, called_name, refuse_hidden_arguments, with_argument
from profkit.rules.changes.refusing import Refused

_SETTERS = {
    "set_detect_anomaly": (Argument("mode", 0), "False"),
    "set_sync_debug_mode": (Argument("debug_mode", 0), '"default"'),
}
_BLOCK = "detect_anomaly"
"""A context manager that has no argument to switch it off; ``set_detect_anomaly(False)`` is one too."""


def debug_mode_on(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    call = text.call_at(finding.location.line, *_SETTERS, _BLOCK)
    name = called_name(call)
    if name == _BLOCK:
        return text.replaced(call, _switched_off(call))
    argument, value = _SETTERS[name]
    if argument.find(call) is None:
        raise Refused("the call does not say that the mode is on")
    return text.replaced(call, with_argument(call, argument, value))


def _switched_off(call: libcst.Call) -> libcst.Call:
    refuse_hidden_arguments(call)
    if not isinstance(call.func, libcst.Attribute):
        raise Refused("`detect_anomaly` is imported by its own name: write `set_detect_anomaly(False)` there")
    function = call.func.with_changes(attr=libcst.Name("set_detect_anomaly"))
    return call.with_changes(func=function, args=[libcst.Arg(libcst.Name("False"))])
