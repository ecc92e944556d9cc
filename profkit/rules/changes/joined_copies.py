"""Copies of one tensor that `torch.stack` or `torch.cat` joins: the tensor is expanded, which copies nothing."""

from __future__ import annotations

import libcst

from profkit.rules.changes.base import Argument, ProgramText, called_name, elements_of, refuse_hidden_arguments, text_of
from profkit.rules.changes.refusing import Refused

JOINING = ("stack", "cat", "concat", "concatenate")
_DIM = Argument("dim", 1)
_NEW = {"0": "{x}.expand({n}, *{x}.shape)", "1": "{x}.unsqueeze(1).expand(-1, {n}, *{x}.shape[1:])"}
_NEW["-1"] = "{x}.unsqueeze(-1).expand(*{x}.shape, {n})"
_OLD = {"0": "{x}.expand({n}, *{x}.shape[1:])", "1": "{x}.expand(-1, {n}, *{x}.shape[2:])"}
_OLD["-1"] = "{x}.expand(*{x}.shape[:-1], {n})"
"""How a tensor is expanded along a new dimension, and along one that has a single element: of another, running the
program ends with an error."""


def expanded(text: ProgramText, call: libcst.Call) -> libcst.BaseExpression:
    """``x.expand(n, *x.shape)`` for ``torch.stack([x] * n)``."""
    refuse_hidden_arguments(call)
    if text_of(call.func) not in [f"{text.known_as('torch')}.{name}" for name in JOINING]:
        raise Refused(f"`{text_of(call.func)}` may be another function than PyTorch's")
    if len(call.args) > 2 or (len(call.args) == 2 and _DIM.find(call) is not call.args[1]):
        raise Refused("the call takes more than the copies and their dimension")
    tensor, times = _copied(call.args[0].value)
    given = _DIM.find(call)
    dim = "0" if given is None else text_of(given.value)
    ways = _NEW if called_name(call) == "stack" else _OLD
    if dim not in ways:
        raise Refused(f"the copies are joined along dimension {dim}")
    if not isinstance(tensor, (libcst.Name, libcst.Attribute)):
        raise Refused(f"`{text_of(tensor)}` would be computed twice: give it a name first")
    return libcst.parse_expression(ways[dim].format(x=text_of(tensor), n=times))


def _copied(row: libcst.BaseExpression) -> tuple[libcst.BaseExpression, str]:
    """The tensor, and how often it is in ``[x] * n``, ``[x for _ in range(n)]`` or ``[x, x, x]``."""
    if isinstance(row, libcst.BinaryOperation) and isinstance(row.operator, libcst.Multiply):
        single, times = (row.left, row.right) if _is_row(row.left) else (row.right, row.left)
        if isinstance(single, (libcst.Tuple, libcst.List)) and len(single.elements) == 1:
            return elements_of(single)[0], text_of(times)
    if isinstance(row, (libcst.ListComp, libcst.GeneratorExp)):
        return _counted(row)
    if isinstance(row, (libcst.Tuple, libcst.List)) and row.elements:
        every = elements_of(row)
        if len({text_of(one) for one in every}) == 1:
            return every[0], str(len(every))
    raise Refused("the line does not show how often one tensor is joined")


def _is_row(value: libcst.BaseExpression) -> bool:
    return isinstance(value, (libcst.Tuple, libcst.List))


def _counted(row: libcst.ListComp | libcst.GeneratorExp) -> tuple[libcst.BaseExpression, str]:
    loop = row.for_in
    counts = isinstance(loop.iter, libcst.Call) and text_of(loop.iter.func) == "range" and len(loop.iter.args) == 1
    is_plain = isinstance(loop.target, libcst.Name) and not loop.ifs and loop.inner_for_in is None
    if not counts or not is_plain or not isinstance(loop.iter, libcst.Call):
        raise Refused("the line does not show how often one tensor is joined")
    if isinstance(loop.target, libcst.Name) and text_of(row.elt) == loop.target.value:
        raise Refused("the tensors that are joined are others in each round")
    return row.elt, text_of(loop.iter.args[0].value)
