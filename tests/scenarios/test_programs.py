"""The ordinary programs that diagnoses are tried on: marked where they are faulty, and runnable from anywhere."""

from __future__ import annotations

import pytest

from profkit.rules import all_rules
from tests.end_to_end.programs import Program, all_programs

PROGRAMS = all_programs()
FAULTY = [program for program in PROGRAMS if program.marks]
CLEAN = [program for program in PROGRAMS if not program.marks]
RULES = set(all_rules())
CPU_RULES = {
    "checkpoint-in-step",
    "debug-mode-on",
    "discarded-logits",
    "float64-compute",
    "garbage-collection-in-step",
    "graph-break",
    "growing-concatenation",
    "growing-live-tensors",
    "host-sync-in-step",
    "input-bound",
    "looped-modules",
    "materialised-broadcast",
    "missing-kv-cache",
    "oversized-storage",
    "per-sample-fetch",
    "recompilation",
    "reference-cycle",
    "retained-graph",
    "single-tensor-optimizer",
    "slow-tensor-construction",
    "tensor-element-loop",
    "tensor-list-loop",
    "unfused-attention",
    "unfused-pointwise",
    "unrolled-recurrence",
    "unused-autograd-graph",
    "unused-gradients",
    "workers-respawned",
}


@pytest.mark.parametrize("program", FAULTY, ids=lambda program: program.path.stem)
def test_a_faulty_program_marks_one_or_two_lines_with_a_rule(program: Program) -> None:
    (rule,) = {rule for _, rule in program.marks}
    assert rule in RULES
    assert len(program.marks) <= 2


def test_a_program_is_named_clean_exactly_if_it_marks_no_fault() -> None:
    assert {one.path.stem for one in PROGRAMS if one.path.name.startswith("clean_")} == {one.path.stem for one in CLEAN}


def test_every_rule_that_works_on_a_cpu_has_a_faulty_program() -> None:
    assert {rule for program in FAULTY for _, rule in program.marks} == CPU_RULES


def test_there_are_enough_programs() -> None:
    assert len(PROGRAMS) >= 24
    assert len(CLEAN) >= 8


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.path.stem)
def test_no_program_mentions_profiling(program: Program) -> None:
    text = program.path.read_text(encoding="utf-8").lower()
    assert "profkit" not in text
    assert "profiler" not in text
