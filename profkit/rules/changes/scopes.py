"""Where names are read and set around a line: in its block, in the loops around it, in its function."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

import libcst
from libcst import matchers

from profkit.rules.changes.base import ProgramText, called_name, text_of
from profkit.rules.changes.refusing import Refused

Loop = libcst.For | libcst.While
Statement = libcst.SimpleStatementLine | libcst.BaseCompoundStatement
_SCOPES = (libcst.FunctionDef, libcst.Lambda, libcst.ClassDef, libcst.Module)
_TARGETS = (libcst.AssignTarget, libcst.AugAssign, libcst.AnnAssign, libcst.For, libcst.CompFor, libcst.NamedExpr)


def loops_around(text: ProgramText, node: libcst.CSTNode) -> list[Loop]:
    """The loops around a node in its function, the innermost first. A loop's own head does not lie in it."""
    found: list[Loop] = []
    inner = node
    for parent in text.ancestors(node):
        if isinstance(parent, _SCOPES):
            break
        if isinstance(parent, (libcst.For, libcst.While)) and inner is parent.body:
            found.append(parent)
        inner = parent
    return found


def scope_of(text: ProgramText, node: libcst.CSTNode) -> libcst.CSTNode:
    """The function, class or module around a node."""
    return next(parent for parent in text.ancestors(node) if isinstance(parent, _SCOPES))


def uses(text: ProgramText, within: libcst.CSTNode, name: str) -> list[libcst.Name]:
    """Where a variable is named inside a node, be it read or set."""
    found = matchers.findall(within, matchers.Name(name))
    return [one for one in found if isinstance(one, libcst.Name) and _is_variable(text, one)]


def is_set(text: ProgramText, name: libcst.Name) -> bool:
    """Whether a variable, an item or an attribute of it is assigned at this place."""
    inner: libcst.CSTNode = name
    for parent in text.ancestors(name):
        if isinstance(parent, _TARGETS):
            return parent.target is inner
        if isinstance(parent, libcst.AsName):
            return True
        if isinstance(parent, (libcst.Subscript, libcst.Attribute)) and parent.value is not inner:
            return False
        if isinstance(parent, (libcst.Param, libcst.Del, libcst.Global, libcst.Nonlocal, libcst.NameItem)):
            return not (isinstance(parent, libcst.Param) and parent.name is not inner)
        if isinstance(parent, libcst.BaseStatement | libcst.Call):
            return False
        inner = parent
    return False


def names_in(node: libcst.CSTNode) -> set[str]:
    """The names in an expression: variables, functions, and attributes too."""
    return {one.value for one in matchers.findall(node, matchers.Name()) if isinstance(one, libcst.Name)}


def variables_in(text: ProgramText, node: libcst.CSTNode) -> set[str]:
    """The variables and functions that an expression names."""
    return {name for name in names_in(node) if uses(text, node, name)}


def are_set(text: ProgramText, within: libcst.CSTNode, names: set[str]) -> set[str]:
    """Which of these variables are assigned or changed inside a node: also by ``x += y`` and by ``x.add_(y)``."""
    return {name for name in names if any(_changes(text, one) for one in uses(text, within, name))}


def mutated(text: ProgramText, within: libcst.CSTNode, names: set[str]) -> set[str]:
    """Which of these variables are changed in place inside a node, not only assigned anew."""
    return {name for name in names if any(mutates(text, use) for use in uses(text, within, name))}


def guarded(text: ProgramText, node: libcst.CSTNode, loop: Loop) -> bool:
    """Whether a node in a loop stands under an ``if`` that begins in that loop. What an ``elif`` asks does not."""
    is_asked = False
    for parent in text.ancestors(node):
        if parent is loop:
            return False
        if isinstance(parent, libcst.If):
            is_asked = node is parent.test or (is_asked and node is parent.orelse)
            if not is_asked:
                return True
        elif not isinstance(parent, libcst.BaseExpression):
            is_asked = False
        node = parent
    return False


def assignment_of(text: ProgramText, name: str, near: libcst.CSTNode) -> libcst.Assign:
    """The only plain assignment ``name = …`` in the scope of a node. Raises `Refused` if there is not exactly one."""
    scope = scope_of(text, near)
    found = [one for one in text.nodes(libcst.Assign) if _sets(one, name) and scope_of(text, one) is scope]
    if len(found) != 1:
        raise Refused(f"`{name}` is set at {len(found) or 'no'} place{'s' * (len(found) != 1)} in that function")
    return found[0]


def assigned_value(text: ProgramText, name: str, near: libcst.CSTNode) -> libcst.BaseExpression:
    """What ``self.name`` is set to in the class around a node, or a variable in its function or at the top of the file,
    also by ``a, b = x, y``. Raises `Refused` if that is not exactly one value."""
    first, _, attribute = name.partition(".")
    around = next((one for one in text.ancestors(near) if isinstance(one, libcst.ClassDef)), None)
    if attribute and (first != "self" or "." in attribute or around is None):
        raise Refused(f"the class does not show where `{name}` is set")
    given = [(one, value) for one in text.nodes(libcst.Assign) if (value := _value_for(one, name)) is not None]
    if attribute:
        found, where = [value for one, value in given if lies_in(text, one, around)], "class"
    else:
        here, top = ([value for one, value in given if scope_of(text, one) is scope] for scope in _scopes(text, near))
        found, where = here or top, "function"
    if len(found) != 1:
        raise Refused(f"`{name}` is set at {len(found) or 'no'} place{'s' * (len(found) != 1)} in that {where}")
    return found[0]


def prepared_at(text: ProgramText, line: int, name: str) -> libcst.Call | None:
    """The ``partial(x.name, …)`` whose result a line calls by a variable; None if there is not exactly one."""
    found = []
    for call in text.nodes(libcst.Call):
        if text.covers(call, line) and isinstance(call.func, (libcst.Name, libcst.Attribute)):
            with suppress(Refused):
                found.append(assigned_value(text, text_of(call.func), call))
    made = [one for one in found if isinstance(one, libcst.Call) and called_name(one) == "partial" and one.args]
    named = [one for one in made if text_of(one.args[0].value).rpartition(".")[2] == name]
    return named[0] if len(named) == 1 else None


def _scopes(text: ProgramText, near: libcst.CSTNode) -> tuple[libcst.CSTNode, libcst.CSTNode]:
    return scope_of(text, near), text.module


def _value_for(part: libcst.Assign, name: str) -> libcst.BaseExpression | None:
    """What a line gives to a variable or an attribute; of two tuples, what stands at its place."""
    if _sets(part, name):
        return part.value
    target = part.targets[0].target
    if len(part.targets) != 1 or not isinstance(target, libcst.Tuple) or not isinstance(part.value, libcst.Tuple):
        return None
    pairs = [*zip(target.elements, part.value.elements, strict=False)]
    is_plain = all(isinstance(one, libcst.Element) for pair in pairs for one in pair)
    if not is_plain or len(target.elements) != len(part.value.elements):
        return None
    return next((value.value for one, value in pairs if text_of(one.value) == name), None)


def lies_in(text: ProgramText, node: libcst.CSTNode, outer: libcst.CSTNode | None) -> bool:
    """Whether a node is part of another one."""
    return any(parent is outer for parent in text.ancestors(node))


def block_of(text: ProgramText, statement: libcst.CSTNode) -> list[libcst.CSTNode]:
    """The statements beside a statement, itself among them."""
    parent = next(text.ancestors(statement))
    body = getattr(parent, "body", ())
    return [*body] if isinstance(body, (list, tuple)) else []


def called_in(value: libcst.CSTNode) -> set[str]:
    """The names of the functions that an expression calls."""
    calls = matchers.findall(value, matchers.Call())
    return {called_name(call) for call in calls if isinstance(call, libcst.Call)}


def fresh_name(text: ProgramText, *names: str) -> str:
    """The first of these names that the file does not use yet, or one like the first."""
    taken = names_in(text.module)
    return next(one for one in chain(names, _variants(names[0])) if one not in taken)


def with_statements(
    text: ProgramText, before: tuple[str | Statement, ...], statement: Statement, after: tuple[str, ...] = ()
) -> libcst.FlattenSentinel[libcst.CSTNode]:
    """A statement with others before and after it: new ones as their source, those that move as they are. Empty lines
    above it stay above the first; comments with it."""
    lines = list(statement.leading_lines)
    blank = next((number for number, line in enumerate(lines) if line.comment is not None), len(lines))
    first: list[Statement] = [text.parsed(one) if isinstance(one, str) else one for one in before]
    if first:
        own = [line for line in first[0].leading_lines if line.comment is not None]
        first[0] = first[0].with_changes(leading_lines=[*lines[:blank], *own])
        statement = statement.with_changes(leading_lines=lines[blank:])
    return libcst.FlattenSentinel([*first, statement, *(text.parsed(source) for source in after)])


def _variants(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}_{number}"
        number += 1


def _sets(part: libcst.Assign, name: str) -> bool:
    return len(part.targets) == 1 and text_of(part.targets[0].target) == name


def _is_variable(text: ProgramText, name: libcst.Name) -> bool:
    """Not the attribute of something, nor the name of an argument."""
    parent = next(text.ancestors(name))
    if isinstance(parent, libcst.Attribute):
        return parent.value is name
    return not (isinstance(parent, libcst.Arg) and parent.keyword is name)


_MUTATING = frozenset(
    (
        "append",
        "extend",
        "insert",
        "pop",
        "remove",
        "clear",
        "update",
        "add",
        "discard",
        "sort",
        "reverse",
        "setdefault",
    )
)
"""Methods of containers that change them."""


_COPYING = frozenset(("clone", "copy"))
"""Methods behind which it is another object that is changed."""


def _changes(text: ProgramText, name: libcst.Name) -> bool:
    return is_set(text, name) or mutates(text, name)


def mutates(text: ProgramText, name: libcst.CSTNode) -> bool:
    """Whether what a variable or an attribute names is changed in place: ``x += y``, ``x[0] = y``,
    ``x.view(-1).add_(y)``, ``init.zeros_(x)``, ``f(y, out=x)``."""
    inner: libcst.CSTNode = name
    for parent in text.ancestors(name):
        if isinstance(parent, _TARGETS):
            return parent.target is inner and (inner is not name or isinstance(parent, libcst.AugAssign))
        if isinstance(parent, libcst.Arg):
            return _writes_to(parent, next(text.ancestors(parent)))
        if isinstance(parent, libcst.Call) and inner is parent.func:
            if called_name(parent).endswith("_") or called_name(parent) in _MUTATING:
                return True
            if called_name(parent) in _COPYING:
                return False
        elif not isinstance(parent, (libcst.Attribute, libcst.Subscript)) or parent.value is not inner:
            return False
        inner = parent
    return False


def _writes_to(argument: libcst.Arg, call: libcst.CSTNode) -> bool:
    """Whether a call changes what it is given: ``init.zeros_(x)``, ``relu(x, inplace=True)``, ``f(y, out=x)``."""
    if not isinstance(call, libcst.Call):
        return False
    name = called_name(call)
    is_named = argument.keyword is not None and argument.keyword.value == "out"
    is_first = argument is call.args[0]
    in_place = any(given.keyword is not None and given.keyword.value == "inplace" for given in call.args)
    return is_named or (is_first and (in_place or (name.endswith("_") and not name.endswith("__"))))
