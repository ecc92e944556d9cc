"""The parts are collected in a list and joined once: behind the loop, or when somebody reads the attribute."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import Edit, ProgramText, called_name, elements_of, followed_by, text_of
from profkit.rules.changes.begun_as_none import line_of_none, rounds_of
from profkit.rules.changes.growing_rows import keep_rows
from profkit.rules.changes.parts import collect_parts
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import are_set, fresh_name, loops_around, uses, variables_in, with_statements
from profkit.rules.changes.sharing import may_be_kept, refuse_changed_later, refuse_interrupted, refuse_shared

_JOINING = ("cat", "concat", "concatenate", "hstack", "vstack", "dstack")


def growing_concatenation(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    statement = text.statement_at(finding.location.line)
    if isinstance(statement.body[0], libcst.Assign) and isinstance(statement.body[0].value, libcst.DictComp):
        return keep_rows(text, statement, statement.body[0])
    rounds = rounds_of(text, statement)
    name, call, part = _grown(rounds.later)
    if not name.isidentifier():
        return collect_parts(text, statement, call, part)
    loops = loops_around(text, statement)
    if not loops:
        raise Refused("the line stands in no loop of its function")
    loop, own = loops[0], uses(text, rounds.whole, name)
    if others := [one for one in uses(text, loop, name) if one not in own]:
        raise Refused(f"line {text.line_of(others[0])} names `{name}` inside of the loop too")
    if len(own) != 2 + rounds.asked or (rounds.first is not None and text_of(rounds.first) != text_of(part)):
        raise Refused(f"what is joined to `{name}` is computed from it")
    if changed := are_set(text, loop, {one for given in call.args[1:] for one in variables_in(text, given)}):
        raise Refused(f"`{min(changed)}`, by which it is joined, changes in the loop")
    refuse_shared(text, statement, name)
    refuse_interrupted(text, loop, name)
    refuse_changed_later(text, loop, part)
    parts = fresh_name(text, f"{name}_parts")
    whole = text_of(call.with_changes(args=[_list_argument(call, parts), *call.args[1:]]))
    kept = followed_by(part, "clone") if may_be_kept(text, loop, part) else part
    appended = text.parsed(f"{parts}.append({text_of(kept)})")
    if rounds.first is not None:
        begun = line_of_none(text, loop, name)
        return text.edited(
            {
                begun: lambda line: line.with_changes(body=text.parsed(f"{parts} = []").body),
                rounds.whole: lambda line: appended.with_changes(leading_lines=line.leading_lines),
                loop: lambda one: with_statements(text, (), one, (f"{name} = {whole} if {parts} else None",)),
            }
        )
    edits: dict[libcst.CSTNode, Edit] = {
        statement: lambda line: line.with_changes(body=appended.body),
        loop: lambda one: with_statements(text, (f"{parts} = [{name}]",), one, (f"{name} = {whole}",)),
    }
    return text.edited(edits)


def _grown(part: libcst.BaseSmallStatement) -> tuple[str, libcst.Call, libcst.BaseExpression]:
    """The variable that grows, the call, and what is joined to its end."""
    if not isinstance(part, libcst.Assign) or len(part.targets) != 1 or not isinstance(part.value, libcst.Call):
        raise Refused("the line does not assign what it joins to a variable")
    target, call = part.targets[0].target, part.value
    if not _is_place(target) or called_name(call) not in _JOINING or not call.args:
        raise Refused("the line does not assign what it joins to a variable")
    pieces = call.args[0].value
    if not isinstance(pieces, (libcst.List, libcst.Tuple)) or len(pieces.elements) != 2:
        raise Refused("the line does not join two tensors")
    first, second = elements_of(pieces)
    if text_of(first) != text_of(target):
        raise Refused(f"`{text_of(target)}` does not grow at its end")
    return text_of(target), call, second


def _is_place(target: libcst.BaseExpression) -> bool:
    """A variable, or an attribute of ``self``."""
    return isinstance(target, libcst.Name) or (isinstance(target, libcst.Attribute) and text_of(target.value) == "self")


def _list_argument(call: libcst.Call, name: str) -> libcst.Arg:
    return call.args[0].with_changes(value=libcst.Name(name))
