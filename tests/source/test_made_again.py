"""Which lines make a variable of a function, and which may do more."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from profkit.source.made_again import lines_making


def lines(directory: Path, *body: str) -> list[int]:
    path = directory / "program.py"
    path.write_text("def draw(self, rows):\n" + textwrap.indent("\n".join(body), "    ") + "\n")
    return lines_making(str(path), 1, "x")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(("x = np.array([g.p for g in self.games.values()])", "return x[0]"), [2], id="an array"),
        pytest.param(("x = np.array(self.p)", "x /= np.sum(x)", "return x[0]"), [2, 3], id="and its share"),
        pytest.param(("x = []", "for g in self.games:", "    x.append(g.p)", "return sum(x)"), [2, 4], id="a list"),
        pytest.param(("x = np.array(self.p)", "return self.draw(9, p=x)"), [2], id="given to a function"),
        pytest.param(("x = np.array(self.p)", "self.drawn.append(x[0])", "return 0"), [2], id="a part of it is kept"),
        pytest.param(("x = {}", "for g in self.games:", "    x[g.name] = g.p", "return x['a']"), [2, 4], id="a table"),
        pytest.param(("x: list = sorted(self.names)", "y = x", "return 0"), [], id="under another name too"),
    ],
)
def test_lines_that_only_compute_make_it(tmp_path, body, expected):
    assert lines(tmp_path, *body) == expected


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(("x = self.env.reset()", "return x[0]"), id="a method that may do more"),
        pytest.param(("x = load(rows)", "return x[0]"), id="a function that may do more"),
        pytest.param(("x = np.random.permutation(9)", "return x[0]"), id="random"),
        pytest.param(("x = self.pick[rows](3)", "return x[0]"), id="a function from a list"),
        pytest.param(("x = np.add(a, b, out=self.kept)", "return x[0]"), id="into something else"),
        pytest.param(("x = [next(self.rows) for _ in range(9)]", "return x[0]"), id="an iterator that goes on"),
        pytest.param(("x, y = self.pair()", "return x[0]"), id="several at once"),
        pytest.param(("for x in rows:", "    pass"), id="a loop's"),
        pytest.param(("with open(rows) as x:", "    pass"), id="a file"),
        pytest.param(("y = (x := list(rows))",), id="within an expression"),
        pytest.param(("x = list(rows)", "return x"), id="returned"),
        pytest.param(("x = list(rows)", "return x, 3"), id="returned with more"),
        pytest.param(("x = list(rows)", "return {'x': x}"), id="returned in a table"),
        pytest.param(("x = list(rows)", "self.kept = x"), id="kept"),
        pytest.param(("x = list(rows)", "if rows:", "    self.games.append((x, 3))"), id="put into a list"),
        pytest.param(("x = list(rows)", "return Game(rows=x)"), id="made into an object"),
        pytest.param(("return 3",), id="not made here"),
    ],
)
def test_lines_that_may_do_more_do_not_count(tmp_path, body):
    assert lines(tmp_path, *body) == []


def test_a_file_that_cannot_be_read_shows_nothing(tmp_path):
    assert lines_making(str(tmp_path / "none.py"), 1, "x") == []
    path = tmp_path / "program.py"
    path.write_text("@once\ndef f():\n    x = list(range(9))\n")
    assert lines_making(str(path), 1, "x") == [3]
    assert lines_making(str(path), 2, "x") == []
