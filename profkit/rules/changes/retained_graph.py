"""What is kept is kept without its history. A state that goes from step to step is cut off at the end of each."""

from __future__ import annotations

import libcst
from libcst import matchers

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, Edit, ProgramText, called_name, detached, text_of, without_argument
from profkit.rules.changes.given import detached_if_tensor
from profkit.rules.changes.keeping import kept_value
from profkit.rules.changes.refusing import AltersNumbers, Refused
from profkit.rules.changes.scopes import Loop, assigned_value, loops_around, names_in, scope_of, variables_in

_KEPT = Argument("retain_graph", 1)


def retained_graph(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    statement = text.statement_at(finding.location.line)
    try:
        value = kept_value(statement.body[0])
    except Refused:
        _cut_off(text, statement)
        raise
    edits = detached_if_tensor(text, value)
    return text.edited(edits) if edits else text.replaced(value, detached(value))


def _cut_off(text: ProgramText, statement: libcst.SimpleStatementLine) -> None:
    """Raise `AltersNumbers` with the change if the line carries a state over, such as ``out, h = rnn(x, h)``, and each
    round of the loop around it has its own backward pass. A loop without one goes through a single sequence."""
    part = statement.body[0]
    if not isinstance(part, libcst.Assign) or len(part.targets) != 1 or not isinstance(part.value, libcst.Call):
        return
    given = variables_in(text, part.value)
    carried = [name for name in _targets(part.targets[0].target) if name in given]
    loops = loops_around(text, statement)
    passes = _backward_passes(loops[0]) if loops else []
    if not carried or not passes or text.holds(loops[0].body, libcst.Continue):
        return
    plain = len(carried) == 1 and _is_pair(text, part.value, carried[0], statement)
    values = [f"tuple(one.detach() for one in {carried[0]})"] if plain else [f"{name}.detach()" for name in carried]
    last = text.parsed(f"{', '.join(carried)} = {', '.join(values)}")
    edits: dict[libcst.CSTNode, Edit] = {
        loops[0].body: lambda block: block.with_changes(body=[*block.body, last]),
    }
    if len(passes) == 1 and _KEPT.find(passes[0]) is not None:
        edits[passes[0]] = lambda call: without_argument(call, _KEPT, "True")
    names = " and ".join(f"`{name}`" for name in carried)
    raise AltersNumbers(f"gradients no longer reach past the {names} that a step begins with", text.edited(edits))


def _targets(target: libcst.BaseExpression) -> list[str]:
    """The variables that are assigned, of ``out, (h, c)`` too."""
    if isinstance(target, libcst.Tuple):
        return [name for one in target.elements for name in _targets(one.value)]
    return [target.value] if isinstance(target, libcst.Name) else []


def _backward_passes(loop: Loop) -> list[libcst.Call]:
    calls = matchers.findall(loop.body, matchers.Call())
    return [one for one in calls if isinstance(one, libcst.Call) and called_name(one) == "backward"]


def _is_pair(text: ProgramText, call: libcst.Call, name: str, near: libcst.CSTNode) -> bool:
    """Whether the state is a pair, as that of an LSTM is."""
    scope = scope_of(text, near)
    for one in text.nodes(libcst.Assign):
        begins = any(text_of(target.target) == name for target in one.targets) and scope_of(text, one) is scope
        if begins and isinstance(one.value, libcst.Tuple):
            return True
    try:
        made = names_in(assigned_value(text, text_of(call.func), near))
    except Refused:
        made = set()
    return "LSTM" in made or "lstm" in text_of(call.func).lower()
