"""The layers before a normalisation get ``bias=False``. What is drawn at random behind them is other than before."""

from __future__ import annotations

import re
from itertools import pairwise

import libcst
from libcst import matchers

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, Edit, ProgramText, called_name, with_argument
from profkit.rules.changes.refusing import AltersNumbers, Refused

_LAYER = re.compile(r"^(?:Lazy)?(?:Conv(?:Transpose)?[123]d|Linear)$")
_NORM = re.compile(r"^(?:Lazy)?(?:BatchNorm[123]d|SyncBatchNorm)$")
_BIAS = Argument("bias")


def bias_before_batchnorm(text: ProgramText, finding: Finding) -> bytes:
    del finding  # which layers they are, the whole file shows
    layers = [*_in_rows(text), *_in_calls(text)]
    changed: dict[libcst.CSTNode, Edit] = {one: _without_bias for one in layers if _BIAS.find(one) is None}
    if not changed:
        raise Refused("no layer with a normalisation right behind it is made in this file without saying `bias`")
    raise AltersNumbers("what is drawn at random after a layer without a bias is something else", text.edited(changed))


def _without_bias(layer: libcst.Call) -> libcst.Call:
    return with_argument(layer, _BIAS, "False")


def _in_rows(text: ProgramText) -> list[libcst.Call]:
    """Layers that are arguments or elements, followed by a normalisation: of `nn.Sequential`, or of a list."""
    rows: list[list[libcst.BaseExpression]] = [[one.value for one in call.args] for call in text.nodes(libcst.Call)]
    rows += [[one.value for one in row.elements] for row in text.nodes(libcst.List)]
    rows += [[one.value for one in row.elements] for row in text.nodes(libcst.Tuple)]
    pairs = (pair for row in rows for pair in pairwise(row))
    return [one for one, after in pairs if _made(one, _LAYER) and _made(after, _NORM)]  # type: ignore[misc]


def _in_calls(text: ProgramText) -> list[libcst.Call]:
    """Layers ``self.a`` that a method calls as ``self.b(self.a(x))`` alone, where ``self.b`` is a normalisation."""
    found: list[libcst.Call] = []
    for kind in text.nodes(libcst.ClassDef):
        made = _attributes(kind)
        calls = [one for one in matchers.findall(kind, matchers.Call()) if isinstance(one, libcst.Call)]
        inner = {id(call.args[0].value): _own(call) for call in calls if len(call.args) == 1}
        for name, layer in made.items():
            outer = [inner.get(id(call), "") for call in calls if _own(call) == name]
            if _made(layer, _LAYER) and outer and all(_made(made.get(norm), _NORM) for norm in outer):
                found.append(layer)
    return found


def _attributes(kind: libcst.ClassDef) -> dict[str, libcst.Call]:
    """What a class makes and keeps: the calls by the names of their attributes, of those that are set once."""
    found: dict[str, list[libcst.BaseExpression]] = {}
    for one in matchers.findall(kind, matchers.Assign()):
        if isinstance(one, libcst.Assign) and _self(one.targets[0].target):
            found.setdefault(_self(one.targets[0].target), []).append(one.value)
    return {name: made[0] for name, made in found.items() if len(made) == 1 and isinstance(made[0], libcst.Call)}


def _own(call: libcst.Call) -> str:
    return _self(call.func)


def _self(node: libcst.CSTNode) -> str:
    is_own = isinstance(node, libcst.Attribute) and isinstance(node.value, libcst.Name) and node.value.value == "self"
    return node.attr.value if is_own and isinstance(node, libcst.Attribute) else ""


def _made(node: libcst.BaseExpression | None, kind: re.Pattern[str]) -> bool:
    return isinstance(node, libcst.Call) and kind.match(called_name(node)) is not None
