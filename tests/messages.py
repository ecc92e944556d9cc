"""All that the rules, the diagnosis and the reports say, sentence by sentence, for fresh eyes.

    python -m tests.messages

prints each sentence with its number of words, the longest first. What is filled in counts as one word.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import profkit

_PACKAGE = Path(profkit.__file__).parent
RULES = _PACKAGE / "rules"
_OTHERS = ("collect", "derive", "diagnosis", "patterns", "memory_planner", "report", "cli")
_END = re.compile(r"(?<=[.?!])\s+|\n")
_FILLED = "…"
_LEAST_WORDS = 4
"""Shorter texts are names, and parts of sentences that are put together."""
_NO_PROSE = re.compile(r"\\[a-z.(]|^\s*\n|^import ")
"""Patterns, lists of operators, and code for another process."""


class Sentence(NamedTuple):
    """A sentence that a report may show."""

    words: int
    where: str
    line: int
    text: str


def sentences() -> list[Sentence]:
    """Of all rules and of what speaks beside them, the longest first."""
    files = [path for room in (RULES, *(_PACKAGE / one for one in _OTHERS)) for path in sorted(room.rglob("*.py"))]
    return sorted((one for path in files for one in _of_file(path)), reverse=True)


def of_rule(sentence: Sentence) -> bool:
    """Whether a rule says it, not what speaks beside the rules."""
    return "/" not in sentence.where


def _of_file(path: Path) -> Iterator[Sentence]:
    where = path.stem.replace("_", "-") if path.parent == RULES else path.relative_to(_PACKAGE).as_posix()
    for node in _texts(ast.parse(path.read_text(encoding="utf-8"))):
        text = _text(node)
        if _NO_PROSE.search(text) or count_words(text) < _LEAST_WORDS:
            continue
        for one in _END.split(text):
            if one.strip():
                yield Sentence(count_words(one), where, node.lineno, one.strip())


def _texts(node: ast.AST) -> Iterator[ast.expr]:
    """The whole texts below a node, in order, without docstrings."""
    if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp) and any(map(_is_text, ast.walk(node))):
        yield node
        return
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
            yield from _texts(child)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _text(node: ast.expr) -> str:
    """A text as it is written, with an ellipsis for what is filled in; of two, the longer one."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_FILLED if isinstance(part, ast.FormattedValue) else _text(part) for part in node.values)
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    if isinstance(node, ast.IfExp):
        return max(_text(node.body), _text(node.orelse), key=len)
    return _FILLED


def count_words(text: str) -> int:
    """Code between backticks counts as one word."""
    return len(re.sub(r"`[^`]*`", "code", text).split())


def main() -> None:
    """Print them."""
    for one in sentences():
        print(f"{one.words:>3}  {one.where}:{one.line}  {one.text}")


if __name__ == "__main__":
    main()
