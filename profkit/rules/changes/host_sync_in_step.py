"""What a loop adds up, collects or notes stays on the device; the number is read once, behind the loop.

Inside of the loop it is read where the program looks at it now and then, under an ``if``.
"""

from __future__ import annotations

import libcst
from msgspec import Struct

from profkit.findings.values import Finding
from profkit.rules.changes.base import Edit, ProgramText, called_name, detached, followed_by, text_of
from profkit.rules.changes.deferring import Deferred, defer
from profkit.rules.changes.early_reads import is_early, is_read, read_later
from profkit.rules.changes.keeping import kept_value, stored_value
from profkit.rules.changes.kinds import OTHER, WHOLE, kind_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import (
    Loop,
    assignment_of,
    fresh_name,
    guarded,
    is_set,
    lies_in,
    loops_around,
    scope_of,
    uses,
    with_statements,
)
from profkit.rules.changes.sharing import refuse_changed_later, refuse_interrupted, refuse_shared

_ON_THE_WAY = ("cpu", "detach")
"""Calls between a tensor and its ``.item()`` that are not needed any more."""


class _Kept(Struct, frozen=True):
    """What the line keeps: the variable, the read in it, whether in a list, and the loops around, innermost first.
    ``entry`` is what the list gets if the read is only a part of it: a tuple, or a dictionary."""

    name: str
    read: libcst.Call
    is_list: bool
    entry: libcst.Tuple | libcst.Dict | None
    line: libcst.SimpleStatementLine
    loops: list[Loop]


def host_sync_in_step(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    line = text.statement_at(finding.location.line)
    loops = loops_around(text, line)
    if not loops:
        raise Refused("the line stands in no loop of its function: nothing shows where the number can be read later")
    if is_early(line.body[0]):
        return read_later(text, line, loops, lambda other, at: _kept_there(other, at, loops_around(other, at)))
    return _kept_there(text, line, loops)


def _kept_there(text: ProgramText, line: libcst.SimpleStatementLine, loops: list[Loop]) -> bytes:
    if (found := _noted(line.body[0])) is not None:
        return defer(text, loops[0], line, found)
    kept = _find_kept(text, line, loops)
    first = _start_of(text, kept)
    outer = _lasting(text, kept, first)
    refuse_shared(text, kept.line, kept.name)
    refuse_interrupted(text, outer, kept.name)
    if kept.is_list:
        refuse_changed_later(text, outer, _tensor_of(kept.read))
        _refuse_earlier_use(text, kept, first, outer)
    kept_there = detached(_tensor_of(kept.read)) if kept.is_list else _summand(text, kept, first)
    edits: dict[libcst.CSTNode, Edit] = {kept.read: lambda _: kept_there}
    inside = uses(text, outer, kept.name)
    own = uses(text, kept.line, kept.name)
    for name in (one for one in inside if one not in own):
        _refuse_other_use(text, kept, name)
        if kept.is_list:
            raise Refused(f"`{kept.name}` is read inside of the loop too")
        edits[name] = lambda node: libcst.parse_expression(_as_number(text, first, node.value))
    edits[outer] = lambda loop: with_statements(text, (), loop, _behind(text, kept, first))
    return text.edited(edits)


def _noted(part: libcst.BaseSmallStatement) -> Deferred | None:
    """A call of a method of which nothing is expected, with numbers among its arguments."""
    call = part.value if isinstance(part, libcst.Expr) else None
    if not isinstance(call, libcst.Call) or not isinstance(call.func, libcst.Attribute):
        return None
    reads = [one for one in call.args if isinstance(one.value, libcst.Call) and is_read(one.value) and not one.star]
    is_list_of_ours = called_name(call) == "append" and not isinstance(call.func.value, libcst.Name)
    if stored_value(part) is not None and not is_list_of_ours:
        return None
    if not reads:
        return None
    tensors = tuple(_tensor_of(one.value) for one in reads if isinstance(one.value, libcst.Call))
    return Deferred(call, tuple(reads), tensors)


def _find_kept(text: ProgramText, line: libcst.SimpleStatementLine, loops: list[Loop]) -> _Kept:
    part = line.body[0]
    value = kept_value(part)
    reads = [call for call in [*text.calls("item", "float")] if _is_in(text, call, value) and is_read(call)]
    if len(reads) != 1:
        raise Refused(f"{len(reads) or 'no'} number{'s' * (len(reads) != 1)} of `.item()` or `float()` kept there")
    is_list = isinstance(part, libcst.Expr)
    entry = value if isinstance(value, (libcst.Tuple, libcst.Dict)) and _is_part(reads[0], value) else None
    if is_list and reads[0] is not value and entry is None:
        raise Refused("the number is part of what is collected: how to compute it later is the author's choice")
    if entry is None and not _is_arithmetic(text, reads[0], value):
        raise Refused("what the number goes through may not take a tensor")
    return _Kept(_variable(part), reads[0], is_list, entry, line, loops)


def _is_part(read: libcst.Call, value: libcst.Tuple | libcst.Dict) -> bool:
    """Whether a read is one of the values, whose places show. A later key may be the same."""
    if isinstance(value, libcst.Tuple):
        return all(isinstance(one, libcst.Element) for one in value.elements) and any(
            one.value is read for one in value.elements
        )
    keys = [text_of(one.key) if isinstance(one, libcst.DictElement) else "" for one in value.elements]
    is_plain = all(keys) and len({*keys}) == len(keys)
    return is_plain and any(isinstance(one, libcst.DictElement) and _is_key_of(one, read) for one in value.elements)


def _is_key_of(element: libcst.DictElement, read: libcst.Call) -> bool:
    return element.value is read and isinstance(element.key, libcst.SimpleString)


def _variable(part: libcst.BaseSmallStatement) -> str:
    if isinstance(part, libcst.Expr) and isinstance(part.value, libcst.Call):
        kept = part.value.func
        if isinstance(kept, libcst.Attribute) and kept.attr.value == "append" and isinstance(kept.value, libcst.Name):
            return kept.value.value
    target = part.target if isinstance(part, libcst.AugAssign) else None
    if isinstance(part, libcst.Assign):
        target = part.targets[0].target
    if not isinstance(target, libcst.Name):
        raise Refused("what is added up or collected is no variable of the function: something else may read it")
    return target.value


def _is_in(text: ProgramText, call: libcst.Call, value: libcst.BaseExpression) -> bool:
    return call is value or any(node is value for node in text.ancestors(call))


def _is_arithmetic(text: ProgramText, read: libcst.Call, value: libcst.BaseExpression) -> bool:
    """Whether a value is computed of a number by operators alone, which tensors have too."""
    node: libcst.CSTNode = read
    for parent in text.ancestors(read):
        if node is value:
            break
        if not isinstance(parent, (libcst.BinaryOperation, libcst.UnaryOperation)):
            return False
        node = parent
    return True


def _tensor_of(read: libcst.Call) -> libcst.BaseExpression:
    value = read.func.value if isinstance(read.func, libcst.Attribute) else read.args[0].value
    while isinstance(value, libcst.Call) and called_name(value) in _ON_THE_WAY and not value.args:
        assert isinstance(value.func, libcst.Attribute)
        value = value.func.value
    return value


def _summand(text: ProgramText, kept: _Kept, first: libcst.Assign) -> libcst.BaseExpression:
    """The tensor in the type in which Python adds: half the bits would swallow small numbers and overflow soon."""
    tensor = _tensor_of(kept.read)
    there = detached(tensor)
    is_other = isinstance(first.value, libcst.Float) or called_name(kept.read) == "float"
    value = kept_value(kept.line.body[0])
    kind = OTHER if is_other or OTHER in _own_kinds(text, kept.read, value) else kind_of(text, tensor)
    if kind == WHOLE:
        return there
    if kind == OTHER:
        return followed_by(there, "double")
    if not isinstance(tensor, libcst.Name):
        raise Refused("nothing shows whether whole numbers are added up: begin with `0.0` if they are not")
    torch = text.known_as("torch")
    either = f"{torch}.float64 if {tensor.value}.is_floating_point() else {torch}.int64"
    return followed_by(there, "to", libcst.Arg(libcst.parse_expression(either)))


def _own_kinds(text: ProgramText, read: libcst.Call, value: libcst.BaseExpression) -> set[str]:
    """The kinds of what a value is computed of besides the read: ``x.item() / n`` is no whole number."""
    node: libcst.CSTNode = read
    kinds = set()
    for parent in text.ancestors(read):
        if node is value:
            break
        if isinstance(parent, libcst.BinaryOperation):
            other = parent.right if parent.left is node else parent.left
            kinds |= {OTHER} if isinstance(parent.operator, libcst.Divide) else {kind_of(text, other)}
        node = parent
    return kinds


def _start_of(text: ProgramText, kept: _Kept) -> libcst.Assign:
    """Where the sum is zero or the list is empty; once in the function, and nothing else sets it."""
    first = _assignment(text, kept)
    start = text_of(first.value)
    if start not in (("[]", "list()") if kept.is_list else ("0", "0.0", "0.")):
        raise Refused(f"`{kept.name}` begins as `{start}`, not as {'an empty list' if kept.is_list else 'zero'}")
    return first


def _assignment(text: ProgramText, kept: _Kept) -> libcst.Assign:
    """The assignment before the loop. ``total = total + x`` is one too, and is the line itself."""
    part = kept.line.body[0]
    if not isinstance(part, libcst.Assign):
        return assignment_of(text, kept.name, kept.line)
    raise Refused(f"write `{kept.name} += …`: two assignments to it are in the way")


def _lasting(text: ProgramText, kept: _Kept, first: libcst.Assign) -> Loop:
    """The outermost loop that goes on with the same sum or list."""
    around = [loop for loop in kept.loops if not lies_in(text, first, loop)]
    if not around:
        raise Refused(f"`{kept.name}` begins anew in each round")
    return around[-1]


def _refuse_earlier_use(text: ProgramText, kept: _Kept, first: libcst.Assign, outer: Loop) -> None:
    """A list that has entries before the loop, or another name."""
    begin, end = text.line_of(first), text.line_of(outer)
    for name in uses(text, scope_of(text, outer), kept.name):
        if begin < text.line_of(name) < end:
            raise Refused(f"line {text.line_of(name)} uses `{kept.name}` before the loop")


def _refuse_other_use(text: ProgramText, kept: _Kept, name: libcst.Name) -> None:
    if is_set(text, name):
        raise Refused(f"line {text.line_of(name)} sets `{kept.name}` inside of the loop")
    inner = kept.loops[0]
    if lies_in(text, name, inner) and not guarded(text, name, inner):
        raise Refused(f"line {text.line_of(name)} reads `{kept.name}` in each round")


def _as_number(text: ProgramText, first: libcst.Assign, name: str) -> str:
    """A sum that began as ``0`` may be of integers; that it is a tensor by now is not certain."""
    if isinstance(first.value, libcst.Float):
        return f"float({name})"
    return f"{text.known_as('torch')}.as_tensor({name}).item()"


def _behind(text: ProgramText, kept: _Kept, first: libcst.Assign) -> tuple[str, ...]:
    """The lines after the loop. A tensor of one number may have dimensions, which ``.item()`` leaves out."""
    if not kept.is_list:
        return (f"{kept.name} = {_as_number(text, first, kept.name)}",)
    torch = text.known_as("torch")
    if kept.entry is None:
        return (f"{kept.name} = {torch}.stack({kept.name}).flatten().tolist() if {kept.name} else []",)
    numbers, (part, whole) = fresh_name(text, "numbers"), _entry(kept.entry, kept.read)
    return (
        f"{numbers} = {torch}.stack([entry{part} for entry in {kept.name}]).flatten().tolist() if {kept.name} else []",
        f"{kept.name} = [{whole} for entry, number in zip({kept.name}, {numbers})]",
    )


def _entry(entry: libcst.Tuple | libcst.Dict, read: libcst.Call) -> tuple[str, str]:
    """How the tensor is found in an ``entry``, and the entry with the ``number`` in its place."""
    if isinstance(entry, libcst.Dict):
        keys = (one for one in entry.elements if isinstance(one, libcst.DictElement) and one.value is read)
        key = text_of(next(keys).key)
        return f"[{key}]", f"{{**entry, {key}: number}}"
    at = next(number for number, one in enumerate(entry.elements) if one.value is read)
    before = "*entry[:" + str(at) + "], " if at else ""
    behind = f", *entry[{at + 1}:]" if at + 1 < len(entry.elements) else ""
    return f"[{at}]", f"({before}number{behind}{'' if before or behind else ','})"
