"""Calls of `grad` in lines below each other, which differ in their input alone, become one with all of the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import (
    Argument,
    Edit,
    ProgramText,
    called_name,
    refuse_hidden_arguments,
    text_of,
)
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import uses

_INPUTS = Argument("inputs", 1)
_FREELY = ("retain_graph",)
"""What may differ: the last call decides whether the graph stays."""


def repeated_backward_pass(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    statement = text.statement_at(finding.location.line)
    here = _differentiation(statement)
    if here is None:
        raise Refused("the line is not `name = grad(result, input, ...)[0]`")
    lines: Sequence[libcst.CSTNode] = getattr(next(text.ancestors(statement)), "body", ())
    at = next((number for number, one in enumerate(lines) if one is statement), 0)
    before = list(takewhile(lambda one: _is_alike(one, here), reversed(lines[:at])))[::-1]
    after = takewhile(lambda one: _is_alike(one, here), lines[at + 1 :])
    alike = [one for one in (*before, statement, *after) if isinstance(one, libcst.SimpleStatementLine)]
    if len(alike) < 2:
        raise Refused("the other calls do not stand right above or below it")
    edits: dict[libcst.CSTNode, Edit] = {one: lambda _: libcst.RemoveFromParent() for one in alike[1:]}
    joined = _joined(text, alike)
    return text.edited({**edits, alike[0]: lambda _: joined})


def _joined(text: ProgramText, alike: Sequence[libcst.SimpleStatementLine]) -> libcst.SimpleStatementLine:
    """The first of the lines with all of the inputs. Comments of the others stand above it."""
    pairs = [pair for one in alike if (pair := _differentiation(one)) is not None]
    names = [target.value for target, _ in pairs]
    if len(set(names)) < len(names) or any(uses(text, call, name) for _, call in pairs for name in names):
        raise Refused("a call takes what one above it gives")
    inputs = [given for _, call in pairs if (given := _INPUTS.find(call)) is not None]
    call, all_of = pairs[-1][1], libcst.Tuple([libcst.Element(one.value) for one in inputs])
    args = [one.with_changes(value=all_of) if one is inputs[-1] else one for one in call.args]
    target = libcst.Tuple([libcst.Element(libcst.Name(name)) for name in names], lpar=[], rpar=[])
    made = libcst.Assign([libcst.AssignTarget(target)], call.with_changes(args=args))
    said = [line for one in alike[1:] for line in _comments(one)]
    return alike[0].with_changes(body=[made], leading_lines=[*alike[0].leading_lines, *said])


def _comments(line: libcst.SimpleStatementLine) -> list[libcst.EmptyLine]:
    behind = line.trailing_whitespace.comment
    above = [one for one in line.leading_lines if one.comment is not None]
    return [*above, *([] if behind is None else [libcst.EmptyLine(comment=behind)])]


def _is_alike(line: libcst.CSTNode, to: tuple[libcst.Name, libcst.Call]) -> bool:
    found = _differentiation(line)
    return found is not None and _without_input(found[1]) == _without_input(to[1])


def _without_input(call: libcst.Call) -> tuple[str, ...]:
    given = _INPUTS.find(call)
    kept = [
        f"{one.keyword.value if one.keyword else ''}={text_of(one.value)}"
        for one in call.args
        if one is not given and not (one.keyword and one.keyword.value in _FREELY)
    ]
    return text_of(call.func), *kept


def _differentiation(line: libcst.CSTNode) -> tuple[libcst.Name, libcst.Call] | None:
    """The variable and the call of ``name = grad(result, input)[0]``, if it has one input."""
    part = line.body[0] if isinstance(line, libcst.SimpleStatementLine) and len(line.body) == 1 else None
    if not isinstance(part, libcst.Assign) or len(part.targets) != 1 or not isinstance(part.value, libcst.Subscript):
        return None
    target, call = part.targets[0].target, part.value.value
    if not isinstance(target, libcst.Name) or not text_of(part.value).endswith(")[0]"):
        return None
    if not isinstance(call, libcst.Call) or called_name(call) != "grad":
        return None
    refuse_hidden_arguments(call)
    given = _INPUTS.find(call)
    is_single = given is not None and isinstance(given.value, (libcst.Name, libcst.Attribute, libcst.Subscript))
    return (target, call) if is_single else None
