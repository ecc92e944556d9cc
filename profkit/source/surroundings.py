"""What surrounds a line in its function: the loops it is in, and whether it belongs to an evaluation."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType

from msgspec import Struct

from profkit.source.index import Function, parsed_file
from profkit.source.syntax import (
    FUNCTIONS,
    calls_named,
    last_name,
    name_called,
    runs_without_autograd,
    switches_autograd_off,
)

_EVALUATING = frozenset(
    (
        *("acc", "accuracy", "correct", "eval", "evaluate", "evaluation", "infer", "inference", "metric", "metrics"),
        *("predict", "prediction", "predictions", "score", "test", "valid", "validate", "validation"),
    )
)
"""Words in names of evaluations. ``val`` is missing on purpose: agents call their value function so."""
_WORD = re.compile("[a-z]+")
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_MOST_FILES = 128
"""As many as are kept parsed (`profkit.source.index`)."""


class Surroundings(Struct, frozen=True):
    """``loop`` is the first line of the innermost loop, 0 if there is none. ``evaluates`` says that the line is in an
    evaluation: a function that puts a model into evaluation mode and calls no ``backward``, a block without autograd
    after a model was put into that mode beside it, or a block or function without autograd whose names say so.
    ``without_gradients`` says that it is in another block or function without autograd, such as a rollout. ``trains``
    says that the innermost loop or function that holds a call of ``backward`` is around the line: a loop around that
    one holds epochs."""

    loop: int = 0
    evaluates: bool = False
    trains: bool = False
    without_gradients: bool = False


_NOTHING = Surroundings()


def surroundings_of(path: str, line: int) -> Surroundings:
    """What surrounds the line; nothing is known of a file that cannot be parsed."""
    return _surroundings_in(path).get(line, _NOTHING)


def loops_around(path: str, line: int) -> tuple[tuple[int, int], ...]:
    """The first and last lines of the loops around the line in its function, the outermost first."""
    file = parsed_file(path)
    if file is None:
        return ()
    scope = max(
        (node for node in ast.walk(file.tree) if isinstance(node, FUNCTIONS) and _is_around(node, line)),
        key=lambda node: node.lineno,
        default=file.tree,
    )
    loops = (node for node in ast.walk(scope) if isinstance(node, _LOOPS) and _is_around(node, line))
    return tuple(sorted((loop.lineno, loop.end_lineno or loop.lineno) for loop in loops))


def _is_around(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


@lru_cache(maxsize=_MOST_FILES)
def _surroundings_in(path: str) -> Mapping[int, Surroundings]:
    """By line, of those that anything surrounds."""
    file, found = parsed_file(path), dict[int, Surroundings]()
    if file is not None:
        training = frozenset(function.name for function in file.functions if _trains(function))
        found.update((line, around) for line, around in _walk(file.tree, _NOTHING, training) if around != _NOTHING)
    return MappingProxyType(found)


def forget_surroundings() -> None:
    """Drop what was read of files."""
    _surroundings_in.cache_clear()


def _walk(
    node: ast.AST, around: Surroundings, training: frozenset[str], *, in_mode: bool = False
) -> Iterator[tuple[int, Surroundings]]:
    """Each line of the statements below with what surrounds it; the inner ones come later. ``training`` are the names
    of functions that call ``backward``. A model is ``in_mode`` once a statement of the same block has put it into
    evaluation mode; a teacher that was put into it before the loop is not evaluated there."""
    for child in ast.iter_child_nodes(node):
        inner, in_mode = around, _mode_after(child, in_mode)
        if isinstance(child, FUNCTIONS):
            evaluates, without = _is_evaluation(child), any(map(switches_autograd_off, child.decorator_list))
            inner = Surroundings(0, evaluates, _trains(child, training), without and not evaluates)
        elif isinstance(child, _LOOPS):
            trains = around.trains or _trains(child, training)
            inner = Surroundings(child.lineno, around.evaluates, trains, around.without_gradients)
        elif isinstance(child, (ast.With, ast.AsyncWith)) and runs_without_autograd(child):
            evaluates = around.evaluates or _says_so(child) or (in_mode and not around.trains)
            inner = Surroundings(around.loop, evaluates, around.trains, not evaluates)
        if isinstance(child, ast.stmt):
            yield from ((line, inner) for line in range(child.lineno, (child.end_lineno or child.lineno) + 1))
        yield from _walk(child, inner, training, in_mode=in_mode and isinstance(child, (ast.With, ast.AsyncWith)))


def _mode_after(statement: ast.AST, in_mode: bool) -> bool:
    """Whether a model is in evaluation mode after ``model.eval()``, ``model.train()`` or another statement."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return in_mode
    switches_off = any(isinstance(one, ast.Constant) and one.value is False for one in call.args)
    return {"eval": not call.args, "train": switches_off}.get(call.func.attr, in_mode)


def _is_evaluation(function: Function) -> bool:
    if calls_named(function, "backward"):
        return False
    without = [node for node in ast.walk(function) if isinstance(node, (ast.With, ast.AsyncWith))]
    is_ungraded = any(map(switches_autograd_off, function.decorator_list)) or any(map(runs_without_autograd, without))
    return bool(calls_named(function, "eval")) or (is_ungraded and _is_telling(function.name))


def _says_so(block: ast.With | ast.AsyncWith) -> bool:
    """Whether a name in the block says that it evaluates: what it calls, or what it assigns."""
    inside = (node for statement in block.body for node in ast.walk(statement))
    names = (name for node in inside if (name := _name_of(node)))
    return any(map(_is_telling, names))


def _name_of(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_telling(name: str) -> bool:
    return any(part in _EVALUATING for part in _WORD.findall(name.lower()))


def _trains(node: ast.AST, training: frozenset[str] = frozenset()) -> bool:
    """Whether ``backward`` is called there, or one of these functions, outside of loops and functions inside."""
    waiting = list(ast.iter_child_nodes(node))
    while waiting:
        child = waiting.pop()
        if isinstance(child, ast.Call) and (name_called(child) == "backward" or _own_name(child) in training):
            return True
        if not isinstance(child, (*_LOOPS, *FUNCTIONS)):
            waiting += ast.iter_child_nodes(child)
    return False


def _own_name(call: ast.Call) -> str:
    """``f`` of ``f(x)`` and of ``self.f(x)``; empty for a method of another object, as ``scheduler.step()``."""
    function = call.func
    is_of_other = isinstance(function, ast.Attribute) and last_name(function.value) != "self"
    return "" if is_of_other else last_name(function)
