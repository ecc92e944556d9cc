"""Where an object keeps the one that made it: ``self.parent = parent`` in the constructor of what a parent makes with
itself as an argument. Of a circle through both that is the reference to weaken."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from profkit.source.syntax import name_called

Keepers = Mapping[str, Mapping[str | int, int]]
"""By the name of a class: the lines of its constructor that keep an argument, by the argument's name and its place."""


def keepers_in(tree: ast.Module) -> Keepers:
    """Of each class of a file what its constructor keeps."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return {kind.name: kept for kind in classes if (kept := _kept_by(kind))}


def kept_at(statement: ast.stmt, keepers: Keepers) -> list[tuple[str, int]]:
    """The classes, and their constructors' lines, that keep the object to which the statement gives what it makes."""
    owner = _owner_of(statement)
    return [
        (name, keepers[name][place])
        for call in ast.walk(statement)
        if isinstance(call, ast.Call) and (name := name_called(call)) in keepers
        for place, argument in _arguments(call)
        if getattr(argument, "id", "") == owner and place in keepers[name]
    ]


def _kept_by(kind: ast.ClassDef) -> dict[str | int, int]:
    constructor = next((part for part in kind.body if getattr(part, "name", "") == "__init__"), None)
    if not isinstance(constructor, ast.FunctionDef) or not constructor.args.args:
        return {}
    own, *rest = [argument.arg for argument in constructor.args.args]
    lines: dict[str, int] = {}
    for node in ast.walk(constructor):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                lines |= dict(_pairs(target, node.value, own, node.lineno))
    by_keyword = (*rest, *(argument.arg for argument in constructor.args.kwonlyargs))
    kept: dict[str | int, int] = {name: lines[name] for name in by_keyword if name in lines}
    return kept | {place: lines[name] for place, name in enumerate(rest) if name in lines}


def _pairs(target: ast.expr, value: ast.expr, own: str, line: int) -> Iterator[tuple[str, int]]:
    """What an assignment to attributes of ``own`` keeps, also ``self.value, self.parent = value, parent``."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, of_it in zip(target.elts, value.elts, strict=True):
            yield from _pairs(one, of_it, own, line)
    elif isinstance(target, ast.Attribute) and getattr(target.value, "id", "") == own and isinstance(value, ast.Name):
        yield value.id, line


def _arguments(call: ast.Call) -> Iterator[tuple[str | int, ast.expr]]:
    yield from enumerate(call.args)
    yield from ((keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg is not None)


def _owner_of(statement: ast.stmt) -> str:
    """``a`` of ``a.part = …`` and of ``a.parts.append(…)``."""
    node: ast.AST | None = None
    if isinstance(statement, ast.Assign):
        node = statement.targets[0]
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        node = statement.value.func
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
