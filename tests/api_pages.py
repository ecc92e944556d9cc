"""docs/api.md: the public names with their signatures and docstrings.

    python -m tests.api_pages

writes it anew; a test compares. Besides the names of `profkit` itself it has every value that can be reached from a
diagnosis or a comparison.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from textwrap import dedent
from types import FunctionType
from typing import Any

import profkit
from profkit.core.errors import ProfkitError

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
_WIDTH = 100
_OF_PROFILE = ("step", "pause", "resume", "diagnosis", "directory", "directories", "is_over")
"""The others are called by profkit's own command line and integrations."""
_OF_PROFKIT = ("Location.within",)
"""Takes what only profkit has."""
_HEAD = """# The Python API

The names of `profkit`, and the values that a diagnosis and a comparison consist of. Times are whole nanoseconds
(`_ns`), sizes are bytes, and a `fraction` of 0.25 is a quarter of the step. Values are frozen: they can be read,
compared and pickled, not changed. `import profkit` takes some hundredths of a second; PyTorch is imported by
`profile` alone.

This page is made from the docstrings by `python -m tests.api_pages`.
"""


def make_page() -> str:
    functions = [profkit.diagnose, profkit.compare, profkit.load]
    parts = [_HEAD, "## Functions\n", *map(_function, functions), "## profile\n", _profile()]
    seen: set[type] = set()
    for root in (profkit.Diagnosis, profkit.Comparison):
        parts += [f"## {root.__name__}\n", _described(root)]
        parts += [f"{_heading(one, seen)}\n\n{_described(one)}" for one in _reached_from(root, seen) if one is not root]
    parts += ["## ProfkitError\n", _errors()]
    return "\n".join(parts).rstrip() + "\n"


def _profile() -> str:
    members = [inspect.getattr_static(profkit.profile, name) for name in _OF_PROFILE]
    return "\n".join([_signature("profile", profkit.profile), _text(profkit.profile), *map(_member, members)])


def _heading(kind: type, others: Iterable[type]) -> str:
    """With its module where another value has the same name."""
    is_alone = all(one is kind or one.__name__ != kind.__name__ for one in others)
    return f"### {kind.__name__}" if is_alone else f"### {kind.__name__} ({kind.__module__})"


def _described(kind: type) -> str:
    """A value: its fields or members, what they mean, and what it can do."""
    if issubclass(kind, Enum):
        listed = _fenced([f'{kind.__name__}.{one.name} = "{one.value}"' for one in kind])
    else:
        listed = _fields(kind)
    members = [member for name, member in vars(kind).items() if _is_public(name, member)]
    return "\n".join([listed, _text(kind), *map(_member, members)])


def _is_public(name: str, member: object) -> bool:
    of_profkit = getattr(member, "__qualname__", "") in _OF_PROFKIT
    return not name.startswith("_") and not of_profkit and isinstance(member, (FunctionType, property))


def _member(member: Any) -> str:
    if isinstance(member, property):
        assert member.fget is not None
        shown = f"{member.fget.__qualname__}: {member.fget.__annotations__['return']}"
        return f"{_fenced([shown])}\n{_text(member)}"
    return f"{_signature(member.__qualname__, member)}\n{_text(member)}"


def _function(function: Any) -> str:
    return f"### {function.__name__}\n\n{_signature(f'profkit.{function.__name__}', function)}\n{_text(function)}"


def _errors() -> str:
    """The tree, as the module that defines it draws it."""
    drawn = re.search(r"::\n\n(.*?)\n\n(.*)", inspect.getdoc(inspect.getmodule(ProfkitError)) or "", re.DOTALL)
    assert drawn is not None
    return f"{_fenced(dedent(drawn[1]).splitlines(), 'text')}\n{_marked_down(drawn[2])}\n"


def _reached_from(kind: type, seen: set[type]) -> Iterator[type]:
    """profkit's own types that the fields of a value have, in their order, each once."""
    if kind in seen or not getattr(kind, "__module__", "").startswith("profkit."):
        return
    seen.add(kind)
    yield kind
    if dataclasses.is_dataclass(kind):
        for hint in typing.get_type_hints(kind).values():
            for one in _parts_of(hint):
                yield from _reached_from(one, seen)


def _parts_of(hint: Any) -> Iterable[Any]:
    inner = typing.get_args(hint)
    return [part for one in inner for part in _parts_of(one)] if inner else [hint]


def _fields(kind: type) -> str:
    assert dataclasses.is_dataclass(kind)
    listed = [f"{one.name}: {one.type}{_default(one)}" for one in dataclasses.fields(kind)]
    return _call(kind.__name__, listed, "")


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f" = {field.default!r}"
    return " = {}" if field.default_factory is not dataclasses.MISSING else ""


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    listed, is_by_name = [], False
    for one in signature.parameters.values():
        if one.name == "self":
            continue
        if one.kind is one.KEYWORD_ONLY and not is_by_name:
            is_by_name = True
            listed.append("*")
        annotation = "" if one.annotation is one.empty else f": {one.annotation}"
        default = "" if one.default is one.empty else f" = {one.default!r}"
        listed.append(f"{one.name}{annotation}{default}")
    given = signature.return_annotation
    return _call(name, listed, "" if given is signature.empty or isinstance(function, type) else f" -> {given}")


def _call(name: str, listed: list[str], result: str) -> str:
    line = f"{name}({', '.join(listed)}){result}"
    if len(line) <= _WIDTH:
        return _fenced([line])
    return _fenced([f"{name}(", *(f"    {one}," for one in listed), f"){result}"])


def _fenced(lines: Iterable[str], language: str = "python") -> str:
    return "\n".join([f"```{language}", *lines, "```", ""])


def _text(described: object) -> str:
    """The docstring. A dataclass without one gets its signature from Python, which says nothing."""
    text = inspect.getdoc(described) or ""
    own = vars(described).get("__doc__") if isinstance(described, type) else text
    assert own, f"{described} has no docstring"
    assert not own.startswith(f"{getattr(described, '__name__', '')}("), f"{described} has no docstring"
    return f"{_marked_down(text)}\n"


def _marked_down(text: str) -> str:
    """reStructuredText, as far as docstrings here have it, as Markdown."""
    text = re.sub(r"^::\n\n((?: {4}.*\n?|\n)+)", _code_of, text, flags=re.MULTILINE)
    return re.sub(r"``(.+?)``", r"`\1`", text)


def _code_of(block: re.Match[str]) -> str:
    return f"{_fenced(dedent(block[1]).rstrip().splitlines())}\n"


if __name__ == "__main__":
    PAGE.write_text(make_page(), encoding="utf-8")
