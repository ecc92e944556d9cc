"""Which attributes of a dataset hold many Python objects: workers copy that memory merely by reading the objects.

None of the user's code runs: attributes come from the instance's ``__dict__``, containers are read by the methods of
their built-in types, and only built-in types are asked for sizes. Long containers are sampled.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, TypeGuard

from profkit.source.attributes import attributes_of
from profkit.source.code import module_names, source_line
from profkit.source.index import parsed_file

_SAMPLE = 64
_SAMPLE_INSIDE = (_SAMPLE, 16, 4, 2)
"""Sample sizes by level of nesting: about ten thousand objects are examined at most."""
_MIN_OBJECTS = 1000
"""Fewer objects fill only a few dozen pages."""
_MAX_DEPTH = 3
"""Enough for a subset of concatenated datasets or a list of records."""
_MAX_FOUND = 8
_HEADER_BYTES = 128
"""The size counted for other objects, such as arrays and tensors: the header with the reference count, not the data."""
_SIZED = (int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset)
_CONTAINERS = (list, tuple, dict, set, frozenset)


def describe_objects(dataset: object, is_user: Mapping[str, bool]) -> list[dict[str, Any]]:
    """The largest containers of Python objects among the attributes of the dataset and of datasets inside it. Each has
    its ``path``, ``objects``, ``bytes`` and ``site``, the line of the user's code that fills it."""
    found: list[dict[str, Any]] = [
        {"path": path, "objects": count, "bytes": size, "site": _find_line(type(owner), name, is_user)}
        for path, owner, name, count, size in _containers(dataset, "dataset", 0, set())
    ]
    return sorted(found, key=lambda one: -one["bytes"])[:_MAX_FOUND]


def _containers(owner: object, path: str, depth: int, seen: set[int]) -> Iterator[tuple[str, object, str, int, int]]:
    """Yield each container's path, owner and attribute, the number of objects in it, and their bytes."""
    if depth > _MAX_DEPTH or id(owner) in seen:
        return
    seen.add(id(owner))
    for name, value in _attributes(owner):
        if type(value) in _CONTAINERS:
            count, size = _measure(value, 0)
            if count >= _MIN_OBJECTS:
                yield f"{path}.{name}", owner, name, round(count), round(size)
        inner = [value] if hasattr(type(value), "__getitem__") else []
        if type(value) in (list, tuple) and len(value) <= _SAMPLE:
            inner = list(value)
        for one in inner:
            if type(one) not in _SIZED:
                yield from _containers(one, f"{path}.{name}", depth + 1, seen)


def _attributes(owner: object) -> list[tuple[str, Any]]:
    return list(attributes_of(owner).items())


def _measure(value: object, depth: int) -> tuple[float, float]:
    """The number of objects in a value, itself included, and their bytes."""
    size = float(sys.getsizeof(value)) if type(value) in _SIZED else float(_HEADER_BYTES)
    if type(value) not in _CONTAINERS or depth > _MAX_DEPTH or not len(value):  # type: ignore[arg-type]  # a container
        return 1.0, size
    chosen = _sample(value, _SAMPLE_INSIDE[depth])
    scale = len(value) * (2 if type(value) is dict else 1) / len(chosen)  # type: ignore[arg-type]  # as above
    distinct = {id(one): one for one in chosen}.values()
    held = [_measure(one, depth + 1) for one in distinct]
    if len(distinct) <= len(chosen) / 2:  # small numbers, class names: the same few objects again and again
        scale = 1.0
    return 1.0 + scale * sum(count for count, _ in held), size + scale * sum(size for _, size in held)


def _sample(value: Any, size: int) -> list[Any]:
    """Elements from all over a sequence, or the first ones of another container; keys and values of a dict."""
    if type(value) is dict:
        return [part for pair in islice(dict.items(value), size) for part in pair]
    if type(value) in (list, tuple):
        return list(value[:: max(1, len(value) // size)][:size])
    return list(islice(iter(value), size))


def _find_line(owner: type, name: str, is_user: Mapping[str, bool]) -> dict[str, Any] | None:
    """The line in the owner's class or one of its bases that fills ``self.<name>``."""
    for kind in owner.__mro__:
        file = module_names(kind.__module__).get("__file__")
        if not isinstance(file, str) or not is_user[file]:
            continue
        source = parsed_file(file)
        classes = [scope.node for scope in source.scopes] if source is not None else []
        lines = [
            site
            for node in classes
            if isinstance(node, ast.ClassDef) and node.name == kind.__name__
            for site in _fillings(node, name)
        ]
        if lines:
            _, line, function = max(lines, key=lambda site: (site[0], -site[1]))
            text = source_line(file, line)
            return {"file": file, "line": line, "function": f"{kind.__name__}.{function}", "source": text}
    return None


def _fillings(found: ast.ClassDef, name: str) -> Iterator[tuple[int, int, str]]:
    """Rank, line and method of each statement that binds or extends the attribute; an empty container ranks last."""
    for method in found.body:
        if not isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for node in ast.walk(method):
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(_is_own(target, name) for target in targets):
                    empty = isinstance(node.value, (ast.List, ast.Dict, ast.Tuple)) and not ast.unparse(node.value)[2:]
                    yield (0 if empty else 2), node.lineno, method.name
            elif _extends(node, name):
                yield 1, node.lineno, method.name


def _extends(node: ast.AST, name: str) -> TypeGuard[ast.Call]:
    """Whether the node is ``self.<name>.append(...)`` or the like."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("append", "extend", "add", "update", "insert", "setdefault")
        and _is_own(node.func.value, name)
    )


def _is_own(node: ast.AST, name: str) -> bool:
    """Whether the node is ``self.<name>`` or an item of it."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.value, ast.Name)
