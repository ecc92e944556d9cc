"""An import that only the old text needed goes with it, as its author would see to."""

from __future__ import annotations

import sys

import libcst

from profkit.rules.changes.base import ProgramText, program_text, text_of
from profkit.rules.changes.scopes import names_in


def without_unused_imports(before: ProgramText, after: bytes) -> bytes:
    """The changed file without each ``import math`` of the standard library that the file named elsewhere before the
    change and no longer does. Importing one of those does nothing else."""
    text = program_text(after)
    for line in text.module.body:
        name = _imported(line)
        if name and _named(before, name) > 1 and _named(text, name) == 1 and not _is_string(text, name):
            assert isinstance(line, libcst.SimpleStatementLine)
            return without_unused_imports(before, text.without(line))
    return after


def _imported(line: libcst.CSTNode) -> str:
    """What ``import math``, alone on its line, gives a name to."""
    part = line.body[0] if isinstance(line, libcst.SimpleStatementLine) and len(line.body) == 1 else None
    if not isinstance(part, libcst.Import) or len(part.names) != 1 or part.names[0].asname is not None:
        return ""
    name = text_of(part.names[0].name)
    return name if name in sys.stdlib_module_names else ""


def _named(text: ProgramText, name: str) -> int:
    return sum(one.value == name for one in text.nodes(libcst.Name))


def _is_string(text: ProgramText, name: str) -> bool:
    """Whether a string may mean it, such as one in ``__all__`` or for ``eval``."""
    return any(name in one.value for one in text.nodes(libcst.SimpleString)) or "eval" in names_in(text.module)
