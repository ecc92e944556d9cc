"""The names of nodes of a syntax tree, and single lines as statements."""

from __future__ import annotations

import ast
import copy
import threading
from collections.abc import Iterable, Iterator
from types import FrameType

from profkit.core.other_threads import FramesOfThreads

Parts = tuple[str, ...]
"""A name, its attributes and its items: ``("self", ".history")``, ``("stats", "['loss']")``."""
ANY_ITEM = "[*]"
"""An item of a container whose keys are not names."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
LEAVES = (ast.Return, ast.Break, ast.Continue, ast.Raise)
"""What leaves a loop or a function before its end."""
_WITHOUT_AUTOGRAD = frozenset(("no_grad", "inference_mode"))
_CLOSERS = {"(": ")", "[": "]", "{": "}"}
_TRIES, _WAIT_S = 200, 0.005
_NEVER = threading.Event()
"""To wait for a while: a program may have put its own function in place of `time.sleep`."""


def parse(text: str) -> ast.Module:
    """`ast.parse`, not at the same time as another thread's.

    Python counts how deep a tree is in one place for all threads, up to 3.12. If its garbage collector changes threads
    within a parse and the other thread parses too, the first one fails with a SystemError
    (https://github.com/python/cpython/issues/106905). So this waits for others, and tries again if they did not wait.
    Raises what `ast.parse` does.
    """
    for _ in range(_TRIES):
        if _others_parse():
            _NEVER.wait(_WAIT_S)
            continue
        try:
            return ast.parse(text)
        except SystemError:
            continue
    raise SyntaxError("other threads parse all the time")


def _others_parse() -> bool:
    """Whether another thread is within `ast.parse`."""
    with FramesOfThreads() as innermost:
        for thread, running in innermost.items():
            frame: FrameType | None = running if thread != threading.get_ident() else None
            while frame is not None:
                if frame.f_code is ast.parse.__code__:
                    return True
                frame = frame.f_back
    return False


def name_called(call: ast.Call) -> str:
    """``f`` of ``f(x)`` and of ``a.b.f(x)``; empty if what is called has no name."""
    return last_name(call.func)


def last_name(node: ast.AST) -> str:
    """``model`` of ``model`` and of ``self.model``; empty for anything else."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


def switches_autograd_off(node: ast.expr) -> bool:
    """Whether a decorator, or what a ``with`` enters, is ``no_grad`` or ``inference_mode``, called or not."""
    return last_name(node.func if isinstance(node, ast.Call) else node) in _WITHOUT_AUTOGRAD


def runs_without_autograd(block: ast.With | ast.AsyncWith) -> bool:
    """Whether one of the things that the block enters switches autograd off."""
    return any(switches_autograd_off(item.context_expr) for item in block.items)


def flat_targets(targets: Iterable[ast.expr]) -> Iterator[ast.expr]:
    """What an assignment to these targets gives values to: ``a``, ``b`` and ``c`` of ``a, (b, *c) = …``."""
    for target in targets:
        if isinstance(target, (ast.Tuple, ast.List)):
            yield from flat_targets(target.elts)
        else:
            yield target.value if isinstance(target, ast.Starred) else target


def only_names(targets: Iterable[ast.expr]) -> set[str] | None:
    """The names to which an assignment gives values; None if it assigns to anything else."""
    parts = list(flat_targets(targets))
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    return names if all(isinstance(part, ast.Name) for part in parts) else None


def identifiers(node: ast.AST) -> set[str]:
    """All names and attributes in a part of the tree."""
    return {last_name(part) for part in ast.walk(node)} - {""}


def parts_of(node: ast.AST) -> Parts:
    """``stats['loss']`` → ``("stats", "['loss']")``; empty for anything but a name with attributes and items."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        inner = parts_of(node.value)
        return (*inner, f".{node.attr}") if inner else ()
    if isinstance(node, ast.Subscript):
        inner = parts_of(node.value)
        key = node.slice
        known = isinstance(key, ast.Constant) and isinstance(key.value, str)
        return (*inner, f"[{key.value!r}]" if known else ANY_ITEM) if inner else ()  # type: ignore[attr-defined]  # known
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setdefault":
        inner = parts_of(node.func.value)
        return (*inner, ANY_ITEM) if inner else ()
    return ()


def parse_line(line: str) -> ast.stmt | None:
    """One line as a statement, the first if there are more. The head of a loop gets an empty body; a piece of a
    comprehension becomes a head."""
    return next(iter(_parse(line)), None)


def parse_statements(line: str) -> list[ast.stmt]:
    """All statements on one line, such as `for b in blocks: x = b(x)` or `a = f(x); b = g(a)`: each compound one with
    an empty body, followed by those of its body. Empty if the line is none."""
    return [part for statement in _parse(line) for part in _flat(statement)]


def _parse(line: str) -> list[ast.stmt]:
    text = line.strip().rstrip(",")
    for candidate in (text, f"{text}\n pass", f"{text}: pass", text.rstrip("])},"), text.lstrip("[({")):
        try:
            parsed = parse(candidate)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if parsed.body:
            return parsed.body
    return []


def _flat(statement: ast.stmt) -> Iterator[ast.stmt]:
    body = getattr(statement, "body", None)
    if not isinstance(body, list) or all(isinstance(inner, ast.Pass) for inner in body):
        yield statement
        return
    head = copy.copy(statement)
    head.body = [ast.copy_location(ast.Pass(), statement)]  # type: ignore[attr-defined]  # it has one
    yield head
    for inner in body:
        yield from _flat(inner)


def parse_piece(line: str) -> ast.stmt | None:
    """The same for a line that may end inside brackets, with the statement going on in the next line."""
    return parse_line(line.strip() + closing_brackets(line))


def calls_named(tree: ast.AST, name: str) -> list[ast.Call]:
    """The calls ``name(...)`` and ``module.name(...)`` in a tree."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and name_called(node) == name]


def calls(line: str, function: str) -> bool:
    """Whether a line, or the part of a statement on it, calls a function of this name, with or without a module's."""
    statement = parse_piece(line) if function in line else None
    return statement is not None and bool(calls_named(statement, function))


def switched_on(line: str) -> list[frozenset[str]]:
    """For each call with a name in a line, the keywords that it sets to True."""
    statement = parse_piece(line)
    called = (node for node in ast.walk(statement) if isinstance(node, ast.Call)) if statement else ()
    return [
        frozenset(one.arg for one in call.keywords if one.arg and _is_true(one)) for call in called if name_called(call)
    ]


def _is_true(given: ast.keyword) -> bool:
    return isinstance(given.value, ast.Constant) and given.value.value is True


def closing_brackets(text: str) -> str:
    """What closes the brackets that are open at the end of a text."""
    expected: list[str] = []
    for character in text:
        if character in _CLOSERS:
            expected.append(_CLOSERS[character])
        elif expected and character == expected[-1]:
            expected.pop()
    return "".join(reversed(expected))
