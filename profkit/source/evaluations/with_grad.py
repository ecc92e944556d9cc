"""Evaluations that run with autograd on, by the syntax trees of all of the program's files.

Only what cannot mean anything else counts. A model is put into evaluation mode and then called in a loop; until it is
put back nothing is differentiated, and neither the call nor any visible caller switches autograd off.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from profkit.source.index import SourceFile
from profkit.source.syntax import LOOPS

_GUARDS = frozenset(("inference_mode", "no_grad", "set_grad_enabled"))
_DIFFERENTIATES = frozenset(("backward", "grad", "jacrev", "vjp"))
_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@dataclass(frozen=True, slots=True)
class _Call:
    """``model.eval()`` calls ``eval`` on ``model``; ``model(x)`` calls nothing (empty ``method``) on ``model``."""

    line: int
    target: str
    method: str
    guarded: bool
    in_loop: bool


def evaluations_with_grad(files: Iterable[SourceFile]) -> Iterator[tuple[SourceFile, int]]:
    """The files and lines where such a model is called."""
    scopes = [(file, scope.name, _calls(scope.node)) for file in files for scope in file.scopes if not scope.is_class]
    silenced = {call.target.rpartition(".")[2] for *_, calls in scopes for call in calls if call.guarded}
    for file, name, calls in scopes:
        if name.rpartition(".")[2] not in silenced:
            yield from ((file, line) for line in _evaluations(calls))


def _calls(scope: ast.AST) -> list[_Call]:
    """The calls that a scope itself makes, in the order of the source."""
    decorators = getattr(scope, "decorator_list", [])
    guarded = any(_guards(decorator) for decorator in decorators)
    body = getattr(scope, "body", [])
    found = [call for statement in body for call in _walk(statement, guarded, in_loop=False)]
    return sorted(found, key=lambda call: call.line)


def _walk(node: ast.AST, guarded: bool, in_loop: bool) -> Iterator[_Call]:
    if isinstance(node, _INNER):
        return
    if isinstance(node, (ast.With, ast.AsyncWith)):
        guarded = guarded or any(_guards(item.context_expr) for item in node.items)
    if isinstance(node, ast.Call):
        yield _describe(node, guarded, in_loop)
    in_loop = in_loop or isinstance(node, LOOPS)
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, guarded, in_loop)


def _describe(node: ast.Call, guarded: bool, in_loop: bool) -> _Call:
    name = _dotted(node.func)
    owner, _, method = name.rpartition(".")
    switches = method in ("eval", "train") and not node.keywords and len(node.args) <= (method == "train")
    if switches and node.args:
        method = {True: "train", False: "eval"}.get(getattr(node.args[0], "value", None), "unknown")  # type: ignore[arg-type]  # any constant
    if switches or method in _DIFFERENTIATES | _GUARDS | {"requires_grad_", "forward"}:
        return _Call(node.lineno, owner, method, guarded, in_loop)
    return _Call(node.lineno, name, "", guarded, in_loop)


def _dotted(node: ast.AST) -> str:
    """``self.model.eval`` of its syntax tree; empty if it is not a chain of names."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value)
        return f"{owner}.{node.attr}" if owner else f"?.{node.attr}"
    return ""


def _guards(node: ast.AST) -> bool:
    """Whether an expression names one of the ways to switch autograd off."""
    return any(_dotted(part).rpartition(".")[2] in _GUARDS for part in ast.walk(node))


def _evaluations(calls: list[_Call]) -> Iterator[int]:
    """The lines at which a model in evaluation mode is called in a loop; only the first of each evaluation."""
    if any(call.method in ("requires_grad_", *_GUARDS) and not call.guarded for call in calls):
        return  # autograd, or the parameters' part in it, is switched by hand
    for at, begin in enumerate(calls):
        if begin.method != "eval" or not begin.target or begin.target.startswith("?"):
            continue
        after = calls[at + 1 :]
        ends = (i for i, call in enumerate(after) if call.method == "train" and call.target == begin.target)
        during = after[: next(ends, len(after))]
        if any(call.method in _DIFFERENTIATES for call in during):
            continue
        runs = (call for call in during if call.target == begin.target and call.method in ("", "forward"))
        first = next((call for call in runs if call.in_loop or len(during) < len(after)), None)
        if first is not None and not first.guarded:
            yield first.line
