"""A loop that adds up arithmetic of elements, ``s = s + a[i] * b[i]``, becomes the sum over its tensors."""

from __future__ import annotations

import libcst
from libcst import matchers

from profkit.rules.changes.base import ProgramText, text_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.rounds import refuse_later_reads, refuse_no_tensor
from profkit.rules.changes.scopes import names_in
from profkit.rules.changes.sharing import refuse_declared

_ARITHMETIC = (libcst.Add, libcst.Subtract, libcst.Multiply, libcst.Divide)
_NO_SUM = "the rounds do not add up arithmetic of one element each"


def summed_at_once(text: ProgramText, loop: libcst.For, statement: libcst.SimpleStatementLine) -> bytes:
    """The file with one addition in place of the loop. Raises `Refused` for other loops. Elements of several dimensions
    that do not fit as their tensors do are shown by running it."""
    is_alone = [*loop.body.body] == [statement] and loop.orelse is None and loop.asynchronous is None
    if not is_alone or not isinstance(loop.target, libcst.Name):
        raise Refused(_NO_SUM)
    index, (total, added) = loop.target.value, _addition(statement.body[0])
    tensors = {text_of(one.value): one.value for one in _elements(added, index)}
    if text_of(loop.iter) not in {f"range({size})" for name in tensors for size in _lengths(name)}:
        raise Refused(_NO_SUM)
    for source in tensors.values():
        refuse_no_tensor(text, loop, source)
        if total in names_in(source):
            raise Refused(f"`{total}` adds up elements of its own")
    refuse_declared(text, total)
    refuse_later_reads(text, loop, {index})
    whole = text_of(matchers.replace(added, _element(index), _tensor_of))  # type: ignore[arg-type]  # an expression
    called = f"{whole}.sum(0)" if isinstance(added, libcst.Subscript) or added.lpar else f"({whole}).sum(0)"
    made = statement.deep_replace(added, libcst.parse_expression(called))
    assert isinstance(made, libcst.SimpleStatementLine)
    comments = [line for line in statement.leading_lines if line.comment is not None]
    return text.replaced(loop, made.with_changes(leading_lines=[*loop.leading_lines, *comments]))


def _addition(part: libcst.BaseSmallStatement) -> tuple[str, libcst.BaseExpression]:
    """The variable and what is added, of ``s += x`` and ``s = s + x``."""
    if isinstance(part, libcst.AugAssign) and isinstance(part.target, libcst.Name):
        if isinstance(part.operator, libcst.AddAssign):
            return part.target.value, part.value
    elif isinstance(part, libcst.Assign) and len(part.targets) == 1 and isinstance(part.value, libcst.BinaryOperation):
        target, value = part.targets[0].target, part.value
        is_same = isinstance(target, libcst.Name) and text_of(value.left) == target.value
        if isinstance(target, libcst.Name) and is_same and isinstance(value.operator, libcst.Add):
            return target.value, value.right
    raise Refused(_NO_SUM)


def _elements(value: libcst.BaseExpression, index: str) -> list[libcst.Subscript]:
    """The elements of an expression that consists of these, of numbers and of arithmetic alone."""
    if isinstance(value, libcst.BinaryOperation) and isinstance(value.operator, _ARITHMETIC):
        return _elements(value.left, index) + _elements(value.right, index)
    if isinstance(value, (libcst.Integer, libcst.Float)):
        return []
    if isinstance(value, libcst.Subscript) and matchers.matches(value, _element(index)):
        return [value]
    raise Refused(_NO_SUM)


def _element(index: str) -> matchers.Subscript:
    """``a[i]`` and ``self.a[i]``."""
    at = matchers.SubscriptElement(matchers.Index(matchers.Name(index)))
    return matchers.Subscript(matchers.Name() | matchers.Attribute(), [at])


def _tensor_of(element: libcst.CSTNode, _: object) -> libcst.CSTNode:
    return libcst.ensure_type(element, libcst.Subscript).value


def _lengths(name: str) -> tuple[str, ...]:
    return f"len({name})", f"{name}.size(0)", f"{name}.shape[0]", f"{name}.numel()"
