"""Where hooks are registered, and which lines each of them has, by the syntax tree of one file."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from profkit.source.index import SourceFile
from profkit.source.syntax import FUNCTIONS, last_name, name_called

_MADE_ONCE = ("__init__", "<module>")
"""What is registered in a constructor comes once for each object."""


def hook_registrations(file: SourceFile) -> Iterator[tuple[int, int, int]]:
    """The lines at which a function registers a hook of this file, other than a constructor; each with the hook's first
    and last line."""
    for call in ast.walk(file.tree):
        if not isinstance(call, ast.Call) or not call.args or not _registers(call):
            continue
        if file.function_at(call.lineno).split(".")[-1] not in _MADE_ONCE:
            yield from ((call.lineno, *lines) for lines in _lines_of(call.args[0], file.tree))


def _registers(call: ast.Call) -> bool:
    """PyTorch's names: ``register_hook``, ``register_forward_hook``, ``register_full_backward_pre_hook`` …"""
    name = name_called(call)
    return name.startswith("register_") and name.endswith("hook")


def _lines_of(hook: ast.expr, tree: ast.AST) -> Iterator[tuple[int, int]]:
    if isinstance(hook, ast.Call) and name_called(hook) == "partial" and hook.args:
        hook = hook.args[0]
    if isinstance(hook, ast.Lambda):
        yield hook.lineno, hook.end_lineno or hook.lineno
    elif name := last_name(hook):
        for node in ast.walk(tree):
            if isinstance(node, FUNCTIONS) and getattr(node, "name", "") == name:
                yield node.lineno, node.end_lineno or node.lineno
