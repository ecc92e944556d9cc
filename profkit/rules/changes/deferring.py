"""A call that gets a number of the device in each round is made behind the loop, for all rounds, after one read.

Where the loop looks at the object now and then, under an ``if``, the calls are made up for there.
"""

from __future__ import annotations

import libcst
from libcst import matchers
from msgspec import Struct

from profkit.rules.changes.base import Edit, ProgramText, called_name, detached, text_of
from profkit.rules.changes.bookkeeping import others_in, refuse_other_work
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import Loop, fresh_name, lies_in, mutated, variables_in, with_statements
from profkit.rules.changes.sharing import refuse_changed_later

_SIZES = frozenset(("len", "size", "numel", "int", "float"))
"""What else the call may be given: numbers that do not change later."""


class Deferred(Struct, frozen=True):
    """A call, its arguments that read a number each, and the tensors that are read."""

    call: libcst.Call
    numbers: tuple[libcst.Arg, ...]
    tensors: tuple[libcst.BaseExpression, ...]


class _Names(Struct, frozen=True):
    """Variables that the file does not use yet: the calls to come, one of them, its number."""

    noted: str
    entry: str
    number: str


def defer(text: ProgramText, loop: Loop, line: libcst.SimpleStatementLine, found: Deferred) -> bytes:
    """The file with the calls behind the loop. Raises `Refused` if somebody would see it."""
    refuse_other_work(text, loop, found.call)
    for tensor in found.tensors:
        refuse_changed_later(text, loop, tensor)
    if isinstance(loop, libcst.While) and not variables_in(text, loop.test):
        raise Refused("the loop has no end of its own")
    stored = _stored(text, loop, found)
    names = _Names(*(fresh_name(text, name) for name in ("noted", "entry", "number")))
    kept = [text_of(detached(tensor)) for tensor in found.tensors] + [text_of(one.value) for one in stored]
    entry = f"({', '.join(kept)})" if len(kept) > 1 else kept[0]
    behind = _calls(text, found, stored, names)
    blocks = {id(block): block for block in (_block_of(text, name, loop) for name in others_in(text, loop, found.call))}
    again = [text.parsed(one) for one in (*behind, f"{names.noted}.clear()")]
    appended = text.parsed(f"{names.noted}.append({entry})")
    edits: dict[libcst.CSTNode, Edit] = {
        line: lambda one: one.with_changes(body=appended.body),
        loop: lambda one: with_statements(text, (f"{names.noted} = []",), one, behind),
    }
    for block in blocks.values():
        edits[block] = lambda one: one.with_changes(body=[*again, *one.body])
    return text.edited(edits)


def _stored(text: ProgramText, loop: Loop, found: Deferred) -> list[libcst.Arg]:
    """The other arguments that have to be kept with the tensor. Numbers that stand there need not."""
    others = [one for one in found.call.args if one not in found.numbers]
    if any(one.star for one in found.call.args):
        raise Refused("the call takes arguments that the line does not show")
    stored = [one for one in others if not isinstance(one.value, (libcst.Integer, libcst.Float, libcst.SimpleString))]
    for one in stored:
        calls = [call for call in matchers.findall(one.value, matchers.Call()) if isinstance(call, libcst.Call)]
        if any(called_name(call) not in _SIZES for call in calls) or text.holds(one.value, libcst.Await):
            raise Refused(f"`{text_of(one.value)}` may be another one behind the loop")
        if changed := mutated(text, loop, variables_in(text, one.value)):
            raise Refused(f"`{min(changed)}` is changed in place in the loop")
    return stored


def _calls(text: ProgramText, found: Deferred, stored: list[libcst.Arg], names: _Names) -> tuple[str, ...]:
    torch, count = text.known_as("torch"), len(found.numbers)
    number = [names.number, *(fresh_name(text, f"{names.number}_{at}") for at in range(2, count + 1))]
    given = []
    for one in found.call.args:
        value = text_of(one.value)
        if one in found.numbers:
            is_float = isinstance(one.value, libcst.Call) and called_name(one.value) == "float"
            value = number[found.numbers.index(one)]
            value = f"float({value})" if is_float else value
        elif one in stored:
            value = f"{names.entry}[{stored.index(one) + count}]"
        given.append(f"{one.keyword.value}={value}" if one.keyword is not None else value)
    call = f"{text_of(found.call.func)}({', '.join(given)})"
    if count == 1 and not stored:
        read = f"{torch}.stack({names.noted}).flatten().tolist() if {names.noted} else []"
        return (f"for {names.number} in {read}:\n    {call}\n",)
    parts = [f"[{names.entry}[{at}] for {names.entry} in {names.noted}]" for at in range(count)]
    rows = [fresh_name(text, "numbers"), *(fresh_name(text, f"numbers_{at}") for at in range(2, count + 1))]
    reads = [
        f"{row} = {torch}.stack({part}).flatten().tolist() if {names.noted} else []"
        for row, part in zip(rows, parts, strict=True)
    ]
    each, over = ([names.entry, *number], [names.noted, *rows]) if stored else (number, rows)
    return *reads, f"for {', '.join(each)} in zip({', '.join(over)}):\n    {call}\n"


def _block_of(text: ProgramText, name: libcst.Name, loop: Loop) -> libcst.IndentedBlock:
    """The block under an ``if`` of the loop in which an object is looked at."""
    found = None
    for parent in text.ancestors(name):
        if parent is loop:
            break
        if isinstance(parent, libcst.IndentedBlock) and _is_conditional(text, parent):
            found = parent
    if found is None or not lies_in(text, found, loop.body):
        raise Refused(f"line {text.line_of(name)} names `{name.value}` in each round")
    return found


def _is_conditional(text: ProgramText, block: libcst.IndentedBlock) -> bool:
    around = text.ancestors(block)
    owner = next(around)
    return isinstance(owner, libcst.If) or (isinstance(owner, libcst.Else) and isinstance(next(around), libcst.If))
