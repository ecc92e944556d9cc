"""The position is taken first, and only that goes through the layer."""

from __future__ import annotations

import re

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import Edit, ProgramText, text_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import scope_of, uses

_LAYERS = re.compile(r"head|linear|proj|fc|classif|unembed|dense|readout", re.IGNORECASE)
"""In the name of a layer that treats each position by itself."""
_LAST = (":, -1", ":, -1, :")


def discarded_logits(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    statement = text.statement_at(finding.location.line)
    part = statement.body[0]
    if isinstance(part, libcst.Return):
        raise Refused("what the layer gives leaves the function, and others may need all positions")
    if not isinstance(part, libcst.Assign) or len(part.targets) != 1 or not isinstance(part.value, libcst.Call):
        raise Refused("the line does not assign the output of a layer to a variable")
    target, call = part.targets[0].target, part.value
    if not isinstance(target, libcst.Name) or len(call.args) != 1 or call.args[0].star or call.args[0].keyword:
        raise Refused("the line does not assign the output of a layer to a variable")
    _refuse_no_layer(text, call.func)
    reads = [one for one in uses(text, scope_of(text, statement), target.value) if one is not target]
    if not reads:
        raise Refused(f"`{target.value}` is read elsewhere")
    edits: dict[libcst.CSTNode, Edit] = {}
    for read in reads:
        picked = next(text.ancestors(read))
        if not isinstance(picked, libcst.Subscript) or _index(picked) not in _LAST:
            raise Refused(f"line {text.line_of(read)} reads more of `{target.value}` than its last position")
        edits[picked] = lambda one: one.value
    given = libcst.parse_expression(f"{_indexed(call.args[0].value)}[:, -1]")
    edits[call.args[0].value] = lambda _: given
    return text.edited(edits)


def _refuse_no_layer(text: ProgramText, function: libcst.BaseExpression) -> None:
    """Raise `Refused` if what is called may be a whole model, which looks at the other positions too."""
    name = text_of(function).rpartition(".")[2]
    made = {text_of(one.targets[0].target) for one in text.nodes(libcst.Assign) if "Linear(" in text_of(one.value)}
    noted = {
        text_of(one.target) for one in text.nodes(libcst.AnnAssign) if "Linear" in text_of(one.annotation.annotation)
    }
    if name not in {one.rpartition(".")[2] for one in made | noted} and not _LAYERS.search(name):
        raise Refused(f"nothing in this file shows that `{name}` is one linear layer")


def _index(picked: libcst.Subscript) -> str:
    return ", ".join(text_of(one.slice).strip() for one in picked.slice)


def _indexed(value: libcst.BaseExpression) -> str:
    is_plain = isinstance(value, (libcst.Name, libcst.Attribute, libcst.Subscript, libcst.Call))
    return text_of(value) if is_plain or value.lpar else f"({text_of(value)})"
