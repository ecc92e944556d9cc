"""Where objects come to refer to each other, read off the syntax tree of one function.

An object holds what is assigned to its attributes or put into them, and what its constructor was given; a lambda or an
inner function holds the names that it uses, and a bound method its object. The statement that closes a circle of such
references is the one to change. What a call returns, and what it does with its arguments, is not known, unless it looks
like the constructor of a class; a weak reference holds nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from profkit.source.index import Function, SourceFile
from profkit.source.syntax import name_called

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_WEAK = frozenset(("ref", "proxy", "WeakMethod", "WeakSet", "WeakValueDictionary", "WeakKeyDictionary"))
_ADDS = frozenset(("append", "appendleft", "add", "insert", "extend", "setdefault", "update"))
_CONTAINERS = (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Starred, ast.IfExp, ast.BoolOp, ast.NamedExpr)


def cycle_closers(file: SourceFile) -> Iterator[int]:
    """The lines at which objects of a function come to refer to each other; what a module holds is no garbage."""
    methods: dict[ast.AST, dict[str, bool]] = {}
    for scope in file.scopes:
        if isinstance(scope.around, ast.ClassDef):
            own = methods.setdefault(scope.around, {})
            own[scope.node.name] = _returns_what_holds_its_object(scope.node)  # type: ignore[union-attr]  # no module
    for scope in file.scopes:
        if isinstance(scope.node, _FUNCTIONS):
            yield from _closed_cycles(scope.node, methods.get(scope.around, {}) if scope.around else {})


def _closed_cycles(function: Function, methods: Mapping[str, bool]) -> list[int]:
    """Those of one function. ``methods`` are those of the class that it is a method of, each with whether it returns
    what holds its object; none for any other function."""
    references = _References(_first_argument(function) if methods else "", methods)
    for statement in _statements(function.body):
        references.follow(statement)
    return sorted(references.closed)


def _returns_what_holds_its_object(method: ast.AST) -> bool:
    """Whether a method returns a function or a container that refers to the object whose method it is."""
    if not isinstance(method, _FUNCTIONS) or not (owner := _first_argument(method)):
        return False
    references, returned = _References(owner, {}), set[str]()
    for statement in _statements(method.body):
        references.follow(statement)
        if isinstance(statement, ast.Return) and statement.value is not None:
            returned |= references.held_by(statement.value)
    return any(references.reaches(name, owner) for name in returned)


def _first_argument(function: Function) -> str:
    return next((argument.arg for argument in function.args.args), "")


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All statements of a function in the order of the source; those of inner functions belong to these."""
    for node in body:
        yield node
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            yield from _statements(part for part in ast.iter_child_nodes(node) if not isinstance(part, ast.expr))


class _References:
    """Which names hold which, and the lines that closed a circle. ``owner`` is what the class's methods call their
    object."""

    def __init__(self, owner: str, methods: Mapping[str, bool]) -> None:
        self.closed: set[int] = set()
        self._owner, self._methods = owner, methods
        self._held: dict[str, set[str]] = {}
        self._errors: set[str] = set()
        """Names of exceptions: these hold the frames that they passed, with all their names."""

    def follow(self, statement: ast.AST) -> None:
        if isinstance(statement, ast.ExceptHandler) and statement.name:
            self._errors.add(statement.name)
        elif isinstance(statement, _FUNCTIONS):
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
        return set[str]().union(*map(self.held_by, _kept_parts(value)))

    def _is_method(self, value: ast.AST) -> bool:
        is_own = isinstance(value, ast.Attribute) and getattr(value.value, "id", "") == self._owner
        return is_own and value.attr in self._methods  # type: ignore[attr-defined]  # of an attribute


def _kept_parts(value: ast.AST) -> Iterable[ast.AST]:
    """The parts of an expression that its value keeps."""
    if isinstance(value, _CONTAINERS):
        return ast.iter_child_nodes(value)
    if isinstance(value, ast.DictComp):
        return value.key, value.value
    if isinstance(value, (ast.ListComp, ast.SetComp)):
        return (value.elt,)
    if isinstance(value, ast.Call) and _makes_an_object(value):
        return (*value.args, *(keyword.value for keyword in value.keywords))
    return ()


def _makes_an_object(call: ast.Call) -> bool:
    """Whether it looks like the constructor of something that keeps what it is given."""
    name = name_called(call)
    return name not in _WEAK and (name[:1].isupper() or name == "partial")


def _root(node: ast.AST) -> str:
    """``a`` of ``a.b[0].c``; empty for what begins with no name."""
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
