"""What the source of a loop's lines says: does it call a different module each time, on the same input, and does the
input of a recurrent cell need the loop?

The lines are those that ran in a located step, one by one. A statement over several lines is read piece by piece.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from profkit.derive.families import ELEMENTWISE, VIEW
from profkit.source.statements import Effect, assigned_names, derived_names, effect_of, names_in
from profkit.source.syntax import parse_line, parse_piece, parse_statements

_NAMELESS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
_LOOPS = 256
"""Whose lines are kept as they were read."""


def calls_independent_modules(call_line: str, body_lines: Iterable[str]) -> bool:
    """Whether ``call_line`` calls what the loop varies, on an input that neither the loop nor an earlier call makes.

    ``body_lines`` are all lines of the loop including its head; for a comprehension, only its own line.
    """
    body_lines = list(body_lines)
    statements = parse_statements(call_line)
    if not statements:
        return False
    for statement in statements if set(body_lines) <= {call_line} else ():
        for varying, element in _comprehensions(statement):
            if any(_callee_names(call) & varying and not _argument_names(call) & varying for call in _calls(element)):
                return True
    varied, effects = _loop_of(frozenset(body_lines))
    calling = {statement: _calls_of(statement, varied) for statement in statements}
    if not any(calling.values()):
        return False
    results = _union(_into_results(statement).changes for statement, calls in calling.items() if calls)
    derived = derived_names(results, effects)
    return any(not (_argument_names(call) & (derived | varied)) for call in itertools.chain(*calling.values()))


@lru_cache(_LOOPS)
def _loop_of(body_lines: frozenset[str]) -> tuple[frozenset[str], tuple[Effect, ...]]:
    """The names that the heads of a loop vary, and what its other lines do: the same for each line asked about."""
    lines = [parsed for line in sorted(body_lines) for parsed in parse_statements(line)]
    varying = _union(names_in(line.target) for line in lines if isinstance(line, ast.For))
    return frozenset(varying), tuple(_into_results(line) for line in lines if not isinstance(line, ast.For))


def _calls_of(statement: ast.stmt, varied: AbstractSet[str]) -> list[ast.Call]:
    return [call for call in _calls(statement) if _callee_names(call) & varied]


def is_named_lambda(line: str) -> bool:
    """Whether the line only gives a name to a lambda that does not loop itself: the loop is where the lambda is
    called."""
    statement = parse_line(line)
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Lambda):
        return False
    return not any(True for _ in _comprehensions(statement.value.body))


def nameless_functions(line: str) -> int:
    """How many functions without a name a line's text makes: their marks lie inside that of the line itself."""
    piece = parse_piece(line)
    return sum(isinstance(node, _NAMELESS) for node in ast.walk(piece)) if piece is not None else 0


class CellCall(Struct, frozen=True):
    """What the source shows about a call of a recurrent cell, `h = cell(x, h)`, in a loop: whether its input is made
    from its result in an earlier round (None: unknown), and whether only the call assigns the state."""

    feeds_back: bool | None = None
    keeps_state: bool = False


def read_cell_call(call_line: str, body_lines: Iterable[str]) -> CellCall:
    """Follow the names of a loop's lines from the result of ``call_line`` to its input.

    If one line cannot be parsed, nothing is known. A branch hides the lines that did not run, so anything assigned in
    such a loop may also be assigned elsewhere.
    """
    calling = [part for part in parse_statements(call_line) if isinstance(part, ast.Assign)]
    lines = list(body_lines)
    body = [part for line in lines for part in parse_statements(line)]
    if len(calling) != 1 or not all(map(parse_line, lines)):
        return CellCall()
    statement = calling[0]
    if not isinstance(statement.value, ast.Call):
        return CellCall()
    results, arguments = assigned_names(*statement.targets), statement.value.args
    state = assigned_names(arguments[1]) if len(arguments) > 1 else set()
    if not state or not state <= results:
        return CellCall()
    effects = [effect_of(line) for line in body]
    branches = any(isinstance(line, (ast.If, ast.Try, ast.Match)) for line in body)
    given = names_in(arguments[0])
    made = _union(effect_of(line).changes for line in body if not isinstance(line, ast.For))
    if given & derived_names(results, effects) or (branches and given & made):
        return CellCall(True if _surely_derived(given, results, effects) else None)
    elsewhere = _union(effect_of(line).changes for line in body if ast.dump(line) != ast.dump(statement))
    return CellCall(False, not branches and not state & elsewhere)


def _surely_derived(given: set[str], results: frozenset[str], effects: list[Effect]) -> bool:
    """Whether one of the given names only ever has values computed from the results."""
    derived = derived_names(results, [effect for effect in effects if effect.renews])
    return any(
        all(effect.renews and effect.reads & derived for effect in effects if name in effect.changes)
        for name in given & derived
    )


def _into_results(line: ast.stmt) -> Effect:
    """What a line changes by assigning or collecting its results, whatever else its calls may do."""
    effect = effect_of(line)
    return effect if effect.gathers else replace(effect, acts_on=frozenset())


def _union(sets: Iterable[AbstractSet[str]]) -> set[str]:
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


def _callee_names(call: ast.Call) -> set[str]:
    """The names in what is called: `models` and `i` of `models[i](x)`; none for a method of another call's result, such
    as `mean` of `model(x).mean()`."""
    callee = call.func
    while isinstance(callee, ast.Attribute):
        callee = callee.value
    return set() if isinstance(callee, ast.Call) else names_in(callee)


def _argument_names(call: ast.Call) -> set[str]:
    return _union(names_in(part) for part in [*call.args, *(keyword.value for keyword in call.keywords)])


OF_TENSORS = ELEMENTWISE | VIEW | {"bmm", "dot", "matmul", "mm", "mv"}
"""Without the other products: `linear` and `gru` are also names of modules."""
