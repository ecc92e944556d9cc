"""What each round computes of the same inputs is computed once, before the loop; what each call of a method does, where
its object is made."""

from __future__ import annotations

import libcst
from libcst import matchers

from profkit.findings.values import Finding
from profkit.rules.changes.alive import refuse_alive
from profkit.rules.changes.base import Edit, ProgramText, text_of
from profkit.rules.changes.kept_by_object import kept_by_object, only_call
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
_OF_ALL_ROWS = ("device", "dtype")
"""What each row of a tensor has as the tensor does."""
_SUSPENDING = (libcst.Yield, libcst.Await, libcst.NamedExpr)


def redundant_recomputation(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    return before_the_loops(text, finding.location.line, is_each_step=finding.fix.startswith(_EACH_STEP))


def before_the_loops(text: ProgramText, line: int, is_each_step: bool) -> bytes:
    """The line before the innermost loop around it or, if each step computes the same, before all in which nothing
    that it reads changes."""
    statement = text.statement_at(line)
    if not loops_around(text, statement) and (call := only_call(text, statement)) is not None:
        return kept_by_object(text, call)
    part = statement.body[0]
    if not isinstance(part, libcst.Assign) or len(part.targets) != 1 or text.holds(statement, *_SUSPENDING):
        raise Refused("the line does not assign what it computes to a variable")
    refuse_alive(part.value)
    target = part.targets[0].target
    if not isinstance(target, libcst.Name):
        raise Refused("the line does not assign what it computes to a variable")
    loops = loops_around(text, statement)
    if not loops:
        return kept_by_object(text, statement)
    known = loops if is_each_step else loops[:1]
    moved, read = _of_all_rows(text, statement, part, loops)
    lasting = _lasting(text, statement, target.value, read, known)
    for variable in sorted({target.value, *read} - called_in(part.value)):
        refuse_declared(text, variable)
    _refuse_other_value(text, lasting, target.value)
    alone = len(block_of(text, statement)) == 1
    edits: dict[libcst.CSTNode, Edit] = {
        statement: lambda _: text.parsed("pass") if alone else libcst.RemoveFromParent(),
        lasting: lambda loop: with_statements(text, (moved,), loop),
    }
    return text.edited(edits)


def _of_all_rows(
    text: ProgramText, statement: libcst.SimpleStatementLine, part: libcst.Assign, loops: list[Loop]
) -> tuple[libcst.SimpleStatementLine, set[str]]:
    """The line and the variables that it reads. Where it only asks a row of a tensor for its device or type, as ``x``
    of ``for x in xs``, it can ask the tensor."""
    read, loop = variables_in(text, part.value), loops[0] if loops else None
    if not isinstance(loop, libcst.For) or not isinstance(loop.target, libcst.Name) or loop.target.value not in read:
        return statement, read
    row = loop.target.value
    asked = matchers.Attribute(matchers.Name(row), matchers.OneOf(*map(matchers.Name, _OF_ALL_ROWS)))
    if len(matchers.findall(part, asked)) != len(uses(text, part, row)) or not _is_tensor(text, loop.iter):
        return statement, read
    moved = matchers.replace(statement, asked, lambda one, _: one.with_changes(value=loop.iter))
    assert isinstance(moved, libcst.SimpleStatementLine)
    return moved, (read - {row}) | variables_in(text, loop.iter)


def _is_tensor(text: ProgramText, value: libcst.BaseExpression) -> bool:
    """Whether all that the file says of a variable or attribute of this name is that it is a tensor."""
    if not isinstance(value, (libcst.Name, libcst.Attribute)):
        return False
    name = text_of(value).rpartition(".")[2]
    said = [one.annotation for one in text.nodes(libcst.Param) if one.name.value == name]
    said += [one.annotation for one in text.nodes(libcst.AnnAssign) if text_of(one.target).rpartition(".")[2] == name]
    kinds = [one is not None and text_of(one.annotation) in ("Tensor", "torch.Tensor") for one in said]
    assigned = [one for one in text.nodes(libcst.Assign) for each in one.targets if _ends_with(each.target, name)]
    torch = f"{text.known_as('torch')}."
    kinds += [isinstance(one.value, libcst.Call) and text_of(one.value.func).startswith(torch) for one in assigned]
    return bool(kinds) and all(kinds)


def _ends_with(target: libcst.BaseAssignTargetExpression, name: str) -> bool:
    """Whether a target sets this name, be it one of several."""
    return any(text_of(one).rpartition(".")[2] == name for one in _targets(target))


def _targets(target: libcst.BaseAssignTargetExpression) -> list[libcst.BaseExpression]:
    return [one.value for one in target.elements] if isinstance(target, (libcst.Tuple, libcst.List)) else [target]


def _lasting(text: ProgramText, statement: libcst.CSTNode, name: str, read: set[str], loops: list[Loop]) -> Loop:
    """The outermost of these loops around the line in which nothing that it reads changes, nor its result."""
    found: Loop | None = None
    for loop in loops:
        if not is_always_reached(text, statement, loop):
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


def is_always_reached(text: ProgramText, statement: libcst.CSTNode, loop: Loop) -> bool:
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
