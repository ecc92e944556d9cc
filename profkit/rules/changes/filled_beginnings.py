"""A loop that fills the first elements of each row, or all but these, is one comparison of places with lengths:
``mask[i, :length] = True`` for each ``length`` of a tensor.

A negative length, which counts from the end, is nothing that the text excludes: the runs by turns tell it.
"""

from __future__ import annotations

import libcst
from libcst import matchers

from profkit.rules.changes.base import ProgramText, called_name, elements_of, text_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.rounds import refuse_later_reads, refuse_no_tensor
from profkit.rules.changes.scopes import assigned_value, uses
from profkit.rules.changes.sharing import refuse_declared

_NO_BEGINNINGS = "the rounds do not fill the first elements of one row each"
_MAKING = frozenset(
    ("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")
)
"""What makes a tensor of its own, no part of another."""
_AS_IT_IS = frozenset(("bool", "cuda", "float", "int", "long", "to"))
_NUMPY = frozenset(("np", "numpy"))
_PLAIN = (libcst.Name, libcst.Attribute)
_LENGTH = matchers.Call(matchers.Name("len"), [matchers.Arg()])
_AT = matchers.SubscriptElement(matchers.Index(matchers.Name()))
_PART = matchers.SubscriptElement(matchers.Slice(step=None))
_ROW_PART = matchers.Subscript(matchers.Name(), [_AT, _PART])


def beginnings_at_once(text: ProgramText, loop: libcst.For, has_devices: bool) -> bytes:
    """The file with one line in place of the loop. Raises `Refused` for other loops. If it ``has_devices``, the tensors
    may lie on another one."""
    if loop.orelse is not None or loop.asynchronous is not None or len(loop.body.body) != 1:
        raise Refused(_NO_BEGINNINGS)
    index, length, lengths = _lengths(loop)
    filled, is_end, value = _filled(loop.body.body[0], index, length, lengths)
    refuse_no_tensor(text, loop, lengths)
    if not _is_made_here(text, loop, filled):
        raise Refused(f"nothing shows that `{filled}` is a tensor of its own")
    for name in {index, length} - {""}:
        refuse_declared(text, name)
    refuse_later_reads(text, loop, {index, length} - {""})
    if len(uses(text, loop, filled)) != 1:
        raise Refused(_NO_BEGINNINGS)
    place, there = (f", device={filled}.device", f".to({filled}.device)") if has_devices else ("", "")
    places = f"{text.known_as('torch')}.arange({filled}.shape[1]{place})"
    compared = f"{places} {'>=' if is_end else '<'} {text_of(lengths)}{there}.unsqueeze(1)"
    line = text.parsed(f"{filled}[{compared}] = {value}")
    return text.edited({loop: lambda one: line.with_changes(leading_lines=one.leading_lines)})


def _lengths(loop: libcst.For) -> tuple[str, str, libcst.BaseExpression]:
    """``i``, ``n`` and ``lengths`` of ``for i, n in enumerate(lengths)``; of ``for i in range(len(lengths))`` no
    ``n``."""
    head = loop.iter
    given = head.args if isinstance(head, libcst.Call) and isinstance(head.func, libcst.Name) else ()
    if not isinstance(head, libcst.Call) or len(given) != 1 or given[0].star or given[0].keyword is not None:
        raise Refused(_NO_BEGINNINGS)
    over, function = given[0].value, text_of(head.func)
    if function == "range" and isinstance(loop.target, libcst.Name):
        counted = over.args[0].value if matchers.matches(over, _LENGTH) else None  # type: ignore[attr-defined]
        if isinstance(counted, _PLAIN):
            return loop.target.value, "", counted
    if function == "enumerate" and isinstance(loop.target, libcst.Tuple) and isinstance(over, _PLAIN):
        names = [one.value for one in elements_of(loop.target) if isinstance(one, libcst.Name)]
        if len(names) == 2 == len({*names}):
            return names[0], names[1], over
    raise Refused(_NO_BEGINNINGS)


def _filled(line: libcst.CSTNode, index: str, length: str, lengths: libcst.BaseExpression) -> tuple[str, bool, str]:
    """``x``, whether all but the first elements are filled, and what with, of ``x[i, :n] = 1``."""
    part = line.body[0] if isinstance(line, libcst.SimpleStatementLine) and len(line.body) == 1 else None
    target = part.targets[0].target if isinstance(part, libcst.Assign) and len(part.targets) == 1 else None
    is_row = isinstance(target, libcst.Subscript) and matchers.matches(target, _ROW_PART)
    if not isinstance(part, libcst.Assign) or not is_row or not _is_literal(part.value):
        raise Refused(_NO_BEGINNINGS)
    assert isinstance(target, libcst.Subscript)
    row, cut = (one.slice for one in target.slice)
    assert isinstance(row, libcst.Index)
    assert isinstance(cut, libcst.Slice)
    bounds = [one for one in (cut.lower, cut.upper) if one is not None]
    known = {length} if length else {f"{text_of(lengths)}[{index}]"}
    if text_of(row.value) != index or len(bounds) != 1 or text_of(_plain_number(bounds[0])) not in known:
        raise Refused(_NO_BEGINNINGS)
    return text_of(target.value), cut.lower is not None, text_of(part.value)


def _plain_number(bound: libcst.BaseExpression) -> libcst.BaseExpression:
    """``n`` of ``n.item()`` and ``int(n)``."""
    if isinstance(bound, libcst.Call) and not bound.args and isinstance(bound.func, libcst.Attribute):
        return bound.func.value if bound.func.attr.value == "item" else bound
    if isinstance(bound, libcst.Call) and len(bound.args) == 1 and text_of(bound.func) == "int":
        return bound.args[0].value
    return bound


def _is_literal(value: libcst.BaseExpression) -> bool:
    if isinstance(value, libcst.UnaryOperation):
        value = value.expression
    return isinstance(value, (libcst.Integer, libcst.Float)) or text_of(value) in ("True", "False")


def _is_made_here(text: ProgramText, loop: libcst.For, filled: str) -> bool:
    """Whether what is filled is a new tensor of PyTorch's: writing through a mask is the same there, and an array of
    NumPy's takes no tensor of places."""
    made = assigned_value(text, filled, loop)
    while isinstance(made, libcst.Call) and isinstance(made.func, libcst.Attribute) and called_name(made) in _AS_IT_IS:
        made = made.func.value
    if not isinstance(made, libcst.Call):
        return False
    return called_name(made) in _MAKING and text_of(made.func).partition(".")[0] not in _NUMPY
