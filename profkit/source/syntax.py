"""What nodes of a syntax tree are called."""

from __future__ import annotations

import ast


def name_called(call: ast.Call) -> str:
    """``f`` of ``f(x)`` and of ``a.b.f(x)``; empty for what is called without a name."""
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))
