"""Evaluations whose results the source uses at few of the steps that compute them.

That is said only where the text proves it. A statement assigns what an evaluation returns, or holds one in a block
without autograd; the names that it assigns are used nowhere else in their scope but under an ``if`` behind it in the
same block, whose condition asks for every n-th step (``epoch % 20 == 0``). The evaluation itself leaves nothing behind:
it puts the model into evaluation mode and switches autograd off, and neither it nor what it calls in the file writes to
anything but its own variables, prints, logs or saves. What it calls of the user's other files is not read, so that
there nothing is said.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from profkit.source.syntax import name_called

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_INNER = (*_FUNCTIONS, ast.ClassDef, ast.Lambda)
_SUSPENDS = (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.Delete)
_GUARDS = frozenset(("no_grad", "inference_mode"))
_COLLECTS = frozenset(("append", "extend", "add", "update", "insert"))
"""Harmless to what the evaluation itself made."""
_EFFECTS = ("log", "write", "save", "add_", "plot", "dump", "print", "record", "report", "push", "send", "set", "store",
            "backward", "step", "put", "checkpoint", "info", "debug", "warn", "exec", "open", "reset", "zero", "rand",
            "sample", "shuffle", "multinomial", "next", "pop", "remove", "clear", "register", "load", "fit", "train_",
            "optimi", "update", "manual_seed", "display", "show", "exit", "input")  # fmt: skip
"""How the names of functions begin that may leave something behind, or draw random numbers."""
_MATHEMATICS = frozenset(("log_softmax", "logsumexp", "log2", "log10", "log1p", "logit", "logsigmoid", "log_prob"))
_LIBRARIES = frozenset(("torch", "numpy", "math", "sklearn", "scipy", "torch_geometric", "torchvision", "time"))
_ACCUMULATE = frozenset(("torchmetrics", "ignite", "evaluate"))
"""Whose metrics keep what they are called with: where a file uses them, nothing is said."""
_LEAVES = (ast.Return, ast.Break, ast.Continue, ast.Raise)
_DEEPEST = 4


@dataclass(frozen=True, slots=True)
class RareUse:
    """An evaluation from ``line`` to ``until``, used at ``used_at`` every so many steps: 0 where a name says that."""

    line: int
    until: int
    every: int
    used_at: int


def rarely_used(tree: ast.Module) -> Iterator[RareUse]:
    """All in one file."""
    known = _Known(tree)
    if known.may_accumulate:
        return
    for scope, block in _blocks(tree):
        for place, statement in enumerate(block):
            names = known.evaluated(statement, scope) - {"_"}
            if names and not known.is_shared(names):
                use = _find_use(scope, names, statement, block[place + 1 :])
                if use is not None:
                    yield use


class _Known:
    """What a file defines and imports."""

    def __init__(self, tree: ast.Module) -> None:
        definitions = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]
        names = [node.name for node in definitions]
        self._functions = {node.name: node for node in definitions if names.count(node.name) == 1}
        self._several = set(names) - set(self._functions)
        self._imported: dict[str, str] = {}
        self._shared = set[str]()
        for node in ast.walk(tree):
            if isinstance(node, ast.Global | ast.Nonlocal):
                self._shared |= set(node.names)
            elif isinstance(node, ast.ImportFrom):
                source = "" if node.level else str(node.module).partition(".")[0]
                self._imported |= {alias.asname or alias.name: source for alias in node.names}
            elif isinstance(node, ast.Import):
                roots = [(alias.asname or alias.name, alias.name) for alias in node.names]
                self._imported |= {name.partition(".")[0]: module.partition(".")[0] for name, module in roots}

    @property
    def may_accumulate(self) -> bool:
        return not _ACCUMULATE.isdisjoint(self._imported.values())

    def is_shared(self, names: set[str]) -> bool:
        return not names.isdisjoint(self._shared)

    def evaluated(self, statement: ast.stmt, scope: ast.AST) -> set[str]:
        """The names that the statement gives the results of an evaluation which leaves nothing else behind."""
        if isinstance(statement, ast.With) and _guards(statement):
            inside = [node for inner in statement.body for node in ast.walk(inner)]
            is_evaluation = any(isinstance(node, ast.Call) for node in inside) and _evaluates(scope)
            if not is_evaluation or any(isinstance(node, _LEAVES) for node in inside):
                return set()
            stored = {node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
            return stored if self._leaves_nothing(statement.body, 0) else set()
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            names = _names(statement.targets)
            return names if names and self._is_evaluation(statement.value) else set()
        return set()

    def _is_evaluation(self, call: ast.Call) -> bool:
        function = self._function_of(call)
        given = [node for one in (*call.args, *call.keywords) for node in ast.walk(one)]
        if function is None or any(isinstance(node, ast.Call) for node in given) or not _evaluates(function):
            return False
        blocks = [node for node in function.body if isinstance(node, ast.With)]
        is_guarded = any(map(_is_guard, function.decorator_list)) or any(map(_guards, blocks))
        return is_guarded and self._leaves_nothing(function.body, 0)

    def _function_of(self, call: ast.Call) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The only function of the file that can be meant."""
        is_own = isinstance(call.func, ast.Name) or (
            isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") == "self"
        )
        return self._functions.get(name_called(call)) if is_own else None

    def _leaves_nothing(self, body: Iterable[ast.stmt], depth: int) -> bool:
        nodes = [node for statement in body for node in ast.walk(statement)]
        own = {
            name
            for node in nodes
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.List | ast.Dict | ast.Set | ast.Constant)
            for name in _names(node.targets) or ()
        }
        return depth <= _DEEPEST and all(self._is_harmless(node, own, depth) for node in nodes)

    def _is_harmless(self, node: ast.AST, own: set[str], depth: int) -> bool:
        if isinstance(node, (*_INNER, *_SUSPENDS)):
            return False
        if isinstance(node, ast.Attribute | ast.Subscript):
            return isinstance(node.ctx, ast.Load)
        if isinstance(node, ast.AugAssign):
            return isinstance(node.target, ast.Name) and node.target.id in own
        return not isinstance(node, ast.Call) or self._is_harmless_call(node, own, depth)

    def _is_harmless_call(self, call: ast.Call, own: set[str], depth: int) -> bool:
        name, owner = name_called(call), getattr(getattr(call.func, "value", None), "id", "")
        if name in _COLLECTS:
            return owner in own
        if any(keyword.arg == "out" for keyword in call.keywords) or not name or name.endswith("_"):
            return False
        is_mathematics = name in _MATHEMATICS or (name == "log" and owner in ("torch", "math", "np", "F"))
        if name.startswith(_EFFECTS) and not is_mathematics:
            return False
        function = self._function_of(call)
        if function is not None:
            return self._leaves_nothing(function.body, depth + 1)
        if name in self._several and (not owner or owner == "self"):
            return False
        first = _first_name(call.func)
        return first not in self._imported or self._imported[first] in _LIBRARIES


def _find_use(scope: ast.AST, names: set[str], statement: ast.stmt, behind: list[ast.stmt]) -> RareUse | None:
    """Where the names are used, if that is under one such condition alone, behind the statement."""
    of_statement = {id(node) for node in ast.walk(statement)}
    uses = [node for node in ast.walk(scope)
            if isinstance(node, ast.Name) and node.id in names and id(node) not in of_statement]  # fmt: skip
    for after in behind:
        every = _period(after.test) if isinstance(after, ast.If) else None
        if every is None or not isinstance(after, ast.If):
            continue
        inside = {id(node) for inner in after.body for node in ast.walk(inner)}
        if uses and all(id(node) in inside and isinstance(node.ctx, ast.Load) for node in uses):
            return RareUse(statement.lineno, statement.end_lineno or statement.lineno, every, after.body[0].lineno)
    return None


def _period(test: ast.expr) -> int | None:
    """The ``n`` of a condition that holds at every n-th step at most, 0 where it is no number; None of another one."""
    if isinstance(test, ast.BoolOp):
        periods = [_period(one) for one in test.values]
        known = [one for one in periods if one is not None]
        if not known:
            return None
        if isinstance(test.op, ast.And):
            return max(known)
        rest = [one for one, period in zip(test.values, periods, strict=True) if period is None]
        return min(known) if all(_is_one_step(one) for one in rest) else None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _modulus(test.operand)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        return _modulus(test.left)
    return None


def _modulus(node: ast.expr) -> int | None:
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)) or isinstance(node.left, ast.Constant):
        return None
    if isinstance(node.right, ast.Constant):
        return node.right.value if isinstance(node.right.value, int) and node.right.value > 1 else None
    return 0


def _is_one_step(node: ast.expr) -> bool:
    """Whether a condition holds at one step, such as the last."""
    return isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq)


def _blocks(scope: ast.AST, node: ast.AST | None = None) -> Iterator[tuple[ast.AST, list[ast.stmt]]]:
    """The bodies of loops and functions, each with the function that it is in, or the module."""
    for child in ast.iter_child_nodes(node or scope):
        is_function = isinstance(child, _FUNCTIONS)
        if isinstance(child, (ast.For, ast.While, *_FUNCTIONS)):
            yield child if is_function else scope, child.body
        yield from _blocks(child) if is_function else _blocks(scope, child)


def _evaluates(scope: ast.AST) -> bool:
    """Whether a model is put into evaluation mode there."""
    calls = (node for node in ast.walk(scope) if isinstance(node, ast.Call))
    return any(isinstance(call.func, ast.Attribute) and call.func.attr == "eval" for call in calls)


def _names(targets: list[ast.expr]) -> set[str] | None:
    """What is assigned, where it is names alone."""
    parts = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    return names if len(names) == len(parts) else None


def _first_name(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _guards(statement: ast.With) -> bool:
    return any(_is_guard(item.context_expr) for item in statement.items)


def _is_guard(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else node
    return getattr(called, "attr", getattr(called, "id", "")) in _GUARDS
