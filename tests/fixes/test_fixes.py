"""The figures of `python -m tests.fixes` on rows that are written by hand, and the programs it makes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from profkit.diagnosis.fixing.proving import HELD, NO_GAIN, REFUSED, UNDECIDED, Gain
from profkit.diagnosis.fixing.turns import Run, Seen
from profkit.diagnosis.verify import Share
from tests.fixes.cases import MARK, labelled, programs, scenarios
from tests.fixes.judging import MEMORY, NODES, Row, is_known, is_told, with_memory
from tests.fixes.table import figures, reasons, render

ROWS = (
    Row("a", (("x", HELD, ""), ("y", REFUSED, "no")), won=0.45, possible=0.5, over=(0.1, 0.08, 0.12)),
    Row("b", (("x", NO_GAIN, "noise"),), won=0.0, possible=0.3, over=(0.43, 0.4, 0.46)),
    Row("c", (), won=0.0, possible=0.01, over=(0.01, -0.02, 0.03)),
    Row("d", failure="it fails"),
    Row("e", (("x", UNDECIDED, "too long"),)),
)


def test_each_figure_counts_what_it_says():
    assert figures(ROWS).splitlines() == [
        "findings with a change: 3 of 4 (75 %)",
        "programs with a change: 3 of 5 (60 %)",
        "changes that hold: 1 of 2 (50 %), not enough time to tell: 1",
        "programs a change brings within a tenth of their known fix: 1 of 5 (20 %)",
        "programs that reach nine tenths of the possible: 1 of 2 (50 %)",
        "of the possible time won: 56 %",
    ]
    assert figures(()).endswith("of the possible time won: not measured")


def test_a_row_says_what_was_won_and_what_did_not_hold():
    assert render(ROWS[0]) == "| a | 2 | 1 | 1 | time | 45 % | 50 % | 90 % | 1.10 (1.08 to 1.12) |"
    assert render(ROWS[2]).endswith("| - | 1.01 (0.98 to 1.03) |")
    assert render(ROWS[3]) == "| d | it fails | | | | | | | |"
    assert reasons(ROWS) == ["a: y: refused: no", "b: x: no gain shown: noise", f"e: x: {UNDECIDED}: too long"]


def gain(before: float, after: float, nodes: tuple[int, int], frees: bool = False) -> Gain:
    return Gain(1.0, 1.0, Share(0.0, -0.1, 0.1), 3, True, before, after, frees, *nodes)


def test_a_fault_of_memory_is_judged_by_memory_or_by_what_is_kept_alive():
    by_peak = with_memory(ROWS[0], gain(500, 310, (0, 0)), gain(500, 300, (0, 0), frees=True))
    assert (by_peak.measure, by_peak.won, by_peak.possible) == (MEMORY, 0.38, 0.4)
    assert by_peak.is_close
    by_nodes = with_memory(ROWS[0], gain(500, 500, (1000, 900)), gain(500, 499, (1000, 100)))
    assert (by_nodes.measure, by_nodes.possible) == (NODES, 0.9)
    assert by_nodes.over == (8.0, 8.0, 8.0)
    assert not by_nodes.is_close
    assert with_memory(ROWS[0], gain(500, 500, (0, 0)), gain(500, 499, (0, 0))).possible is None  # nothing shows


def lasting(*seconds: float) -> list[Run]:
    return [Run(0, "", "", Seen(run_ns=int(one * 1e9)), {}, {}) for one in seconds]


@pytest.mark.parametrize(
    ("known", "after", "told"),
    [
        ((1.0, 1.0, 1.0), (1.0, 1.02, 0.99), True),
        ((1.0, 1.0, 1.0), (1.0, 1.3, 0.9), False),  # within a tenth, or not
        ((1.0, 1.0, 1.0), (1.5, 1.5, 1.4), True),  # not within a tenth for certain
        ((0.8, 1.6, 1.0), (0.8, 1.6, 1.0), False),  # the same, but what the known fix wins is open
    ],
)
def test_more_turns_are_taken_until_the_row_is_told(known, after, told):
    assert is_told(lasting(2.0, 2.0, 2.0), lasting(*known), lasting(*after)) is told


def test_near_the_known_fix_without_a_change_that_held_is_no_success():
    assert ROWS[0].is_close
    assert not ROWS[2].is_close


def test_a_scenario_becomes_a_program_with_both_variants():
    made = {case.name: case for case in scenarios()}
    assert "loss-list" in made
    assert "averaged-twice" not in made  # takes two processes
    assert "cpu-tensor-then-cuda" not in made  # needs a GPU
    assert made["loss-list"].is_of_memory
    assert not made["cat-in-loop"].is_of_memory
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
    assert is_known(script, {Path("fault.py"): b"print(2)  # as known\n"})
    assert not is_known(script, {Path("fault.py"): b"print(3)\n"})
    assert not is_known(package, {Path("fault/__main__.py"): b"print(3)\n"})


def test_an_ordinary_program_is_tried_on_the_rule_of_its_fault_and_does_not_name_it(tmp_path):
    made = {case.name: case for case in labelled()}
    case = made["dcgan"]
    assert case.rule == "retained-graph"
    assert not MARK.search(case.text)
    assert "clean_dqn" not in made
    case.lay_out(tmp_path / "dcgan")
    assert [one.name for one in (tmp_path / "dcgan").iterdir()] == ["dcgan.py"]


def test_a_change_that_makes_the_known_fix_is_known_for_it():
    (case,) = (one for one in scenarios() if one.name == "loss-list")
    made = case.text.replace("append(loss)", "append(loss.detach())")
    assert is_known(case, {Path(case.program): made.encode()})
    assert not is_known(case, {Path(case.program): case.text.encode()})
    assert not is_known(case, {})
