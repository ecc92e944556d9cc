"""What is sent in each round is sent once before the loop; what a module keeps becomes a buffer and moves with it."""

from __future__ import annotations

import libcst
from libcst import matchers

from profkit.findings.values import Finding
from profkit.rules.changes.base import Edit, ProgramText, text_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import are_set, called_in, fresh_name, loops_around, variables_in, with_statements
from profkit.rules.changes.sending import only_sent, receiver
from profkit.rules.changes.sharing import refuse_changed_result

_STEADY = frozenset(
    (
        "arange",
        "as_tensor",
        "expand",
        "eye",
        "float",
        "from_numpy",
        "full",
        "linspace",
        "long",
        "ones",
        "reshape",
        "tensor",
        "transpose",
        "tril",
        "triu",
        "unsqueeze",
        "view",
        "zeros",
    )
)
"""Functions and methods that give the same each time for the same arguments."""


def repeated_transfer(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    sent = only_sent(text, finding.location.line)
    value = receiver(sent)
    if isinstance(value, libcst.Attribute) and text_of(value.value) == "self":
        return _as_buffer(text, sent, value.attr.value)
    return _before_the_loop(text, sent)


def _before_the_loop(text: ProgramText, call: libcst.Call) -> bytes:
    refuse_changed_result(text, call)
    if others := {name for name in called_in(receiver(call)) if name not in _STEADY}:
        raise Refused(f"`{min(others)}` may give something else each time")
    loops = loops_around(text, call)
    names = variables_in(text, call)
    lasting = []
    for loop in loops:
        if are_set(text, loop, names):
            break
        lasting.append(loop)
    if not lasting:
        raise Refused("what is sent, or where to, is set inside of the loop")
    base = text_of(receiver(call))
    name = fresh_name(text, f"{base if base.isidentifier() else 'tensor'}_there")
    edits: dict[libcst.CSTNode, Edit] = {
        call: lambda _: libcst.Name(name),
        lasting[-1]: lambda loop: with_statements(text, (f"{name} = {text_of(call)}",), loop),
    }
    return text.edited(edits)


def _as_buffer(text: ProgramText, call: libcst.Call, name: str) -> bytes:
    """``self.name = …`` in the constructor becomes a buffer. It stays out of the saved weights, as it was."""
    kind = next((one for one in text.ancestors(call) if isinstance(one, libcst.ClassDef)), None)
    if kind is None:
        raise Refused("the line is in no class")
    set_at = [
        one
        for one in matchers.findall(kind, matchers.Assign())
        if isinstance(one, libcst.Assign) and any(text_of(to.target) == f"self.{name}" for to in one.targets)
    ]
    if len(set_at) != 1 or len(set_at[0].targets) != 1 or not _in_constructor(text, set_at[0]):
        raise Refused(f"`self.{name}` is not set once, in the constructor")
    source = f'self.register_buffer("{name}", {text_of(set_at[0].value)}, persistent=False)'
    return text.edited({set_at[0]: lambda _: libcst.Expr(libcst.parse_expression(source))})


def _in_constructor(text: ProgramText, node: libcst.CSTNode) -> bool:
    around = next((one for one in text.ancestors(node) if isinstance(one, libcst.FunctionDef)), None)
    return around is not None and around.name.value == "__init__"
