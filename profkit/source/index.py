"""What a source file holds: its syntax tree, functions and classes. Each file is parsed once for all readers."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from profkit.source.syntax import FUNCTIONS, parse

Function = ast.FunctionDef | ast.AsyncFunctionDef
_MOST_CHARACTERS = 1 << 20
_MOST_FILES = 128
"""A program's own files are seldom more or longer. A generated file of megabytes takes seconds to parse, and its tree
hundreds of megabytes."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The module, a function or a class, with its name as in a traceback."""

    name: str
    node: ast.Module | Function | ast.ClassDef
    around: ast.Module | Function | ast.ClassDef | None = None

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that could be parsed; ``scopes`` begin with the module."""

    path: str
    tree: ast.Module
    scopes: tuple[Scope, ...]

    @property
    def functions(self) -> list[Function]:
        """All functions and methods."""
        return [scope.node for scope in self.scopes if isinstance(scope.node, FUNCTIONS)]

    def function_named(self, name: str) -> Function | None:
        """The function or method of that name, None if there are several or none."""
        found = [function for function in self.functions if function.name == name]
        return found[0] if len(found) == 1 else None

    def function_at(self, line: int) -> str:
        """The name of the innermost function that a line runs in; a ``def`` runs in the function around it."""
        around = [
            (scope.node.lineno, scope.name)
            for scope in self.scopes
            if isinstance(scope.node, FUNCTIONS)
            and scope.node.body[0].lineno <= line <= (scope.node.end_lineno or line)
        ]
        return max(around, default=(0, "<module>"))[1]

    def only_value(self, line: int, name: str) -> ast.expr | None:
        """What ``name = value`` gives to a variable of the function that a line runs in, or of the module; None if that
        is not the only place there that sets it."""
        around = self.function_at(line)
        nodes = [scope.node for scope in self.scopes if scope.name == around and _holds(scope.node, line)]
        if len(nodes) != 1:
            return None
        own = [*_own_nodes(nodes[0])]
        targets = [
            one for one in own if isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Store)
        ]
        plain = [one for one in own if isinstance(one, (ast.Assign, ast.AnnAssign)) and _targets_of(one) == targets]
        return plain[0].value if plain else None


def _holds(node: ast.Module | Function | ast.ClassDef, line: int) -> bool:
    return isinstance(node, ast.Module) or node.lineno <= line <= (node.end_lineno or line)


def _targets_of(statement: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return statement.targets if isinstance(statement, ast.Assign) else [statement.target]


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope, without those of functions and classes inside."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            yield from _own_nodes(child)


@lru_cache(maxsize=_MOST_FILES)
def parsed_file(path: str) -> SourceFile | None:
    """None for a file that cannot be read, is very long or is not Python."""
    text = "".join(linecache.getlines(path))
    if not text or len(text) > _MOST_CHARACTERS:
        return None
    try:
        tree = parse(text)
        return SourceFile(path, tree, tuple(_scopes(tree)))
    except (SyntaxError, ValueError, RecursionError):
        return None


def forget_source_files() -> None:
    """Drop the syntax trees: a program that goes on would have its garbage collector walk through their many
    objects."""
    parsed_file.cache_clear()


def _scopes(tree: ast.Module) -> Iterator[Scope]:
    waiting = [Scope("<module>", tree)]
    while waiting:
        scope = waiting.pop(0)
        yield scope
        is_module = scope.name == "<module>"
        prefix = "" if is_module else f"{scope.name}." if scope.is_class else f"{scope.name}.<locals>."
        waiting += [Scope(prefix + child.name, child, scope.node) for child in _definitions(scope.node)]


def _definitions(node: ast.AST) -> Iterator[Function | ast.ClassDef]:
    """The functions and classes of a scope itself."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            yield child
        else:
            yield from _definitions(child)
