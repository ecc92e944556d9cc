"""Sums by Einstein's notation that are the products of an attention: ``einsum("bhqd,bhkd->bhqk", q, k)``."""

from __future__ import annotations

import libcst
from msgspec import Struct

from profkit.rules.changes.base import called_name, text_of

TURNED = ".transpose(1, 2)"
"""Puts the heads before the positions, where the fused call wants them, and back."""
_FOUR = 4
"""Dimensions with heads: with fewer there is nothing to turn."""


class Sums(Struct, frozen=True):
    """The operands: queries and keys, or weights and values. The key's source is turned already; whether ``first`` has
    to be, or the result where it is the weights, is told."""

    first: libcst.BaseExpression
    key: str
    first_turned: bool


def read_scores(value: libcst.BaseExpression) -> Sums | None:
    """Queries times keys, over the size of a head: the letters say so. None for anything else."""
    read = _read(value)
    if read is None:
        return None
    (first, second, out), operands = read
    batch, query, key, summed = out[:-2], out[-2], out[-1], first[-1]
    if len({*out, summed}) != len(out) + 1:
        return None
    turned = [_is_turned(one, batch + each + summed) for one, each in ((first, query), (second, key))]
    if None in turned:
        return None
    return Sums(operands[0], _source(operands[1], bool(turned[1])), bool(turned[0]))


def read_values(value: libcst.BaseExpression) -> Sums | None:
    """Weights times values. ``first_turned`` is whether the result has its positions before the heads."""
    read = _read(value)
    if read is None:
        return None
    (first, second, out), operands = read
    batch, query, key, size = first[:-2], first[-2], first[-1], out[-1]
    if len({*first, size}) != len(first) + 1:
        return None
    turned = [_is_turned(second, batch + key + size), _is_turned(out, batch + query + size)]
    if None in turned:
        return None
    return Sums(operands[0], _source(operands[1], bool(turned[0])), bool(turned[1]))


def is_number(value: libcst.BaseExpression) -> bool:
    """Whether a factor is a number, as far as the text shows it, and no tensor."""
    if isinstance(value, libcst.BinaryOperation):
        return is_number(value.left) and is_number(value.right)
    if isinstance(value, libcst.UnaryOperation):
        return is_number(value.expression)
    if isinstance(value, libcst.Call):
        return text_of(value.func) in ("math.sqrt", "sqrt") or called_name(value) == "size"
    if isinstance(value, libcst.Subscript):
        return text_of(value.value).endswith(".shape")
    name = text_of(value) if isinstance(value, (libcst.Name, libcst.Attribute)) else ""
    return isinstance(value, (libcst.Integer, libcst.Float)) or name.rpartition(".")[2] in ("scale", "scaling")


def _read(value: libcst.BaseExpression) -> tuple[tuple[str, str, str], tuple[libcst.BaseExpression, ...]] | None:
    if not isinstance(value, libcst.Call) or called_name(value) != "einsum" or len(value.args) != 3:
        return None
    if any(one.star or one.keyword is not None for one in value.args):
        return None
    formula, first, second = (one.value for one in value.args)
    letters = formula.raw_value.replace(" ", "") if isinstance(formula, libcst.SimpleString) else ""
    given, arrow, out = letters.partition("->")
    left, comma, right = given.partition(",")
    parts = (left, right, out)
    is_plain = arrow and comma and all(one.isalpha() and len(one) == len(out) > 2 for one in parts)
    return (parts, (first, second)) if is_plain else None


def _is_turned(letters: str, wanted: str) -> bool | None:
    """Whether the second and the third dimension are in each other's place; None if the order is another one."""
    if letters == wanted:
        return False
    swapped = letters[0] + letters[2] + letters[1] + letters[3:]
    return True if len(letters) == _FOUR and swapped == wanted else None


def _source(value: libcst.BaseExpression, is_turned: bool) -> str:
    source = text_of(value)
    is_plain = isinstance(value, (libcst.Name, libcst.Attribute, libcst.Call, libcst.Subscript))
    source = source if is_plain or not is_turned else f"({source})"
    return f"{source}{TURNED}" if is_turned else source
