"""What the program averages itself goes; of the micro-batches only the last is averaged, under ``no_sync``."""

from __future__ import annotations

import libcst
from libcst import matchers

from profkit.findings.values import Finding
from profkit.rules.changes.base import Edit, ProgramText, called_name, text_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import are_set, block_of, called_in, loops_around, variables_in, with_statements

_TWICE = "Leave the program's own averaging out"
"""How the rule's fix begins where the program averages what has been averaged."""


def redundant_allreduce(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    statement = text.statement_at(finding.location.line)
    if not finding.fix.startswith(_TWICE):
        return _last_only(text, statement)
    loops = loops_around(text, statement)
    if not loops or not isinstance(loops[0], libcst.For) or not _only_averages(loops[0]):
        raise Refused("the loop around it does more than add up and divide gradients")
    return text.edited({loops[0]: lambda _: libcst.RemoveFromParent()})


def _last_only(text: ProgramText, statement: libcst.SimpleStatementLine) -> bytes:
    """Forward and backward under ``no_sync`` unless the ``if`` behind them lets the optimizer step."""
    model = _parallel_model(text, statement)
    block = block_of(text, statement)
    rest = block[next(number for number, one in enumerate(block) if one is statement) :]
    end = next((number for number, one in enumerate(rest) if _calls(one, "backward")), None)
    steps = [one for one in rest if isinstance(one, libcst.If) and _calls(one.body, "step")]
    inner = [one for one in rest[1 : 1 + (end or 0)] if isinstance(one, libcst.SimpleStatementLine)]
    if end is None or len(inner) < end or len(steps) != 1 or steps[0].orelse is not None:
        raise Refused("nothing shows which micro-batch is the last: no `if` with the optimizer's step behind it")
    test = steps[0].test
    between = rest[: next(number for number, one in enumerate(rest) if one is steps[0])]
    if any(are_set(text, one, variables_in(text, test)) for one in between) or not _is_steady(test):
        raise Refused("what the optimizer's step depends on is not known before the forward pass")
    null = text.imported_as("contextlib.nullcontext")
    edits: dict[libcst.CSTNode, Edit] = {one: lambda _: libcst.RemoveFromParent() for one in inner}
    around = f"{null or 'nullcontext'}() if {text_of(test)} else {model}.no_sync()"
    body = [statement.with_changes(leading_lines=[]), *inner]
    item = libcst.WithItem(libcst.parse_expression(around))
    edits[statement] = lambda _: libcst.With([item], libcst.IndentedBlock(body), leading_lines=statement.leading_lines)
    if null is None:
        last = text.last_import()
        edits[last] = lambda line: with_statements(text, (), line, ("from contextlib import nullcontext",))
    return text.edited(edits)


def _parallel_model(text: ProgramText, statement: libcst.SimpleStatementLine) -> str:
    """The source of the parallel model that the line calls."""
    made = [one for one in text.nodes(libcst.Assign) if isinstance(one.value, libcst.Call)]
    wrapped = {
        text_of(one.targets[0].target)
        for one in made
        if isinstance(one.value, libcst.Call) and called_name(one.value) in ("DistributedDataParallel", "DDP")
    }
    calls = [one for one in text.nodes(libcst.Call) if statement in text.ancestors(one)]
    called = {text_of(one.func) for one in calls} & wrapped
    if len(called) != 1:
        raise Refused("the line calls no model that this file wraps into `DistributedDataParallel`")
    return called.pop()


def _is_steady(test: libcst.BaseExpression) -> bool:
    """Whether a condition is the same when it is asked twice."""
    return not called_in(test) - {"len"} and not matchers.findall(test, matchers.NamedExpr())


def _calls(node: libcst.CSTNode, method: str) -> bool:
    found = matchers.findall(node, matchers.Call(func=matchers.Attribute(attr=matchers.Name(method))))
    return bool(found)


def _only_averages(loop: libcst.For) -> bool:
    if loop.orelse is not None or not isinstance(loop.body, libcst.IndentedBlock):
        return False
    lines = [line for line in loop.body.body if isinstance(line, libcst.SimpleStatementLine)]
    parts = [part for line in lines for part in line.body]
    is_all = len(lines) == len(loop.body.body) and len(parts) == 2
    return is_all and _adds_up(parts[0]) and _divides(parts[1])


def _adds_up(part: libcst.BaseSmallStatement) -> bool:
    if not isinstance(part, libcst.Expr) or not isinstance(part.value, libcst.Call) or not part.value.args:
        return False
    return called_name(part.value) == "all_reduce" and text_of(part.value.args[0].value).endswith(".grad")


def _divides(part: libcst.BaseSmallStatement) -> bool:
    if isinstance(part, libcst.AugAssign):
        return isinstance(part.operator, libcst.DivideAssign) and text_of(part.target).endswith(".grad")
    return isinstance(part, libcst.Expr) and isinstance(part.value, libcst.Call) and called_name(part.value) == "div_"
