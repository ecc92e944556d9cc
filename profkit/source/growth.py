"""The line in the user's source that makes a name hold more and more.

A name is given as its parts: ``("self", ".history")``, ``("stats", "['loss']")``. Lines that extend it
(``X.append(…)``, ``X += …``, ``X[…] = …``, ``X = X + …``) come before plain assignments in a loop, lines that were seen
to run before others, and lines in a loop before those outside.

The syntax tree also tells where growth ends by design: the file empties the name, binds it anew in a loop, extends it
only while it is short or does not hold something yet, or joins its tensors into one. A name begins anew where the file
clears it, or binds something fresh to it, such as `[]` or `0.0`, in a loop or in a method besides the constructor.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import CodeType

from profkit.run.directory import CallSite
from profkit.source.code import source_line
from profkit.source.index import SourceFile, parsed_file
from profkit.source.syntax import ANY_ITEM, LEAVES, LOOPS, Parts, flat_targets, name_called, parts_of

_GROWERS = frozenset(("add", "append", "appendleft", "extend", "extendleft", "insert", "put", "setdefault", "update"))
_EMPTIERS = frozenset(("clear", "pop", "popitem", "popleft", "remove"))
_JOINERS = frozenset(("cat", "concat", "concatenate", "dstack", "hstack", "stack", "vstack"))
_PUSHERS = frozenset(("heappush", "insort", "insort_left", "insort_right"))
_POPPERS = frozenset(("heappop", "heappushpop", "heapreplace"))
"""Functions of `heapq` and `bisect`, which take the list as an argument."""
_TAKERS = _JOINERS | _POPPERS
_FRESH = frozenset(("defaultdict", "deque", "dict", "list", "set", "zeros", "zeros_like"))
"""What makes something that holds no graph, as do literals."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """Where a name was found: the file, and the function's code if it is a local variable.

    An attribute of the user's class ``owner`` is looked for in that class first, without the ``skip`` parts that led to
    the object, then ``around`` it, where the object itself was found.
    """

    file: str
    code: CodeType | None = None
    owner: str | None = None
    skip: int = 0
    around: Origin | None = None

    @property
    def root(self) -> Origin:
        """Where the first part of the name was found."""
        return self.around.root if self.around is not None else self


@dataclass(frozen=True, slots=True)
class _Change:
    """A statement that binds or extends a name."""

    parts: Parts
    line: int
    extends: bool
    in_loop: bool
    scope: tuple[ast.AST, ...]
    limits: bool = False
    restarts: bool = False

    @property
    def recurs(self) -> bool:
        """Whether it binds the name again and again: in a loop, or as an attribute outside of the constructor."""
        function = getattr(self.scope[-1], "name", "<lambda>") if self.scope else "__init__"
        return self.in_loop or (len(self.parts) > 1 and function != "__init__")

    @property
    def function(self) -> str:
        """The qualified name, as Python would give it."""
        name = ""
        for node in self.scope:
            inner = getattr(node, "name", "<lambda>")
            name = inner if not name else f"{name}.{inner}"
            name += "" if isinstance(node, ast.ClassDef) else ".<locals>"
        return name.removesuffix(".<locals>") or "<module>"


class GrowthLines:
    """Finds the lines, reading each file once. ``was_executed`` tells whether a line was seen to run."""

    def __init__(self, was_executed: Callable[[str, int], bool]) -> None:
        self._was_executed = was_executed
        self._changes: dict[str, tuple[_Change, ...]] = {}

    def find(self, parts: Parts, origin: Origin) -> CallSite | None:
        """The line that extends ``parts``; None if no line in the files visibly does."""
        ranked = sorted(self._candidates(parts, origin), key=lambda pair: pair[0], reverse=True)
        if not ranked:
            return next((found for other in _wider(parts, origin) if (found := self.find(*other))), None)
        best = ranked[0][1]
        source = source_line(origin.file, best.line)
        return CallSite(origin.file, best.line, best.function, source)

    def is_bounded(self, parts: Parts, origin: Origin) -> bool:
        """Whether the files show that ``parts`` does not grow for ever."""
        changes = [change for change in self._changes_of(origin.file) if _likeness_within(change, parts, origin)]
        if any(change.limits or (change.recurs and not change.extends) for change in changes):
            return True
        return any(self.is_bounded(*other) for other in _wider(parts, origin))

    def begins_anew(self, parts: Parts, origin: Origin) -> bool:
        """Whether the files show that ``parts`` is emptied again and again, or what holds it is."""
        changes = (change for change in self._changes_of(origin.file) if change.restarts and change.recurs)
        whole = (change for change in changes if len(change.parts) <= len(parts))
        return any(_likeness_within(change, parts, origin) for change in whole) or any(
            self.begins_anew(*other) for other in _wider(parts, origin)
        )

    def _candidates(self, parts: Parts, origin: Origin) -> Iterator[tuple[tuple[int, ...], _Change]]:
        """Changes of the name, each with its rank by the criteria above."""
        for change in self._changes_of(origin.file):
            likeness = _likeness_within(change, parts, origin)
            is_made = not (change.limits or change.restarts) and (change.extends or change.recurs)
            if likeness and is_made:
                executed = self._was_executed(origin.file, change.line)
                yield (executed, change.extends, likeness, change.in_loop, -change.line), change

    def _changes_of(self, file: str) -> tuple[_Change, ...]:
        if file not in self._changes:
            self._changes[file] = _changes_in(file)
        return self._changes[file]


def _wider(parts: Parts, origin: Origin) -> Iterator[tuple[Parts, Origin]]:
    """Where else the name may change: around the object, or where the sequence that holds it changes."""
    if origin.around is not None:
        yield parts, origin.around
    elif ANY_ITEM in parts:
        yield parts[: parts.index(ANY_ITEM)], origin


def _likeness_within(change: _Change, parts: Parts, origin: Origin) -> int:
    """`_likeness` for a change in the scope that the name belongs to; 0 elsewhere."""
    if origin.owner is not None:
        inside = any(isinstance(node, ast.ClassDef) and node.name == origin.owner for node in change.scope)
        held = parts[origin.skip :]
        if not held:  # the object itself is a container, which its own methods fill
            return 3 * int(inside and change.parts[:1] == ("self",) and _are_items(change.parts[1:]))
        return _likeness(change.parts[1:], held) if inside else 0
    if origin.code is not None and not any(_is_code_of(node, origin.code) for node in change.scope):
        return 0
    return _likeness(change.parts, parts)


def _is_code_of(node: ast.AST, code: CodeType) -> bool:
    if not isinstance(node, _FUNCTIONS) or getattr(node, "name", "<lambda>") != code.co_name:
        return False
    decorators = getattr(node, "decorator_list", [])
    return code.co_firstlineno in (node.lineno, *(decorator.lineno for decorator in decorators))


def _likeness(changed: Parts, held: Parts) -> int:
    """3 for the same parts, 2 if an item of unknown key stands for a known one, 1 if one is an item of the other, 0 for
    another name."""
    shorter = min(len(changed), len(held))
    pairs = zip(changed[:shorter], held[:shorter], strict=True)
    if not shorter or any(a != b and not (a == ANY_ITEM and b.startswith("[")) for a, b in pairs):
        return 0
    if len(changed) != len(held):
        return int(_are_items((*changed[shorter:], *held[shorter:])))
    return 3 if changed == held else 2


def _are_items(parts: Parts) -> bool:
    return all(part.startswith("[") for part in parts)


def _changes_in(path: str) -> tuple[_Change, ...]:
    file = parsed_file(path)
    try:
        return () if file is None else tuple(_walk(file.tree, file, (), False))
    except RecursionError:
        return ()


def _walk(node: ast.AST, file: SourceFile, scope: tuple[ast.AST, ...], in_loop: bool) -> Iterator[_Change]:
    for parts, extends in _changed_by(node):
        yield _Change(parts, node.lineno, extends, in_loop, scope)  # type: ignore[attr-defined]  # statements have one
    for parts in (*_limited_by(node), *_limited_by_condition(node, scope[-1] if scope else file.tree, file)):
        yield _Change(parts, node.lineno, False, in_loop, scope, limits=True)  # type: ignore[attr-defined]  # as above
    for parts in _restarted_by(node):
        yield _Change(parts, node.lineno, False, in_loop, scope, restarts=True)  # type: ignore[attr-defined]  # as above
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        scope, in_loop = (*scope, node), False
    in_loop = in_loop or isinstance(node, LOOPS)
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, file, scope, in_loop)


def _changed_by(node: ast.AST) -> Iterator[tuple[Parts, bool]]:
    """The names that a node binds or extends, and whether it extends them."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GROWERS:
        yield parts_of(node.func.value), True
    elif isinstance(node, ast.Call) and name_called(node) in _PUSHERS and node.args:
        yield parts_of(node.args[0]), True
    elif isinstance(node, ast.AugAssign):
        yield parts_of(node.target), True
    elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        for target in flat_targets(node.targets if isinstance(node, ast.Assign) else [node.target]):
            parts = parts_of(target)
            own = any(parts_of(part) == parts for part in ast.walk(node.value))
            yield parts, own or isinstance(target, ast.Subscript)


def _restarted_by(node: ast.AST) -> Iterator[Parts]:
    """The names that a node clears, or to which it gives something fresh."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "clear":
        yield parts_of(node.func.value)
    elif isinstance(node, ast.Delete):
        yield from (parts_of(one.value) for one in node.targets if _is_whole(one))  # type: ignore[attr-defined]  # it has
    elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        if all(map(_is_fresh, values)):
            yield from (parts_of(one) for one in flat_targets(targets) if not isinstance(one, ast.Subscript))


def _is_whole(target: ast.expr) -> bool:
    """``X[:]``"""
    is_slice = isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice)
    return is_slice and target.slice.lower is target.slice.upper is target.slice.step is None  # type: ignore[attr-defined]  # a slice


def _is_fresh(value: ast.expr) -> bool:
    if isinstance(value, (ast.List, ast.Set, ast.Tuple)):
        return all(map(_is_fresh, value.elts))
    if isinstance(value, ast.Dict):
        return all(map(_is_fresh, value.values))
    return isinstance(value, ast.Constant) or (isinstance(value, ast.Call) and name_called(value) in _FRESH)


def _limited_by(node: ast.AST) -> Iterator[Parts]:
    """The names that a node empties, or joins into one tensor."""
    if isinstance(node, ast.Call):
        called = name_called(node)
        if called in _EMPTIERS and isinstance(node.func, ast.Attribute):
            yield parts_of(node.func.value)
        elif called in _TAKERS and node.args:
            yield parts_of(node.args[0])
    elif isinstance(node, ast.Delete):
        yield from (parts_of(getattr(target, "value", target)) for target in node.targets)
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
        rest = parts_of(node.value.value) if isinstance(node.value.slice, ast.Slice) else ()
        yield from (rest for target in node.targets if parts_of(target) == rest)


def _limited_by_condition(node: ast.AST, function: ast.AST, file: SourceFile) -> Iterator[Parts]:
    """The names that a condition such as ``len(X) < limit`` or ``key not in X`` keeps from growing for ever. Either the
    branch where it holds extends them, or the other branch leaves the function or loop that does, or hands them to a
    function that may shorten them."""
    if not isinstance(node, (ast.If, ast.While, ast.IfExp)):
        return
    for parts, is_below in _measured_by(node.test):
        branches = [_nodes(node.body), _nodes(node.orelse)]
        below, above = branches if is_below else reversed(branches)
        leaves = bool(above) and isinstance(above[-1], LEAVES) and _extends((function,), parts)
        if _extends(below, parts) or leaves or any(_may_shorten(one, parts, file) for one in above):
            yield parts


def _nodes(branch: list[ast.stmt] | ast.expr) -> list[ast.AST]:
    return [*branch] if isinstance(branch, list) else [branch]


def _measured_by(test: ast.expr) -> Iterator[tuple[Parts, bool]]:
    """The names whose length or content a condition tests, and whether they may grow where it holds.

    Where ``a and b`` holds both hold, and where ``a or b`` fails both fail.
    """
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from ((parts, not is_below) for parts, is_below in _measured_by(test.operand))
    elif isinstance(test, ast.BoolOp):
        is_and = isinstance(test.op, ast.And)
        yield from (found for one in test.values for found in _measured_by(one) if found[1] == is_and)
    elif isinstance(test, ast.Compare) and len(test.ops) == 1:
        (operator,), left, (right,) = test.ops, test.left, test.comparators
        if isinstance(operator, (ast.In, ast.NotIn)):
            yield parts_of(right), isinstance(operator, ast.NotIn)
        elif isinstance(operator, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
            upwards = isinstance(operator, (ast.Lt, ast.LtE))
            yield from (
                (parts, is_left == upwards)
                for is_left, side in ((True, left), (False, right))
                if (parts := _measured(side))
            )


def _measured(side: ast.expr) -> Parts:
    """``X`` of ``len(X)``."""
    is_length = isinstance(side, ast.Call) and getattr(side.func, "id", "") == "len" and len(side.args) == 1
    return parts_of(side.args[0]) if is_length else ()  # type: ignore[attr-defined]  # a call


def _extends(nodes: Iterable[ast.AST], parts: Parts) -> bool:
    """Whether something in the nodes extends the name itself, or an item of it."""
    changes = (change for node in nodes for part in ast.walk(node) for change in _changed_by(part))
    return any(extends and _likeness(changed, parts) for changed, extends in changes)


def _may_shorten(node: ast.AST, parts: Parts, file: SourceFile) -> bool:
    """Whether a statement does nothing but call a function on the name, and the function shortens what it is given or
    is defined in another file. Python's own functions do not shorten it."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or parts not in map(parts_of, call.args):
        return False
    name = name_called(call)
    function = file.function_named(name)
    if function is None:
        return not hasattr(builtins, name)
    arguments = function.args.args[1 if isinstance(call.func, ast.Attribute) else 0 :]
    taken = [argument.arg for argument, given in zip(arguments, call.args, strict=False) if parts_of(given) == parts]
    return any(limited[:1] == (taken[0],) for part in ast.walk(function) for limited in _limited_by(part) if taken)
