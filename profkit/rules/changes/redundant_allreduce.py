"""What the program averages itself goes; of the micro-batches only the last is averaged, under ``no_sync``."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import ProgramText, called_name, text_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import loops_around

_TWICE = "Leave the program's own averaging out"
"""How the rule's fix begins where the program averages what has been averaged."""


def redundant_allreduce(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    if not finding.fix.startswith(_TWICE):
        raise Refused("which micro-batch is the last, and where `no_sync` begins, is its author's to write")
    statement = text.statement_at(finding.location.line)
    loops = loops_around(text, statement)
    if not loops or not isinstance(loops[0], libcst.For) or not _only_averages(loops[0]):
        raise Refused("the loop around it does more than add up and divide gradients")
    return text.edited({loops[0]: lambda _: libcst.RemoveFromParent()})


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
