"""What one statement reads, changes and adds to, as far as its text shows."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from msgspec import Struct

from profkit.source.harmless import COLLECTING
from profkit.source.syntax import only_names


class Effect(Struct, frozen=True):
    """What a statement does to the names around it.

    ``assigns`` are the names whose values an assignment or a loop's head changes: `h` of `h[i] = x`, `self` of
    `self.h = x`. ``renews`` are those that an assignment gives whole new values. ``acts_on`` is the name whose method
    is called without using the result, as in `h.copy_(x)`. ``gathers`` is what the statement only adds or appends to,
    as it is written there, such as `self.losses`. ``reads`` are the names and attributes from which the new values may
    come: `self.gamma`, and then `self`, too.
    """

    assigns: frozenset[str] = frozenset()
    renews: frozenset[str] = frozenset()
    acts_on: frozenset[str] = frozenset()
    gathers: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()

    @property
    def changes(self) -> frozenset[str]:
        """All names whose values the statement may change."""
        return self.assigns | self.acts_on


def effect_of(statement: ast.stmt) -> Effect:
    """What a statement does; of a compound one, what its head does."""
    gathered = gathering(statement)
    source = statement.iter if isinstance(statement, ast.For) else getattr(statement, "value", None)
    return Effect(
        assigns=assigned_names(*_targets(statement)),
        renews=renewed_names(statement),
        acts_on=_acts_on(statement),
        gathers=frozenset((ast.unparse(gathered[0]),)) if gathered else frozenset(),
        reads=reads(source) if isinstance(source, ast.expr) else frozenset(),
    )


def gathering(statement: ast.stmt) -> tuple[ast.expr, list[ast.expr]] | None:
    """What a statement adds or appends to, and what it adds: `total += x`, `total = total + x`, `losses.append(x)`."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, (ast.Add, ast.Sub)):
        return statement.target, [statement.value]
    if isinstance(statement, ast.Assign) and (added := _added_to(statement)) is not None:
        return statement.targets[0], [added]
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.keywords:
        return None
    return (call.func.value, call.args) if call.func.attr in COLLECTING else None


def renewed_names(statement: ast.stmt | None) -> frozenset[str]:
    """The names to which an assignment gives new values; none if it assigns to anything else."""
    is_assignment = isinstance(statement, (ast.Assign, ast.AnnAssign))
    return frozenset(only_names(_targets(statement)) or ()) if is_assignment else frozenset()


def assigned_names(*targets: ast.expr) -> frozenset[str]:
    """The names whose values an assignment to these changes: `h` of `h[i]`, `self` of `self.h`, but not the index."""
    names: set[str] = set()
    for target in targets:
        if isinstance(target, (ast.Tuple, ast.List)):
            names |= assigned_names(*target.elts)
        elif isinstance(target, (ast.Subscript, ast.Attribute, ast.Starred)):
            names |= assigned_names(target.value)
        elif isinstance(target, ast.Name):
            names.add(target.id)
    return frozenset(names)


def reads(expression: ast.expr) -> frozenset[str]:
    """The names and attributes (`self.gamma`) that an expression reads."""
    found = (node for node in ast.walk(expression) if isinstance(node, (ast.Name, ast.Attribute)))
    return frozenset(ast.unparse(node) for node in found)


def names_in(node: ast.AST) -> set[str]:
    """All names in a part of the tree, without attributes."""
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def derived_names(names: Iterable[str], effects: Iterable[Effect]) -> set[str]:
    """``names`` and everything computed from them, directly or indirectly."""
    effects, derived = list(effects), set(names)
    for _ in effects:
        grown = derived.union(*(effect.changes for effect in effects if effect.reads & derived))
        if grown == derived:
            break
        derived = grown
    return derived


def _targets(statement: ast.stmt | None) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement, (ast.AugAssign, ast.AnnAssign, ast.For)) else []


def _acts_on(statement: ast.stmt) -> frozenset[str]:
    called = statement.value.func if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None
    while isinstance(called, ast.Attribute) and isinstance(called.value, ast.Call):
        called = called.value.func  # `x[t].view(-1).copy_(y)`
    return assigned_names(called.value) if isinstance(called, ast.Attribute) else frozenset()


def _added_to(statement: ast.Assign) -> ast.expr | None:
    """What `total = total + x` adds to its target."""
    value = statement.value
    if len(statement.targets) != 1 or not isinstance(value, ast.BinOp) or not isinstance(value.op, (ast.Add, ast.Sub)):
        return None
    target = ast.unparse(statement.targets[0])
    if ast.unparse(value.left) == target:
        return value.right
    return value.left if isinstance(value.op, ast.Add) and ast.unparse(value.right) == target else None
