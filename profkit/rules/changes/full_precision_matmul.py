"""Products use bfloat16 or TF32, as the finding says. Results change, so it is an opportunity, and never safe."""

from __future__ import annotations

import re

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import ProgramText
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import with_statements

_AUTOCAST = re.compile(r"torch\.autocast\('(\w+)', dtype=torch\.bfloat16\)")
_TF32 = "torch.set_float32_matmul_precision('high')"


def full_precision_matmul(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    torch = text.known_as("torch")
    if _TF32 in finding.fix:
        line = text.last_import()
        return text.edited({line: lambda one: with_statements(text, (), one, (_TF32.replace("torch", torch, 1),))})
    asked = _AUTOCAST.search(finding.fix)
    if asked is None:
        raise Refused("float16 needs a `GradScaler`, which changes how the program trains")
    statement = text.statement_at(finding.location.line)
    if not isinstance(statement.body[0], (libcst.Assign, libcst.AnnAssign)):
        raise Refused("the line is not a forward pass whose result is kept")
    around = libcst.parse_expression(f'{torch}.autocast("{asked[1]}", dtype={torch}.bfloat16)')
    block = libcst.IndentedBlock([statement.with_changes(leading_lines=[])])
    return text.replaced(
        statement, libcst.With([libcst.WithItem(around)], block, leading_lines=statement.leading_lines)
    )
