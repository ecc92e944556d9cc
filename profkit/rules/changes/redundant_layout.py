"""The copy goes, and its reader gets the view."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import ProgramText, called_name, text_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import assignment_of, is_set, mutated, scope_of, uses, variables_in

_READERS = frozenset(("addmm", "baddbmm", "bmm", "conv2d", "conv3d", "matmul", "mm", "scaled_dot_product_attention"))
"""Functions that take a view as it lies, and keep no hold of it."""


def redundant_layout(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    copy = text.call_at(finding.location.line, "contiguous")
    if copy.args or not isinstance(copy.func, libcst.Attribute):
        raise Refused("the copy is not of the form `x.contiguous()`")
    source = copy.func.value
    if not _is_read(text, copy):
        _refuse_other_reads(text, copy)
    changing = mutated(text, scope_of(text, copy), variables_in(text, source))
    if changing:
        raise Refused(f"`{min(changing)}` is changed in place, and the copy may keep its old values")
    return text.replaced(copy, source)


def _refuse_other_reads(text: ProgramText, copy: libcst.Call) -> None:
    """Raise `Refused` unless the copy is given a name that only such readers read."""
    around = next(text.ancestors(copy))
    names = [text_of(one.target) for one in around.targets] if isinstance(around, libcst.Assign) else []
    if len(names) != 1 or not names[0].isidentifier():
        raise Refused("that line does not show what reads the copy")
    assignment_of(text, names[0], copy)
    for use in uses(text, scope_of(text, copy), names[0]):
        if not is_set(text, use) and not _is_read(text, use):
            raise Refused(f"line {text.line_of(use)} may need `{names[0]}` in order")


def _is_read(text: ProgramText, node: libcst.CSTNode) -> bool:
    """Whether this expression is a factor of `@`, or an argument of a function that takes views."""
    around, *further = list(text.ancestors(node))[:2]
    if isinstance(around, libcst.BinaryOperation):
        return isinstance(around.operator, libcst.MatrixMultiply)
    call = further[0] if isinstance(around, libcst.Arg) and further else None
    return isinstance(call, libcst.Call) and called_name(call) in _READERS
