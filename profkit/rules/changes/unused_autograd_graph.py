"""The call runs under ``torch.no_grad()``."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import ProgramText
from profkit.rules.changes.refusing import Refused

_SUSPENDING = (libcst.Yield, libcst.Await)


def unused_autograd_graph(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    statement = text.statement_at(finding.location.line)
    torch = text.imported_as("torch")
    if torch is None:
        raise Refused("the file does not import torch")
    if not isinstance(
        statement.body[0], (libcst.Assign, libcst.AugAssign, libcst.AnnAssign, libcst.Expr, libcst.Return)
    ):
        raise Refused("the line is not a call whose result is kept")
    if text.holds(statement, *_SUSPENDING):
        raise Refused("the line yields to other code, which would then run without gradients too")
    if text.holds(statement, libcst.Lambda):
        raise Refused("the line makes a function, which runs later, outside of any block around the line")
    item = libcst.WithItem(libcst.parse_expression(f"{torch}.no_grad()"))
    block = libcst.IndentedBlock([statement.with_changes(leading_lines=[])])
    return text.replaced(statement, libcst.With([item], block, leading_lines=statement.leading_lines))
