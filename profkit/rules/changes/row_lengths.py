"""Which rows a length is of: ``len(row)`` in a loop or a comprehension, or ``ids[i, :len(row)]`` that it writes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import libcst

from profkit.rules.changes.base import ProgramText, called_name, elements_of, text_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import (
    assignment_of,
    is_set,
    lies_in,
    names_in,
    scope_of,
    uses,
)

_ONCE = frozenset(("filter", "iter", "map", "reversed", "zip"))
"""Functions whose result can be gone through once only."""
_FIRST = (".shape[0]", ".size(0)", ".numel()")


@dataclass(frozen=True)
class Rows:
    """The source of a row's length, of the variables of a row, and of what the rows come from, which the function sets
    at the line ``since``, if it does."""

    length: str
    target: str
    source: str
    since: int

    @property
    def longest(self) -> str:
        return f"max({self.length} for {self.target} in {self.source})"


def row_measured(length: libcst.BaseExpression) -> libcst.BaseExpression | None:
    """``row`` of ``len(row)``, ``row.shape[0]``, ``row.size(0)`` and ``row.numel()``; None of other expressions."""
    if isinstance(length, libcst.Call) and text_of(length.func) == "len" and len(length.args) == 1:
        return length.args[0].value
    said = text_of(length)
    end = next((one for one in _FIRST if said.endswith(one)), "")
    return libcst.parse_expression(said.removesuffix(end)) if end else None


def is_rest(node: libcst.CSTNode) -> bool:
    """Whether it is ``fixed - len(row)``."""
    return (
        isinstance(node, libcst.BinaryOperation)
        and isinstance(node.operator, libcst.Subtract)
        and row_measured(node.right) is not None
    )


def rows_of(text: ProgramText, length: libcst.BaseExpression, fixed: str) -> Rows:
    """The rows of a length, by the loop or the comprehension around it that goes through them. A variable of the loop
    may hold the row: ``ids = sample["ids"][:fixed]``."""
    row = row_measured(length)
    if row is None:
        raise Refused(f"`{text_of(length)}` is not the length of a row")
    said = text_of(length)
    for around in text.ancestors(length):
        loop = around.for_in if isinstance(around, (libcst.ListComp, libcst.GeneratorExp)) else around
        if not isinstance(loop, (libcst.CompFor, libcst.For)):
            continue
        own = names_in(loop.target)
        if isinstance(row, libcst.Name) and row.value not in own:
            with suppress(Refused):
                row = _uncut(assignment_of(text, row.value, length).value, fixed)
                said = f"len({text_of(row)})"
        if own & names_in(row):
            return _gone_through(text, loop, said, names_in(row))
    raise Refused(f"no loop shows which rows `{said}` is the length of")


def rows_written(text: ProgramText, made: libcst.Call, within: libcst.CSTNode, fixed: str) -> Rows:
    """The rows that are written into a tensor: ``made[i, :len(row)] = …``."""
    line = next(text.ancestors(made))
    if not isinstance(line, libcst.Assign) or len(line.targets) != 1:
        raise Refused(f"line {text.line_of(made)} does not keep what it makes in a variable")
    name = text_of(line.targets[0].target)
    written = [
        one
        for one in text.nodes(libcst.Subscript)
        if text_of(one.value) == name and lies_in(text, one, within) and _is_target(text, one)
    ]
    found = {rows_of(text, _end_of(text, one), fixed) for one in written}
    if len(found) != 1:
        raise Refused(f"the lines do not show which rows `{name}` is filled with")
    return found.pop()


def _is_target(text: ProgramText, one: libcst.Subscript) -> bool:
    return isinstance(next(text.ancestors(one)), libcst.AssignTarget)


def _end_of(text: ProgramText, written: libcst.Subscript) -> libcst.BaseExpression:
    """``len(row)`` of ``[i, :len(row)]``, ``[i, -len(row):]`` and ``[i, fixed - len(row):]``."""
    part = written.slice[1].slice if len(written.slice) > 1 else None
    if isinstance(part, libcst.Slice) and part.step is None:
        if part.lower is None and part.upper is not None:
            return _held(text, part.upper)
        if part.upper is None and isinstance(part.lower, libcst.UnaryOperation):
            return _held(text, part.lower.expression)
        if part.upper is None and isinstance(part.lower, libcst.BinaryOperation) and is_rest(part.lower):
            return part.lower.right
    raise Refused(f"`{text_of(written)}` does not show how long a row is")


def _held(text: ProgramText, end: libcst.BaseExpression) -> libcst.BaseExpression:
    """What a variable of the loop holds: ``n = len(row)``, or ``n = min(len(row), fixed)``."""
    if isinstance(end, libcst.Name):
        end = assignment_of(text, end.value, end).value
    if isinstance(end, libcst.Call) and text_of(end.func) == "min":
        return next((one.value for one in end.args if row_measured(one.value) is not None), end)
    return end


def _uncut(value: libcst.BaseExpression, fixed: str) -> libcst.BaseExpression:
    """``row`` of ``row[:fixed]``."""
    if isinstance(value, libcst.Subscript) and text_of(value).replace(" ", "").endswith(f"[:{fixed}]"):
        return value.value
    return value


def _gone_through(text: ProgramText, loop: libcst.For | libcst.CompFor, said: str, named: set[str]) -> Rows:
    target: libcst.BaseExpression = loop.target
    source = loop.iter
    if isinstance(loop, libcst.CompFor) and (loop.ifs or loop.inner_for_in is not None):
        raise Refused("the rows are chosen by a condition, or by several loops")
    counted = _arguments(source, "enumerate")
    if counted and isinstance(target, libcst.Tuple) and len(target.elements) == 2:
        target, source = target.elements[1].value, counted[0]
    since = max(_set_at(text, one) for one in _arguments(source, "zip") or [source])
    if isinstance(target, libcst.Tuple):
        parts = [text_of(one) if names_in(one) & named else "_" for one in elements_of(target)]
        return Rows(said, ", ".join(parts), text_of(source), since)
    return Rows(said, text_of(target), text_of(source), since)


def _set_at(text: ProgramText, source: libcst.BaseExpression) -> int:
    """The line that sets what the rows come from; 0 if the function does not. Raises `Refused` for rows that may be
    gone through only once, or that may be others in between."""
    root = source
    while isinstance(root, libcst.Attribute):
        root = root.value
    if not isinstance(root, libcst.Name):
        raise Refused(f"`{text_of(source)}` may give its rows once only: give them a name first")
    scope = scope_of(text, source)
    if isinstance(scope, libcst.Module):
        return 0
    lines = [text.line_of(one) for one in uses(text, scope, root.value) if is_set(text, one)]
    if len(lines) > 1:
        raise Refused(f"`{root.value}` is set at several places in that function")
    made = None
    with suppress(Refused):
        made = assignment_of(text, root.value, source).value
    if isinstance(made, libcst.GeneratorExp) or (isinstance(made, libcst.Call) and called_name(made) in _ONCE):
        raise Refused(f"`{root.value}` gives its rows once only")
    return lines[0] if lines else 0


def _arguments(value: libcst.BaseExpression, name: str) -> list[libcst.BaseExpression]:
    """What a call of this function is given; nothing of another expression."""
    is_call = isinstance(value, libcst.Call) and text_of(value.func) == name
    return [one.value for one in value.args] if is_call and isinstance(value, libcst.Call) else []
