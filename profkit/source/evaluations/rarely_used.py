"""Evaluations whose results the source uses at only a few of the steps that compute them.

Only what the text proves counts. A statement assigns what an evaluation returns, or is a block without autograd that
holds one. The names that it assigns are used nowhere in their scope except under an ``if`` after it in the same block,
whose condition asks for every n-th step (``epoch % 20 == 0``). The evaluation itself puts the model into evaluation
mode, switches autograd off, and leaves nothing behind (`profkit.source.side_effects`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from profkit.source.side_effects import SideEffects
from profkit.source.syntax import FUNCTIONS, LEAVES, only_names, runs_without_autograd, switches_autograd_off


@dataclass(frozen=True, slots=True)
class RareUse:
    """An evaluation from ``line`` to ``until``, used at ``used_at`` every ``every`` steps; 0 if that is not a
    number."""

    line: int
    until: int
    every: int
    used_at: int


def rarely_used(tree: ast.Module) -> Iterator[RareUse]:
    """All of them in one file."""
    effects = SideEffects(tree)
    if effects.models_may_keep_what_they_get():
        return
    shared = {name for node in ast.walk(tree) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    for scope, block in blocks_of(tree):
        for place, statement in enumerate(block):
            names = _evaluated(statement, scope, effects) - {"_"}
            if names and names.isdisjoint(shared):
                use = _find_use(scope, names, statement, block[place + 1 :])
                if use is not None:
                    yield use


def _evaluated(statement: ast.stmt, scope: ast.AST, effects: SideEffects) -> set[str]:
    """The names to which the statement assigns results of an evaluation that leaves nothing else behind."""
    if isinstance(statement, ast.With) and runs_without_autograd(statement):
        inside = [node for inner in statement.body for node in ast.walk(inner)]
        is_evaluation = any(isinstance(node, ast.Call) for node in inside) and _evaluates(scope)
        if not is_evaluation or any(isinstance(node, LEAVES) for node in inside):
            return set()
        stored = {node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        return stored if effects.leaves_nothing(statement.body) else set()
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
        names = only_names(statement.targets)
        return names if names and _is_evaluation(statement.value, effects) else set()
    return set()


def _is_evaluation(call: ast.Call, effects: SideEffects) -> bool:
    function = effects.function_called(call)
    given = [node for one in (*call.args, *call.keywords) for node in ast.walk(one)]
    if function is None or any(isinstance(node, ast.Call) for node in given) or not _evaluates(function):
        return False
    blocks = [node for node in function.body if isinstance(node, ast.With)]
    is_guarded = any(map(switches_autograd_off, function.decorator_list)) or any(map(runs_without_autograd, blocks))
    return is_guarded and effects.leaves_nothing(function.body)


def _find_use(scope: ast.AST, names: set[str], statement: ast.stmt, behind: list[ast.stmt]) -> RareUse | None:
    """Where the names are used, if all uses are under one such condition after the statement."""
    of_statement = {id(node) for node in ast.walk(statement)}
    uses = [
        node
        for node in ast.walk(scope)
        if isinstance(node, ast.Name) and node.id in names and id(node) not in of_statement
    ]
    for after in behind:
        every = period_of(after.test) if isinstance(after, ast.If) else None
        if every is None or not isinstance(after, ast.If):
            continue
        inside = {id(node) for inner in after.body for node in ast.walk(inner)}
        if uses and all(id(node) in inside and isinstance(node.ctx, ast.Load) for node in uses):
            return RareUse(statement.lineno, statement.end_lineno or statement.lineno, every, after.body[0].lineno)
    return None


def period_of(test: ast.expr) -> int | None:
    """The ``n`` of a condition that holds at most at every n-th step, 0 if it is not a number; None for any other
    condition."""
    if isinstance(test, ast.BoolOp):
        periods = [period_of(one) for one in test.values]
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
    """Whether a condition holds at a single step, such as the last."""
    return isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq)


def blocks_of(scope: ast.AST, node: ast.AST | None = None) -> Iterator[tuple[ast.AST, list[ast.stmt]]]:
    """The bodies of loops and functions, each with the function or module that it is in."""
    for child in ast.iter_child_nodes(node or scope):
        is_function = isinstance(child, FUNCTIONS)
        if isinstance(child, (ast.For, ast.While, *FUNCTIONS)):
            yield child if is_function else scope, child.body
        yield from blocks_of(child) if is_function else blocks_of(scope, child)


def _evaluates(scope: ast.AST) -> bool:
    """Whether a model is put into evaluation mode there."""
    calls = (node for node in ast.walk(scope) if isinstance(node, ast.Call))
    return any(isinstance(call.func, ast.Attribute) and call.func.attr == "eval" for call in calls)
