"""What the runner says of public programs is right, on programs of two lines."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.real_programs.__main__ import run
from tests.real_programs.data import citations, mnist, text
from tests.real_programs.programs import PROGRAMS, Program, edited
from tests.real_programs.running import Found, Row, first_difference, turn, within_budget
from tests.real_programs.staging import absence, stage
from tests.real_programs.table import render, render_sums

TIMES = (r"\d+ ms",)


def test_times_are_masked_and_other_numbers_are_compared():
    assert first_difference("step 1: 12 ms\nloss 0.5\n", "step 1: 903 ms\nloss 0.5\n", TIMES) == ""
    assert (
        first_difference("step 1: 12 ms\nloss 0.5\n", "step 1: 9 ms\nloss 0.7\n", TIMES)
        == "line 2: 'loss 0.5' became 'loss 0.7'"
    )


def test_the_report_of_profkit_after_the_output_is_no_difference():
    assert first_difference("loss 1\n", "loss 1\n\nNo fault found\n", ()) == ""


def test_output_that_profkit_cuts_off_differs():
    assert first_difference("loss 1\nloss 2\n", "loss 1\n", ()) == "line 2: 'loss 2' became '(nothing)'"


def test_the_budget_is_five_seconds_or_a_tenth_whichever_is_larger():
    assert within_budget(20, 25)
    assert not within_budget(20, 25.1)
    assert within_budget(100, 110)
    assert not within_budget(100, 110.1)


def test_a_program_that_is_not_cloned_is_listed_as_absent_with_the_reason(tmp_path):
    program = Program("one", "somebody/one", "train.py", parts=("train.py",))
    row = run(program, tmp_path, tmp_path / "work", 1, 10)
    assert render(row) == "one: absent (no one/train.py)"
    assert render_sums([row]).startswith("0 programs ran, 0 could not be compared, 1 are absent")


def test_a_program_whose_module_is_not_installed_is_absent(tmp_path):
    assert absence(_program(tmp_path, "pass", needs=("no_such_module",)), tmp_path) == "no_such_module not installed"


def test_a_driver_needs_its_package_and_no_clone():
    drivers = [program for program in PROGRAMS if program.driver and not program.copied]
    assert drivers
    assert all(program.needs for program in drivers)


def test_an_edit_that_does_not_match_is_an_error_in_its_row(tmp_path):
    program = _program(tmp_path, "epochs = 20", edits=(("steps = 20", "steps = 1"),))
    row = run(program, tmp_path, tmp_path / "work", 1, 10)
    assert "not the version that the table knows" in row.error
    assert render_sums([row]).startswith("0 programs ran, 1 could not be compared, 0 are absent")


def test_an_edit_moves_no_line():
    assert edited("a = 1\nepochs = 20\n", r"epochs = \d+", "epochs = 1") == "a = 1\nepochs = 1\n"
    with pytest.raises(AssertionError, match="moves the lines"):
        edited("a = 1\n", "a = 1", "a = 1\nb = 2")


def test_a_program_that_fails_bare_is_not_compared(tmp_path):
    row = run(_program(tmp_path, "raise ValueError('no data')"), tmp_path, tmp_path / "work", 1, 60)
    assert row.error == "bare it ends with status 1: ValueError: no data"


def test_a_turn_starts_from_a_fresh_copy_and_leaves_the_clone_alone(tmp_path):
    program = _program(tmp_path, "open('seen', 'a').write('x'); print(open('seen').read())")
    stage(program, tmp_path, tmp_path / "staged")
    outputs = [turn(program, tmp_path / "staged", tmp_path / "run", 60).output for _ in range(2)]
    assert outputs == ["x\n", "x\n"]
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["train.py"]


def test_the_order_of_a_set_is_the_same_in_all_turns(tmp_path):
    program = _program(tmp_path, "print({f'class {number}' for number in range(99)})")
    stage(program, tmp_path, tmp_path / "staged")
    assert len({turn(program, tmp_path / "staged", tmp_path / "run", 60).output for _ in range(3)}) == 1


def test_a_turn_that_takes_longer_than_its_limit_is_killed(tmp_path):
    program = _program(tmp_path, "while True: pass")
    stage(program, tmp_path, tmp_path / "staged")
    assert turn(program, tmp_path / "staged", tmp_path / "run", 0.2).status == -9


def test_a_row_names_the_differences():
    found = Found("host-sync-in-step", "medium", "train.py:3", "Waits.", 0.05, 0.04, 0.06)
    row = Row("one", "", "", (0, 3), False, "line 1: 'a' became 'b'", 10, 16, 9, 12, "1 fault", (found,))
    assert render(row).splitlines() == [
        "one: OUTPUT DIFFERS (line 1: 'a' became 'b'), STATUS 0 BECAME 3",
        "  bare 10.0 s, profkit 16.0 s, overhead +6.0 s, OVER THE BUDGET (processor time 9.0 and 12.0 s)",
        "  1 fault",
        "  medium host-sync-in-step train.py:3 5.0% (4.0% to 6.0%)",
        "    Waits.",
    ]
    assert render_sums([row]).splitlines()[1:] == [
        "same output: 0 of 1",
        "same status: 0 of 1",
        "within the budget: 0 of 1",
        "findings of medium and above: 1",
    ]


def test_names_are_unique_and_drivers_exist():
    names = [program.name for program in PROGRAMS]
    assert len(set(names)) == len(names)
    folder = Path(sys.modules[stage.__module__].__file__ or "").parent
    assert [program.path for program in PROGRAMS if program.driver and not (folder / program.path).is_file()] == []


def test_generated_data_is_the_same_every_time(tmp_path):
    for at in ("a", "b"):
        (tmp_path / at).mkdir()
        for write in (mnist(20, 10), text("words.txt", words=50), citations(30, 8)):
            write(tmp_path / at)
    contents = [{path.name: path.read_bytes() for path in (tmp_path / at).rglob("*") if path.is_file()} for at in "ab"]
    assert contents[0] == contents[1]
    assert len(contents[0]) == 7
    assert len(contents[0]["train-images-idx3-ubyte"]) == 16 + 20 * 784


def _program(clones: Path, source: str, **rest) -> Program:
    (clones / "one").mkdir()
    (clones / "one" / "train.py").write_text(source + "\n")
    return Program("one", "somebody/one", "train.py", parts=("train.py",), **rest)
