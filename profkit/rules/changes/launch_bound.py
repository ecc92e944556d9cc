"""The model is compiled before the loop. Fused operators round differently, so it is an opportunity, and never safe."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import ProgramText, text_of
from profkit.rules.changes.models import model_call
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import are_set, loops_around, variables_in, with_statements

_METHODS = frozenset(
    (
        "append",
        "backward",
        "chunk",
        "copy_",
        "extend",
        "mean",
        "reshape",
        "size",
        "softmax",
        "split",
        "sum",
        "to",
        "view",
    )
)
"""Methods with one argument that are often called in a step, and are no models."""


def launch_bound(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    call = model_call(text, finding.location.line)
    if isinstance(call.func, libcst.Attribute) and call.func.attr.value in _METHODS:
        raise Refused("no call of a model on that line")
    loops = loops_around(text, call)
    if not loops:
        raise Refused("the model is called in no loop of its function: nothing shows where it could be compiled once")
    model = text_of(call.func)
    if are_set(text, loops[-1], variables_in(text, call.func)):
        raise Refused(f"`{model}` is set inside of the loop")
    return text.edited({loops[-1]: lambda loop: with_statements(text, (f"{model}.compile()",), loop)})
