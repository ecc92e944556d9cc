"""What the source of a loop's lines says: does it call a different module each time, on inputs that no earlier call
makes, and does the input of a recurrent cell need the loop?

The lines are those that ran in a located step, one by one. A statement over several lines is read piece by piece.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from enum import Enum, auto
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from profkit.derive.families import ELEMENTWISE, VIEW
from profkit.source.statements import Effect, assigned_names, derived_names, effect_of, names_in, renewed_names
from profkit.source.syntax import parse_line, parse_piece, parse_statements

_NAMELESS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
_BRANCHES = (ast.If, ast.Try, ast.Match, ast.While, ast.Continue, ast.Break)
_LOOPS = 256
"""Whose lines are kept as they were read."""


class Inputs(Enum):
    """What the modules of a loop are called on: one input for all of them, or one for each."""

    ONE = auto()
    OWN = auto()


def inputs_of_modules(call_line: str, body_lines: Iterable[str]) -> Inputs | None:
    """Whether ``call_line`` calls what the loop varies, on inputs that no earlier call makes; None if it does not.

    ``body_lines`` are all lines of the loop including its head, in their order; for a comprehension, only its own line.
    Inputs of their own come from what the loop varies, or its lines make them anew in each round.
    """
    body_lines = list(body_lines)
    statements = parse_statements(call_line)
    found = {_of_comprehensions(one) for one in statements} if set(body_lines) <= {call_line} else set()
    return _plainest(found | {_of_loop(one, _loop_of(tuple(body_lines))) for one in statements})


def _of_comprehensions(statement: ast.stmt) -> Inputs | None:
    """Of a lambda with a name nobody sees on what it is called: the result may go into the next call."""
    found = set[Inputs]()
    for together, element in _comprehensions(statement):
        makes_names = any(isinstance(node, ast.NamedExpr) for node in ast.walk(element))
        for call in () if makes_names else _calls(element):
            given = _argument_names(call) & _union(together)
            if not given and _callee_names(call) & _union(together):
                found.add(Inputs.ONE)
            elif _is_called_itself(call) and any(given <= mine and _callee_names(call) & mine for mine in together):
                found.add(Inputs.OWN)
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Lambda):
        found.discard(Inputs.OWN)
    return _plainest(found)


class _Loop(Struct, frozen=True):
    """The names that the heads of a loop vary, how many heads there are, whether a line may be left out of a round, and
    what its other lines do, in order. ``modules`` are names for items that are picked by what the heads vary."""

    varied: frozenset[str]
    heads: int
    branches: bool
    modules: frozenset[str]
    lines: tuple[tuple[str, Effect], ...]

    @property
    def made(self) -> set[str]:
        return _union(effect.changes for _, effect in self.lines)


@lru_cache(_LOOPS)
def _loop_of(body_lines: tuple[str, ...]) -> _Loop:
    """The same for each line asked about."""
    lines = [parsed for line in body_lines for parsed in parse_statements(line)]
    heads = [line for line in lines if isinstance(line, ast.For)]
    varied = frozenset(_union(names_in(line.target) for line in heads))
    picking = [line for line in lines if isinstance(line, ast.Assign) and _picks(line.value, varied)]
    return _Loop(
        varied,
        len(heads),
        any(isinstance(line, _BRANCHES) for line in lines),
        frozenset(_union(renewed_names(line) for line in picking)),
        tuple((ast.dump(line), _into_results(line)) for line in lines if not isinstance(line, ast.For)),
    )


def _picks(value: ast.expr, varied: frozenset[str]) -> bool:
    """Whether an expression is an item picked by what a loop varies: `self.heads[i]`, `getattr(self, f"head{i}")`."""
    if isinstance(value, ast.Call):
        return _is_getattr(value) and bool(names_in(value) & varied)
    return isinstance(value, ast.Subscript) and bool(names_in(value.slice) & varied)


def _of_loop(statement: ast.stmt, loop: _Loop) -> Inputs | None:
    calls = [call for call in _calls(statement) if _callee_names(call) & (loop.varied | loop.modules)]
    derived = derived_names(_into_results(statement).changes, [effect for _, effect in loop.lines]) if calls else set()
    carried, found = _carried_to(statement, loop) if loop.heads == 1 else None, set[Inputs]()
    for call in calls:
        given = _argument_names(call)
        if not given & (derived | loop.varied):
            found.add(Inputs.OWN if loop.heads == 1 and given & loop.made else Inputs.ONE)
        elif carried is not None and _is_called_itself(call):
            found |= {Inputs.OWN} if not given & (derived | loop.made if loop.branches else carried) else set()
    return _plainest(found)


def _carried_to(statement: ast.stmt, loop: _Loop) -> set[str] | None:
    """The names that hold, when a round comes to this line, what the line made in an earlier round; None if it is not
    a line of the loop."""
    text, held, carried = ast.dump(statement), set[str](), set[str]()
    if all(text != line for line, _ in loop.lines):
        return None
    for _ in range(len(loop.lines) + 1):
        for line, effect in loop.lines:
            if line == text:
                carried |= held
            if line == text or effect.reads & held:
                held |= effect.changes
            else:
                held -= effect.renews
    return carried


def _plainest(found: AbstractSet[Inputs | None]) -> Inputs | None:
    return next((which for which in Inputs if which in found), None)


def _is_called_itself(call: ast.Call) -> bool:
    """Whether what is called is a module, not a method, which may be a tensor's: `head(x)`, `self.heads[i](x)`."""
    return not isinstance(call.func, ast.Attribute) or call.func.attr == "forward"


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


def _comprehensions(node: ast.AST) -> Iterator[tuple[list[set[str]], ast.expr]]:
    """The names that each part of each comprehension varies together, and its element. A mapped lambda counts as one.
    So does a lambda with a name, as the line that repeats is then the lambda's."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
        yield _arguments_of(node.value), node.value.body
    for inner in ast.walk(node):
        if isinstance(inner, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
            yield _varied(inner.generators), inner.elt
        elif isinstance(inner, ast.DictComp):
            yield _varied(inner.generators), inner.value
        elif isinstance(inner, ast.Call) and _is_map(inner) and isinstance(inner.args[0], ast.Lambda):
            yield _arguments_of(inner.args[0]), inner.args[0].body


def _arguments_of(function: ast.Lambda) -> list[set[str]]:
    return [{argument.arg for argument in function.args.args}]


def _varied(generators: list[ast.comprehension]) -> list[set[str]]:
    return [names_in(part.target) for part in generators]


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
    as `mean` of `model(x).mean()`, unless the call is `getattr`."""
    callee = call.func
    while isinstance(callee, ast.Attribute):
        callee = callee.value
    return set() if isinstance(callee, ast.Call) and not _is_getattr(callee) else names_in(callee)


def _is_getattr(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "getattr"


def _argument_names(call: ast.Call) -> set[str]:
    return _union(names_in(part) for part in [*call.args, *(keyword.value for keyword in call.keywords)])


OF_TENSORS = ELEMENTWISE | VIEW | {"bmm", "dot", "matmul", "mm", "mv"}
"""Without the other products: `linear` and `gru` are also names of modules."""
