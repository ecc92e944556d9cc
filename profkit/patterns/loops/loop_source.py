"""What the source of a loop's lines says: does it call a different module each time, on the same input, and does the
input of a recurrent cell need the loop?

The lines are those that ran in a located step, one by one. A statement over several lines is read piece by piece.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from msgspec import Struct

from profkit.derive.families import ELEMENTWISE, VIEW
from profkit.source.syntax import only_names, parse_line


def calls_independent_modules(call_line: str, body_lines: Iterable[str]) -> bool:
    """Whether ``call_line`` calls what the loop varies, on an input that neither the loop nor an earlier call makes.

    ``body_lines`` are all lines of the loop including its head; for a comprehension, only its own line.
    """
    body_lines = list(body_lines)
    statement = parse_line(call_line)
    if statement is None:
        return False
    for varying, element in _comprehensions(statement) if set(body_lines) <= {call_line} else ():
        if any(_callee_names(call) & varying and not _argument_names(call) & varying for call in _calls(element)):
            return True
    lines = [parsed for line in body_lines if (parsed := parse_line(line)) is not None]
    varying = _union(names_in(line.target) for line in lines if isinstance(line, ast.For))
    calls = [call for call in _calls(statement) if _callee_names(call) & varying]
    others = [line for line in lines if not isinstance(line, ast.For)]
    flows = [Flow("", _targets(line), _reads(line), renews=True, is_loop=False) for line in others]
    derived = derived_names(_targets(statement), flows)
    return any(not (_argument_names(call) & (derived | varying)) for call in calls)


def is_named_lambda(line: str) -> bool:
    """Whether the line only gives a name to a lambda that does not loop itself: the loop is where the lambda is
    called."""
    statement = parse_line(line)
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Lambda):
        return False
    return not any(True for _ in _comprehensions(statement.value.body))


class CellCall(Struct, frozen=True):
    """What the source shows about a call of a recurrent cell, `h = cell(x, h)`, in a loop: whether its input is made
    from its result in an earlier round (None: unknown), and whether only the call assigns the state."""

    feeds_back: bool | None = None
    keeps_state: bool = False


class Flow(Struct, frozen=True):
    """One line: the names that it changes, those that it reads for that, and whether it gives the former new values."""

    text: str
    to: set[str]
    read: set[str]
    renews: bool
    is_loop: bool


def read_cell_call(call_line: str, body_lines: Iterable[str]) -> CellCall:
    """Follow the names of a loop's lines from the result of ``call_line`` to its input.

    If one line cannot be parsed, nothing is known. A branch hides the lines that did not run, so anything assigned in
    such a loop may also be assigned elsewhere.
    """
    statement = parse_line(call_line)
    parsed = [parse_line(line) for line in body_lines]
    body = [line for line in parsed if line is not None]
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call) or len(body) < len(parsed):
        return CellCall()
    results, arguments = assigned_names(*statement.targets), statement.value.args
    state = assigned_names(arguments[1]) if len(arguments) > 1 else set()
    if not state or not state <= results:
        return CellCall()
    flows = [flow_of(line) for line in body]
    branches = any(isinstance(line, (ast.If, ast.Try, ast.Match)) for line in body)
    given, made = names_in(arguments[0]), _union(flow.to for flow in flows if not flow.is_loop)
    if given & derived_names(results, flows) or (branches and given & made):
        return CellCall(True if _surely_derived(given, results, flows) else None)
    elsewhere = _union(flow.to for flow in flows if flow.text != ast.dump(statement))
    return CellCall(False, not branches and not state & elsewhere)


def _surely_derived(given: set[str], results: set[str], flows: list[Flow]) -> bool:
    """Whether one of the given names only ever has values computed from the results."""
    derived = derived_names(results, [flow for flow in flows if flow.renews])
    return any(
        all(flow.renews and flow.read & derived for flow in flows if name in flow.to) for name in given & derived
    )


def flow_of(line: ast.stmt) -> Flow:
    targets = _written(line)
    renews = isinstance(line, ast.Assign) and only_names(targets) is not None
    return Flow(ast.dump(line), assigned_names(*targets), _read_names(line), renews, isinstance(line, ast.For))


def assigned_names(*targets: ast.expr) -> set[str]:
    """The names whose values an assignment to these changes: `h` of `h[i]`, `self` of `self.h`, but not the index."""
    names: set[str] = set()
    for target in targets:
        if isinstance(target, (ast.Tuple, ast.List)):
            names |= assigned_names(*target.elts)
        elif isinstance(target, (ast.Subscript, ast.Attribute, ast.Starred)):
            names |= assigned_names(target.value)
        elif isinstance(target, ast.Name):
            names.add(target.id)
    return names


def _written(line: ast.stmt) -> list[ast.expr]:
    """What a statement changes: what it assigns to, or the object whose method it calls without using the result."""
    if isinstance(line, ast.Assign):
        return line.targets
    if isinstance(line, (ast.AugAssign, ast.AnnAssign, ast.For)):
        return [line.target]
    called = line.value.func if isinstance(line, ast.Expr) and isinstance(line.value, ast.Call) else None
    while isinstance(called, ast.Attribute) and isinstance(called.value, ast.Call):
        called = called.value.func  # `x[t].view(-1).copy_(y)`
    return [called.value] if isinstance(called, ast.Attribute) else []


def _read_names(line: ast.stmt) -> set[str]:
    """The names that a line's new values may come from."""
    if isinstance(line, ast.For):
        return names_in(line.iter)
    return names_in(line.value) if isinstance(line, (ast.Assign, ast.AugAssign, ast.Expr)) else _reads(line)


def derived_names(names: set[str], flows: list[Flow]) -> set[str]:
    """``names`` and everything computed from them, directly or indirectly."""
    derived = set(names)
    for _ in flows:
        grown = derived | _union(flow.to for flow in flows if flow.read & derived)
        if grown == derived:
            break
        derived = grown
    return derived


def _union(sets: Iterable[set[str]]) -> set[str]:
    return set[str]().union(*sets)


def _comprehensions(node: ast.AST) -> Iterator[tuple[set[str], ast.expr]]:
    """The names that each comprehension varies, and its element. A mapped lambda counts as one. So does a lambda with a
    name, as the line that repeats is then the lambda's."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
        yield {argument.arg for argument in node.value.args.args}, node.value.body
    for inner in ast.walk(node):
        if isinstance(inner, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
            yield _varied(inner.generators), inner.elt
        elif isinstance(inner, ast.DictComp):
            yield _varied(inner.generators), inner.value
        elif isinstance(inner, ast.Call) and _is_map(inner) and isinstance(inner.args[0], ast.Lambda):
            yield {argument.arg for argument in inner.args[0].args.args}, inner.args[0].body


def _varied(generators: list[ast.comprehension]) -> set[str]:
    return _union(names_in(part.target) for part in generators)


def _is_map(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "map" and len(call.args) > 1


def _calls(node: ast.AST) -> list[ast.Call]:
    """The calls that may be a module's: not those of a tensor's methods, such as `row.unsqueeze(0)`, nor of methods
    that take no names."""
    calls = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
    return [
        call
        for call in calls
        if not isinstance(call.func, ast.Attribute) or (call.func.attr not in OF_TENSORS and _argument_names(call))
    ]


def names_in(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _callee_names(call: ast.Call) -> set[str]:
    """The names in what is called: `models` and `i` of `models[i](x)`; none for a method of another call's result, such
    as `mean` of `model(x).mean()`."""
    callee = call.func
    while isinstance(callee, ast.Attribute):
        callee = callee.value
    return set() if isinstance(callee, ast.Call) else names_in(callee)


def _argument_names(call: ast.Call) -> set[str]:
    return _union(names_in(part) for part in [*call.args, *(keyword.value for keyword in call.keywords)])


def _targets(statement: ast.stmt) -> set[str]:
    """The names that a statement assigns, or the container in which it puts its result."""
    if isinstance(statement, ast.Assign):
        return _union(map(names_in, statement.targets))
    if isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        return names_in(statement.target)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        called = statement.value.func
        return names_in(called.value) if isinstance(called, ast.Attribute) and called.attr in COLLECTING else set()
    return set()


OF_TENSORS = ELEMENTWISE | VIEW | {"bmm", "dot", "matmul", "mm", "mv"}
"""Without the other products: `linear` and `gru` are also names of modules."""
COLLECTING = ("append", "extend", "add", "insert", "update")


def _reads(statement: ast.stmt) -> set[str]:
    value = getattr(statement, "value", None)
    return names_in(value) if isinstance(value, ast.AST) else set()
