"""The optimizer updates all parameters at once."""

from __future__ import annotations

import re
from contextlib import suppress

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, ProgramText, text_of, with_argument, without_argument
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import assigned_value, scope_of

_ADVICE = re.compile(r"^Pass `(fused|foreach)=True`.*? to `torch\.optim\.(\w+)`")
"""How the rule's fix begins where the program uses an optimizer of PyTorch's."""


def single_tensor_optimizer(text: ProgramText, finding: Finding) -> bytes:
    advised = _ADVICE.match(finding.fix)
    if advised is None:
        raise Refused("the loop is the program's own: how to write it for all parameters at once is not known")
    way, name = advised.groups()
    assert finding.location is not None
    made = _nearest(text, text.calls(name), finding.location.line)
    if len(made) != 1:
        raise Refused(f"{len(made) or 'no'} call{'s' * (len(made) != 1)} of `{name}` in the file that steps")
    changed, looped = made[0], Argument("foreach").find(made[0])
    if way == "fused" and looped is not None:
        changed = without_argument(changed, Argument("foreach"), "False")
    return text.replaced(made[0], with_argument(changed, Argument(way), "True"))


def _nearest(text: ProgramText, made: list[libcst.Call], line: int) -> list[libcst.Call]:
    """If the file makes several, the one that steps on the line, else those in the function that steps."""
    if len(made) < 2:
        return made
    statement = text.statement_at(line)
    stepping = [call.func for call in text.calls("step") if text.covers(statement, text.line_of(call))]
    names = {text_of(one.value) for one in stepping if isinstance(one, libcst.Attribute)}
    if len(names) == 1:
        with suppress(Refused):
            value = assigned_value(text, names.pop(), statement)
            return [call for call in made if call is value]
    here = scope_of(text, statement)
    return [call for call in made if scope_of(text, call) is here] or made
