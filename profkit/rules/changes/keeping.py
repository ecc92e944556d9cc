"""The value that a line keeps beyond itself: in a container, in a running sum, under a key."""

from __future__ import annotations

import libcst
from libcst import matchers

from profkit.rules.changes.base import called_name, text_of
from profkit.rules.changes.refusing import Refused

_KEEPING = ("append", "add", "appendleft", "put")
"""Methods of containers that keep their only argument."""


def kept_value(part: libcst.BaseSmallStatement) -> libcst.BaseExpression:
    """The value that a container or a running sum keeps."""
    kept = stored_value(part)
    if kept is not None:
        return kept
    if isinstance(part, libcst.AugAssign) and isinstance(part.operator, libcst.AddAssign):
        return part.value
    if isinstance(part, libcst.Assign) and len(part.targets) == 1:
        added = _added_value(part.targets[0].target, part.value)
        if added is not None:
            return added
    raise Refused("the line neither appends, adds up, nor stores a value by its key")


def stored_value(part: libcst.BaseSmallStatement) -> libcst.BaseExpression | None:
    """The value that a line puts into a container; None if it does not."""
    if isinstance(part, libcst.Expr) and isinstance(part.value, libcst.Call):
        call = part.value
        if called_name(call) in _KEEPING and len(call.args) == 1 and not call.args[0].star:
            return call.args[0].value
    if isinstance(part, libcst.Assign) and len(part.targets) == 1:
        return part.value if isinstance(part.targets[0].target, libcst.Subscript) else None
    return None


def _added_value(target: libcst.BaseExpression, value: libcst.BaseExpression) -> libcst.BaseExpression | None:
    """What ``total = total + value`` adds; None if the line does not go on with what it sets. Raises `Refused` if it
    does in another way."""
    is_sum = isinstance(value, libcst.BinaryOperation) and isinstance(value.operator, libcst.Add)
    if isinstance(value, libcst.BinaryOperation) and is_sum and text_of(value.left) == text_of(target):
        return value.right
    found = matchers.findall(value, matchers.Name() | matchers.Attribute())
    last = {id(one.attr) for one in found if isinstance(one, libcst.Attribute)}
    read = {text_of(one) for one in found if id(one) not in last}
    places = [one.value for one in target.elements] if isinstance(target, libcst.Tuple) else [target]
    if not any(text_of(one) in read for one in places):
        return None
    raise Refused("the value is carried over from step to step: where its history should be cut is the author's choice")
