"""What profkit changes in programs and says so: one row for each, with the page and the sentence that state it.

Everything else that differs is a defect.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.beside.comparing import Difference


@dataclass(frozen=True)
class Documented:
    program: str
    """A pattern for the names of the programs that show it."""
    modes: tuple[str, ...]
    kind: str
    text: str
    """A pattern for the difference."""
    page: str
    says: str
    """A part of a sentence of that page."""


DOCUMENTED: tuple[Documented, ...] = ()


def why(program: str, mode: str, difference: Difference) -> str:
    """The page that states the difference; empty if none does."""
    for row in DOCUMENTED:
        is_here = mode in row.modes and re.fullmatch(row.program, program)
        if is_here and difference.kind == row.kind and re.search(row.text, difference.text):
            return row.page
    return ""
