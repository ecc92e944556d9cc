"""What nodes of a syntax tree are called, and lines as statements."""

from __future__ import annotations

import ast


def name_called(call: ast.Call) -> str:
    """``f`` of ``f(x)`` and of ``a.b.f(x)``; empty for what is called without a name."""
    return last_name(call.func)


def last_name(node: ast.AST) -> str:
    """``model`` of ``model`` and of ``self.model``; empty for anything else."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


def parse_line(line: str) -> ast.stmt | None:
    """One line as a statement; heads of loops get an empty body, pieces of comprehensions become heads."""
    text = line.strip().rstrip(",")
    for candidate in (text, f"{text}\n pass", f"{text}: pass", text.rstrip("])},"), text.lstrip("[({")):
        try:
            parsed = ast.parse(candidate)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if parsed.body:
            return parsed.body[0]
    return None
