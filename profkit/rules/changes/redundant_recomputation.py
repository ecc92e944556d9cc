"""What each round computes of the same inputs is computed once, before the loop."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import Edit, ProgramText
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import (
    Loop,
    are_set,
    block_of,
    called_in,
    is_set,
    loops_around,
    scope_of,
    uses,
    variables_in,
    with_statements,
)
from profkit.rules.changes.sharing import refuse_declared

_EACH_STEP = "Compute it once, before the loop"
"""How the rule's fix begins where each step computes the same. Else only the same step is known to."""
_ALIVE = frozenset(
    (
        "bernoulli",
        "choice",
        "dropout",
        "get",
        "input",
        "multinomial",
        "next",
        "normal",
        "perf_counter",
        "permutation",
        "poisson",
        "read",
        "readline",
        "sample",
        "shuffle",
        "time",
        "uniform",
    )
)
"""Functions that give something else each time they are called."""
_SUSPENDING = (libcst.Yield, libcst.Await, libcst.NamedExpr)


def redundant_recomputation(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    statement = text.statement_at(finding.location.line)
    part = statement.body[0]
    if not isinstance(part, libcst.Assign) or len(part.targets) != 1 or text.holds(statement, *_SUSPENDING):
        raise Refused("the line does not assign what it computes to a variable")
    if alive := {name for name in called_in(part.value) if name in _ALIVE or name.startswith("rand")}:
        raise Refused(f"the line calls `{min(alive)}`, which gives something else each time")
    target = part.targets[0].target
    if not isinstance(target, libcst.Name):
        raise Refused("the line does not assign what it computes to a variable")
    loops = loops_around(text, statement)
    known = loops if finding.fix.startswith(_EACH_STEP) else loops[:1]
    lasting = _lasting(text, statement, target.value, variables_in(text, part.value), known)
    for variable in sorted({target.value, *variables_in(text, part.value)} - called_in(part.value)):
        refuse_declared(text, variable)
    _refuse_other_value(text, lasting, target.value)
    alone = len(block_of(text, statement)) == 1
    edits: dict[libcst.CSTNode, Edit] = {
        statement: lambda _: text.parsed("pass") if alone else libcst.RemoveFromParent(),
        lasting: lambda loop: with_statements(text, (statement,), loop),
    }
    return text.edited(edits)


def _lasting(text: ProgramText, statement: libcst.CSTNode, name: str, read: set[str], loops: list[Loop]) -> Loop:
    """The outermost of these loops around the line in which nothing that it reads changes, nor its result."""
    found: Loop | None = None
    for loop in loops:
        if not _always_reached(text, statement, loop):
            reason = "the line does not stand in the loop alone: a condition, a context or an exception decides on it"
            break
        if changed := are_set(text, loop, read):
            reason = f"`{min(changed)}`, which it reads, changes in the loop"
            break
        if not _is_set_once(text, loop, statement, name):
            reason = f"`{name}` changes in the loop"
            break
        found = loop
    else:
        reason = "the line stands in no loop of its function"
    if found is None:
        raise Refused(reason)
    return found


def _always_reached(text: ProgramText, statement: libcst.CSTNode, loop: Loop) -> bool:
    """Whether only loops stand between the line and a loop around it: no ``if``, ``with`` or ``try``."""
    for parent in text.ancestors(statement):
        if parent is loop:
            return True
        if not isinstance(parent, (libcst.For, libcst.While, libcst.IndentedBlock)):
            return False
    return False


def _refuse_other_value(text: ProgramText, loop: Loop, name: str) -> None:
    """Raise `Refused` if the variable has a value before the loop: a loop that ends early would keep it."""
    for use in uses(text, scope_of(text, loop), name):
        if text.line_of(use) < text.line_of(loop) and scope_of(text, use) is scope_of(text, loop) and is_set(text, use):
            raise Refused(f"line {text.line_of(use)} sets `{name}` before the loop")


def _is_set_once(text: ProgramText, loop: Loop, statement: libcst.CSTNode, name: str) -> bool:
    """Whether only the statement sets the result, and sets it before anything in the loop reads it."""
    own = uses(text, statement, name)
    others = [one for one in uses(text, loop, name) if one not in own]
    at = text.line_of(statement)
    is_first = next(text.ancestors(statement)) is loop.body or all(text.line_of(one) > at for one in others)
    changes = [one for one in others if are_set(text, next(text.ancestors(one)), {name})]
    return is_first and not changes and all(text.line_of(one) > at for one in others)
