"""A function that gives the same each time is called once: before the loop, or before the line that is one."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.alive import refuse_alive
from profkit.rules.changes.base import Edit, ProgramText, text_of
from profkit.rules.changes.redundant_recomputation import before_the_loops, is_always_reached
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import (
    Statement,
    are_set,
    fresh_name,
    loops_around,
    names_in,
    variables_in,
    with_statements,
)
from profkit.rules.changes.sharing import refuse_changed_result, refuse_declared

_MADE = "Make it once"
"""How the rule's fix begins where a function makes the same variable in each of its calls."""
_STEP_BEFORE = "arguments of the step before"
"""What the message says where each step's calls are known to give the same. Else only those of one step are."""
_VERBS = ("build_", "calculate_", "compute_", "create_", "get_", "load_", "make_", "prepare_")


def repeated_call(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    if finding.fix.startswith(_MADE):
        raise Refused("the function would have to be given what it makes: whoever calls it decides how")
    line, is_each_step = finding.location.line, _STEP_BEFORE in finding.message
    call = text.call_at(line, str(finding.evidence.get("callee", "")).rpartition(".")[2])
    around = next(text.ancestors(call))
    if isinstance(around, libcst.Assign) and len(around.targets) == 1:
        return before_the_loops(text, line, is_each_step)
    return _named(text, call, is_each_step)


def _named(text: ProgramText, call: libcst.Call, is_each_step: bool) -> bytes:
    """A call that is part of an expression: its result gets a name, before a loop that the text shows to be one of the
    repetition."""
    refuse_alive(call)
    refuse_changed_result(text, call)
    read = variables_in(text, call)
    for name in sorted(read):
        refuse_declared(text, name)
    place = _place(text, call, read, is_each_step)
    name = fresh_name(text, _noun(text_of(call.func).rpartition(".")[2]))
    edits: dict[libcst.CSTNode, Edit] = {
        call: lambda _: libcst.Name(name),
        place: lambda line: with_statements(text, (f"{name} = {text_of(call)}",), line),
    }
    return text.edited(edits)


def _place(text: ProgramText, call: libcst.Call, read: set[str], is_each_step: bool) -> Statement:
    """The statement before which the result can be made: the outermost loop that is known to repeat the call, or the
    line itself around a comprehension that does."""
    statement = _statement_of(text, call)
    found = statement if _is_in_comprehension(text, call, read) else None
    for loop in loops_around(text, call) if is_each_step or found is None else []:
        if are_set(text, loop, read) or not is_always_reached(text, statement, loop):
            break
        found = loop
        if not is_each_step:
            break
    if found is None:
        raise Refused("no loop around the line repeats the call with all that it reads as it was")
    return found


def _is_in_comprehension(text: ProgramText, call: libcst.Call, read: set[str]) -> bool:
    """Whether a comprehension repeats the call. Raises `Refused` where it, or a condition, decides what it gives."""
    found = False
    for one in text.ancestors(call):
        if isinstance(one, (libcst.ListComp, libcst.GeneratorExp, libcst.SetComp, libcst.DictComp)):
            if changed := names_in(one.for_in.target) & read:
                raise Refused(f"`{min(changed)}`, which it reads, is another in each round")
            found = True
        if isinstance(one, (libcst.IfExp, libcst.BooleanOperation, libcst.If, libcst.While)):
            raise Refused("a condition decides how often it is called")
        if isinstance(one, (libcst.BaseStatement, libcst.Lambda)):
            return found
    return found


def _statement_of(text: ProgramText, node: libcst.CSTNode) -> Statement:
    return next(one for one in text.ancestors(node) if isinstance(one, Statement))


def _noun(function: str) -> str:
    """``filters`` of ``make_filters``; ``filters_result`` of ``filters``."""
    verb = next((one for one in _VERBS if function.startswith(one)), "")
    return function.removeprefix(verb) if verb else f"{function}_result"
