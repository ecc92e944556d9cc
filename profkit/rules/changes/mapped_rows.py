"""A loop that fills each row of a tensor from the same row of others becomes one `torch.vmap` over their rows."""

from __future__ import annotations

from collections.abc import Sequence

import libcst
from libcst import matchers

from profkit.rules.changes.base import ProgramText, called_name, text_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.rounds import refuse_later_reads, refuse_no_tensor
from profkit.rules.changes.scopes import block_of, fresh_name, lies_in, names_in, scope_of, uses
from profkit.rules.changes.sharing import refuse_declared

_EACH = frozenset(
    ("abs", "cos", "exp", "log", "log1p", "relu", "rsqrt", "sigmoid", "sin", "softmax", "sqrt", "square", "tanh")
)
"""Functions and methods of tensors that give a new one, which is as large."""
_PURE = _EACH | {"amax", "amin", "max", "mean", "min", "norm", "std", "sum", "var", "vector_norm"}
"""Those that do to a row what they do to it among others."""
_ARITHMETIC = (libcst.Add, libcst.Subtract, libcst.Multiply, libcst.Divide, libcst.Power)
_NO_MAP = "the rounds do not make one row each of the same row"


def rows_at_once(text: ProgramText, loop: libcst.For) -> bytes:
    """The file with one call in place of the loop and of the tensor that it fills. Raises `Refused` for other loops."""
    if not isinstance(loop.target, libcst.Name) or loop.orelse is not None or loop.asynchronous is not None:
        raise Refused(_NO_MAP)
    index, lines = loop.target.value, [*loop.body.body]
    rows = dict(_row(line, index) for line in lines[:-1])
    filled, made = _last(lines[-1], index)
    begun, like = _begun(text, loop, filled)
    for name in (*rows, filled):
        refuse_declared(text, name)
    taken = matchers.findall(made, _element(index))
    sources = {*rows.values(), *(text_of(one.value) for one in taken if isinstance(one, libcst.Subscript))}
    lengths = {f"range({size})" for size in (f"len({like})", f"{like}.size(0)", f"{like}.shape[0]")}
    if sources != {like} or len(rows) > 1 or text_of(loop.iter) not in lengths:
        raise Refused(_NO_MAP)
    refuse_no_tensor(text, loop, libcst.parse_expression(like))
    refuse_later_reads(text, loop, {index, *rows})
    row = next(iter(rows), "") or fresh_name(text, "row", "one_row")
    each = matchers.replace(made, _element(index), libcst.Name(row))
    assert isinstance(each, libcst.BaseExpression)
    if not _is_as_large(each, row):  # a number fills the whole row where it is put
        raise Refused(_NO_MAP)
    _refuse_other_work(each, {index, filled, *names_in(libcst.parse_expression(like))})
    called = f"{filled} = {text.known_as('torch')}.vmap(lambda {row}: {text_of(each)})({like})"
    line = text.parsed(called).with_changes(leading_lines=loop.leading_lines)
    return text.edited({begun: lambda _: libcst.RemoveFromParent(), loop: lambda _: line})


def _element(index: str) -> matchers.Subscript:
    """``a[i]`` and ``self.a[i]``."""
    at = matchers.SubscriptElement(matchers.Index(matchers.Name(index)))
    return matchers.Subscript(matchers.Name() | matchers.Attribute(), [at])


def _assigned(line: libcst.BaseStatement) -> tuple[libcst.BaseExpression, libcst.BaseExpression]:
    """The only target of a line, and its value."""
    part = line.body[0] if isinstance(line, libcst.SimpleStatementLine) and len(line.body) == 1 else None
    if not isinstance(part, libcst.Assign) or len(part.targets) != 1:
        raise Refused(_NO_MAP)
    target: libcst.BaseExpression = part.targets[0].target
    return target, part.value


def _row(line: libcst.BaseStatement, index: str) -> tuple[str, str]:
    """``row`` and ``x`` of ``row = x[i]``."""
    target, value = _assigned(line)
    if not isinstance(target, libcst.Name) or not matchers.matches(value, _element(index)):
        raise Refused(_NO_MAP)
    assert isinstance(value, libcst.Subscript)
    return target.value, text_of(value.value)


def _last(line: libcst.BaseStatement, index: str) -> tuple[str, libcst.BaseExpression]:
    """``out`` and what is put there, of ``out[i] = …``."""
    target, value = _assigned(line)
    is_row = matchers.matches(target, _element(index))
    if not is_row or not isinstance(target, libcst.Subscript) or not isinstance(target.value, libcst.Name):
        raise Refused(_NO_MAP)
    return target.value.value, value


def _begun(text: ProgramText, loop: libcst.For, filled: str) -> tuple[libcst.CSTNode, str]:
    """The line beside the loop that makes the tensor, ``out = torch.empty_like(x)``, and ``x``. Nothing comes between
    that names it."""
    around = block_of(text, loop)
    before: Sequence[libcst.CSTNode] = around[: around.index(loop)] if loop in around else ()
    for line in reversed(before):
        if uses(text, line, filled):
            value = _assigned(line)[1] if isinstance(line, libcst.BaseStatement) else None
            if isinstance(value, libcst.Call) and called_name(value) in ("empty_like", "zeros_like"):
                known = [one for one in uses(text, scope_of(text, loop), filled) if not lies_in(text, one, loop)]
                early = [one for one in known if text.line_of(one) < text.line_of(loop)]
                if len(value.args) == 1 and value.args[0].keyword is None and len(early) == 1:
                    return line, text_of(value.args[0].value)
            break
    raise Refused(f"nothing shows that each row of `{filled}` is filled")


def _is_as_large(value: libcst.BaseExpression, row: str) -> bool:
    """Whether an expression is at least as large as the row."""
    if isinstance(value, libcst.BinaryOperation):
        return _is_as_large(value.left, row) or _is_as_large(value.right, row)
    if isinstance(value, libcst.Call) and isinstance(value.func, libcst.Attribute) and called_name(value) in _EACH:
        return any(_is_as_large(one, row) for one in (value.func.value, *(given.value for given in value.args)))
    return isinstance(value, libcst.Name) and value.value == row


def _refuse_other_work(value: libcst.CSTNode, whole: set[str]) -> None:
    """Raise `Refused` for what is no arithmetic of rows, numbers and variables, or that reads more than one row."""
    for call in matchers.findall(value, matchers.Call()):
        assert isinstance(call, libcst.Call)
        is_plain = isinstance(call.func, libcst.Attribute) and len(call.args) <= 1
        if not is_plain or called_name(call) not in _PURE or any(one.keyword is not None for one in call.args):
            raise Refused(f"it calls `{called_name(call)}`, which may do something else to all rows at once")
    for sum_ in matchers.findall(value, matchers.BinaryOperation()):
        if isinstance(sum_, libcst.BinaryOperation) and not isinstance(sum_.operator, _ARITHMETIC):
            raise Refused(_NO_MAP)
    if whole & names_in(value) or matchers.findall(value, matchers.Subscript() | matchers.Lambda() | matchers.IfExp()):
        raise Refused(_NO_MAP)
