"""Results that the source reads under a condition only, although each step computes them.

As for evaluations (`profkit.source.evaluations.rarely_used`), only what the text proves counts: a call, of whatever
kind, that leaves nothing behind, and whose names are used nowhere else. The condition may ask for every n-th step. Of
any other condition, nothing may happen between the call and it: else it may be asked of what the call has saved, as
weights are that a failed step gets back. What only such a call reads is as seldom needed: the answers behind a metric.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from profkit.source.evaluations.rarely_used import RareUse, blocks_of, period_of, rarely_used
from profkit.source.evaluations.uses import Uses
from profkit.source.side_effects import SideEffects
from profkit.source.syntax import only_names

_NEAR = 8
"""Statements between a call and a condition that belong together: more are seldom all without effect."""


def rarely_read(tree: ast.Module) -> Iterator[RareUse]:
    """All of them in one file, but for evaluations."""
    effects, uses = SideEffects(tree), Uses()
    shared = {name for node in ast.walk(tree) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    known = {use.line for use in rarely_used(tree)}
    for scope, block in blocks_of(tree):
        conditions = {place: one for place, one in enumerate(block) if isinstance(one, ast.If)}
        under = {id(part): place for place, one in conditions.items() for part in _parts(one.body)}
        found = []
        for place, statement in reversed([*enumerate(block)] if under else []):
            names = _assigned(statement) - {"_"}
            if not names or statement.lineno in known or not names.isdisjoint(shared):
                continue
            used = _used_under(uses.of(scope, names), statement, under)
            if used > place and effects.leaves_nothing([statement]):
                every = period_of(conditions[used].test)
                if every is not None or _is_quiet(block[place + 1 : used], effects):
                    until, first = statement.end_lineno or statement.lineno, conditions[used].body[0].lineno
                    found.append(RareUse(statement.lineno, until, every or 0, first))
                    under.update((id(part), used) for part in ast.walk(statement))
        yield from reversed(found)


def _parts(statements: list[ast.stmt]) -> Iterator[ast.AST]:
    for statement in statements:
        yield from ast.walk(statement)


def _is_quiet(between: list[ast.stmt], effects: SideEffects) -> bool:
    return len(between) <= _NEAR and all(effects.leaves_nothing([one]) for one in between)


def _assigned(statement: ast.stmt) -> set[str]:
    """The names to which the statement assigns what it calls for."""
    if not isinstance(statement, ast.Assign) or not any(isinstance(one, ast.Call) for one in ast.walk(statement.value)):
        return set()
    return only_names(statement.targets) or set()


def _used_under(uses: list[ast.Name], statement: ast.stmt, under: dict[int, int]) -> int:
    """The place of the one condition under which all uses lie, but for the statement's own; -1 if there is none."""
    own = {id(node) for node in ast.walk(statement)}
    others = [node for node in uses if id(node) not in own]
    places = {under.get(id(node), -1) if isinstance(node.ctx, ast.Load) else -1 for node in others}
    return places.pop() if len(places) == 1 else -1
