"""Where objects come to refer to each other, by the syntax tree of one function.

An object holds what is assigned to its attributes or put into them. A lambda or an inner function holds the names that
it uses, and a bound method its object. The statement that closes a cycle of such references is the one to change. A
call holds none of its arguments, unless it makes an object of one of the program's classes whose constructor keeps
them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from profkit.source.index import Function, SourceFile
from profkit.source.syntax import FUNCTIONS, identifiers, last_name, name_called

_ADDS = frozenset(("append", "appendleft", "add", "insert", "extend", "setdefault", "update"))
_FROM_FIELDS = frozenset(("dataclass", "NamedTuple"))
"""What gives a class a constructor that keeps all fields."""
_CONTAINERS = (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Starred, ast.IfExp, ast.BoolOp, ast.NamedExpr)


@dataclass(frozen=True, slots=True)
class _Constructor:
    """A class's arguments, in order, and those that its objects keep."""

    arguments: tuple[str, ...]
    kept: frozenset[str]

    def kept_by(self, call: ast.Call) -> list[ast.expr]:
        named = [*zip(self.arguments, call.args, strict=False), *((word.arg, word.value) for word in call.keywords)]
        return [value for name, value in named if name in self.kept]


def cycle_closers(files: Sequence[SourceFile]) -> Iterator[tuple[SourceFile, int]]:
    """The lines at which objects of a function come to refer to each other. What a module holds is not garbage."""
    own = [dict(_constructors(file)) for file in files]
    names = [name for constructors in own for name in constructors]
    known = {name: one for constructors in own for name, one in constructors.items() if names.count(name) == 1}
    for file, constructors in zip(files, own, strict=True):
        yield from ((file, line) for line in _closers_in(file, known | constructors))


def _closers_in(file: SourceFile, constructors: Mapping[str, _Constructor]) -> Iterator[int]:
    methods: dict[ast.AST, dict[str, bool]] = {}
    for scope in file.scopes:
        if isinstance(scope.around, ast.ClassDef):
            own = methods.setdefault(scope.around, {})
            own[scope.node.name] = _returns_what_holds_its_object(scope.node)  # type: ignore[union-attr]  # no module
    for scope in file.scopes:
        if isinstance(scope.node, FUNCTIONS):
            around = methods.get(scope.around, {}) if scope.around else {}
            owner = _first_argument(scope.node) if around else ""
            yield from sorted(_follow(scope.node, owner, around, constructors).closed)


def _constructors(file: SourceFile) -> Iterator[tuple[str, _Constructor]]:
    """The classes of a file whose constructor the text shows: an ``__init__`` of their own, or fields."""
    for scope in file.scopes:
        if isinstance(scope.node, ast.ClassDef) and (constructor := _constructor_of(scope.node)) is not None:
            yield scope.node.name, constructor


def _constructor_of(kind: ast.ClassDef) -> _Constructor | None:
    made = next((node for node in kind.body if isinstance(node, FUNCTIONS) and node.name == "__init__"), None)
    if made is not None:
        references, owner = _follow(made, _first_argument(made), {}, {}), _first_argument(made)
        arguments = tuple(one.arg for one in (*made.args.args[1:], *made.args.kwonlyargs))
        return _Constructor(arguments, frozenset(name for name in arguments if references.reaches(owner, name)))
    if _FROM_FIELDS.isdisjoint(set[str]().union(*map(identifiers, (*kind.decorator_list, *kind.bases)))):
        return None
    fields = tuple(last_name(node.target) for node in kind.body if isinstance(node, ast.AnnAssign))
    return _Constructor(fields, frozenset(fields))


def _follow(
    function: Function, owner: str, methods: Mapping[str, bool], constructors: Mapping[str, _Constructor]
) -> _References:
    """What the names of one function come to hold. ``methods`` are those of the class whose object is called ``owner``,
    each with whether it returns something that holds that object."""
    references = _References(owner, methods, constructors)
    for statement in _statements(function.body):
        references.follow(statement)
    return references


def _returns_what_holds_its_object(method: ast.AST) -> bool:
    """Whether a method returns a function or a container that refers to the method's own object."""
    if not isinstance(method, FUNCTIONS) or not (owner := _first_argument(method)):
        return False
    references = _follow(method, owner, {}, {})
    returned = (one.value for one in _statements(method.body) if isinstance(one, ast.Return) and one.value is not None)
    return any(references.reaches(name, owner) for value in returned for name in references.held_by(value))


def _first_argument(function: Function) -> str:
    return next((argument.arg for argument in function.args.args), "")


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All statements of a function in the order of the source, without those of inner functions."""
    for node in body:
        yield node
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            yield from _statements(part for part in ast.iter_child_nodes(node) if not isinstance(part, ast.expr))


class _References:
    """Which names hold which, and the lines that closed a cycle. ``owner`` is the methods' name for their own
    object."""

    def __init__(self, owner: str, methods: Mapping[str, bool], constructors: Mapping[str, _Constructor]) -> None:
        self.closed: set[int] = set()
        self._owner, self._methods, self._constructors = owner, methods, constructors
        self._held: dict[str, set[str]] = {}
        self._errors: set[str] = set()
        """Names of exceptions, which hold the frames that they passed, with all names in them."""

    def follow(self, statement: ast.AST) -> None:
        if isinstance(statement, ast.ExceptHandler) and statement.name:
            self._errors.add(statement.name)
        elif isinstance(statement, FUNCTIONS):
            self._hold(statement.name, _names_in(statement), statement.lineno)
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                self._assign(target, statement.value)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            self._add(statement.value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
            if len(target.elts) == len(value.elts):
                for one, of_it in zip(target.elts, value.elts, strict=True):
                    self._assign(one, of_it)
        elif isinstance(target, ast.Name):
            if not isinstance(value, ast.Name):
                self._hold(target.id, self.held_by(value) - {target.id}, value.lineno)
        else:
            self._hold(_root(target), self.held_by(value), target.lineno)

    def _add(self, call: ast.Call) -> None:
        """``a.parts.append(b)``, ``module.register_forward_hook(self._hook)``."""
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if method in _ADDS or method.startswith("register_"):
            values = [*call.args, *(keyword.value for keyword in call.keywords)]
            self._hold(_root(call.func), set[str]().union(*map(self.held_by, values)), call.lineno)

    def _hold(self, holder: str, held: set[str], line: int) -> None:
        if not holder or not held:
            return
        if any(name in self._errors or self.reaches(name, holder) for name in held):
            self.closed.add(line)
        self._held.setdefault(holder, set()).update(held)

    def reaches(self, start: str, wanted: str) -> bool:
        seen, waiting = {start}, [start]
        while waiting:
            name = waiting.pop()
            if name == wanted:
                return True
            further = self._held.get(name, set()) - seen
            seen |= further
            waiting += further
        return False

    def held_by(self, value: ast.AST) -> set[str]:
        """The names whose objects the value of an expression keeps."""
        if isinstance(value, ast.Name):
            return {value.id}
        if isinstance(value, ast.Lambda):
            return _names_in(value)
        if isinstance(value, ast.Attribute):
            return {self._owner} if self._is_method(value) else set()
        if isinstance(value, ast.Call) and self._is_method(value.func) and self._methods[value.func.attr]:  # type: ignore[attr-defined]  # of an attribute
            return {self._owner}
        return set[str]().union(*map(self.held_by, self._kept_parts(value)))

    def _is_method(self, value: ast.AST) -> bool:
        is_own = isinstance(value, ast.Attribute) and getattr(value.value, "id", "") == self._owner
        return is_own and value.attr in self._methods  # type: ignore[attr-defined]  # of an attribute

    def _kept_parts(self, value: ast.AST) -> Iterable[ast.AST]:
        """The parts of an expression that its value keeps."""
        if isinstance(value, _CONTAINERS):
            return ast.iter_child_nodes(value)
        if isinstance(value, ast.DictComp):
            return value.key, value.value
        if isinstance(value, (ast.ListComp, ast.SetComp)):
            return (value.elt,)
        if not isinstance(value, ast.Call):
            return ()
        if name_called(value) == "partial":
            return (*value.args, *(keyword.value for keyword in value.keywords))
        made = self._constructors.get(name_called(value))
        return () if made is None else made.kept_by(value)


def _root(node: ast.AST) -> str:
    """``a`` of ``a.b[0].c``; empty if it does not begin with a name."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _names_in(function: ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The names that an inner function uses and does not bind itself."""
    body = function.body if isinstance(function.body, list) else [function.body]
    names = [part for node in body for part in ast.walk(node) if isinstance(part, ast.Name)]
    arguments = function.args
    own = {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    own |= {rest.arg for rest in (arguments.vararg, arguments.kwarg) if rest is not None}
    own |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return {name.id for name in names} - own
