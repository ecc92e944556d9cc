"""The lines that write attention out become one call of ``scaled_dot_product_attention``.

They must follow each other: products of queries and keys, a scale, a mask, the softmax, a dropout, the product with
the values. Nothing else may read what they compute on the way. Lines between them that make something else, such as the
mask, stay where they are.
"""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import takewhile

import libcst
from libcst import matchers
from msgspec import Struct

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, Edit, ProgramText, called_name, text_of
from profkit.rules.changes.einsums import TURNED, is_number, read_scores, read_values
from profkit.rules.changes.layout import laid_out
from profkit.rules.changes.refusing import AltersNumbers, Refused
from profkit.rules.changes.scopes import (
    Statement,
    assigned_value,
    block_of,
    called_in,
    is_set,
    lies_in,
    mutated,
    names_in,
    scope_of,
    uses,
    variables_in,
)

_PRODUCTS = ("matmul", "bmm")
_LAST_TWO = ({"-2", "-1"}, {"2", "3"}, {"1", "2"})
"""Dimensions that are the last two, of tensors with three or four."""
_VERY_NEGATIVE = -1e9
"""From here on a float32 swallows the score that it is added to. So adding it is as good as filling it in, also in a
row of which nothing is left: its weights are then all alike. Only the gradients of such a row are others: the fused
backward pass keeps the logarithm of the weights' sum, of which a number as large leaves no digit. The runs show it."""
_VIEWS = frozenset(("permute", "reshape", "size", "transpose", "unflatten", "view"))
_DOUBLES = frozenset(("double", "float64"))
_ASKED = frozenset(("device", "dim", "dtype", "ndim", "new_full", "new_ones", "new_zeros", "shape", "size"))
"""Of a tensor, what does not depend on its numbers."""
_LOWEST = re.compile(r"torch\.finfo\([\w.]+\)\.min|-torch\.finfo\([\w.]+\)\.max")
_INFINITE = ('float("-inf")', "float('-inf')", "-torch.inf", "-math.inf", "-np.inf", "-float('inf')", '-float("inf")')


_CORNER = re.compile(r"self\.(\w+)\[(?::, ?)*:(\w+), ?:\2\] != 0")
"""``self.tril[:T, :T]``, with other dimensions whole."""
_TRIANGLE = r"torch\.tril\(torch\.ones\(\(?([\w.]+),\1\)?\)\)(?:\.view\(1,1,\1,\1\))?"


class _Written(Struct, frozen=True):
    """What has been read of the formula, from its beginning: sources of expressions, empty for what is not there."""

    query: str = ""
    key: str = ""
    scale: str = ""
    mask: str = ""
    is_soft: bool = False
    dropout: str = ""


class _Weighted(Struct, frozen=True):
    """The product of the weights with the values: its node, the source of the values, and whether it is turned."""

    product: libcst.BaseExpression
    values: str
    is_turned: bool = False


class _Line(Struct, frozen=True):
    """A statement that sets ``name`` to a value; without a name it returns it. ``given`` is what must not be None."""

    statement: Statement
    name: str
    value: libcst.BaseExpression
    given: str = ""


def unfused_attention(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    lines = _without_others(text, _lines_from(text, finding.location.line))
    written, used = _Written(), 0
    while used < len(lines) and not (written.is_soft and _weighted(lines[used], lines[used - 1])):
        written = _read_line(text, lines, used, written)
        used += 1
    if used == len(lines):
        raise Refused("the weights are not multiplied with the values right behind the softmax")
    weighted = _weighted(lines[used], lines[used - 1])
    assert weighted is not None
    _refuse_other_readers(text, lines[: used + 1], weighted)
    _refuse_own_steps(lines[: used + 1], written, weighted)
    after = _with_call(text, lines, used, written, weighted)
    if written.dropout and not any(_drops_nothing(text, line) for line in lines[:used]):
        raise AltersNumbers("the fused attention drops out other weights at random", after)
    return after


def _drops_nothing(text: ProgramText, line: _Line) -> bool:
    """Whether a line is a dropout that leaves all: its layer is made with 0, or a constant of the file that is 0."""
    call = line.value
    if (
        not isinstance(call, libcst.Call)
        or "drop" not in called_name(call)
        or not text_of(call.func).startswith("self.")
    ):
        return False
    with suppress(Refused):
        made = assigned_value(text, text_of(call.func), call)
        share = Argument("p", 0).find(made) if isinstance(made, libcst.Call) else None
        if share is None or called_name(made) != "Dropout":  # type: ignore[arg-type]  # a call, as was asked
            return False
        value = share.value
        if (
            isinstance(value, libcst.Name)
            and sum(is_set(text, one) for one in uses(text, text.module, value.value)) == 1
        ):
            value = assigned_value(text, value.value, text.module.body[0])
        return isinstance(value, (libcst.Integer, libcst.Float)) and float(value.value) == 0
    return False


def _lines_from(text: ProgramText, line: int) -> list[_Line]:
    """The statements from the product of queries and keys on, which is on the line or up to three lines before it."""
    statement: Statement = text.statement_at(line)
    around = next((one for one in text.ancestors(statement) if isinstance(one, libcst.If)), None)
    if around is not None and _read_statement(around) is not None:
        statement = around
    block = block_of(text, statement)
    at = next(number for number, one in enumerate(block) if one is statement)
    for begin in range(at, max(-1, at - 4), -1):
        found = list(takewhile(lambda one: one is not None, map(_read_statement, block[begin:])))
        plain = [one for one in found if one is not None]
        if plain and not plain[0].given and plain[0].name and _scores(plain[0].value) is not None:
            return plain
    raise Refused("no product of queries and transposed keys on that line or right before it")


def _without_others(text: ProgramText, lines: list[_Line]) -> list[_Line]:
    """The lines of the formula: the first, and each that goes on with the last one's result."""
    first, *others = lines
    found, aside = [first], []
    for line in others:
        if found[-1].name in variables_in(text, line.value) and not _only_asks(text, line.value, found[-1].name):
            found.append(line)
        else:
            aside.append(line)
            _refuse_other_inputs(text, found, line)
        if not line.name:
            break
    return found if len(found) > 1 else lines


def _only_asks(text: ProgramText, value: libcst.BaseExpression, name: str) -> bool:
    """Whether a value depends on a tensor's type, place and size alone."""
    around = [next(text.ancestors(one)) for one in uses(text, value, name)]
    return all(isinstance(one, libcst.Attribute) and one.attr.value in _ASKED for one in around)


def _refuse_other_inputs(text: ProgramText, found: list[_Line], line: _Line) -> None:
    """Raise `Refused` if a line between those of the formula may change what these read: the fused call stands at the
    last of them."""
    read = {name for one in found for name in variables_in(text, one.value)} | {one.name for one in found}
    given = {one.value for one in matchers.findall(line.value, matchers.Name()) if isinstance(one, libcst.Name)}
    passed = {name for name in read & given if not _only_asks(text, line.value, name)}
    passed -= {"self"} if _calls_layers(text, line.value) else set()
    is_changed = line.name.partition("[")[0].partition(".")[0] in read or mutated(text, line.value, read)
    if line.given or is_changed or (passed and called_in(line.value)):
        goes_on = len(found) > 1 and found[-2].name in variables_in(text, line.value)
        other = found[-1] if goes_on else line  # the one before it led aside
        raise Refused(f"line {text.line_of(other.statement)} is not a step of plain attention")


def _calls_layers(text: ProgramText, value: libcst.BaseExpression) -> bool:
    """Whether all that a value calls are views and linear layers of PyTorch's, which change nothing."""
    for call in matchers.findall(value, matchers.Call()):
        if not isinstance(call, libcst.Call) or called_name(call) in _VIEWS:
            continue
        try:
            made = assigned_value(text, text_of(call.func), call)
            linear = {text.known_as("torch.nn.Linear"), f"{text.known_as('torch.nn')}.Linear"}
        except Refused:
            return False
        if not isinstance(made, libcst.Call) or text_of(made.func) not in linear:
            return False
    return True


def _read_statement(statement: libcst.CSTNode) -> _Line | None:
    """``name = value``, the same under ``if given is not None:``, or ``return value``."""
    if isinstance(statement, libcst.If):
        only = statement.body.body[0] if len(statement.body.body) == 1 else None
        inner = None if only is None or statement.orelse is not None else _read_statement(only)
        given = _not_none(statement.test)
        return None if inner is None or inner.given or not (given and inner.name) else _given(statement, inner, given)
    if not isinstance(statement, libcst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    part = statement.body[0]
    if isinstance(part, libcst.Assign) and len(part.targets) == 1:
        return _Line(statement, text_of(part.targets[0].target), part.value)
    if isinstance(part, libcst.Return) and part.value is not None:
        return _Line(statement, "", part.value)
    return None


def _given(statement: Statement, inner: _Line, given: str) -> _Line:
    return _Line(statement, inner.name, inner.value, given)


def _not_none(test: libcst.BaseExpression) -> str:
    """The source of what ``… is not None`` looks at."""
    if isinstance(test, libcst.Comparison) and len(test.comparisons) == 1:
        right = test.comparisons[0]
        if isinstance(right.operator, libcst.IsNot) and text_of(right.comparator) == "None":
            return text_of(test.left)
    return ""


def _scores(value: libcst.BaseExpression) -> _Written | None:
    """``q @ k.transpose(-2, -1)``, with a scale before or behind it."""
    if isinstance(value, libcst.BinaryOperation) and isinstance(value.operator, (libcst.Divide, libcst.Multiply)):
        inner = _scores(value.left)
        if inner is None or inner.scale:
            return None
        return _scaled(inner, value)
    if (sums := read_scores(value)) is not None:
        return _with(_query(sums.first), query=_turned(_query(sums.first).query, sums.first_turned), key=sums.key)
    sides = _product(value)
    key = None if sides is None else _transposed(sides[1])
    return None if sides is None or key is None else _with(_query(sides[0]), key=key)


def _query(value: libcst.BaseExpression) -> _Written:
    """The queries, which may be scaled by a number before they meet the keys."""
    is_by = isinstance(value, libcst.BinaryOperation) and isinstance(value.operator, (libcst.Divide, libcst.Multiply))
    if isinstance(value, libcst.BinaryOperation) and is_by and is_number(value.right):
        return _scaled(_Written(_plain(value.left)), value)
    return _Written(_plain(value))


def _turned(source: str, is_turned: bool) -> str:
    return f"{source}{TURNED}" if is_turned else source


def _product(value: libcst.BaseExpression) -> tuple[libcst.BaseExpression, libcst.BaseExpression] | None:
    if isinstance(value, libcst.BinaryOperation) and isinstance(value.operator, libcst.MatrixMultiply):
        return value.left, value.right
    if isinstance(value, libcst.Call) and called_name(value) in _PRODUCTS and not any(one.star for one in value.args):
        if len(value.args) == 2:
            return value.args[0].value, value.args[1].value
        if len(value.args) == 1 and isinstance(value.func, libcst.Attribute):
            return value.func.value, value.args[0].value
    return None


def _transposed(value: libcst.BaseExpression) -> str | None:
    """What ``.transpose(-2, -1)`` or ``.mT`` stands behind."""
    if isinstance(value, libcst.Attribute):
        return _plain(value.value) if value.attr.value == "mT" else None
    if not isinstance(value, libcst.Call) or not isinstance(value.func, libcst.Attribute):
        return None
    swapped = {text_of(one.value) for one in value.args}
    return _plain(value.func.value) if called_name(value) == "transpose" and swapped in _LAST_TWO else None


def _plain(value: libcst.BaseExpression) -> str:
    if isinstance(value, libcst.BinaryOperation):
        raise Refused("the queries or keys are computed in the same line")
    return text_of(value)


def _scaled(written: _Written, value: libcst.BinaryOperation) -> _Written:
    by = text_of(value.right)
    is_sum = isinstance(value.right, libcst.BinaryOperation) and not value.right.lpar
    by = f"({by})" if is_sum and not isinstance(value.operator, libcst.Multiply) else by
    return _with(written, scale=by if isinstance(value.operator, libcst.Multiply) else f"1 / {by}")


def _read_line(text: ProgramText, lines: list[_Line], at: int, written: _Written) -> _Written:
    """One more line of the formula. Raises `Refused` for anything else."""
    line = lines[at]
    if at == 0:
        found = _scores(line.value)
        assert found is not None
        return found
    last = lines[at - 1].name
    more = _masked(text, line, last, written) if line.given else _scaled_further(line, last, written)
    more = more or (_masked(text, line, last, written) or _weighed(line, last, written) if not line.given else None)
    if more is None:
        raise Refused(f"line {text.line_of(line.statement)} is not a step of plain attention")
    return more


def _scaled_further(line: _Line, last: str, written: _Written) -> _Written | None:
    value = line.value
    is_by = isinstance(value, libcst.BinaryOperation) and isinstance(value.operator, (libcst.Divide, libcst.Multiply))
    if not isinstance(value, libcst.BinaryOperation) or not is_by or text_of(value.left) != last:
        return None
    return None if written.is_soft or written.scale or written.mask else _scaled(written, value)


def _masked(text: ProgramText, line: _Line, last: str, written: _Written) -> _Written | None:
    """``scores + mask`` or ``scores.masked_fill(mask, value)``, of the mask that must be given, if one must."""
    value, mask = line.value, ""
    if written.is_soft or written.mask:
        return None
    if isinstance(value, libcst.BinaryOperation) and isinstance(value.operator, libcst.Add):
        mask = text_of(value.right) if text_of(value.left) == last else ""
    if isinstance(value, libcst.Call) and called_name(value) == "masked_fill" and _is_of(value, last):
        mask = _mask_of(text, value, written.query, last)
    if not mask:
        return None
    return _with(written, mask=f"None if {line.given} is None else {mask}" if line.given else mask)


def _weighed(line: _Line, last: str, written: _Written) -> _Written | None:
    """The softmax, or a dropout behind it."""
    if not isinstance(line.value, libcst.Call):
        return None
    if not written.is_soft:
        value = _without_cast(line.value)
        is_softmax = called_name(value) == "softmax" and _softmax_of(value, last)
        return _with(written, is_soft=True) if is_softmax else None
    return None if written.dropout else _with(written, dropout=_probability(line.value, last))


def _with(written: _Written, **more: str | bool) -> _Written:
    known = {name: getattr(written, name) for name in written.__struct_fields__}
    return _Written(**{**known, **more})


def _is_of(call: libcst.Call, name: str) -> bool:
    return isinstance(call.func, libcst.Attribute) and text_of(call.func.value) == name and len(call.args) == 2


def _mask_of(text: ProgramText, call: libcst.Call, query: str, scores: str) -> str:
    """The mask of ``scores.masked_fill(out, value)``: what takes part, or what is added to the scores.

    Where nothing takes part, ``-1e9`` leaves weights that are all alike. A mask of what takes part would leave none.
    """
    out, value = call.args[0].value, text_of(call.args[1].value)
    if value in _INFINITE:
        return _kept_by(out)
    if not _is_very_negative(value):
        raise Refused(f"the mask fills in `{value}`, which may not leave the scores out")
    if _DOUBLES & names_in(text.module):
        raise Refused("a float64 does not swallow the scores that the mask is added to")
    query = query.removesuffix(TURNED)
    if not query.replace(".", "").isidentifier():
        raise Refused("the mask has to be of the queries' type: give them a name first")
    value = value.replace(f"finfo({scores}.dtype)", f"finfo({query}.dtype)")
    return f"{text.known_as('torch')}.where({text_of(out)}, {value}, 0.0).to({query}.dtype)"


def _is_very_negative(value: str) -> bool:
    if _LOWEST.fullmatch(value):
        return True
    try:
        return float(value) <= _VERY_NEGATIVE
    except ValueError:
        return False


def _kept_by(out: libcst.BaseExpression) -> str:
    """What takes part, of a mask of what does not."""
    if isinstance(out, libcst.Comparison) and len(out.comparisons) == 1:
        right = out.comparisons[0]
        if isinstance(right.operator, libcst.Equal) and text_of(right.comparator) in ("0", "False"):
            return f"{text_of(out.left)} != {text_of(right.comparator)}"
    is_plain = isinstance(out, (libcst.Name, libcst.Attribute, libcst.Subscript, libcst.Call))
    return f"~{text_of(out)}" if is_plain else f"~({text_of(out)})"


def _without_cast(call: libcst.Call) -> libcst.Call:
    """``softmax(scores.float(), dim=-1)`` of ``….type_as(queries)``: the fused call computes its softmax in float32."""
    if called_name(call) in ("type_as", "to") and len(call.args) == 1 and isinstance(call.func, libcst.Attribute):
        inner = call.func.value
        return inner if isinstance(inner, libcst.Call) else call
    return call


def _softmax_of(call: libcst.Call, name: str) -> bool:
    """``softmax(scores, dim=-1)`` as a function or a method."""
    given = [text_of(one.value) for one in call.args]
    first = [] if _starts_with(call, name) else given[:1]
    dims = given[len(first) :]
    return (
        (not first or first[0] in (name, f"{name}.float()"))
        and dims == ["-1"]
        and (bool(first) or _starts_with(call, name))
    )


def _starts_with(call: libcst.Call, name: str) -> bool:
    return isinstance(call.func, libcst.Attribute) and text_of(call.func.value) == name


def _probability(call: libcst.Call, name: str) -> str:
    """The probability of a dropout of the weights, as `scaled_dot_product_attention` takes it."""
    if not call.args or text_of(call.args[0].value) != name or "drop" not in called_name(call):
        raise Refused("the weights go through something that is no dropout before they meet the values")
    if len(call.args) == 1 and isinstance(call.func, libcst.Attribute) and text_of(call.func.value) == "self":
        return f"{text_of(call.func)}.p if self.training else 0.0"
    share, training = Argument("p", 1).find(call), Argument("training", 2).find(call)
    if called_name(call) != "dropout" or share is None or training is None:
        raise Refused("the dropout does not say how often, and whether the model is in training")
    return f"{text_of(share.value)} if {text_of(training.value)} else 0.0"


def _weighted(line: _Line, before: _Line) -> _Weighted | None:
    """The product, which may stand at the beginning of a chain: ``(weights @ v).transpose(1, 2)``."""
    value = line.value
    while not line.given:
        sums, sides = read_values(value), _product(value)
        if sums is not None and text_of(sums.first) == before.name:
            return _Weighted(value, sums.key, sums.first_turned)
        if sides is not None and text_of(sides[0]) == before.name:
            return _Weighted(value, text_of(sides[1]))
        if not isinstance(value, libcst.Call) or not isinstance(value.func, libcst.Attribute):
            break
        value = value.func.value
    return None


def _refuse_other_readers(text: ProgramText, lines: list[_Line], weighted: _Weighted) -> None:
    """Raise `Refused` if what is computed on the way is read elsewhere."""
    inside = {id(line.statement) for line in lines}
    names = {line.name for line in lines[:-1]}
    for name in names:
        for use in uses(text, lines[-1].value, name):
            if not lies_in(text, use, weighted.product):
                raise Refused(f"line {text.line_of(use)} names `{name}` too")
    for name in names - {lines[-1].name}:
        if not name.isidentifier():
            raise Refused(f"`{name}` is kept beyond these lines")
        for use in uses(text, scope_of(text, lines[0].statement), name):
            if not inside & {id(one) for one in text.ancestors(use)}:
                raise Refused(f"line {text.line_of(use)} names `{name}` too")


def _refuse_own_steps(lines: list[_Line], written: _Written, weighted: _Weighted) -> None:
    """Raise `Refused` if what the call is given is computed from a step: ``scores.masked_fill(scores < 1, …)``."""
    names = {line.name for line in lines[:-1]}
    given = [written.query, written.key, weighted.values]
    given += [one for one in (written.scale, written.mask, written.dropout) if one]
    for source in given:
        if own := names & names_in(libcst.parse_expression(source)):
            raise Refused(f"`{source}` is computed from `{min(own)}`, which the fused call does not give")


def _with_call(text: ProgramText, lines: list[_Line], used: int, written: _Written, weighted: _Weighted) -> bytes:
    functional = text.known_as("torch.nn.functional")
    given = [written.query, written.key, weighted.values]
    if written.mask:
        given += ["is_causal=True" if _is_causal(text, written.mask) else f"attn_mask={written.mask}"]
    given += [f"dropout_p={written.dropout}"] if written.dropout else []
    given += [] if _is_usual(written) else [f"scale={written.scale or '1.0'}"]
    turned = TURNED if weighted.is_turned else ""
    call = laid_out(text, weighted.product, f"{functional}.scaled_dot_product_attention", given, turned)
    above = [row for line in lines[1 : used + 1] for row in line.statement.leading_lines if row.comment is not None]
    above = [*lines[0].statement.leading_lines, *above]  # comments stay
    edits: dict[libcst.CSTNode, Edit] = {line.statement: lambda _: libcst.RemoveFromParent() for line in lines[:used]}
    edits[weighted.product] = lambda _: call
    edits[lines[used].statement] = lambda line: line.with_changes(leading_lines=above)
    return text.edited(edits)


def _is_causal(text: ProgramText, mask: str) -> bool:
    """Whether a mask is a square corner of a buffer that is the lower triangle, and never anything else."""
    corner = _CORNER.fullmatch(mask)
    if corner is None:
        return False
    made = [one.args[1].value for one in text.calls("register_buffer") if _is_named(one, corner[1])]
    others = [one for one in text.nodes(libcst.AssignTarget) if text_of(one.target) == f"self.{corner[1]}"]
    torch = re.escape(text.known_as("torch"))
    triangle = _TRIANGLE.replace("torch", torch)
    return not others and len(made) == 1 and re.fullmatch(triangle, "".join(text_of(made[0]).split())) is not None


def _is_named(call: libcst.Call, name: str) -> bool:
    given = call.args[0].value if len(call.args) > 1 else None
    return isinstance(given, libcst.SimpleString) and given.evaluated_value == name


def _sized(written: _Written) -> set[str]:
    """The names of queries and keys: turned ones have heads of the same size."""
    return {source.removesuffix(TURNED) for source in (written.query, written.key)}


def _is_usual(written: _Written) -> bool:
    """Whether the scale is one over the root of the size of a head, which is what the call does by itself."""
    sizes = {size for name in _sized(written) for size in (f"{name}.size(-1)", f"{name}.shape[-1]")}
    roots = {root for size in sizes for root in (f"math.sqrt({size})", f"sqrt({size})", f"{size}**0.5")}
    plain = written.scale.replace(" ", "").replace("1.0/", "1/")
    while plain.startswith("(") and plain.endswith(")"):
        plain = plain[1:-1]
    plain = plain.replace("1/(", "1/").removesuffix(")") if plain.startswith("1/(") else plain
    return plain in {f"1/{root}" for root in roots} | {f"{size}**-0.5" for size in sizes}
