"""Functions stay small enough to be read at a glance, and a number has its reason beside it. A file is as long as its
subject: no number makes one good. A limit of 300 lines once split one package into 65 files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import profkit
from tests.house import unexplained_numbers

PACKAGE = Path(profkit.__file__).parent
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
MOST_LINES_OF_A_FUNCTION = 45
"""About a screen, signature and docstring included: what does not fit is not seen at once."""


def _functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


@pytest.mark.parametrize("name", FILES)
def test_a_function_fits_a_screen(name):
    text = (PACKAGE / name).read_text(encoding="utf-8")
    assert {found: lines for found, lines in _functions(ast.parse(text)) if lines > MOST_LINES_OF_A_FUNCTION} == {}


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith("_scenarios/")])
def test_each_number_of_a_module_has_its_reason_below_it(name):
    """Where nobody knows the reason, nobody dares to change the number."""
    assert list(unexplained_numbers(ast.parse((PACKAGE / name).read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    ("text", "unexplained"),
    [
        ("_LEAST = 7", ["_LEAST"]),
        ('_LEAST = 7\n"""A week."""', []),
        ('_LEAST = 7\n_MOST = 31\n"""A week, a month."""', []),
        ("_LEAST: int = -7\ndef days(): ...", ["_LEAST"]),
        ("_HALF = 0.5\n_NAME = 'x'\n_IS_SET = True", []),
    ],
)
def test_a_text_explains_the_numbers_right_above_it(text, unexplained):
    assert list(unexplained_numbers(ast.parse(text))) == unexplained
