"""Do the rounds of a Python loop need each other, as far as the source of its lines shows?"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from profkit.patterns.loops.loop_source import OF_TENSORS
from profkit.run.directory import CallSite
from profkit.source.harmless import COLLECTING, METHODS
from profkit.source.statements import gathering, names_in, reads, renewed_names
from profkit.source.syntax import closing_brackets, flat_targets, name_called, parse_line, parse_statements

_LIBRARIES = frozenset(("F", "functional", "math", "nn", "np", "numpy", "torch"))
"""Common names of modules whose functions change nothing, unless the function's name ends in `_`."""
_METHODS = OF_TENSORS | METHODS | {"get"}
"""Methods of tensors and containers that change nothing. A queue's `get` does, but a loop over tensors has a dict's."""
_WITH_EFFECT = frozenset(("eval", "exec", "input", "next", "open", "print", "setattr"))
_OF_MODELS = frozenset(
    ("buffers", "data", "grad", "named_buffers", "named_parameters", "param_groups", "parameters", "state_dict")
)
"""Loops over these belong to an optimizer, to clipping or to averaging weights. Stacking what a model holds would copy
it; `torch._foreach_…` is the cure there."""
_GRADIENTS = frozenset(("data", "grad"))
_ADDED_TO = "(gradients)"
"""Stands for what a backward pass adds to."""
_MAKING = frozenset(
    (
        *("empty", "full", "ones", "zeros", "empty_like", "full_like", "ones_like", "zeros_like"),
        *("new_empty", "new_full", "new_ones", "new_zeros", "clone", "dict", "list", "set"),
    )
)
"""Functions whose result nothing else holds."""
_ACCUMULATING = frozenset(("add", "max", "maximum", "min", "minimum", "mul", "sub"))

_LOOPS = 256
"""Whose answers are kept."""


class _Effect(Struct, frozen=True):
    """What a statement of a round does: the names to which it gives new values, what it adds or appends to, what it
    reads, whether it writes to the round's own tensors, and in which tables it fills a place of its own. What it
    gathers and reads may be attributes, such as `self.losses`."""

    renews: frozenset[str] = frozenset()
    gathers: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    writes: bool = False
    fills: frozenset[str] = frozenset()


class _Round(Struct, frozen=True):
    """The names that a round gives values to, whether it may write to what they hold, or branch on it, and whether it
    may run a backward pass."""

    names: frozenset[str] = frozenset()
    may_write: bool = False
    may_differentiate: bool = False


def rounds_are_independent(
    body: Iterable[CallSite],
    called: Iterable[CallSite],
    may_go_through_a_model: bool = False,
    may_write: bool = False,
    may_differentiate: bool = False,
) -> bool:
    """Whether no round of a loop needs what an earlier one computed, except to add or append to it.

    ``body`` are the loop's own lines, ``called`` those of functions that it calls. The answer is no if a line cannot be
    parsed, or may change what the next round finds: a state in an object, an iterator that advances, a tensor that is
    written to, a branch. It is also no for parameters and gradients, unless the caller says otherwise. With
    ``may_write`` a round may branch, and write to what the loop's head gives it: each round then has its own tensors.
    With ``may_differentiate`` it may add to gradients by a backward pass, and read parameters, but no gradient.
    """
    allowed = _Round(may_write=may_write, may_differentiate=may_differentiate)
    return _are_independent(frozenset(body), frozenset(called), may_go_through_a_model, allowed)


@lru_cache(_LOOPS)
def _are_independent(
    body: frozenset[CallSite], called: frozenset[CallSite], may_go_through_a_model: bool, allowed: _Round
) -> bool:
    """Once for each loop: every one of its lines may be asked about."""
    statements, may_write = _statements(body), allowed.may_write
    if not all(map(_function_keeps_to_itself, _by_function(called))):
        return False
    if any(statement is None for statement in statements):
        return False
    of_models = _GRADIENTS if allowed.may_differentiate else _OF_MODELS
    if not may_go_through_a_model and any(_touches_a_model(statement, of_models) for statement in statements):
        return False
    heads = [statement for statement in statements if isinstance(statement, ast.For)]
    if not heads:
        return len(statements) == 1 and _is_comprehension_of_its_own(statements[0], may_write)
    if len(heads) > 1 and not (may_write and _are_nested(heads)):
        return False
    varied = frozenset[str]().union(*(names_in(head.target) for head in heads))
    mine = replace(allowed, names=varied.union(*map(renewed_names, statements)))
    effects = [_effect_of(statement, mine) for statement in statements if not isinstance(statement, ast.For)]
    shown = [effect for effect in effects if effect is not None]
    read = frozenset[str]().union(*(reads(head.iter) for head in heads)) - (varied if may_write else set())
    return len(effects) == len(shown) and _goes_through_inputs(varied, shown) and not _is_carried(varied, read, shown)


def _are_nested(heads: Sequence[ast.For]) -> bool:
    """Whether each further head goes through what the one before gives: `for p in group["params"]`."""
    return all(names_in(outer.target) & names_in(inner.iter) for outer, inner in pairwise(heads))


def goes_through_a_model(body: Iterable[CallSite]) -> bool:
    """Whether a line of a loop reads a model's parameters, buffers or gradients."""
    return any(map(_touches_a_model, _statements(body)))


def head_of(body: Sequence[CallSite]) -> CallSite:
    """The line that makes the rounds of a loop: its `for`, or the comprehension if that is the only line."""
    return next((site for site in body if isinstance(parse_line(site.source), ast.For)), body[0])


def rounds_recur(body: Iterable[CallSite], computing: Container[CallSite]) -> bool:
    """Whether lines of a loop compute a value from its own value in the round before, `last = x + decay * last`, other
    than by adding to it, multiplying it or taking the larger: these are `cumsum`, `cumprod` and `cummax`. The value may
    go through several lines, and be written into a tensor.

    Only ``computing`` lines count. In nested loops the answer is no: the rounds of the other loop may be independent.
    """
    ordered = sorted(body, key=lambda site: site.line)
    lines = [(site, statement) for site in ordered for statement in parse_statements(site.source)]
    if sum(isinstance(statement, (ast.For, ast.While)) for _, statement in lines) != 1:
        return False
    made = dict[str, _Origin]()
    for site, statement in lines:
        made |= {name: _origin(parts, made, site in computing) for name, *parts in _given(statement)}
    return any(_leads_to(made, source, name) for name, origin in made.items() for source in origin.computed)


def _leads_to(made: Mapping[str, _Origin], name: str, source: str) -> bool:
    """Whether a name's value of one round comes from the ``source`` of the same or of some round before."""
    seen, waiting = set[str](), [name]
    while waiting:
        one = waiting.pop()
        if one == source:
            return True
        if one not in seen and one in made:
            seen.add(one)
            waiting += made[one].all
    return False


class _Origin(Struct, frozen=True):
    """From which names' values of the round before a value comes: handed on or added up, and computed."""

    handed_on: frozenset[str] = frozenset()
    computed: frozenset[str] = frozenset()

    @property
    def all(self) -> frozenset[str]:
        return self.handed_on | self.computed


def _origin(parts: Sequence[set[str]], before: Mapping[str, _Origin], is_computing: bool) -> _Origin:
    """Of a value that comes from the first names as they are, and from the second by computing."""
    kept, used = ([before.get(name, _Origin(frozenset((name,)))) for name in sorted(names)] for names in parts)
    handed_on = frozenset[str]().union(*(one.handed_on for one in kept))
    computed = frozenset[str]().union(*(one.computed for one in [*kept, *used]))
    more = frozenset[str]().union(*(one.handed_on for one in used))
    return _Origin(handed_on, computed | more) if is_computing else _Origin(handed_on | more, computed)


def _given(statement: ast.stmt) -> Iterator[tuple[str, set[str], set[str]]]:
    """The names to which a statement gives a value, or to whose tensor it writes (`state.copy_(new)`): each with what
    it keeps of its own value, as a sum does, and with what else the value is computed from."""
    if isinstance(statement, ast.For):
        yield from ((name, set(), set()) for name in names_in(statement.target))
    elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        name, adds = statement.target.id, isinstance(statement.op, (ast.Add, ast.Sub, ast.Mult))
        yield name, {name} if adds else set(), names_in(statement.value) | (set() if adds else {name})
    elif isinstance(statement, ast.Assign):
        for target, value in _pairs(statement):
            keeps = _is_accumulated(target, value) or (isinstance(value, ast.Name) and value.id == target)
            yield target, {target} if keeps else set(), names_in(value) - ({target} if keeps else set())
    elif isinstance(statement, ast.Expr) and isinstance(call := statement.value, ast.Call):
        function = call.func
        if isinstance(function, ast.Attribute) and function.attr.endswith("_") and isinstance(function.value, ast.Name):
            values = [*call.args, *(keyword.value for keyword in call.keywords)]
            yield function.value.id, {function.value.id}, set[str]().union(*map(names_in, values))


def _pairs(statement: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    """The names that an assignment gives values, each with its own part if both sides are tuples of one length."""
    for target in statement.targets:
        values, value = [statement.value], statement.value
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        if isinstance(value, ast.Tuple) and len(value.elts) == len(targets):
            values = value.elts
        for number, one in enumerate(targets):
            names = [part.id for part in flat_targets([one]) if isinstance(part, ast.Name)]
            yield from ((name, values[number % len(values)]) for name in names)


def _is_accumulated(name: str, value: ast.expr) -> bool:
    """Whether a value is the sum, product, larger or smaller of a name's value and something else."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub, ast.Mult)):
        parts = [value.left] if isinstance(value.op, ast.Sub) else [value.left, value.right]
        others = [value.left, value.right]
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _ACCUMULATING:
        others = [value.func.value, *value.args]
        parts = others
    else:
        return False
    alone = [part for part in parts if isinstance(part, ast.Name) and part.id == name]
    return len(alone) == sum(name in names_in(other) for other in others) == 1


def _statements(sites: Iterable[CallSite]) -> list[ast.stmt | None]:
    """The lines as statements, None for a line that is none. Lines after an open bracket belong to its statement; a
    last line with only closing brackets does not run, so it is missing here."""
    found: list[ast.stmt | None] = []
    text, last = "", CallSite("", 0, "")
    ordered = sorted(sites, key=lambda one: (one.file, one.line, one.function, one.source))
    for site in {(site.file, site.line): site for site in ordered}.values():
        follows = site.file == last.file and site.line == last.line + 1
        if text and not (closing_brackets(text) and follows):
            found += _parsed(text)
            text = ""
        text, last = f"{text}\n{site.source.strip()}".strip(), site
    return [*found, *_parsed(text)] if text else found


def _parsed(text: str) -> Sequence[ast.stmt | None]:
    return parse_statements(f"{text}\n{closing_brackets(text)}") or [None]


def _is_comprehension_of_its_own(statement: ast.stmt | None, may_filter: bool) -> bool:
    """Whether a line repeats only because of its comprehensions, whose elements are made independently. If they
    ``may_filter``, each may have a condition."""
    kinds = (ast.ListComp, ast.GeneratorExp, ast.SetComp)
    loops = [node for node in ast.walk(statement or ast.Pass()) if isinstance(node, kinds)]
    for loop in loops:
        mine = _Round(frozenset[str]().union(*(names_in(part.target) for part in loop.generators)))
        tests = [test for part in loop.generators for test in part.ifs]
        alone = len(loop.generators) == 1 and (may_filter or not tests) and names_in(loop.elt) & mine.names
        if not alone or not all(_is_pure(part, mine) for part in [loop.elt, *tests]):
            return False
    return bool(loops)


def _touches_a_model(statement: ast.stmt | None, parts: frozenset[str] = _OF_MODELS) -> bool:
    """Whether a statement reads such a part of something; `torch.autograd.grad` is a function."""
    nodes = ast.walk(statement or ast.Pass())
    found = (node for node in nodes if isinstance(node, ast.Attribute) and node.attr in parts)
    return any(_root_of(node) not in _LIBRARIES for node in found)


def _by_function(called: Iterable[CallSite]) -> Iterable[list[CallSite]]:
    functions: dict[tuple[str, str], list[CallSite]] = {}
    for site in called:
        functions.setdefault((site.file, site.function), []).append(site)
    return functions.values()


def _function_keeps_to_itself(lines: Iterable[CallSite]) -> bool:
    """Whether a function's lines have no effect beyond its result. They may fill what the function made itself: a list,
    or a tensor of its own."""
    made = set[str]()
    for statement in _statements(lines):
        if not (_keeps_to_itself(statement) or _fills(statement, made)):
            return False
        if isinstance(statement, ast.For):
            made -= names_in(statement.target)
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            made -= renewed_names(statement)
            made |= renewed_names(statement) if _makes_anew(statement.value) else set()
    return True


def _makes_anew(value: ast.expr | None) -> bool:
    """Whether an expression makes a container or a tensor that nothing else holds."""
    if isinstance(value, ast.Call):
        return name_called(value) in _MAKING
    return isinstance(value, (ast.List, ast.ListComp, ast.Dict, ast.DictComp, ast.Set, ast.SetComp))


def _fills(statement: ast.stmt | None, made: Container[str]) -> bool:
    """Whether a statement writes only into what is ``made`` by its own function: `out[:, i] = y`, `parts.append(y)`."""
    if isinstance(statement, ast.Expr) and isinstance(call := statement.value, ast.Call):
        function, values = call.func, [*call.args, *(keyword.value for keyword in call.keywords)]
        if not isinstance(function, ast.Attribute) or not _is_made(function.value, made):
            return False
        fills = function.attr in COLLECTING or function.attr.endswith("_")
        return fills and all(_is_pure(value, _Round()) for value in values)
    if not isinstance(statement, (ast.Assign, ast.AugAssign)):
        return False
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    into = [target.value if isinstance(target, ast.Subscript) else target for target in targets]
    slices = [target.slice for target in targets if isinstance(target, ast.Subscript)]
    return all(_is_made(one, made) for one in into) and all(
        _is_pure(one, _Round()) for one in [statement.value, *slices]
    )


def _is_made(node: ast.expr, made: Container[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in made


def _keeps_to_itself(statement: ast.stmt | None) -> bool:
    """Whether a statement of a function has no effect beyond the function's result."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if isinstance(statement, (ast.Assign, ast.AnnAssign)) and not renewed_names(statement):
        return False
    known = (ast.Return, ast.Assign, ast.AnnAssign, ast.If, ast.Assert, ast.For, ast.Pass)
    parts = (node for node in ast.iter_child_nodes(statement or ast.Pass()) if isinstance(node, ast.expr))
    return isinstance(statement, known) and all(_is_pure(part, _Round()) for part in parts)


def _effect_of(statement: ast.stmt | None, mine: _Round) -> _Effect | None:
    """What a statement does; None if it may do more than a round is allowed to."""
    if statement is None or isinstance(statement, ast.With):
        return None if statement is None else _effect_of_entering(statement, mine)
    is_own = isinstance(statement, (ast.If, ast.Continue, ast.Pass)) or _writes_to_own(statement, mine)
    if mine.may_write and is_own:
        return _effect_of_own(statement, mine)
    if (gathered := gathering(statement)) is not None:
        where, what = gathered
        if not isinstance(where, (ast.Name, ast.Attribute)) or not all(_is_pure(value, mine) for value in what):
            return None
        return _Effect(gathers=frozenset((ast.unparse(where),)), reads=frozenset[str]().union(*map(reads, what)))
    value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr)) else None
    if value is None or not _is_pure(value, mine):
        return None
    is_call, names = isinstance(statement, ast.Expr), renewed_names(statement)
    gradients = frozenset((_ADDED_TO,)) if is_call and mine.may_differentiate else frozenset[str]()
    return _Effect(names, gradients, reads(value), is_call and mine.may_write) if names or is_call else None


def _effect_of_entering(statement: ast.With, mine: _Round) -> _Effect | None:
    """Of the head of `with torch.no_grad():`, whose body is further lines. What it gives a name to may have a state."""
    entered = [item.context_expr for item in statement.items if item.optional_vars is None]
    if len(entered) < len(statement.items) or not all(_is_pure(context, mine) for context in entered):
        return None
    return _Effect(reads=frozenset[str]().union(*map(reads, entered)))


def _writes_to_own(statement: ast.stmt | None, mine: _Round) -> bool:
    """Whether a statement writes to what a round has for itself: `p *= 2`, `p.grad = g`, or `table[name] = p`, if the
    head of the loop gives `name` another value each time."""
    if isinstance(statement, ast.AugAssign):
        return _is_own(statement.target, mine)
    return isinstance(statement, ast.Assign) and all(
        not isinstance(target, ast.Name) and _is_own(target, mine) for target in statement.targets
    )


def _is_own(target: ast.expr, mine: _Round) -> bool:
    if isinstance(target, ast.Subscript) and names_in(target.slice) and names_in(target.slice) <= mine.names:
        return True
    return _root_of(target) in mine.names


def _effect_of_own(statement: ast.stmt | None, mine: _Round) -> _Effect | None:
    parts = [node for node in ast.iter_child_nodes(statement or ast.Pass()) if isinstance(node, ast.expr)]
    if not all(_is_pure(part, mine) for part in parts):
        return None
    targets: list[ast.expr] = statement.targets if isinstance(statement, ast.Assign) else []
    targets = [statement.target] if isinstance(statement, ast.AugAssign) else targets
    own = {ast.unparse(target) for target in targets}
    read = [node for part in parts if part not in targets for node in _without(part, own)]
    tables = [target.value for target in targets if isinstance(target, ast.Subscript)]
    return _Effect(
        reads=frozenset(ast.unparse(node) for node in read if isinstance(node, (ast.Name, ast.Attribute))),
        writes=bool(targets),
        fills=frozenset(ast.unparse(table) for table in tables if _root_of(table) not in mine.names),
    )


def _without(expression: ast.expr, texts: set[str]) -> Iterator[ast.AST]:
    """The nodes of an expression, except for parts with these texts."""
    waiting: list[ast.AST] = [expression]
    while waiting:
        node = waiting.pop()
        if not (isinstance(node, ast.expr) and ast.unparse(node) in texts):
            yield node
            waiting += ast.iter_child_nodes(node)


def _is_carried(varied: frozenset[str], iterated: frozenset[str], effects: Sequence[_Effect]) -> bool:
    """Whether a round reads what an earlier one made: a name before the round gives it a value, or what the round adds
    or appends to, or fills. The heads of the loop go through what is ``iterated``."""
    renewed = frozenset[str]().union(*(effect.renews for effect in effects))
    gathered = frozenset[str]().union(*(effect.gathers | effect.fills for effect in effects))
    read = iterated.union(*(effect.reads for effect in effects))
    if gathered & (renewed | varied | read) or renewed & iterated:
        return True
    known = varied
    for effect in effects:
        if (effect.reads & renewed) - known:
            return True
        known |= effect.renews
    return False


def _goes_through_inputs(varied: frozenset[str], effects: Sequence[_Effect]) -> bool:
    """Whether each round has its own input and its result is kept, unlike loops that repeat work to time it, or to
    converge. Of a comprehension over several lines only pieces are known."""
    takes = any(effect.reads & varied or effect.writes for effect in effects)
    keeps = any(effect.gathers or effect.writes for effect in effects)
    return takes and (keeps or not any(effect.renews for effect in effects))


def _is_pure(expression: ast.expr, mine: _Round) -> bool:
    """Whether computing an expression changes nothing that outlives its round, as far as the names of what it calls
    show."""
    doing_more = (ast.NamedExpr, ast.Lambda, ast.Await, ast.Yield, ast.YieldFrom)
    nodes = list(ast.walk(expression))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    return not any(isinstance(node, doing_more) for node in nodes) and all(_is_harmless(call, mine) for call in calls)


def _is_harmless(call: ast.Call, mine: _Round) -> bool:
    """Harmless are functions and losses called by their own name or as an attribute of `self`, or by their place in a
    list of such a name; methods that change nothing, and any method of what the round itself made. A name that ends in
    `_` writes to a tensor."""
    function = call.func
    if any(keyword.arg in {"out", "inplace"} for keyword in call.keywords):
        return False
    if isinstance(function, ast.Subscript):  # `self.layers[i](x)`
        function = function.value
    if isinstance(function, ast.Name):
        return function.id not in _WITH_EFFECT
    if not isinstance(function, ast.Attribute):
        return False
    direct = isinstance(function.value, ast.Name) and function.value.id == "self"
    name = _root_of(function.value)
    if function.attr.endswith("_"):
        return mine.may_write and name in mine.names
    if function.attr == "backward":
        return mine.may_differentiate
    changes = function.attr in {*COLLECTING, "pop", "step", "zero_grad"}
    return not changes and (direct or function.attr in _METHODS or name in mine.names or name in _LIBRARIES)


def _root_of(expression: ast.expr) -> str:
    """The name at the beginning of `p.grad.data` or `groups[i]["params"]`; empty without one."""
    root = expression
    while isinstance(root, (ast.Attribute, ast.Subscript, ast.Call)):
        root = root.func if isinstance(root, ast.Call) else root.value
    return root.id if isinstance(root, ast.Name) else ""
