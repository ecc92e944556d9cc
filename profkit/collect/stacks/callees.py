"""What a line of the program calls, by the frames below it and by its text."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from profkit.source.index import parsed_file

_PASSING_ON = frozenset(
    {"_wrapped_call_impl", "_call_impl", "decorate_context", "wrapper", "inner", "_fn", "wrapped", "decorated"}
)
"""Functions that only call another one for their caller, by the last part of their names: of `torch.nn.Module`, and
what decorators are usually called."""
_CHEAP = frozenset(
    {"len", "range", "enumerate", "zip", "isinstance", "int", "float", "bool", "getattr", "hasattr", "id", "type"}
)
"""Built-in functions that take no time to speak of: not what a slow line calls."""
_MOST_LINES = 4096
"""Kept with the parts of their trees: as many as a program has hot lines, and more."""
_MOST_NAME = 80
"""Characters. A message has to stay readable; names of real functions are shorter."""


class Frame(NamedTuple):
    """A call on a stack: the function's qualified name, its file and the line it is at."""

    name: str
    file: str
    line: int


def name_callee(file: str, line: int, below: Sequence[Frame]) -> str:
    """What the line calls that takes the time, such as ``json.loads``, ``frame.iloc[…]`` or ``Image.resize``: the
    outermost of the frames ``below`` the line, or the line's only call if there is none, as of functions written in C.
    Empty if neither tells."""
    called = next((frame for frame in below if _last(frame.name) not in _PASSING_ON), None)
    if called is None:
        texts = set(_calls(file, line))
        return texts.pop() if len(texts) == 1 else ""
    last = _last(called.name)
    if last in ("__getitem__", "__setitem__"):
        texts = {_dotted(node.value) for node in _nodes(file, line) if isinstance(node, ast.Subscript)} - {""}
        if len(texts) == 1:
            return _item_of(texts.pop())
    module = _module(called.file)
    texts = {text for text in _calls(file, line) if _last(text) == last}
    if len(texts) == 1 and (text := next(iter(texts))).split(".")[0] == module:
        return text
    return (called.name if "." in called.name else f"{module}.{called.name}" if module else called.name)[:_MOST_NAME]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _module(file: str) -> str:
    """``json`` for ``…/json/__init__.py``, ``copy`` for ``…/copy.py``, ``pandas`` for any file of an installed
    package."""
    parts = file.removesuffix(".py").split(os.sep)
    if "site-packages" in parts[:-1]:
        return parts[parts.index("site-packages") + 1]
    return parts[-2] if parts[-1] == "__init__" and len(parts) > 1 else parts[-1]


def _calls(file: str, line: int) -> Iterator[str]:
    """The functions that the line calls, as written: ``np.sort``, ``self.tokenizer.get_vocab``."""
    for node in _nodes(file, line):
        if isinstance(node, ast.Call) and (text := _dotted(node.func)) and text not in _CHEAP:
            yield text[:_MOST_NAME]


@lru_cache(maxsize=_MOST_LINES)
def _nodes(file: str, line: int) -> tuple[ast.AST, ...]:
    """The parts of the syntax tree that the line belongs to. Hundreds of stacks end at one line."""
    source = parsed_file(file)
    nodes = ast.walk(source.tree) if source is not None else ()
    return tuple(node for node in nodes if getattr(node, "lineno", 0) <= line <= (getattr(node, "end_lineno", 0) or 0))


def _dotted(node: ast.AST) -> str:
    """``a.b.c``, and ``….c`` of what is no name; empty without any name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value) or '…'}.{node.attr}"
    return ""


def _item_of(text: str) -> str:
    return f"{'.'.join(text.split('.')[-2:])}[…]"[:_MOST_NAME]
