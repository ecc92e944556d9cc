"""Where a program's data may become float64, read off its syntax tree.

NumPy computes in float64 unless told otherwise, and ``torch.from_numpy`` and its like keep the type. The line lies
before the loop as a rule, where nothing is recorded. What says a type other than float64 is left out; whether the rest
makes float64 indeed, only the recording can tell.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

_TAKES_A_TYPE = frozenset(("from_numpy", "as_tensor", "tensor", "asarray"))
_CONVERTS = frozenset(("float", "half", "bfloat16", "long", "int", "bool", "to", "type", "type_as", "short"))
_LEAVES = frozenset(("numpy", "tolist", "item"))
_DOUBLES = frozenset(("float64", "double"))
_MAKES_INTEGERS = frozenset(("integers", "randint", "permutation", "argsort", "argmax", "argmin", "searchsorted",
                             "digitize", "bincount", "binomial", "poisson", "geometric", "zipf"))  # fmt: skip
"""Functions of NumPy, and of its generators of random numbers."""
_CHAIN = 3
"""Names that are computed from names, so often."""
_OTHER_TYPES = frozenset(("float32", "float16", "bfloat16", "half", "int64", "long", "int32", "bool", "uint8", "float"))


def double_makers(tree: ast.Module) -> list[int]:
    """The lines that may make float64 tensors, the likeliest first: the one that sets the type of all new tensors,
    those that name the type, those that take that of the data, and conversions of what was there."""
    everywhere: list[int] = []
    named: list[int] = []
    taken: list[int] = []
    converted: list[int] = []
    integers = _integer_names(tree)
    for call, is_converted in _calls(tree):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        types = {part.attr for part in ast.walk(call) if isinstance(part, ast.Attribute)}
        if name == "set_default_dtype" and types & _DOUBLES:
            everywhere.append(call.lineno)
        elif name == "double" or (name in ("to", "type") and types & _DOUBLES):
            converted.append(call.lineno)
        elif is_converted or not _is_torchs(call):
            continue
        elif (asked := _type_asked_for(call)) in _DOUBLES:
            named.append(call.lineno)
        elif name in _TAKES_A_TYPE and asked is None and not types & _OTHER_TYPES:
            if _is_literal(call) or _is_integral(call.args[0], integers):
                continue
            taken.append(call.lineno)
    return list(dict.fromkeys(everywhere + sorted(named) + sorted(taken) + sorted(converted)))


def _calls(node: ast.AST, is_converted: bool = False, is_left: bool = False) -> Iterator[tuple[ast.Call, bool]]:
    """All calls, and whether what they give is converted to another type at once, or, ``is_left``, is part of a formula
    whose result is no tensor."""
    if isinstance(node, ast.Call):
        yield node, is_converted or is_left
    is_left = is_left or (isinstance(node, ast.Attribute) and node.attr in _LEAVES)
    for child in ast.iter_child_nodes(node):
        converts = isinstance(node, ast.Attribute) and node.attr in _CONVERTS
        chained = isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)) and child is _first_part(node)
        yield from _calls(child, converts or (is_converted and chained), is_left)


def _first_part(node: ast.Call | ast.Attribute | ast.Subscript) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node.value


def _integer_names(tree: ast.AST) -> frozenset[str]:
    """Names that integers are given to, and nothing else."""
    given: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                given.setdefault(getattr(target, "id", ""), []).append(node.value)
    known: frozenset[str] = frozenset()
    for _ in range(_CHAIN):
        known = frozenset(name for name, values in given.items() if all(_is_integral(value, known) for value in values))
    return known


def _is_integral(value: ast.expr, known: frozenset[str]) -> bool:
    """Whether a formula holds something that is known for integers, and nothing that makes other numbers of them."""
    parts = [value]
    found = False
    for part in parts:
        if isinstance(part, ast.Call):
            if getattr(part.func, "attr", "") not in _MAKES_INTEGERS:
                return False
            found = True
            continue
        if isinstance(part, ast.Div) or (isinstance(part, ast.Constant) and isinstance(part.value, float)):
            return False
        found |= isinstance(part, ast.Name) and part.id in known
        parts += ast.iter_child_nodes(part)  # type: ignore[arg-type]  # operators and contexts among them have no parts
    return found


def _is_torchs(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") == "torch"


def _type_asked_for(call: ast.Call) -> str | None:
    """``float64`` of ``dtype=torch.float64``, empty where it is something else, None where no type is given."""
    return next((getattr(keyword.value, "attr", "") for keyword in call.keywords if keyword.arg == "dtype"), None)


def _is_literal(call: ast.Call) -> bool:
    """Numbers of Python become float32."""
    first = next(iter(call.args), None)
    return first is None or isinstance(first, (ast.Constant, ast.List, ast.Tuple, ast.ListComp))
