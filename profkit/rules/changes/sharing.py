"""Who else sees a variable or a tensor: functions that name it, exceptions that pass it on, later changes in place."""

from __future__ import annotations

import libcst

from profkit.rules.changes.base import ProgramText, called_name, text_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import Loop, is_set, lies_in, mutated, scope_of, uses

_VIEWS = frozenset(
    (
        "contiguous",
        "cpu",
        "detach",
        "double",
        "expand",
        "flatten",
        "float",
        "half",
        "narrow",
        "permute",
        "reshape",
        "select",
        "squeeze",
        "t",
        "to",
        "transpose",
        "unsqueeze",
        "view",
    )
)
"""Methods whose result may share its memory with what they are called on."""


_FINDING = ("eval", "exec", "globals", "locals", "vars")
"""Functions of Python's own that read variables whose names are in no code."""


def refuse_shared(text: ProgramText, near: libcst.CSTNode, name: str) -> None:
    """Raise `Refused` if another function may read or set a variable of the scope of ``near``."""
    refuse_declared(text, name)
    scope = scope_of(text, near)
    for call in text.calls(*_FINDING):
        if isinstance(call.func, libcst.Name):  # ``model.eval()`` is something else
            raise Refused(f"line {text.line_of(call)} may find `{name}` by its name as a string")
    for use in uses(text, scope, name):
        if _is_captured(text, use, scope):
            raise Refused(f"line {text.line_of(use)} shares `{name}` with another function")


def refuse_declared(text: ProgramText, name: str) -> None:
    """Raise `Refused` if a function says that a variable is ``global`` or ``nonlocal``, so that it may set it."""
    for item in text.nodes(libcst.NameItem):
        if item.name.value == name:
            raise Refused(f"line {text.line_of(item)} shares `{name}` with another function")


def refuse_interrupted(text: ProgramText, loop: Loop, name: str) -> None:
    """Raise `Refused` if an exception that ends a loop leads to where the variable is read: what stands right behind
    the loop is then left out."""
    scope = scope_of(text, loop)
    for around in text.ancestors(loop):
        if around is scope:
            return
        if not _catches(around):
            continue
        body = around.body  # type: ignore[attr-defined]
        for use in uses(text, scope, name):
            if text.line_of(use) > text.line_of(loop) and not lies_in(text, use, body):
                raise Refused(f"line {text.line_of(use)} reads `{name}` also if an exception ends the loop")


def refuse_changed_later(text: ProgramText, loop: Loop, value: libcst.BaseExpression) -> None:
    """Raise `Refused` if a value that is collected in a loop may be a tensor that later rounds change in place."""
    root = root_of(value)
    if root is None:
        return
    names = uses(text, loop, root)
    is_new = any(is_set(text, name) for name in names) and root != "self"
    if mutated(text, loop, {root}) or not is_new:
        raise Refused(f"`{text_of(value)}` may be the same tensor in each round, with other numbers")


def may_be_kept(text: ProgramText, loop: Loop, value: libcst.BaseExpression) -> bool:
    """Whether a value that is collected in a loop may belong to somebody who writes the next one over it: a function of
    the file returns an attribute, or a variable of its surroundings, as the state of an environment is."""
    root = root_of(value)
    if root is None:
        return isinstance(value, libcst.Call) and _returns_kept(text, value)
    lines = [one for one in text.nodes(libcst.Assign) if lies_in(text, one, loop)]
    given = [one.value for one in lines if any(_names(target.target, root) for target in one.targets)]
    return any(isinstance(one, libcst.Call) and _returns_kept(text, one) for one in given)


def _names(target: libcst.BaseExpression, name: str) -> bool:
    """Whether an assignment sets a variable, also by ``a, b = …``."""
    if isinstance(target, (libcst.Tuple, libcst.List)):
        return any(_names(one.value, name) for one in target.elements)
    return isinstance(target, libcst.Name) and target.value == name


def _returns_kept(text: ProgramText, call: libcst.Call) -> bool:
    for function in text.nodes(libcst.FunctionDef):
        if function.name.value != called_name(call):
            continue
        for line in text.nodes(libcst.Return):
            if scope_of(text, line) is function and line.value is not None and _is_kept(text, function, line.value):
                return True
    return False


def _is_kept(text: ProgramText, function: libcst.FunctionDef, value: libcst.BaseExpression) -> bool:
    if isinstance(value, libcst.Tuple):
        return any(_is_kept(text, function, one.value) for one in value.elements)
    root = root_of(value)
    if root is None:
        return False
    own = (name for name in uses(text, function, root) if scope_of(text, name) is function)
    return root == "self" or not any(is_set(text, name) for name in own)


def refuse_changed_result(text: ProgramText, call: libcst.Call) -> None:
    """Raise `Refused` if what a call returns is changed in place in its function."""
    inner: libcst.CSTNode = call
    for parent in text.ancestors(call):
        if isinstance(parent, libcst.Call) and parent.func is inner and called_name(parent).endswith("_"):
            raise Refused(f"line {text.line_of(parent)} changes the result in place")
        if isinstance(parent, libcst.Assign):
            names = {text_of(target.target) for target in parent.targets}
            if changed := mutated(text, scope_of(text, call), names):
                raise Refused(f"`{min(changed)}` is changed in place")
        is_chain = isinstance(parent, (libcst.Attribute, libcst.Subscript)) and parent.value is inner
        if not is_chain and not (isinstance(parent, libcst.Call) and parent.func is inner):
            return
        inner = parent


def root_of(value: libcst.BaseExpression) -> str | None:
    """The variable that a value may be a view of; None if it is new."""
    while not isinstance(value, libcst.Name):
        if isinstance(value, (libcst.Attribute, libcst.Subscript)):
            value = value.value
        elif isinstance(value, libcst.Call) and isinstance(value.func, libcst.Attribute):
            if called_name(value) not in _VIEWS:
                return None
            value = value.func.value
        else:
            return None
    return value.value


def _is_captured(text: ProgramText, use: libcst.Name, scope: libcst.CSTNode) -> bool:
    for parent in text.ancestors(use):
        if parent is scope:
            return False
        if not isinstance(parent, (libcst.FunctionDef, libcst.Lambda, libcst.ClassDef)):
            continue
        own = (name for name in uses(text, parent, use.value) if scope_of(text, name) is parent)
        if any(is_set(text, name) for name in own):
            return False
        if scope_of(text, parent) is scope:
            return True
    return False


def _catches(node: libcst.CSTNode) -> bool:
    if isinstance(node, libcst.With):
        items = (item.item for item in node.items)
        return any(isinstance(item, libcst.Call) and called_name(item) in ("suppress", "raises") for item in items)
    return isinstance(node, (libcst.Try, libcst.TryStar))
