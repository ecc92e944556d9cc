"""The lines of a function that make one of its variables, if making it changes nothing else.

What a variable holds may be the same each time the function returns. It can be made once, before the function is
called, only if its lines do nothing but make it: then they read attributes, compute, and call functions that change
nothing, by their names.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from profkit.source.harmless import BUILTINS, COLLECTING, HARMLESS
from profkit.source.index import SourceFile, parsed_file
from profkit.source.statements import names_in
from profkit.source.syntax import FUNCTIONS, flat_targets, name_called

_MODULES = frozenset(("math", "np", "numpy"))
_OF_ARRAYS = frozenset(
    ("array", "asarray", "copy", "empty", "get", "join", "linspace", "meshgrid", "power", "tile", "where")
)
_IN_STEPS = frozenset(("random",))
"""Parts of NumPy whose functions give something else each time."""


def lines_making(path: str, defined_at: int, name: str) -> list[int]:
    """The lines that give the variable its value, in the function whose ``def`` or first decorator is at this line.
    Empty if they may do more, or do not show all of it."""
    file = parsed_file(path)
    function = _function_at(file, defined_at) if file is not None else None
    if function is None:
        return []
    lines = list[int]()
    for node in _inside(function):
        if _gives_otherwise(node, name) or _hands_out(node, name):
            return []
        value = _given(node, name)
        if value is not None:
            if not _only_computes(value):
                return []
            lines.append(value.lineno if isinstance(node, ast.Expr) else node.lineno)
    return sorted(set(lines))


def _function_at(file: SourceFile, line: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    for function in file.functions:
        first = min([function.lineno, *(one.lineno for one in function.decorator_list)])
        if first == line:
            return function
    return None


def _inside(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.stmt]:
    """Its statements, without those of functions and classes inside."""
    left: list[ast.AST] = list(function.body)
    while left:
        node = left.pop()
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            continue
        if isinstance(node, ast.stmt):
            yield node
        left += ast.iter_child_nodes(node)


def _given(node: ast.stmt, name: str) -> ast.expr | None:
    """The value of `x = …`, `x /= …`, `x[i] = …`, `x.append(…)`."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        return node.value if _named(node.targets[0]) == name else None
    if isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        return node.value if _named(node.target) == name else None
    if isinstance(node, ast.Expr) and isinstance(call := node.value, ast.Call):
        function = call.func
        if isinstance(function, ast.Attribute) and function.attr in COLLECTING and _named(function.value) == name:
            return ast.Tuple([*call.args], lineno=node.lineno)
    return None


def _named(target: ast.expr) -> str:
    """The variable of `x` or `x[i]`."""
    target = target.value if isinstance(target, ast.Subscript) else target
    return target.id if isinstance(target, ast.Name) else ""


def _gives_otherwise(node: ast.stmt, name: str) -> bool:
    """Whether a statement gives the name a value in a way that is not followed: a loop, a `with`, several at once."""
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return name in names_in(node.target)
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return any(name in names_in(item.optional_vars) for item in node.items if item.optional_vars is not None)
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return name in node.names
    if isinstance(node, ast.Assign) and (len(node.targets) > 1 or isinstance(node.targets[0], (ast.Tuple, ast.List))):
        return any(isinstance(one, ast.Name) and one.id == name for one in flat_targets(node.targets))
    return any(isinstance(part, ast.NamedExpr) and part.target.id == name for part in ast.walk(node))


def _hands_out(node: ast.stmt, name: str) -> bool:
    """Whether others get the object itself and may write into it later: it is returned, or becomes part of another."""
    for call in _own_calls(node):
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if _keeps_arguments(call) and any(_is_or_holds(one, name) for one in given):
            return True
    if isinstance(node, (ast.Return, ast.Assign)) and node.value is not None:
        return _is_or_holds(node.value, name)
    return False


def _own_calls(node: ast.stmt) -> Iterator[ast.Call]:
    """Without those of the statements inside."""
    left: list[ast.AST] = [node]
    while left:
        part = left.pop()
        if isinstance(part, ast.Call):
            yield part
        left += (child for child in ast.iter_child_nodes(part) if not isinstance(child, ast.stmt))


def _keeps_arguments(call: ast.Call) -> bool:
    """Whether a call puts what it is given into a container, or makes an object of it, as its name shows."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in COLLECTING:
        return True
    return name_called(call)[:1].isupper()


def _is_or_holds(value: ast.expr, name: str) -> bool:
    if isinstance(value, (ast.Tuple, ast.List, ast.Set)):
        return any(_is_or_holds(part, name) for part in value.elts)
    if isinstance(value, ast.Dict):
        return any(_is_or_holds(part, name) for part in value.values)
    return isinstance(value, ast.Name) and value.id == name


def _only_computes(value: ast.expr) -> bool:
    doing_more = (ast.NamedExpr, ast.Lambda, ast.Await, ast.Yield, ast.YieldFrom)
    nodes = list(ast.walk(value))
    calls = (node for node in nodes if isinstance(node, ast.Call))
    return not any(isinstance(node, doing_more) for node in nodes) and all(map(_changes_nothing, calls))


def _changes_nothing(call: ast.Call) -> bool:
    function = call.func
    if any(keyword.arg == "out" for keyword in call.keywords):
        return False
    if isinstance(function, ast.Name):
        return function.id in BUILTINS
    if not isinstance(function, ast.Attribute):
        return False
    if isinstance(function.value, ast.Name) and function.value.id in _MODULES:
        return function.attr not in _IN_STEPS
    is_random = any(isinstance(part, ast.Attribute) and part.attr in _IN_STEPS for part in ast.walk(function.value))
    return not is_random and function.attr in HARMLESS | _OF_ARRAYS
