"""Results that the source reads under a condition only, although each step computes them.

As for evaluations (`profkit.source.evaluations.rarely_used`), only what the text proves counts: a call, of whatever
kind, that leaves nothing behind, and whose names are used nowhere else. The condition may ask for every n-th step. Of
any other condition, nothing may happen between the call and it: else it may be asked of what the call has saved, as
weights are that a failed step gets back.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from profkit.source.evaluations.rarely_used import RareUse, blocks_of, find_use, rarely_used
from profkit.source.side_effects import SideEffects
from profkit.source.syntax import only_names


def rarely_read(tree: ast.Module) -> Iterator[RareUse]:
    """All of them in one file, but for evaluations."""
    effects = SideEffects(tree)
    shared = {name for node in ast.walk(tree) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    known = {use.line for use in rarely_used(tree)}
    for scope, block in blocks_of(tree):
        for place, statement in enumerate(block):
            names = _computed(statement, effects) - {"_"}
            if not names or statement.lineno in known or not names.isdisjoint(shared):
                continue
            behind = block[place + 1 :]
            harmless = next((n for n, one in enumerate(behind) if not effects.leaves_nothing([one])), len(behind))
            use = find_use(scope, names, statement, behind) or find_use(
                scope, names, statement, behind[: harmless + 1], may_be_any=True
            )
            if use is not None:
                yield use


def _computed(statement: ast.stmt, effects: SideEffects) -> set[str]:
    """The names to which the statement assigns what a call returns that leaves nothing behind."""
    if not isinstance(statement, ast.Assign) or not any(
        isinstance(node, ast.Call) for node in ast.walk(statement.value)
    ):
        return set()
    names = only_names(statement.targets)
    return names if names and effects.leaves_nothing([statement]) else set()
