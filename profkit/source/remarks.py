"""What the program's source says and a recording of a few steps cannot show, read off its syntax tree.

Where the number of threads is set, where DataLoaders are made, where objects come to refer to each other
(`review_cycles`), where data may become float64 (`review_doubles`), evaluations that are rarely used
(`review_evaluations`), and an evaluation that runs with autograd on. That comes once an epoch, long after the recorded
steps. Only what cannot be meant otherwise is remarked: a model is put into evaluation mode and then called in a loop;
up to where it is put back, nothing is differentiated, and neither the call nor any visible caller switches autograd
off.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from profkit.run import CallSite, Remark
from profkit.source.code import source_line
from profkit.source.doubles import double_makers
from profkit.source.evaluations import rarely_used
from profkit.source.reference_cycles import closed_cycles, returns_what_holds_its_object
from profkit.source.remark_kinds import (
    ANOMALY_MODE_SET,
    CYCLE_CLOSED,
    DOUBLES_ASKED_FOR,
    DOUBLES_BY_DEFAULT,
    DOUBLES_MADE,
    EVALUATION_WITH_GRAD,
    LOADER_MADE,
    RARELY_USED,
    THREADS_SET,
)
from profkit.source.settings import anomaly_mode_setters

_MOST_FILES = 100
_MOST_CHARACTERS = 1 << 20
_Scope = tuple[str, ast.AST, Mapping[str, bool]]
_CALLS = {THREADS_SET: "set_num_threads", LOADER_MADE: "DataLoader"}
_LINES: Mapping[str, Callable[[ast.Module], Iterable[int]]] = {
    ANOMALY_MODE_SET: anomaly_mode_setters,
    DOUBLES_BY_DEFAULT: lambda tree: double_makers(tree).by_default,
    DOUBLES_ASKED_FOR: lambda tree: double_makers(tree).asked_for,
    DOUBLES_MADE: lambda tree: double_makers(tree).taken,
}
"""What is found in a whole file, wherever the line stands."""
_MOST_REMARKS = 100
"""Of one kind."""
_GUARDS = frozenset(("inference_mode", "no_grad", "set_grad_enabled"))
_DIFFERENTIATES = frozenset(("backward", "grad", "jacrev", "vjp"))
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, slots=True)
class _Call:
    """``model.eval()`` is a call of ``eval`` on ``model``, ``model(x)`` one of nothing on ``model``."""

    line: int
    target: str
    method: str
    guarded: bool
    in_loop: bool


def user_sources(is_user: Callable[[str], bool]) -> list[str]:
    """The files of the user's modules that are loaded now."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return [file for file in dict.fromkeys(files) if isinstance(file, str) and is_user(file)][:_MOST_FILES]


def review_sources(files: Iterable[str]) -> tuple[Remark, ...]:
    """Remarks on the given files; what cannot be read or is no Python is passed over."""
    trees = {file: tree for file in files if (tree := _parse(file)) is not None}
    all_scopes = {file: list(_scopes(tree)) for file, tree in trees.items()}
    scopes = [(file, name, _calls(node)) for file, inside in all_scopes.items() for name, node, _ in inside]
    silenced = {call.target.rpartition(".")[2] for *_, calls in scopes for call in calls if call.guarded}
    found = {
        EVALUATION_WITH_GRAD: [
            (file, name, line)
            for file, name, calls in scopes
            if name.rpartition(".")[2] not in silenced
            for line in _evaluations(calls)
        ],
        **{
            kind: [(file, name, call.line) for file, name, calls in scopes for call in calls if _is_of(call, called)]
            for kind, called in _CALLS.items()
        },
        CYCLE_CLOSED: [
            (file, name, line)
            for file, inside in all_scopes.items()
            for name, node, methods in inside
            for line in closed_cycles(node, methods)
        ],
        **{
            kind: [(file, _name_at(all_scopes[file], at), at) for file, tree in trees.items() for at in find(tree)]
            for kind, find in _LINES.items()
        },
    }
    rare = [
        Remark(RARELY_USED, _site(file, name, use.line), use.until, use.used_at, use.every)
        for file, tree in trees.items()
        for use in rarely_used(tree)
        for name in [_name_at(all_scopes[file], use.line)]
    ]
    plain = (Remark(kind, _site(*place)) for kind, places in found.items() for place in places[:_MOST_REMARKS])
    return (*plain, *rare[:_MOST_REMARKS])


def _site(file: str, name: str, line: int) -> CallSite:
    return CallSite(file, line, name, source_line(file, line))


def _is_of(call: _Call, name: str) -> bool:
    """Whether it is ``name(...)`` or ``module.name(...)``."""
    return not call.method and call.target.rpartition(".")[2] == name


def _parse(file: str) -> ast.Module | None:
    text = "".join(linecache.getlines(file))
    if not text or len(text) > _MOST_CHARACTERS:
        return None
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _scopes(tree: ast.Module) -> Iterator[_Scope]:
    """The module and its functions and methods, with their names as a traceback gives them, and for a method all those
    of its class, as `closed_cycles` wants them."""
    waiting: list[_Scope] = [("<module>", tree, {})]
    while waiting:
        name, node, siblings = waiting.pop(0)
        children = list(_definitions(node))
        if isinstance(node, ast.ClassDef):
            siblings = {child.name: returns_what_holds_its_object(child) for child in children}
        else:
            yield name, node, siblings
            siblings = {}
        prefix = "" if name == "<module>" else f"{name}." if isinstance(node, ast.ClassDef) else f"{name}.<locals>."
        waiting += [(prefix + child.name, child, siblings) for child in children]


def _name_at(scopes: Iterable[_Scope], line: int) -> str:
    """The name of the innermost function around a line."""
    around = [(node.lineno, name) for name, node, _ in scopes
              if isinstance(node, _FUNCTIONS) and node.lineno <= line <= (node.end_lineno or node.lineno)]  # fmt: skip
    return max(around, default=(0, "<module>"))[1]


def _definitions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """The functions and classes of a scope itself."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
            yield child
        else:
            yield from _definitions(child)


def _calls(scope: ast.AST) -> list[_Call]:
    """The calls that a scope itself makes, in the order of the source."""
    decorators = getattr(scope, "decorator_list", [])
    guarded = any(_guards(decorator) for decorator in decorators)
    body = getattr(scope, "body", [])
    found = [call for statement in body for call in _walk(statement, guarded, in_loop=False)]
    return sorted(found, key=lambda call: call.line)


def _walk(node: ast.AST, guarded: bool, in_loop: bool) -> Iterator[_Call]:
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
        return
    if isinstance(node, (ast.With, ast.AsyncWith)):
        guarded = guarded or any(_guards(item.context_expr) for item in node.items)
    if isinstance(node, ast.Call):
        yield _describe(node, guarded, in_loop)
    in_loop = in_loop or isinstance(node, _LOOPS)
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
    """``self.model.eval`` of its syntax tree; empty for what is no chain of names."""
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
    """The lines at which a model in evaluation mode is called in a loop; the first of each evaluation."""
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
