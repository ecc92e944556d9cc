"""The lines that make a model's layers, and the lines that call them: a layer is changed where it is made.

Recordings name the line that calls a layer, where nothing about the layer can be changed. Which line made it is read
from the text of the same file: the attribute that is called, and what was assigned to it, through functions and classes
of the file that only build. Nothing is said of a name that the text does not resolve.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from profkit.source.index import SourceFile
from profkit.source.syntax import FUNCTIONS, LOOPS, flat_targets, last_name, name_called

_WITH_BIAS = frozenset(
    (
        *(
            f"{lazy}Conv{transposed}{count}d"
            for lazy in ("", "Lazy")
            for transposed in ("", "Transpose")
            for count in "123"
        ),
        "Linear",
        "LazyLinear",
    )
)
_DEEPEST = 3
"""A function that calls a function that makes a layer; what is deeper is seldom the one line to change."""
_ADDS = frozenset(("append", "extend", "insert", "add_module", "update"))
"""What puts a layer into a container that exists."""


class MadeLayer(NamedTuple):
    """A layer with a bias in front of a norm, by the first lines of the call that makes it and of one that calls it."""

    made: int
    called: int


def biased_layers(file: SourceFile) -> list[MadeLayer]:
    """Each pair of a line that makes a layer with a bias and a line that calls it, the makers in the order of the
    file."""
    found = [pair for scope in _classes(file) for pair in _of_class(file, scope)]
    return sorted({*found, *_of_names(file)})


def _classes(file: SourceFile) -> list[ast.ClassDef]:
    return [scope.node for scope in file.scopes if isinstance(scope.node, ast.ClassDef)]


def _of_class(file: SourceFile, scope: ast.ClassDef) -> Iterator[MadeLayer]:
    """What the methods of a class call by attributes that its methods assign."""
    made: dict[str, set[int]] = {}
    for method in (node for node in scope.body if isinstance(node, FUNCTIONS)):
        for name, value in _assigned(method):
            if name.startswith("self."):
                made.setdefault(name, set()).update(_makers(file, method, value, 0))
    for method in (node for node in scope.body if isinstance(node, FUNCTIONS)):
        yield from _called(method, made)


def _of_names(file: SourceFile) -> Iterator[MadeLayer]:
    """What the file calls by a name to which it assigns once."""
    made: dict[str, set[int]] = {}
    times: dict[str, int] = {}
    for name, value in _assigned(file.tree):
        times[name] = times.get(name, 0) + 1
        made.setdefault(name, set()).update(_makers(file, file.tree, value, 0))
    yield from _called(file.tree, {name: lines for name, lines in made.items() if "." not in name and times[name] == 1})


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The names and attributes of ``self`` that get a value within, also one that is put into a container."""
    for part in ast.walk(node):
        if isinstance(part, ast.Assign):
            yield from ((name, part.value) for name in map(_name, flat_targets(part.targets)) if name)
        elif isinstance(part, (ast.AnnAssign, ast.AugAssign)) and part.value is not None and _name(part.target):
            yield _name(part.target), part.value
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in _ADDS:
            yield from ((_name(part.func.value), value) for value in part.args if _name(part.func.value))


def _name(node: ast.AST) -> str:
    """``x`` and ``self.x``; empty for anything else."""
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return f"self.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _makers(file: SourceFile, around: ast.AST, value: ast.AST, depth: int) -> set[int]:
    """The lines within that make a layer with a bias. If some are followed by a norm, only those."""
    calls = [part for part in ast.walk(value) if isinstance(part, ast.Call)]
    followed = {id(one) for call in ast.walk(value) for one in _before_a_norm(call)}
    layers = [call for call in calls if _makes_bias(call)]
    found = {call.lineno for call in layers if not followed or id(call) in followed}
    if depth >= _DEEPEST:
        return found
    for call in calls:
        built = _builder(file, name_called(call))
        if built is not None:
            found |= _makers(file, built, ast.Module(built.body, []), depth + 1)
    for name in {part.id for part in ast.walk(value) if isinstance(part, ast.Name)} if around is not file.tree else ():
        for known, other in _assigned(around):
            if known == name and other is not value:
                found |= _makers(file, file.tree, other, depth + 1)
    return found


def _before_a_norm(node: ast.AST) -> Iterator[ast.expr]:
    """The items of a call or a list whose next one is a norm of the batch's statistics."""
    items = node.args if isinstance(node, ast.Call) else node.elts if isinstance(node, (ast.List, ast.Tuple)) else []
    for one, following in itertools.pairwise(items):
        if isinstance(following, ast.Call) and "Norm" in name_called(following):
            yield one


def _makes_bias(call: ast.Call) -> bool:
    """Whether it is a layer without ``bias=False``. An expression may be true."""
    given = next((word.value for word in call.keywords if word.arg == "bias"), None)
    return name_called(call) in _WITH_BIAS and not (isinstance(given, ast.Constant) and not given.value)


def _builder(file: SourceFile, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The function of the file that this calls, or the ``__init__`` of a class that has no ``forward`` of its own: a
    class with one calls its layers itself, at lines of its own."""
    for scope in file.scopes:
        if scope.name != name:
            continue
        if isinstance(scope.node, FUNCTIONS):
            return scope.node
        methods = {node.name: node for node in scope.node.body if isinstance(node, FUNCTIONS)}
        return None if "forward" in methods else methods.get("__init__")
    return None


def _called(node: ast.AST, made: dict[str, set[int]]) -> Iterator[MadeLayer]:
    """The lines within that call one of these names, or an item of it in a loop."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call):
            for line in made.get(_name(part.func), ()):
                yield MadeLayer(line, part.lineno)
        elif isinstance(part, LOOPS):
            yield from _in_loop(part, made)


def _in_loop(loop: ast.AST, made: dict[str, set[int]]) -> Iterator[MadeLayer]:
    heads = [loop] if isinstance(loop, (ast.For, ast.AsyncFor)) else getattr(loop, "generators", [])
    for head in heads:
        names = {last_name(target) for target in flat_targets([head.target])}
        lines = _lines_of(head.iter, made)
        if lines:
            called = (part for part in ast.walk(loop) if isinstance(part, ast.Call) and _name(part.func) in names)
            yield from (MadeLayer(line, call.lineno) for call in called for line in lines)


def _lines_of(value: ast.AST, made: dict[str, set[int]]) -> Iterable[int]:
    return sorted({line for part in ast.walk(value) for line in made.get(_name(part), ())})
