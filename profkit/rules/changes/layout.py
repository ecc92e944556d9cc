"""A call that would be too long for its line gets a line for each argument, as its author would write it."""

from __future__ import annotations

from collections.abc import Sequence

import libcst
from libcst import matchers

from profkit.rules.changes.base import ProgramText, text_of

_LINE = 88
"""Characters that a line may always have."""


def laid_out(
    text: ProgramText, old: libcst.CSTNode, function: str, given: Sequence[str], behind: str = ""
) -> libcst.BaseExpression:
    """The call in place of an old expression, with what follows it: on one line unless the old one had several, or that
    gets longer than any line of the file is. Comments inside of the old one stand above the arguments."""
    comments = [one.value for one in matchers.findall(old, matchers.Comment()) if isinstance(one, libcst.Comment)]
    whole = f"{function}({', '.join(given)}){behind}"
    lines = text.module.code.splitlines()
    line, begin = lines[text.line_of(old) - 1], text.column_of(old)
    rest = line[begin:].removeprefix(text_of(old)) if line[begin:].startswith(text_of(old)) else ""
    code = rest.partition("#")[0].rstrip()  # a comment may be longer than the rest
    length = len(line[:begin].expandtabs(4)) + len(whole) + len(code)
    if "\n" not in text_of(old) and length <= max([_LINE, *map(len, lines)]):
        return libcst.parse_expression(whole)
    tab, end = text.module.default_indent, text.module.default_newline
    around = line[: len(line) - len(line.lstrip())].removeprefix(tab * _depth(text, old))
    rows = "".join(f"{around}{tab}{one}{end}" for one in [*comments, *(f"{one}," for one in given)])
    source = f"{function}({end}{rows}{around}){behind}"
    return libcst.parse_expression(source, config=text.module.config_for_parsing)


def _depth(text: ProgramText, node: libcst.CSTNode) -> int:
    return sum(isinstance(one, libcst.IndentedBlock) for one in text.ancestors(node))
