"""Each batch is padded to its own longest row, where the text shows the rows and the fixed length.

The fixed length may cut rows off. Where it does, the longest row's length is not more than it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, Edit, ProgramText, called_name, text_of, with_argument
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.row_lengths import Rows, is_rest, row_measured, rows_of, rows_written
from profkit.rules.changes.scopes import (
    fresh_name,
    is_set,
    lies_in,
    loops_around,
    names_in,
    scope_of,
    uses,
    with_statements,
)

_TRIMS = "Pad each batch"
"""How the rule's fix begins where a batch is longer than its longest row."""
_MAKING = ("empty", "full", "new_full", "new_zeros", "ones", "zeros")
_LENGTH = (libcst.Name, libcst.Attribute, libcst.Integer)
_Statement = libcst.SimpleStatementLine | libcst.BaseCompoundStatement


@dataclass(frozen=True)
class _Padding:
    """The source of a fixed length, and the loop or function in which batches are padded to it."""

    text: ProgramText
    fixed: str
    within: libcst.CSTNode


def padded_batch(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    if not finding.fix.startswith(_TRIMS):
        raise Refused("each batch is as long as its longest row: which rows share a batch is the author's choice")
    statement = text.statement_at(finding.location.line)
    for call in text.nodes(libcst.Call):
        given = Argument("padding").find(call) if lies_in(text, call, statement) else None
        if given is not None and text_of(given.value).strip("'\"") == "max_length":
            return _tokenized(text, call, text_of(given.value)[0])
    fixed = _fixed_length(text, statement)
    padding = _Padding(text, fixed, _around(text, statement))
    every = _places(padding)
    pads = [around for one in every if (around := _pad_around(text, one)) is not None]
    joined = {pad: name for pad in pads if (name := _joined(padding, pad))}
    edits: dict[libcst.CSTNode, Edit] = {pad: _as(f"{name}[:, :{fixed}]") for pad, name in joined.items()}
    edits |= _to_longest(padding, [one for one in every if _pad_around(text, one) not in joined])
    return text.edited(edits)


def _tokenized(text: ProgramText, call: libcst.Call, quote: str) -> bytes:
    """A tokenizer's ``padding="longest"``."""
    function = next((one for one in text.ancestors(call) if isinstance(one, libcst.FunctionDef)), None)
    if function is not None and function.name.value == "__getitem__":
        raise Refused("the line pads a single row, and does not know the others of its batch")
    return text.replaced(call, with_argument(call, Argument("padding"), f"{quote}longest{quote}"))


def _fixed_length(text: ProgramText, statement: libcst.CSTNode) -> str:
    """What the length of a row, or of the batch, is subtracted from; else the second size of a tensor that is made."""
    subtractions = [one for one in text.nodes(libcst.BinaryOperation) if lies_in(text, one, statement)]
    found = {text_of(one.left) for one in subtractions if is_rest(one) or _is_width(one)}
    made = [_second_size(one) for one in text.calls(*_MAKING) if lies_in(text, one, statement)]
    found = found or {text_of(one) for one in made if one is not None}
    fixed = found.pop() if len(found) == 1 else ""
    if not fixed or not isinstance(libcst.parse_expression(fixed), _LENGTH):
        raise Refused("the line does not show one fixed length")
    scope = scope_of(text, statement)
    if isinstance(scope, libcst.FunctionDef):
        for one in uses(text, scope, fixed):
            if is_set(text, one) and not isinstance(next(text.ancestors(one)), libcst.Param):
                raise Refused(f"line {text.line_of(one)} sets `{fixed}`, so it may be the longest row's length already")
    return fixed


def _around(text: ProgramText, statement: libcst.CSTNode) -> libcst.CSTNode:
    """The outermost loop around the line that does not go through the rows of one batch, or else the function."""
    loops = [one for one in loops_around(text, statement) if not _is_of_rows(text, one)]
    scope = scope_of(text, statement)
    if not loops and not isinstance(scope, libcst.FunctionDef):
        raise Refused("the line stands in no function and in no loop")
    return loops[-1] if loops else scope


def _is_of_rows(text: ProgramText, loop: libcst.CSTNode) -> bool:
    if not isinstance(loop, libcst.For):
        return False
    rests = [one for one in text.nodes(libcst.BinaryOperation) if is_rest(one) and lies_in(text, one, loop)]
    ends = [one for one in text.nodes(libcst.Subscript) if lies_in(text, one, loop) and len(one.slice) > 1]
    return any(names_in(one) & names_in(loop.target) for one in [*rests, *ends])


def _places(padding: _Padding) -> list[libcst.BaseExpression]:
    """Where the fixed length is named."""
    text, fixed, within = padding.text, padding.fixed, padding.within
    if fixed.isidentifier():
        return [one for one in uses(text, within, fixed) if not isinstance(next(text.ancestors(one)), libcst.Param)]
    nodes = [*text.nodes(libcst.Attribute), *text.nodes(libcst.Integer)]
    return [one for one in nodes if text_of(one) == fixed and lies_in(text, one, within)]


def _pad_around(text: ProgramText, fixed: libcst.CSTNode) -> libcst.Call | None:
    """The ``pad(x, (0, fixed - …))`` around the length."""
    call = next((one for one in text.ancestors(fixed) if isinstance(one, libcst.Call)), None)
    return call if call is not None and called_name(call) == "pad" and len(call.args) > 1 else None


def _joined(padding: _Padding, call: libcst.Call) -> str:
    """The variable of ``pad(x, (0, fixed - x.shape[1]))`` if `pad_sequence` gave it, as long as its longest row."""
    given = call.args[0].value
    if not isinstance(given, libcst.Name):
        return ""
    widths = [f"{given.value}{size}" for size in (".shape[1]", ".shape[-1]", ".size(1)", ".size(-1)")]
    if text_of(call.args[1].value).replace(" ", "") not in [f"(0,{padding.fixed}-{width})" for width in widths]:
        return ""
    text = padding.text
    lines = [one for one in text.nodes(libcst.Assign) if lies_in(text, one, padding.within) and one.value is not call]
    made = [one.value for one in lines if given.value in [text_of(each.target) for each in one.targets]]
    is_joined = len(made) == 1 and isinstance(made[0], libcst.Call) and called_name(made[0]) == "pad_sequence"
    return given.value if is_joined and "batch_first=True" in text_of(made[0]).replace(" ", "") else ""


def _to_longest(padding: _Padding, every: list[libcst.BaseExpression]) -> dict[libcst.CSTNode, Edit]:
    """The longest row's length in place of the fixed one. What cuts rows off stays."""
    if not every:
        return {}
    text = padding.text
    cutting = [one for one in every if _cuts_off(text, one)]
    counting = [one for one in every if _counts_up(text, one)]
    rows = {one: _rows_of(padding, one) for one in every if one not in cutting and one not in counting}
    known = list(dict.fromkeys(rows.values()))
    if counting:
        if len(known) != 1:
            raise Refused(f"line {text.line_of(counting[0])} does not show which rows it is for")
        rows |= dict.fromkeys(counting, known[0])
    is_cut = bool(cutting) or any(_pad_around(text, one) for one in rows)
    lengths, edits = dict[Rows, str](), dict[libcst.CSTNode, Edit]()
    lines = dict[libcst.CSTNode, list[str]]()
    for own in known:
        lengths[own] = fresh_name(text, f"longest_{len(lengths) + 1}" if lengths else "longest", "longest_row")
        first = min((_statement_of(text, one) for one in rows if rows[one] == own), key=text.line_of)
        if own.since >= text.line_of(first):
            raise Refused(f"`{own.source}` is set after line {text.line_of(first)}")
        longest = f"min({padding.fixed}, {own.longest})" if is_cut else own.longest
        lines.setdefault(first, []).append(f"{lengths[own]} = {longest}")
    for one, own in rows.items():
        edits[one] = _as(lengths[own])
    return edits | {first: _preceded(text, tuple(said)) for first, said in lines.items()}


def _rows_of(padding: _Padding, fixed: libcst.BaseExpression) -> Rows:
    """The rows whose rest is filled up to the fixed length, or that are written into a tensor that is so long."""
    text = padding.text
    around = next(text.ancestors(fixed))
    if is_rest(around) and isinstance(around, libcst.BinaryOperation) and around.left is fixed:
        return rows_of(text, around.right, padding.fixed)
    call = next((one for one in text.ancestors(fixed) if isinstance(one, libcst.Call)), None)
    if call is not None and called_name(call) in _MAKING and _second_size(call) is fixed:
        return rows_written(text, call, padding.within, padding.fixed)
    raise Refused(f"line {text.line_of(fixed)} uses `{padding.fixed}` for something else")


def _cuts_off(text: ProgramText, fixed: libcst.BaseExpression) -> bool:
    """``row[:fixed]``, ``min(len(row), fixed)``."""
    around = next(text.ancestors(fixed))
    if isinstance(around, libcst.Slice):
        return around.upper is fixed and around.lower is None and around.step is None
    call = next(text.ancestors(around))
    if not isinstance(call, libcst.Call) or not isinstance(around, libcst.Arg) or text_of(call.func) != "min":
        return False
    return any(row_measured(one.value) is not None for one in call.args)


def _counts_up(text: ProgramText, fixed: libcst.BaseExpression) -> bool:
    """Whether places are compared with lengths: ``arange(fixed) < lengths[:, None]``."""
    call = next((one for one in text.ancestors(fixed) if isinstance(one, libcst.Call)), None)
    is_whole = call is not None and called_name(call) == "arange" and call.args[0].value is fixed
    return is_whole and any(isinstance(one, libcst.Comparison) for one in text.ancestors(fixed))


def _second_size(call: libcst.Call) -> libcst.BaseExpression | None:
    """``length`` of ``zeros(rows, length)`` and of ``full((rows, length), 0)``."""
    if not call.args:
        return None
    first = call.args[0].value
    if isinstance(first, (libcst.Tuple, libcst.List)):
        return first.elements[1].value if len(first.elements) > 1 else None
    is_plain = len(call.args) > 1 and call.args[1].keyword is None and called_name(call) not in ("full", "new_full")
    return call.args[1].value if is_plain else None


def _is_width(one: libcst.BinaryOperation) -> bool:
    """``fixed - x.shape[1]``."""
    is_less = isinstance(one.operator, libcst.Subtract)
    return is_less and text_of(one.right).endswith((".shape[1]", ".shape[-1]", ".size(1)", ".size(-1)"))


def _statement_of(text: ProgramText, node: libcst.CSTNode) -> _Statement:
    """The statement around a node, or the loop that goes through rows around that."""
    around = [one for one in text.ancestors(node) if isinstance(one, _Statement)]
    loops = [one for one in around if _is_of_rows(text, one)]
    found = loops[-1] if loops else around[0]
    if not isinstance(found, (libcst.SimpleStatementLine, libcst.For)):
        raise Refused(f"a condition on line {text.line_of(found)} decides whether rows are padded")
    return found


def _as(source: str) -> Callable[[libcst.BaseExpression], libcst.BaseExpression]:
    return lambda _: libcst.parse_expression(source)


def _preceded(text: ProgramText, lines: tuple[str, ...]) -> Edit:
    return lambda statement: with_statements(text, lines, statement)
