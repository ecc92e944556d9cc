"""Counting at places becomes one `index_put_`; a loop over independent columns becomes its body, for all columns; one
that adds up elements becomes their sum, and one that makes a row of each row a `torch.vmap`. Filling the first elements
of each row becomes filling where a comparison holds.

Where neither fits, but the loop reads each element as a number alone, it goes over a list of numbers.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice

import libcst
from libcst import matchers

from profkit.findings.values import Finding
from profkit.rules.changes.base import Edit, ProgramText, called_name, elements_of, text_of
from profkit.rules.changes.columns import columns_at_once
from profkit.rules.changes.filled_beginnings import beginnings_at_once
from profkit.rules.changes.mapped_rows import rows_at_once
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.rounds import refuse_later_reads, refuse_no_tensor
from profkit.rules.changes.scopes import (
    assigned_value,
    assignment_of,
    loops_around,
    mutated,
    names_in,
    uses,
    variables_in,
)
from profkit.rules.changes.sums import summed_at_once

_MAKING = frozenset(("empty", "full", "ones", "zeros", "zeros_like", "ones_like", "empty_like", "full_like"))
_FLAT = {"flatten": "", "ravel": "", "view": "-1", "reshape": "-1"}
"""Methods that leave one dimension, with what they are given for it."""
_AS_INDEX = frozenset(("long", "int", "item"))
_PLACES = frozenset(("cuda", "device"))


def tensor_element_loop(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    statement = text.statement_at(finding.location.line)
    loops = [loop for loop in loops_around(text, statement) if isinstance(loop, libcst.For)]
    if not loops:
        raise Refused("the line stands in no `for` loop of its function")
    part = statement.body[0]
    try:
        if isinstance(part, libcst.AugAssign) and isinstance(part.target, libcst.Subscript):
            return _counted(text, loops[0], statement, part, part.target)
        return columns_at_once(text, loops)
    except Refused as reason:
        with suppress(Refused):
            return beginnings_at_once(text, loops[0], _has_devices(text))
        with suppress(Refused):
            return summed_at_once(text, loops[0], statement)
        with suppress(Refused):
            return rows_at_once(text, loops[0])
        return _of_numbers(text, loops[0], reason)


def _of_numbers(text: ProgramText, loop: libcst.For, reason: Refused) -> bytes:
    """``for word in words.flatten().tolist()`` where the loop only reads ``word.item()`` or ``int(word)``. Raises the
    given reason if no variable of the loop is read so."""
    edits: dict[libcst.CSTNode, Edit] = {}
    for name, source in _sources(loop).items():
        read = uses(text, loop.body, name)
        calls = [_read_as_number(text, one) for one in read]
        if not read or None in calls or loop.orelse is not None or loop.asynchronous is not None:
            continue
        refuse_no_tensor(text, loop, source)
        refuse_later_reads(text, loop, {name})
        if changed := mutated(text, loop.body, variables_in(text, source)):
            raise Refused(f"`{min(changed)}`, which the loop goes over, is changed in place")
        edits[source] = _becoming(libcst.parse_expression(_numbers_of(text, source)))
        items = [call for call in calls if call is not None and called_name(call) == "item"]
        edits |= dict.fromkeys(items, lambda one: one.func.value)
    if not edits:
        raise reason
    return text.edited(edits)


def _becoming(value: libcst.BaseExpression) -> Edit:
    return lambda _: value


def _read_as_number(text: ProgramText, name: libcst.Name) -> libcst.Call | None:
    """The ``x.item()`` or ``int(x)`` around a variable."""
    around = [*islice(text.ancestors(name), 2)]
    inner, call = around
    if not isinstance(call, libcst.Call):
        return None
    is_item = isinstance(inner, libcst.Attribute) and inner is call.func and inner.attr.value == "item"
    is_number = isinstance(inner, libcst.Arg) and text_of(call.func) in ("int", "float") and len(call.args) == 1
    return call if (is_item and not call.args) or is_number else None


def _numbers_of(text: ProgramText, source: libcst.BaseExpression) -> str:
    if text.holds(source, libcst.NamedExpr, libcst.Await, libcst.Yield) or not isinstance(
        source, (libcst.Name, libcst.Attribute, libcst.Call, libcst.Subscript)
    ):
        raise Refused("what the loop goes over is not a plain expression")
    return f"{text_of(source)}.tolist()" if _is_flat(text, source) else f"{text_of(source)}.flatten().tolist()"


def _counted(
    text: ProgramText,
    loop: libcst.For,
    statement: libcst.SimpleStatementLine,
    part: libcst.AugAssign,
    place: libcst.Subscript,
) -> bytes:
    """``for t, p in zip(a, b): m[t, p] += 1`` as ``m.index_put_((a, b), m.new_tensor(1), accumulate=True)``."""
    if [*loop.body.body] != [statement] or loop.orelse is not None or loop.asynchronous is not None:
        raise Refused("the loop does more than count")
    if not isinstance(part.operator, libcst.AddAssign) or not isinstance(part.value, (libcst.Integer, libcst.Float)):
        raise Refused("what is added is no number that stands there")
    counts = text_of(place.value)
    sources = _sources(loop)
    _refuse_no_counts(text, place.value)
    given = []
    for element in place.slice:
        index = element.slice.value if isinstance(element.slice, libcst.Index) else None
        name = _variable_of(index)
        if index is None or name not in sources or len(uses(text, loop.body, name)) != 1:
            raise Refused("it counts at places other than the loop's variables")
        refuse_no_tensor(text, loop, sources[name])
        given.append(_flat(text, sources[name], index) + (f".to({counts}.device)" if _has_devices(text) else ""))
    refuse_later_reads(text, loop, {*sources})
    indices = f"({', '.join(given)}{',' * (len(given) == 1)})"
    after = f"{counts}.index_put_({indices}, {counts}.new_tensor({text_of(part.value)}), accumulate=True)"
    line = text.parsed(after)
    comments = [one for one in statement.leading_lines if one.comment is not None]
    leading = [*loop.leading_lines, *comments]
    return text.replaced(loop, statement.with_changes(body=line.body, leading_lines=leading))


def _sources(loop: libcst.For) -> dict[str, libcst.BaseExpression]:
    """What each variable of the loop goes over."""
    target, head = loop.target, loop.iter
    if isinstance(target, libcst.Name):
        return {target.value: head}
    is_zip = isinstance(head, libcst.Call) and isinstance(head.func, libcst.Name) and head.func.value == "zip"
    if not isinstance(target, libcst.Tuple) or not isinstance(head, libcst.Call) or not is_zip:
        raise Refused("the loop goes over neither a tensor nor several by `zip`")
    names = [one.value for one in elements_of(target) if isinstance(one, libcst.Name)]
    over = [one.value for one in head.args if one.keyword is None and not one.star]
    others = [one for one in head.args if one.keyword is not None and one.keyword.value != "strict"]
    if others or len(names) != len(target.elements) or len(over) != len(names) or len({*names}) != len(names):
        raise Refused("the loop goes over neither a tensor nor several by `zip`")
    return dict(zip(names, over, strict=True))


def _variable_of(index: libcst.BaseExpression | None) -> str:
    """``t`` of ``t``, ``t.long()``, ``t.item()`` and ``int(t)``."""
    while isinstance(index, libcst.Call):
        if isinstance(index.func, libcst.Attribute) and called_name(index) in _AS_INDEX and not index.args:
            index = index.func.value
        elif text_of(index.func) == "int" and len(index.args) == 1 and not index.args[0].star:
            index = index.args[0].value
        else:
            return ""
    return index.value if isinstance(index, libcst.Name) else ""


def _flat(text: ProgramText, source: libcst.BaseExpression, index: libcst.BaseExpression) -> str:
    """The indices as a tensor of one dimension. One number each is known of what is flat, or read as a number."""
    if text.holds(source, libcst.NamedExpr, libcst.Await, libcst.Yield):
        raise Refused("what the loop goes over is not a plain expression")
    plain = (
        text_of(source) if isinstance(source, (libcst.Name, libcst.Attribute, libcst.Call, libcst.Subscript)) else ""
    )
    if not plain:
        raise Refused("what the loop goes over is not a plain expression")
    if _is_flat(text, source):
        return f"{plain}.long()"
    called = {called_name(one) for one in matchers.findall(index, matchers.Call()) if isinstance(one, libcst.Call)}
    if not called & {"item", "int"} or called & {"long"} == called:
        raise Refused(f"nothing shows that `{plain}` has one dimension")
    return f"{plain}.flatten().long()"


def _is_flat(text: ProgramText, source: libcst.BaseExpression) -> bool:
    if isinstance(source, libcst.Name):
        try:
            source = assignment_of(text, source.value, source).value
        except Refused:
            return False
    if not isinstance(source, libcst.Call) or not isinstance(source.func, libcst.Attribute):
        return False
    if called_name(source) in ("long", "int", "cpu", "detach") and not source.args:
        return _is_flat(text, source.func.value)
    return _FLAT.get(called_name(source)) == ", ".join(text_of(one) for one in source.args)


def _refuse_no_counts(text: ProgramText, counts: libcst.BaseExpression) -> None:
    """Raise `Refused` unless the counts are a tensor of PyTorch's: arrays and lists have no ``index_put_``."""
    name = text_of(counts)
    made = assigned_value(text, name, counts)
    while isinstance(made, libcst.Call) and called_name(made) in ("to", "cuda", "long", "int", "float"):
        made = made.func.value if isinstance(made.func, libcst.Attribute) else made.func
    if not isinstance(made, libcst.Call) or called_name(made) not in _MAKING:
        raise Refused(f"nothing shows that `{name}` is a tensor")
    if text_of(made.func) not in (
        f"{text.known_as('torch')}.{called_name(made)}",
        _imported(text, made),
    ):
        raise Refused(f"nothing shows that `{name}` is a tensor")


def _imported(text: ProgramText, made: libcst.Call) -> str | None:
    return text.imported_as(f"torch.{called_name(made)}")


def _has_devices(text: ProgramText) -> bool:
    return bool(_PLACES & names_in(text.module)) or "cuda" in text_of(text.module)
