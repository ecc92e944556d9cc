"""Tensors of a dictionary that grow by joining get room for more rows, which doubles when it is full.

Unlike a list that is joined when somebody reads it, this wins where each round reads them, as a replay memory is.
"""

from __future__ import annotations

import libcst
from msgspec import Struct

from profkit.rules.changes.base import Edit, ProgramText, called_name, elements_of, text_of
from profkit.rules.changes.bookkeeping import refuse_concurrent
from profkit.rules.changes.parts import method_and_class, named, refuse_changed_in_place, refuse_watched
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import called_in, fresh_name, names_in, with_statements

_JOINING = frozenset(("cat", "concat", "concatenate"))
_SAVING = frozenset(("save", "dump", "dumps"))
"""What they write of a view is all of its memory."""
_ROWS = '''
class {kind}:
    """Rows behind one another, with room for more: adding some copies all of them only when it is full."""

    def __init__(self, rows):
        self.room, self.used = rows, len(rows)

    def add(self, rows):
        end, kept = self.used + len(rows), self.room[:self.used]
        is_plain = rows.dtype == kept.dtype and rows.device == kept.device and rows.shape[1:] == kept.shape[1:]
        if not is_plain or rows.requires_grad or kept.requires_grad or kept.is_inference():
            self.room, self.used = {join}((kept, rows)), end
            return self.room
        if end > len(self.room):
            self.room = kept.new_empty((2 * end, *kept.shape[1:]))
            self.room[:self.used] = kept
        self.room[self.used:end] = rows
        self.used = end
        return self.room.data[:end]  # adding more is no change to what a backward pass may need of these
'''


class _Grown(Struct, frozen=True):
    """``self.attribute = {key: join((old, new)) for key, old in self.attribute.items()}``."""

    attribute: str
    key: str
    old: str
    new: libcst.BaseExpression
    join: str


def keep_rows(text: ProgramText, line: libcst.SimpleStatementLine, part: libcst.Assign) -> bytes:
    """The file with room for more rows. Raises `Refused` if somebody might tell."""
    grown = _grown_of(part)
    name = grown.attribute
    _, kind = method_and_class(text, line)
    refuse_watched(text, kind, name)
    refuse_concurrent(text)
    if saved := _SAVING & called_in(text.module):
        raise Refused(f"what `{min(saved)}` writes would be longer, if it is one of these tensors")
    refuse_changed_in_place(text, line, name)
    for one in named(text.module, name):
        parent = next(text.ancestors(one))
        if isinstance(parent, libcst.Comparison) and text_of(parent).split()[-1] != "None":
            raise Refused(f"line {text.line_of(one)} compares `{name}`")
    rows, seen = fresh_name(text, f"_{name}_rows"), fresh_name(text, f"_{name}_seen")
    helper = fresh_name(text, "GrowingRows")
    anew = (
        f'if getattr(self, "{seen}", None) is not self.{name}:\n'
        f"    self.{rows} = {{{grown.key}: {helper}({grown.old}) "
        f"for {grown.key}, {grown.old} in self.{name}.items()}}\n"
    )
    added = f"{{{grown.key}: self.{rows}[{grown.key}].add({text_of(grown.new)}) for {grown.key} in self.{name}}}"
    grows = text.parsed(f"self.{name} = self.{seen} = {added}")
    between = [libcst.EmptyLine(indent=False), libcst.EmptyLine(indent=False)]
    above = text.parsed(_ROWS.format(kind=helper, join=grown.join).lstrip())
    edits: dict[libcst.CSTNode, Edit] = {
        line: lambda one: with_statements(text, (anew,), one.with_changes(body=grows.body)),
        kind: lambda one: libcst.FlattenSentinel(
            [above.with_changes(leading_lines=between), one.with_changes(leading_lines=_set_off(one, between))]
        ),
    }
    return text.edited(edits)


def _set_off(kind: libcst.ClassDef, between: list[libcst.EmptyLine]) -> list[libcst.EmptyLine]:
    """The comments above a class, and two empty lines above these."""
    return [*between, *(line for line in kind.leading_lines if line.comment is not None)]


def _grown_of(part: libcst.Assign) -> _Grown:
    target, value = part.targets[0].target, part.value
    is_own = isinstance(target, libcst.Attribute) and text_of(target.value) == "self"
    if len(part.targets) != 1 or not isinstance(target, libcst.Attribute) or not is_own:
        raise Refused("what grows is no attribute of `self`")
    each = value.for_in if isinstance(value, libcst.DictComp) else None
    if not isinstance(value, libcst.DictComp) or each is None or each.ifs or each.inner_for_in or each.asynchronous:
        raise Refused("what grows is no dictionary of tensors, one joined like the other")
    key, old = _key_and_value(each, f"self.{target.attr.value}.items()")
    call = value.value
    if text_of(value.key) != key or not isinstance(call, libcst.Call) or called_name(call) not in _JOINING:
        raise Refused("the tensors of the dictionary are not joined one by one")
    joined = call.args[0].value if call.args else None
    rest = [text_of(one.value) for one in call.args[1:]]
    if not isinstance(joined, (libcst.Tuple, libcst.List)) or len(joined.elements) != 2 or rest not in ([], ["0"]):
        raise Refused("the line does not join two tensors by their rows")
    first, second = elements_of(joined)
    if text_of(first) != old:
        raise Refused(f"`{target.attr.value}` does not grow at its end")
    if {old, target.attr.value} & names_in(second):
        raise Refused(f"what is joined to `{target.attr.value}` is computed from it")
    return _Grown(target.attr.value, key, old, second, text_of(call.func))


def _key_and_value(each: libcst.CompFor, items: str) -> tuple[str, str]:
    names = [text_of(one) for one in elements_of(each.target)] if isinstance(each.target, libcst.Tuple) else []
    if len(names) != 2 or text_of(each.iter) != items:
        raise Refused(f"the dictionary is not made of `{items}`")
    return names[0], names[1]
