"""The ordinary programs that diagnoses are tried on: marked where they are faulty, and runnable from anywhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from profkit.rules import all_rules

PROGRAMS = sorted((Path(__file__).parents[1] / "programs").glob("*.py"))
CLEAN = [path for path in PROGRAMS if path.name.startswith("clean_")]
FAULTY = [path for path in PROGRAMS if path not in CLEAN]
RULES = set(all_rules())
CPU_RULES = {
    "float64-compute",
    "growing-concatenation",
    "host-sync-in-step",
    "input-bound",
    "looped-modules",
    "retained-graph",
    "single-tensor-optimizer",
    "tensor-element-loop",
    "unfused-attention",
    "unfused-pointwise",
    "unused-autograd-graph",
}


def read_marks(program: Path) -> list[str]:
    return re.findall(r"# expect: (\S+)$", program.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("program", FAULTY, ids=lambda path: path.stem)
def test_a_faulty_program_marks_one_line_with_a_rule(program: Path) -> None:
    (mark,) = read_marks(program)
    assert mark in RULES


@pytest.mark.parametrize("program", CLEAN, ids=lambda path: path.stem)
def test_a_clean_program_marks_nothing(program: Path) -> None:
    assert read_marks(program) == []


def test_every_rule_of_a_cpu_has_a_faulty_program() -> None:
    assert {mark for program in FAULTY for mark in read_marks(program)} == CPU_RULES


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_no_program_is_prepared_for_profiling(program: Path) -> None:
    text = program.read_text(encoding="utf-8").lower()
    assert "profkit" not in text
    assert "profiler" not in text
