"""A loop that does the same arithmetic for each column of its tensors, and no round needs another's result."""

from __future__ import annotations

import libcst
from libcst import matchers
from msgspec import Struct

from profkit.rules.changes.base import Edit, ProgramText, called_name, elements_of, text_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.rounds import refuse_later_reads
from profkit.rules.changes.scopes import assignment_of, is_set, names_in, uses

_ARITHMETIC = (libcst.Add, libcst.Subtract, libcst.Multiply, libcst.Divide)
_COUNTING = frozenset(("range", "reversed", "len", "size"))
_NO_COLUMNS = "the rounds do not work on one column each"


class _Column(Struct, frozen=True):
    """A place that takes one column: ``x[t, n]`` or ``x[t][n]`` of ``x``, where ``n`` is the index at ``axis``."""

    node: libcst.Subscript
    of: str
    axis: int


def columns_at_once(text: ProgramText, loops: list[libcst.For]) -> bytes:
    """The file with the body of a loop in its place, for all columns. Raises `Refused` for other loops."""
    after, reason = b"", ""
    for loop in loops:
        after, reason = _attempted(text, loop)
        if after:
            return after
    raise Refused(reason)


def _attempted(text: ProgramText, loop: libcst.For) -> tuple[bytes, str]:
    try:
        return _without_loop(text, loop), ""
    except Refused as reason:
        return b"", str(reason)


def _without_loop(text: ProgramText, loop: libcst.For) -> bytes:
    if not isinstance(loop.target, libcst.Name) or loop.orelse is not None or loop.asynchronous is not None:
        raise Refused(_NO_COLUMNS)
    index = loop.target.value
    columns = [_column(text, one) for one in uses(text, loop.body, index)]
    if not columns:
        raise Refused(_NO_COLUMNS)
    _refuse_other_length(text, loop, columns)
    known = {column.of: column for column in columns}
    for column in columns:
        if known[column.of].axis != column.axis:
            raise Refused(f"`{column.of}` is taken by columns of two dimensions")
    _refuse_other_parts(text, loop)
    _refuse_whole(text, loop, columns)
    _refuse_carried(text, loop, index)
    edits: dict[libcst.CSTNode, Edit] = {column.node: _for_all for column in columns}
    edits[loop] = _dissolved
    return text.edited(edits)


def _column(text: ProgramText, name: libcst.Name) -> _Column:
    element, picked = [*text.ancestors(name)][1:3]
    is_last = isinstance(picked, libcst.Subscript) and picked.slice[-1] is element
    if not isinstance(picked, libcst.Subscript) or not is_last or not isinstance(element, libcst.SubscriptElement):
        raise Refused(_NO_COLUMNS)
    before = [one.slice for one in picked.slice[:-1]]
    if not isinstance(element.slice, libcst.Index) or not all(isinstance(one, libcst.Index) for one in before):
        raise Refused(_NO_COLUMNS)
    if text_of(element.slice.value) != name.value or not isinstance(picked.value, (libcst.Name, libcst.Subscript)):
        raise Refused(_NO_COLUMNS)
    root = picked.value.value if isinstance(picked.value, libcst.Subscript) else picked.value
    if not isinstance(root, libcst.Name):
        raise Refused(_NO_COLUMNS)
    return _Column(picked, root.value, len(before) + isinstance(picked.value, libcst.Subscript))


def _refuse_other_length(text: ProgramText, loop: libcst.For, columns: list[_Column]) -> None:
    """Raise `Refused` unless the loop goes over all columns of one of the tensors."""
    head = loop.iter
    if not isinstance(head, libcst.Call) or text_of(head.func) != "range" or len(head.args) != 1 or head.args[0].star:
        raise Refused(_NO_COLUMNS)
    number = head.args[0].value
    lengths = {_length(text, number), text_of(number)}
    for one in columns:
        known = {f"{one.of}.shape[{one.axis}]", f"{one.of}.size({one.axis})", *([f"len({one.of})"] * (one.axis == 0))}
        if lengths & known:
            return
    raise Refused("nothing shows that the loop goes over all columns")


def _length(text: ProgramText, number: libcst.BaseExpression) -> str:
    """``x.shape[1]`` for ``n`` of ``t, n = x.shape``."""
    if not isinstance(number, libcst.Name):
        return ""
    scope = [one for one in text.nodes(libcst.Assign) if number.value in names_in(one.targets[0].target)]
    if len(scope) != 1 or len(scope[0].targets) != 1:
        return ""
    target, value = scope[0].targets[0].target, scope[0].value
    if not isinstance(target, libcst.Tuple):
        return text_of(assignment_of(text, number.value, number).value)
    shape = text_of(value).removesuffix(".size()").removesuffix(".shape")
    names = [text_of(one) for one in elements_of(target)]
    return f"{shape}.shape[{names.index(number.value)}]" if number.value in names and shape != text_of(value) else ""


def _refuse_other_parts(text: ProgramText, loop: libcst.For) -> None:
    """Raise `Refused` if a round does more than arithmetic: what a function gives for all columns does not show."""
    if not isinstance(loop.body, libcst.IndentedBlock):
        raise Refused("the loop stands on one line")
    if any(line.comment is not None for line in loop.body.footer):
        raise Refused("a comment ends the loop")
    for node in _parts_of(loop.body):
        inner_head = next((one for one in [node, *text.ancestors(node)] if isinstance(one, libcst.Call)), None)
        if isinstance(node, libcst.Call) and called_name(node) not in _COUNTING:
            raise Refused(f"line {text.line_of(node)} calls `{called_name(node)}` in each round")
        if isinstance(node, libcst.BaseCompoundStatement) and not isinstance(node, libcst.For):
            raise Refused(f"line {text.line_of(node)} decides something in each round")
        if isinstance(node, libcst.BaseSmallStatement) and not isinstance(node, (libcst.Assign, libcst.AugAssign)):
            raise Refused(f"line {text.line_of(node)} does more than arithmetic")
        if isinstance(node, _NO_ARITHMETIC) and inner_head is None:
            raise Refused(f"line {text.line_of(node)} does more than arithmetic")
        if isinstance(node, libcst.BinaryOperation) and not isinstance(node.operator, _ARITHMETIC) and not inner_head:
            raise Refused(f"line {text.line_of(node)} does more than arithmetic")


_NO_ARITHMETIC = (
    libcst.Attribute,
    libcst.BaseComp,
    libcst.BooleanOperation,
    libcst.Comparison,
    libcst.Dict,
    libcst.IfExp,
    libcst.Lambda,
    libcst.List,
    libcst.NamedExpr,
    libcst.Slice,
    libcst.BaseString,
    libcst.Tuple,
    libcst.Await,
    libcst.Yield,
)


def _parts_of(node: libcst.CSTNode) -> list[libcst.CSTNode]:
    kinds = (libcst.BaseExpression, libcst.BaseSmallStatement, libcst.BaseCompoundStatement, libcst.Slice)
    return [*matchers.findall(node, matchers.MatchIfTrue(lambda one: isinstance(one, kinds)))]


def _refuse_whole(text: ProgramText, loop: libcst.For, columns: list[_Column]) -> None:
    """Raise `Refused` if a round looks at a tensor besides its own column of it."""
    taken = {id(name) for column in columns for name in matchers.findall(column.node, matchers.Name(column.of))}
    for name in sorted({column.of for column in columns}):
        others = [one for one in uses(text, loop.body, name) if id(one) not in taken and not _is_length(text, one)]
        if others:
            raise Refused(f"line {text.line_of(others[0])} looks at other columns of `{name}`")


def _is_length(text: ProgramText, name: libcst.Name) -> bool:
    """``x.shape[0]`` and ``len(x)`` in the head of a loop."""
    parent = next(text.ancestors(name))
    is_shape = isinstance(parent, libcst.Attribute) and parent.attr.value in ("shape", "size")
    return is_shape or (isinstance(parent, libcst.Arg) and any(_is_len(one) for one in text.ancestors(parent)))


def _is_len(node: libcst.CSTNode) -> bool:
    return isinstance(node, libcst.Call) and text_of(node.func) == "len"


def _refuse_carried(text: ProgramText, loop: libcst.For, index: str) -> None:
    """Raise `Refused` if a round begins with what the last one left, or something reads a round's variables later."""
    own = {name for name in names_in(loop.body) if any(_assigns(text, one) for one in uses(text, loop.body, name))}
    for name in sorted(own):
        first = next(part for part in loop.body.body if uses(text, part, name))
        part = first.body[0] if isinstance(first, libcst.SimpleStatementLine) else None
        is_inner = isinstance(first, libcst.For) and text_of(first.target) == name
        is_begun = isinstance(part, libcst.Assign) and text_of(part.targets[0].target) == name
        if not is_inner and not (is_begun and isinstance(part, libcst.Assign) and not uses(text, part.value, name)):
            raise Refused(f"`{name}` is carried over from round to round")
    for picked in (one for one in _parts_of(loop.body) if isinstance(one, libcst.Subscript)):
        root = next(iter(matchers.findall(picked.value, matchers.Name())), None)
        is_target = isinstance(root, libcst.Name) and is_set(text, root)
        if is_target and text_of(picked.slice[-1].slice).strip() != index and not _is_inside(text, picked):
            raise Refused(f"line {text.line_of(picked)} writes to the same place in each round")
    refuse_later_reads(text, loop, {index, *own})


def _assigns(text: ProgramText, name: libcst.Name) -> bool:
    """Whether the variable itself is assigned, not an item of it."""
    return is_set(text, name) and not isinstance(next(text.ancestors(name)), libcst.Subscript)


def _is_inside(text: ProgramText, picked: libcst.Subscript) -> bool:
    """``x[t]`` of ``x[t][n]``."""
    parent = next(text.ancestors(picked))
    return isinstance(parent, libcst.Subscript) and parent.value is picked


def _for_all(picked: libcst.Subscript) -> libcst.BaseExpression:
    *others, last = picked.slice
    if not others:
        return picked.value
    others[-1] = others[-1].with_changes(comma=last.comma)
    return picked.with_changes(slice=others)


def _dissolved(loop: libcst.For) -> libcst.FlattenSentinel[libcst.CSTNode]:
    first, *others = loop.body.body
    assert isinstance(first, (libcst.SimpleStatementLine, libcst.BaseCompoundStatement))
    own = [line for line in first.leading_lines if line.comment is not None]
    return libcst.FlattenSentinel([first.with_changes(leading_lines=[*loop.leading_lines, *own]), *others])
