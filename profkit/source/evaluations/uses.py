"""Where names are used in a function or module. A scope is walked once, however many names are asked for."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable


class Uses:
    """The uses of names by scope."""

    def __init__(self) -> None:
        self._by_scope: dict[ast.AST, defaultdict[str, list[ast.Name]]] = {}

    def of(self, scope: ast.AST, names: Iterable[str]) -> list[ast.Name]:
        """All places of the scope that read or assign one of the names."""
        known = self._by_scope.get(scope)
        if known is None:
            known = self._by_scope[scope] = defaultdict(list)
            for node in ast.walk(scope):
                if isinstance(node, ast.Name):
                    known[node.id].append(node)
        return [node for name in names for node in known.get(name, ())]
