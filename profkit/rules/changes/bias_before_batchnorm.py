"""The layers before a normalisation get ``bias=False``. What is drawn at random behind them is other than before."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise

import libcst
from libcst import matchers

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, Edit, ProgramText, called_name, text_of, with_argument
from profkit.rules.changes.passing import passed_literals
from profkit.rules.changes.refusing import AltersNumbers, Refused

_LAYER = re.compile(r"^(?:Lazy)?(?:Conv(?:Transpose)?[123]d|Linear)$")
_NORM = re.compile(r"^(?:Lazy)?(?:BatchNorm[123]d|SyncBatchNorm)$")
_BIAS = Argument("bias")


def bias_before_batchnorm(text: ProgramText, finding: Finding) -> bytes:
    del finding  # which layers they are, the whole file shows
    layers = [*_in_rows(text), *_in_calls(text)]
    changed: dict[libcst.CSTNode, Edit] = {one: _without_bias for one in layers if _BIAS.find(one) is None}
    changed = changed or _at_callers(text, layers)
    if not changed:
        raise Refused("no layer with a normalisation right behind it is made in this file without saying `bias`")
    raise AltersNumbers("what is drawn at random after a layer without a bias is something else", text.edited(changed))


def _without_bias(layer: libcst.Call) -> libcst.Call:
    return with_argument(layer, _BIAS, "False")


def _at_callers(text: ProgramText, layers: list[libcst.Call]) -> dict[libcst.CSTNode, Edit]:
    """Where a layer has ``bias=bias``, a parameter of its class that nothing else uses, each call that passes True."""
    found: dict[libcst.CSTNode, Edit] = {}
    for layer in layers:
        given = _BIAS.find(layer)
        if given is not None and isinstance(given.value, libcst.Name):
            found |= {one: lambda _: libcst.Name("False") for one in passed_literals(text, given.value, "True")}
    return found


def _in_rows(text: ProgramText) -> list[libcst.Call]:
    """Layers that are arguments or elements, followed by a normalisation: of `nn.Sequential`, or of a list."""
    rows: list[list[libcst.BaseExpression]] = [[one.value for one in call.args] for call in text.nodes(libcst.Call)]
    rows += [[one.value for one in row.elements] for row in text.nodes(libcst.List)]
    rows += [[one.value for one in row.elements] for row in text.nodes(libcst.Tuple)]
    pairs = (pair for row in rows for pair in pairwise(row))
    return [one for one, after in pairs if _made(one, _LAYER) and _made(after, _NORM)]  # type: ignore[misc]


def _in_calls(text: ProgramText) -> list[libcst.Call]:
    """Layers ``self.a`` that a method calls as ``self.b(self.a(x))`` alone, where ``self.b`` is a normalisation; in two
    lines too."""
    found: list[libcst.Call] = []
    for kind in text.nodes(libcst.ClassDef):
        made, names = _attributes(kind), _elements(kind)
        calls = [one for one in matchers.findall(kind, matchers.Call()) if isinstance(one, libcst.Call)]
        inner = {id(call.args[0].value): _own(call, names) for call in calls if len(call.args) == 1}
        inner |= {id(layer): _own(norm, names) for layer, norm in _in_lines(kind)}
        for name, layers in made.items():
            outer = [inner.get(id(call), "") for call in calls if _own(call, names) == name]
            if _all_made(layers, _LAYER) and outer and all(_all_made(made.get(norm, []), _NORM) for norm in outer):
                found += layers
    return found


def _in_lines(kind: libcst.ClassDef) -> list[tuple[libcst.Call, libcst.Call]]:
    """The calls of ``x = a(…)`` and ``x = b(x)`` right below it."""
    blocks = matchers.findall(kind, matchers.IndentedBlock())
    rows = [one.body for one in blocks if isinstance(one, libcst.IndentedBlock)]
    pairs = [(_assigned(first), _assigned(second)) for row in rows for first, second in pairwise(row)]
    return [
        (first[1], second[1])
        for first, second in pairs
        if first is not None and second is not None and first[0] == second[0]
        if [text_of(one.value) for one in second[1].args] == [first[0]]
    ]


def _assigned(line: libcst.BaseStatement) -> tuple[str, libcst.Call] | None:
    """The variable of ``x = f(…)`` and the call."""
    part = line.body[0] if isinstance(line, libcst.SimpleStatementLine) and len(line.body) == 1 else None
    if not isinstance(part, libcst.Assign) or len(part.targets) != 1 or not isinstance(part.value, libcst.Call):
        return None
    target = part.targets[0].target
    return (target.value, part.value) if isinstance(target, libcst.Name) else None


def _attributes(kind: libcst.ClassDef) -> dict[str, list[libcst.Call]]:
    """What a class makes and keeps: the calls by the names of their attributes, of those that are set once. Of a
    `ModuleList` those of its elements."""
    found: dict[str, list[libcst.BaseExpression]] = {}
    for one in matchers.findall(kind, matchers.Assign()):
        if isinstance(one, libcst.Assign) and _self(one.targets[0].target):
            found.setdefault(_self(one.targets[0].target), []).append(one.value)
    appended: dict[str, list[libcst.BaseExpression]] = {}
    for call in matchers.findall(kind, matchers.Call()):
        if isinstance(call, libcst.Call) and called_name(call) == "append" and isinstance(call.func, libcst.Attribute):
            appended.setdefault(_self(call.func.value), []).extend(one.value for one in call.args)
    made = {name: [*_kept(values[0]), *appended.get(name, [])] for name, values in found.items() if len(values) == 1}
    return {
        name: [one for one in kept if isinstance(one, libcst.Call)]
        for name, kept in made.items()
        if all(isinstance(one, libcst.Call) for one in kept)
    }


def _kept(value: libcst.BaseExpression) -> list[libcst.BaseExpression]:
    """The layer, or those that a ``ModuleList`` is made of."""
    if not isinstance(value, libcst.Call) or called_name(value) != "ModuleList":
        return [value]
    rows = [one.value for one in value.args]
    kept: list[libcst.BaseExpression] = []
    for row in rows:
        if isinstance(row, (libcst.GeneratorExp, libcst.ListComp)):
            kept.append(row.elt)
        elif isinstance(row, (libcst.List, libcst.Tuple)):
            kept += [one.value for one in row.elements]
        else:
            kept.append(row)  # a variable: what it holds does not show
    return kept


def _elements(kind: libcst.ClassDef) -> dict[str, str]:
    """The variables that stand for an element of a `ModuleList`: ``for a, b in zip(self.a, self.b)``, ``b =
    self.b[i]``. One that stands for two is left out."""
    found: dict[str, set[str]] = {}
    pairs: list[tuple[libcst.BaseExpression, libcst.BaseExpression]] = []
    for loop in matchers.findall(kind, matchers.For()):
        if isinstance(loop, libcst.For):
            pairs += _bound(loop.target, loop.iter)
    for one in matchers.findall(kind, matchers.Assign()):
        if isinstance(one, libcst.Assign):
            at = one.value.value if isinstance(one.value, libcst.Subscript) else libcst.Name("_")
            pairs += [(target.target, at) for target in one.targets]
    for target, value in pairs:
        if isinstance(target, libcst.Name):
            found.setdefault(target.value, set()).add(_self(value))
    return {name: owners.pop() for name, owners in found.items() if len(owners) == 1}


def _bound(
    target: libcst.BaseExpression, value: libcst.BaseExpression
) -> list[tuple[libcst.BaseExpression, libcst.BaseExpression]]:
    """What each variable of a loop runs through."""
    if isinstance(value, libcst.Call) and isinstance(target, libcst.Tuple):
        parts = [one.value for one in target.elements]
        if called_name(value) == "enumerate" and len(parts) == 2 and value.args:
            return _bound(parts[1], value.args[0].value)
        if called_name(value) == "zip":
            return [pair for part, one in zip(parts, value.args, strict=False) for pair in _bound(part, one.value)]
    return [(target, value)]


def _own(call: libcst.Call, names: Mapping[str, str]) -> str:
    """The attribute that is called, or of whose elements one is."""
    function = call.func.value if isinstance(call.func, libcst.Subscript) else call.func
    return names.get(function.value, "") if isinstance(function, libcst.Name) else _self(function)


def _self(node: libcst.CSTNode) -> str:
    is_own = isinstance(node, libcst.Attribute) and isinstance(node.value, libcst.Name) and node.value.value == "self"
    return node.attr.value if is_own and isinstance(node, libcst.Attribute) else ""


def _all_made(calls: list[libcst.Call], kind: re.Pattern[str]) -> bool:
    return bool(calls) and all(_made(call, kind) for call in calls)


def _made(node: libcst.BaseExpression | None, kind: re.Pattern[str]) -> bool:
    return isinstance(node, libcst.Call) and kind.match(called_name(node)) is not None
