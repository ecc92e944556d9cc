"""The figures of `python -m tests.fixes` on rows that are written by hand, and the programs it makes."""

from __future__ import annotations

import ast

from profkit.diagnosis.fixing.proving import HELD, NO_GAIN, REFUSED, UNDECIDED
from tests.fixes.cases import MARK, labelled, programs, scenarios
from tests.fixes.judging import Row
from tests.fixes.table import figures, reasons, render

ROWS = (
    Row("a", (("x", HELD, ""), ("y", REFUSED, "no")), won=0.45, possible=0.5),
    Row("b", (("x", NO_GAIN, "noise"),), won=0.0, possible=0.3),
    Row("c", (), won=0.0, possible=0.01),
    Row("d", failure="it fails"),
    Row("e", (("x", UNDECIDED, "too long"),)),
)


def test_each_figure_counts_what_it_says():
    assert figures(ROWS).splitlines() == [
        "findings with a change: 3 of 4 (75 %)",
        "programs with a change: 3 of 5 (60 %)",
        "changes that hold: 1 of 2 (50 %), not enough time to tell: 1",
        "programs within a tenth of their known fix: 1 of 2 (50 %)",
        "of the possible time won: 56 %",
    ]
    assert figures(()).endswith("of the possible time won: not measured")


def test_a_row_says_what_was_won_and_what_did_not_hold():
    assert render(ROWS[0]) == "| a | 2 | 1 | 1 | 45 % | 50 % | 90 % |"
    assert render(ROWS[2]).endswith("| - |")
    assert render(ROWS[3]) == "| d | it fails | | | | | |"
    assert reasons(ROWS) == ["a: y: refused: no", "b: x: no gain shown: noise", f"e: x: {UNDECIDED}: too long"]


def test_a_scenario_becomes_a_program_with_both_variants():
    made = {case.name: case for case in scenarios()}
    assert "loss-list" in made
    assert "averaged-twice" not in made  # takes two processes
    assert "cpu-tensor-then-cuda" not in made  # needs a GPU
    for case in made.values():
        names = {one.name for one in ast.parse(case.text).body if isinstance(one, ast.FunctionDef)}
        assert "pitfall" in names
        assert "fix" not in names
        ast.parse(case.fixed_text)


def test_a_folder_of_programs_is_read(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "fault.py").write_text("print(1)\n")
    assert programs(tmp_path) == []
    (tmp_path / "one" / "fix.py").write_text("print(2)\n")
    (tmp_path / "one" / "data.py").write_text("SIZE = 3\n")
    for name in ("fault", "fix"):
        (tmp_path / "two" / name).mkdir(parents=True)
        (tmp_path / "two" / name / "__main__.py").write_text("print(3)\n")
    script, package = programs(tmp_path)
    assert script.lay_out(tmp_path / "work" / "one") == tmp_path / "work" / "one" / "fault.py"
    assert (tmp_path / "work" / "one" / "fix.py").read_text() == "print(2)\n"
    assert (tmp_path / "work" / "one" / "data.py").exists()
    assert not script.is_module
    assert (package.program, package.fixed, package.is_module) == ("fault", "fix", True)


def test_an_ordinary_program_is_tried_on_the_rule_of_its_fault_and_does_not_name_it(tmp_path):
    made = {case.name: case for case in labelled()}
    case = made["dcgan"]
    assert case.rule == "retained-graph"
    assert not MARK.search(case.text)
    assert "clean_dqn" not in made
    case.lay_out(tmp_path / "dcgan")
    assert [one.name for one in (tmp_path / "dcgan").iterdir()] == ["dcgan.py"]
