"""Where a program's data may become float64, by the syntax tree of a file or of one line.

NumPy computes in float64 unless told otherwise, and ``torch.from_numpy`` and its like keep the type. The line is
usually before the loop, where nothing is recorded. Data that is converted to another type at once is left out. Whether
the rest really is float64, only the recording can tell.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from msgspec import Struct

from profkit.source.syntax import identifiers, name_called

_TAKES_A_TYPE = frozenset(("from_numpy", "from_dlpack", "as_tensor", "tensor", "asarray"))
_ONLY_TORCHS = frozenset(("from_numpy", "as_tensor"))
"""Names that are clear enough without their module."""
_CONVERTS = frozenset(("float", "half", "bfloat16", "long", "int", "bool", "type", "type_as", "short"))
_LEAVES = frozenset(("numpy", "tolist", "item"))
_DOUBLES = frozenset(("float64", "double"))
_OTHER_TYPES = frozenset(("float32", "float16", "bfloat16", "half", "int64", "long", "int32", "bool", "uint8", "float"))
_TYPES = _DOUBLES | _OTHER_TYPES | {"dtype"}


class DoubleMakers(Struct, frozen=True):
    """The lines that make float64 the default, that ask for it by name, and that take the type of the data."""

    by_default: tuple[int, ...]
    asked_for: tuple[int, ...]
    taken: tuple[int, ...]

    @property
    def any(self) -> bool:
        return bool(self.by_default or self.asked_for or self.taken)


def double_makers(tree: ast.AST) -> DoubleMakers:
    """All that the tree shows, in the order of the source."""
    by_default, asked_for, taken = set[int](), set[int](), set[int]()
    for call, is_converted in _calls(tree):
        name, types = name_called(call), identifiers(call)
        if name == "set_default_dtype" and types & _DOUBLES:
            by_default.add(call.lineno)
        elif name == "double" or (name in ("to", "type") and types & _DOUBLES):
            asked_for.add(call.lineno)
        elif is_converted or not _is_torchs(call):
            continue
        elif (asked := _type_asked_for(call)) in _DOUBLES:
            asked_for.add(call.lineno)
        elif name in _TAKES_A_TYPE and asked is None and not types & _OTHER_TYPES and not _is_literal(call):
            taken.add(call.lineno)
    return DoubleMakers(*(tuple(sorted(lines)) for lines in (by_default, asked_for, taken)))


def _calls(node: ast.AST, is_converted: bool = False, is_left: bool = False) -> Iterator[tuple[ast.Call, bool]]:
    """All calls, each with whether its type goes no further: either the result is converted at once, or the call is
    part of a formula whose result is not a tensor (``is_left``)."""
    if isinstance(node, ast.Call):
        yield node, is_converted or is_left
    is_left = is_left or (isinstance(node, ast.Attribute) and node.attr in _LEAVES)
    converts = (isinstance(node, ast.Attribute) and node.attr in _CONVERTS) or _converts(node)
    for child in ast.iter_child_nodes(node):
        chained = isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)) and child is _first_part(node)
        yield from _calls(child, chained and (converts or is_converted), is_left)


def _converts(node: ast.AST) -> bool:
    """``x.to(y.dtype)``, but not ``x.to(device)``."""
    if not isinstance(node, ast.Call) or name_called(node) != "to":
        return False
    given = (*node.args, *(word.value for word in node.keywords))
    named = {word.arg for word in node.keywords}
    return "dtype" in named or any(identifiers(value) & _TYPES for value in given)


def _first_part(node: ast.Call | ast.Attribute | ast.Subscript) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node.value


def _is_torchs(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id in _ONLY_TORCHS
    return isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") == "torch"


def _type_asked_for(call: ast.Call) -> str | None:
    """``float64`` of ``dtype=torch.float64``; empty for anything else, None if no type is given."""
    return next((getattr(keyword.value, "attr", "") for keyword in call.keywords if keyword.arg == "dtype"), None)


def _is_literal(call: ast.Call) -> bool:
    """Python's own numbers become float32."""
    first = next(iter(call.args), None)
    return first is None or isinstance(first, (ast.Constant, ast.List, ast.Tuple, ast.ListComp))
