"""A number that is read into a variable at once, and used further down: it is read there."""

from __future__ import annotations

from collections.abc import Callable

import libcst

from profkit.rules.changes.base import Edit, ProgramText, called_name, program_text, text_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import Loop, guarded, is_set, loops_around, mutates, scope_of, uses, variables_in
from profkit.rules.changes.sharing import refuse_shared

Keep = Callable[[ProgramText, libcst.SimpleStatementLine], bytes]
"""What becomes of a line that keeps a number in each round."""

_TEXT = (libcst.FormattedString,)


def is_read(call: libcst.Call) -> bool:
    """``x.item()`` and ``float(x)``."""
    if isinstance(call.func, libcst.Attribute):
        return call.func.attr.value == "item" and not call.args
    return called_name(call) == "float" and len(call.args) == 1 and not call.args[0].star


def is_early(part: libcst.BaseSmallStatement) -> bool:
    """``value = x.item()``."""
    is_plain = isinstance(part, libcst.Assign) and len(part.targets) == 1
    if not is_plain or not isinstance(part, libcst.Assign) or not isinstance(part.targets[0].target, libcst.Name):
        return False
    return isinstance(part.value, libcst.Call) and is_read(part.value)


def read_later(text: ProgramText, line: libcst.SimpleStatementLine, loops: list[Loop], keep: Keep) -> bytes:
    """The file with the read where its number is used: under an ``if``, or by one line that keeps it, which ``keep``
    then changes. Raises `Refused` if that may be another number, or is used in each round otherwise."""
    part = line.body[0]
    assert isinstance(part, libcst.Assign)
    name, read = text_of(part.targets[0].target), part.value
    refuse_shared(text, line, name)
    used = [one for one in uses(text, scope_of(text, line), name) if one is not part.targets[0].target]
    if not used:
        raise Refused(f"nothing reads `{name}`")
    _refuse_other_numbers(text, line, loops[0], used, name)
    _refuse_changed_before(text, line, read, used)
    each_round = [one for one in used if not guarded(text, one, loops[0])]
    kept = {text.line_of(one) for one in each_round}
    if len(kept) > 1:
        raise Refused(f"line {max(kept)} uses `{name}` in each round, too")
    edits: dict[libcst.CSTNode, Edit] = dict.fromkeys(used, lambda _: read)
    later = program_text(text.edited(edits))
    if kept:
        later = program_text(keep(later, later.statement_at(min(kept))))
    statements = later.nodes(libcst.SimpleStatementLine)
    own = [one for one in statements if len(one.body) == 1 and text_of(one.body[0]) == text_of(part)]
    if len(own) != 1:
        raise Refused(f"`{name}` is read at {len(own) or 'no'} places")
    return later.without(own[0])


def _refuse_other_numbers(
    text: ProgramText, line: libcst.SimpleStatementLine, loop: Loop, used: list[libcst.Name], name: str
) -> None:
    """Raise `Refused` if a variable is set elsewhere too, or read outside of its round."""
    if "\n" in text_of(line.body[0]):
        raise Refused("the read stands on several lines")
    for one in used:
        if {"'", '"'} & {*text_of(line.body[0])} and any(isinstance(at, _TEXT) for at in text.ancestors(one)):
            raise Refused(
                f"line {text.line_of(one)} uses `{name}` in a text, whose quotes may end at those of the read"
            )
        if is_set(text, one):
            raise Refused(f"line {text.line_of(one)} sets `{name}` too")
        around = loops_around(text, one)
        if not around or around[0] is not loop or text.line_of(one) <= text.line_of(line):
            raise Refused(f"line {text.line_of(one)} reads `{name}` outside of its round")


def _refuse_changed_before(
    text: ProgramText, line: libcst.SimpleStatementLine, read: libcst.BaseExpression, used: list[libcst.Name]
) -> None:
    """Raise `Refused` if the tensor is another one, or has changed, when its number is used."""
    begin, end = text.line_of(line), max(text.line_of(one) for one in used)
    for name in sorted(variables_in(text, read)):
        for one in uses(text, scope_of(text, line), name):
            if begin < text.line_of(one) <= end and (is_set(text, one) or mutates(text, one)):
                raise Refused(f"line {text.line_of(one)} changes `{name}` before its number is used")
