"""What a source file holds: what the function around a line gives to a variable."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from profkit.source.index import parsed_file

TEXT = """a = 1
def f(x):
    b = x + 1
    def g():
        b = 2
        return b
    c = d = b
    e: int = 4
    for i in x:
        h = i
        h = b
    m, n = x
    return [k for k in x]
class C:
    def f(self):
        a = 5
        return a
a_of_it = a
"""


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        (18, "a", "1"),
        (3, "b", "x + 1"),
        (6, "b", "2"),
        (17, "a", "5"),
        (13, "e", "4"),
        (13, "a", None),  # the module's
        (13, "c", None),  # set with another
        (13, "h", None),  # set twice
        (13, "m", None),  # one of several
        (13, "x", None),  # an argument
        (13, "i", None),  # a loop's
    ],
)
def test_a_variable_has_one_value_if_one_statement_alone_sets_it(tmp_path: Path, line, name, value):
    (tmp_path / "program.py").write_text(TEXT)
    file = parsed_file(str(tmp_path / "program.py"))
    assert file is not None
    found = file.only_value(line, name)
    assert (found and ast.unparse(found)) == value
