"""All messages and fixes of the rules, as their text lists them, for a reader with fresh eyes.

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

RULES = Path(profkit.__file__).parent / "rules"
_TOLD = ("message", "fix", "title", "unpriced")
"""The arguments of a suspicion that a report shows."""
_END = re.compile(r"(?<=[.?!:;])\s+(?=[A-Z`…-])|\n")
_FILLED = "…"


class Sentence(NamedTuple):
    """A sentence that a rule may say."""

    words: int
    rule: str
    line: int
    text: str


def sentences() -> list[Sentence]:
    """Of all rules, the longest first."""
    return sorted((one for path in sorted(RULES.glob("*.py")) for one in _of_file(path)), reverse=True)


def _of_file(path: Path) -> Iterator[Sentence]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in _TOLD:
            for text in _END.split(_text(node.value)):
                if text.strip():
                    yield Sentence(count_words(text), path.stem.replace("_", "-"), node.value.lineno, text.strip())


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
        print(f"{one.words:>3}  {one.rule}:{one.line}  {one.text}")


if __name__ == "__main__":
    main()
