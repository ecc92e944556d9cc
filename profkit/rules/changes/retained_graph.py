"""What is kept is kept without its history."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import ProgramText, called_name, detached, text_of
from profkit.rules.changes.refusing import Refused

_KEEPING = ("append", "add", "appendleft", "put")
"""Methods of containers that keep their only argument."""


def retained_graph(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    value = _kept_value(text.statement_at(finding.location.line).body[0])
    return text.replaced(value, detached(value))


def _kept_value(part: libcst.BaseSmallStatement) -> libcst.BaseExpression:
    """The value that a container or a running sum keeps."""
    if isinstance(part, libcst.Expr) and isinstance(part.value, libcst.Call):
        call = part.value
        if called_name(call) in _KEEPING and len(call.args) == 1 and not call.args[0].star:
            return call.args[0].value
    if isinstance(part, libcst.AugAssign) and isinstance(part.operator, libcst.AddAssign):
        return part.value
    if isinstance(part, libcst.Assign) and len(part.targets) == 1:
        return _assigned_value(part.targets[0].target, part.value)
    raise Refused("the line neither appends, adds up, nor stores a value by its key")


def _assigned_value(target: libcst.BaseExpression, value: libcst.BaseExpression) -> libcst.BaseExpression:
    if isinstance(target, libcst.Subscript):
        return value
    is_sum = isinstance(value, libcst.BinaryOperation) and isinstance(value.operator, libcst.Add)
    if isinstance(value, libcst.BinaryOperation) and is_sum and text_of(value.left) == text_of(target):
        return value.right
    raise Refused("the value is carried over from step to step: where its history should be cut is the author's choice")
