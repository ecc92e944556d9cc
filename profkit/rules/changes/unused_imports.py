"""An import that only the old text needed goes with it, as its author would see to."""

from __future__ import annotations

import sys

import libcst

from profkit.rules.changes.base import ProgramText, program_text, text_of
from profkit.rules.changes.scopes import names_in


def without_unused_imports(before: ProgramText, after: bytes) -> bytes:
    """The changed file without each ``import math`` or ``from math import sqrt`` of the standard library that the file
    named elsewhere before the change and no longer does. Importing one of those does nothing else."""
    text = program_text(after)
    imported = [(line, name) for line in text.module.body for name in _imported(line)]
    for line, name in imported:
        if _named(before, name) > 1 and _named(text, name) == 1 and not _is_string(text, name):
            return without_unused_imports(before, _without(text, line, name))
    return after


def _imported(line: libcst.CSTNode) -> list[str]:
    """What ``import gc, math`` or ``from functools import partial``, alone on its line, gives names to."""
    part = line.body[0] if isinstance(line, libcst.SimpleStatementLine) and len(line.body) == 1 else None
    if not isinstance(part, libcst.Import | libcst.ImportFrom) or isinstance(part.names, libcst.ImportStar):
        return []
    plain = [text_of(one.name) for one in part.names if one.asname is None]
    if isinstance(part, libcst.ImportFrom):
        module = "" if part.relative or part.module is None else text_of(part.module).partition(".")[0]
        return plain if module in sys.stdlib_module_names else []
    return [name for name in plain if name in sys.stdlib_module_names]


def _without(text: ProgramText, line: libcst.CSTNode, name: str) -> bytes:
    assert isinstance(line, libcst.SimpleStatementLine)
    part = line.body[0]
    assert isinstance(part, libcst.Import | libcst.ImportFrom)
    assert not isinstance(part.names, libcst.ImportStar)
    kept = [one for one in part.names if text_of(one.name) != name or one.asname is not None]
    if not kept:
        return text.without(line)
    kept[-1] = kept[-1].with_changes(comma=part.names[-1].comma)
    return text.replaced(part, part.with_changes(names=kept))


def _named(text: ProgramText, name: str) -> int:
    return sum(one.value == name for one in text.nodes(libcst.Name))


def _is_string(text: ProgramText, name: str) -> bool:
    """Whether a string may mean it, such as one in ``__all__`` or for ``eval``."""
    return any(name in one.value for one in text.nodes(libcst.SimpleString)) or "eval" in names_in(text.module)
