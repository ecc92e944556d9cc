"""What grows in a loop and is None before its first round: ``all = x if all is None else torch.cat([all, x])``, in one
line or as ``if`` and ``else``."""

from __future__ import annotations

from typing import TypeVar

import libcst
from msgspec import Struct

from profkit.rules.changes.base import ProgramText, text_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import Loop, Statement, block_of, uses

_Branch = TypeVar("_Branch", bound=libcst.CSTNode)


class Rounds(Struct, frozen=True):
    """What stands in the loop for all rounds, the first among them, and the assignment of the later ones. ``asked`` is
    how often the variable is named besides in that assignment; 0 if nothing is said of a first round."""

    whole: Statement
    later: libcst.BaseSmallStatement
    first: libcst.BaseExpression | None = None
    asked: int = 0


def rounds_of(text: ProgramText, line: libcst.SimpleStatementLine) -> Rounds:
    """The rounds that a line is part of. Of a line that does not ask for None the line itself."""
    part = line.body[0]
    if isinstance(part, libcst.Assign) and isinstance(part.value, libcst.IfExp) and len(part.targets) == 1:
        asked = part.value
        branches = _branches(asked.test, text_of(part.targets[0].target), asked.body, asked.orelse)
        if branches is not None:
            return Rounds(line, part.with_changes(value=branches[1]), branches[0], 1)
    around = [*text.ancestors(line)][:2]
    branch = next((one for one in around if isinstance(one, (libcst.If, libcst.Else))), None)
    whole = next(text.ancestors(branch)) if isinstance(branch, libcst.Else) else branch
    if isinstance(whole, libcst.If) and isinstance(whole.orelse, libcst.Else) and isinstance(part, libcst.Assign):
        then, otherwise = _only_assignment(whole.body), _only_assignment(whole.orelse.body)
        name = text_of(part.targets[0].target)
        if then is not None and otherwise is not None and name == text_of(then.targets[0].target):
            lines = _branches(whole.test, name, then, otherwise)
            if lines is not None and lines[1] is part and text_of(lines[0].targets[0].target) == name:
                return Rounds(whole, part, lines[0].value, 2)
    return Rounds(line, part)


def _only_assignment(body: libcst.BaseSuite) -> libcst.Assign | None:
    line = body.body[0] if len(body.body) == 1 else None
    part = line.body[0] if isinstance(line, libcst.SimpleStatementLine) and len(line.body) == 1 else None
    return part if isinstance(part, libcst.Assign) and len(part.targets) == 1 else None


def _branches(
    test: libcst.BaseExpression, name: str, then: _Branch, otherwise: _Branch
) -> tuple[_Branch, _Branch] | None:
    """What is done of None, and of anything else."""
    if not isinstance(test, libcst.Comparison) or len(test.comparisons) != 1 or text_of(test.left) != name:
        return None
    asked = test.comparisons[0]
    if text_of(asked.comparator) != "None":
        return None
    if isinstance(asked.operator, libcst.Is):
        return then, otherwise
    return (otherwise, then) if isinstance(asked.operator, libcst.IsNot) else None


def line_of_none(text: ProgramText, loop: Loop, name: str) -> libcst.SimpleStatementLine:
    """The line beside the loop that sets a variable to None. Raises `Refused` if it is not surely None when the loop
    begins."""
    before = block_of(text, loop)
    for line in reversed(before[: before.index(loop)]):
        if uses(text, line, name):
            part = line.body[0] if isinstance(line, libcst.SimpleStatementLine) and len(line.body) == 1 else None
            if not isinstance(line, libcst.SimpleStatementLine) or not isinstance(part, libcst.Assign):
                break
            if [text_of(one.target) for one in part.targets] == [name] and text_of(part.value) == "None":
                return line
            break
    raise Refused(f"nothing shows that `{name}` is None when the loop begins")
