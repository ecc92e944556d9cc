"""The loader hands over pinned memory, and the copy does not wait."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, Edit, ProgramText, called_name, text_of, with_argument
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import loops_around, scope_of, variables_in
from profkit.rules.changes.sending import receiver, sent_on

_AROUND = frozenset(("enumerate", "tqdm", "iter", "islice", "zip"))
"""What a loader is often wrapped in for a loop."""


def pageable_transfer(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    sent = sent_on(text, finding.location.line)
    if not sent:
        raise Refused("no tensor sent to a device on that line")
    loader = _loader_of(text, sent)
    edits: dict[libcst.CSTNode, Edit] = dict.fromkeys(sent, _does_not_wait)
    if _passed(loader, "pin_memory") != "True":
        edits[loader] = lambda call: with_argument(call, Argument("pin_memory", 7), "True")
    return text.edited(edits)


def _does_not_wait(call: libcst.Call) -> libcst.Call:
    return with_argument(call, Argument("non_blocking"), "True")


def _passed(call: libcst.Call, name: str) -> str:
    """The source of an argument that is passed by its name; empty if there is none."""
    given = Argument(name).find(call)
    return "" if given is None else text_of(given.value)


def _loader_of(text: ProgramText, sent: list[libcst.Call]) -> libcst.Call:
    """The call that makes the loader whose batches are sent: the loop around the line runs over it."""
    names = {one for call in sent for one in variables_in(text, receiver(call))}
    for loop in loops_around(text, sent[0]):
        if isinstance(loop, libcst.For) and names & variables_in(text, loop.target):
            return _made(text, _iterated(loop.iter), loop)
    raise Refused("what is sent comes from no loop over a loader: call `.pin_memory()` once, where it is made")


def _iterated(value: libcst.BaseExpression) -> libcst.BaseExpression:
    while isinstance(value, libcst.Call) and called_name(value) in _AROUND and value.args:
        value = value.args[0].value
    return value


def _made(text: ProgramText, loader: libcst.BaseExpression, near: libcst.CSTNode) -> libcst.Call:
    if isinstance(loader, libcst.Call) and called_name(loader) == "DataLoader":
        return loader
    name = text_of(loader)
    set_at = [one for one in text.nodes(libcst.Assign) if any(text_of(to.target) == name for to in one.targets)]
    set_at = [one for one in set_at if scope_of(text, one) is scope_of(text, near)] or set_at
    made = [one.value for one in set_at if isinstance(one.value, libcst.Call)]
    if len(set_at) != 1 or len(made) != 1 or called_name(made[0]) != "DataLoader":
        raise Refused(f"nothing in this file shows that `{name}` is one `DataLoader`")
    return made[0]
