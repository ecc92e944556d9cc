"""The model and what it is given keep the channels last."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import Edit, ProgramText, followed_by, text_of
from profkit.rules.changes.models import model_call
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import are_set, loops_around, variables_in, with_statements


def channels_first_convolution(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    call = model_call(text, finding.location.line)
    loops = loops_around(text, call)
    if not loops:
        raise Refused("the model is called in no loop of its function: nothing shows where it could be converted once")
    model = text_of(call.func)
    if are_set(text, loops[-1], variables_in(text, call.func)):
        raise Refused(f"`{model}` is set inside of the loop")
    layout = f"memory_format={text.known_as('torch')}.channels_last"
    given = call.args[0]
    argument = libcst.parse_expression(f"x.to({layout})")
    assert isinstance(argument, libcst.Call)
    edits: dict[libcst.CSTNode, Edit] = {
        given.value: lambda value: followed_by(value, "to", *argument.args),
        loops[-1]: lambda loop: with_statements(text, (_converted(call.func, f"{model}.to({layout})"),), loop),
    }
    return text.edited(edits)


def _converted(model: libcst.BaseExpression, source: str) -> str:
    """A module is converted in place: an attribute needs no assignment, which it might not allow."""
    return f"{model.value} = {source}" if isinstance(model, libcst.Name) else source
