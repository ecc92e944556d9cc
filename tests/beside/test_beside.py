"""The harness itself, and some of its programs inside a profile: the others take too long for the suite."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.beside.comparing import Difference, compared, differing_lines
from tests.beside.declared import FOLDER, Program, programs, read
from tests.beside.documented import DOCUMENTED, why
from tests.beside.driver import __file__ as driver
from tests.beside.modes import MODES, command
from tests.beside.running import Outcome, outcome
from tests.beside.staging import staged
from tests.beside.table import Result, Row, render, sums, write
from tests.forks import Forks

_DOCS = Path(__file__).parents[2] / "docs"
IN_THE_SUITE = (
    "caught_in_each_step",
    "fork_trains",
    "function_mode",
    "hostile_dict",
    "hostile_eq",
    "keys_in_the_middle",
    "modes_per_step",
    "optimizer_hooks",
    "own_optimizer",
    "patched_backward",
    "patched_functions",
    "random_states",
    "reference_counts",
    "settrace_user",
    "sigterm_restored",
    "warnings_are_errors",
)
BARE = Outcome(0, "a\nb\n", "warned\n", {"work/file": "3 bytes"}, (), None)


def kinds(watched: Outcome, mode: str, bare: Outcome = BARE) -> list[str]:
    return [difference.kind for difference in compared(bare, watched, mode, ())]


@pytest.mark.parametrize("name", IN_THE_SUITE)
def test_a_program_is_the_same_inside_a_profile(name, tmp_path, forks: Forks):
    program = read(FOLDER / f"{name}.py")
    ends = []
    for run in ("-", str(tmp_path / "run")):
        with staged(program, tmp_path / "at") as ready:
            arguments = [run, "script", ready.target, *program.arguments]
            ended = forks.run("tests.beside.driver:main", arguments, tmp_path / "at" / "work")
            files = {path.name: path.read_text() for path in (tmp_path / "at" / "work").iterdir()}
        ends.append(Outcome(ended.returncode, ended.stdout, ended.stderr, files))
    assert ends[0].status == program.status, ends[0].stderr
    assert compared(*ends, "profile", program.masks) == ()
    assert (tmp_path / "run").exists()


def test_programs_declare_what_is_known():
    assert len(programs()) >= 75
    assert sorted(IN_THE_SUITE) == [program.name for program in programs() if program.name in IN_THE_SUITE]
    assert {mode for program in programs() for mode in program.skips} <= set(MODES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("print()", "a docstring of one line"),
        ('"""Two\nlines."""', "a docstring of one line"),
        ('"""One."""\n# beside: speed 3', "nobody knows what speed means"),
        ('"""One."""\n# beside: start backwards', "nobody knows how to start it as backwards"),
    ],
)
def test_an_unknown_declaration_is_refused(text, message, tmp_path):
    (tmp_path / "program.py").write_text(text)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "program.py")


def test_a_program_that_needs_what_is_absent_says_so(tmp_path):
    (tmp_path / "program.py").write_text('"""One."""\n# beside: needs no_such_module\n')
    assert read(tmp_path / "program.py").absence() == "no_such_module is not here"
    assert read(FOLDER / "one_step.py").absence() == ""


def test_nothing_differs_between_equal_outcomes():
    assert kinds(BARE, "profile") == []
    assert kinds(replace(BARE, recorded_status=0), "record") == []


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"status": 1}, "status"),
        ({"status": None}, "hang"),
        ({"stdout": "a\nb\nmore\n"}, "stdout"),
        ({"stderr": "warned\nwarned\n"}, "stderr"),
        ({"files": {}}, "files"),
        ({"files": {"work/file": "4 bytes"}}, "files"),
        ({"processes": ("sleep",)}, "processes"),
    ],
)
def test_each_difference_is_found(change, kind):
    assert kinds(replace(BARE, **change), "profile") == [kind]


def test_the_report_may_follow_what_a_program_wrote_and_nothing_else_may():
    watched = replace(BARE, recorded_status=0)
    assert kinds(replace(watched, stdout="a\nb\nNo fault found\n"), "diagnose") == []
    assert kinds(replace(watched, stdout="a\nbb\nNo fault found\n"), "diagnose") == ["stdout"]
    assert set(kinds(replace(watched, stdout="No fault found\na\nb\n"), "diagnose")) == {"stdout"}
    unended = replace(watched, stdout="a\nbNo fault found\n")
    assert kinds(unended, "diagnose", replace(BARE, stdout="a\nb")) == []
    assert kinds(unended, "diagnose", replace(BARE, stdout="a\nc")) == ["stdout"]
    assert kinds(replace(watched, stdout="a\nb\nNo fault found\n"), "record") == ["stdout"]


def test_lines_of_profkit_on_stderr_are_set_apart():
    for text in ("warned\nprofkit: one\n/tmp/x/run\n", "profkit: one\nwarned\nWritten to /tmp/x/run:\n  a, b\n"):
        assert kinds(replace(BARE, stderr=text), "profile") == []
    assert kinds(replace(BARE, stderr="warned/tmp/x/run\n"), "profile", replace(BARE, stderr="warned")) == []
    assert kinds(replace(BARE, stderr="warned\nTraceback\n"), "profile") == ["stderr"]


@pytest.mark.parametrize(
    ("bare", "watched", "noted", "expected"),
    [
        (0, 0, 0, []),
        (7, 3, 7, []),
        (-15, 3, 143, []),
        (7, 7, 7, ["status"]),
        (7, 3, 0, ["run.json"]),
        (0, 0, None, ["run.json"]),
        (0, 2, None, ["status"]),
    ],
)
def test_the_command_line_says_that_the_program_failed_and_notes_how(bare, watched, noted, expected):
    ended = replace(BARE, status=watched, recorded_status=noted)
    assert kinds(ended, "record", replace(BARE, status=bare)) == expected


def test_masks_take_out_what_always_differs():
    bare, watched = replace(BARE, stdout="at 0x1f\n"), replace(BARE, stdout="at 0x2e\n")
    assert compared(bare, watched, "profile", (r"0x[0-9a-f]+",)) == ()
    assert len(compared(bare, watched, "profile", (r"0x[1]",))) == 1


@pytest.mark.parametrize(
    ("expected", "got", "shown"),
    [
        ("a\nb\n", "a\nb\n", []),
        ("a\nb\nc\nd\n", "a\nB\nc\nD\n", ["line 2: 'b' became 'B'", "line 4: 'd' became 'D'"]),
        ("a\nb\n", "x\na\nb\n", ["line 1: '(nothing)' became 'x'"]),
        ("a\nb\n", "a\n", ["line 2: 'b' became '(nothing)'"]),
        ("a\n", "a", ["its last line ends differently: 'a\\n' became 'a'"]),
        ("x" * 200 + "y", "x" * 200 + "z", [f"line 1: '…{'x' * 40}y' became '…{'x' * 40}z'"]),
    ],
)
def test_every_line_that_differs_is_shown_where_it_does(expected, got, shown):
    assert list(differing_lines(expected, got)) == shown


def test_of_many_lines_that_differ_the_first_are_shown():
    assert len(list(differing_lines("a\n" * 99, "b\n" * 99))) == 20


@pytest.mark.parametrize("row", DOCUMENTED, ids=lambda row: f"{row.programs[0]}-{row.kind}")
def test_a_documented_difference_is_stated_on_its_page(row):
    text = " ".join((_DOCS / row.page).read_text(encoding="utf-8").split())
    assert row.says in text
    assert {*row.programs} <= {program.name for program in programs()}


def test_a_difference_is_documented_for_its_program_and_mode_alone():
    found = Difference("status", "0 became 2")
    assert why("no_torch", "record", found) == "programs.md"
    others = [("one_step", "record", found), ("no_torch", "profile", found)]
    others += [("no_torch", "record", Difference(*pair)) for pair in (("status", "0 became 3"), ("stdout", found.text))]
    assert [why(*other) for other in others] == [""] * 4


def test_a_row_names_its_differences():
    program = read(FOLDER / "one_step.py")
    results = (
        Result("record", "", ((Difference("stdout", "a became b"), ""),)),
        Result("diagnose", "", ((Difference("status", "0 became 2"), "reports.md"),)),
        Result("profile", "it has none"),
    )
    row = Row(program, results)
    assert render(row).splitlines() == [
        "one_step: record DIFFERS, diagnose documented, profile skipped",
        "  record stdout: a became b (NOT DOCUMENTED)",
        "  diagnose status: 0 became 2 (reports.md)",
        "  profile: it has none",
    ]
    expected = "2 programs, 3 comparisons: 0 same, 1 documented, 1 DIFFERS, 1 skipped; 1 programs broken"
    assert sums([row, Row(program, (), "it fails bare")]) == expected


def test_the_page_of_results_has_a_part_for_each_condition(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.beside.table._PAGE", tmp_path / "RESULTS.md")
    row = Row(read(FOLDER / "one_step.py"), (Result("record"), Result("profile", "it has none")))
    write([row], "On a quiet machine", "2 CPUs.")
    write([replace(row, results=row.results[:1])], "Beside four busy processes", "2 CPUs.")
    write([row], "On a quiet machine", "4 CPUs.")
    head, busy, quiet = (tmp_path / "RESULTS.md").read_text(encoding="utf-8").split("## ")
    assert head.startswith("# What profkit changes in programs\n")
    assert busy.splitlines()[-2:] == ["| one_step | A single step | same |  |  |", ""]
    assert quiet.splitlines()[2] == "4 CPUs."
    assert quiet.splitlines()[-3:] == [
        "| one_step | A single step | same |  | skipped |",
        "",
        "- one_step, profile, skipped: it has none",
    ]


def test_a_run_of_some_programs_replaces_their_rows_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.beside.table._PAGE", tmp_path / "RESULTS.md")
    one, other = (Row(read(FOLDER / f"{name}.py"), (Result("record"),)) for name in ("one_step", "broken_pipe"))
    write([one, replace(other, results=(), broken="it fails bare")], "On a quiet machine", "2 CPUs.")
    write([replace(other, results=(Result("profile", "it has none"),))], "On a quiet machine", "2 CPUs.", False)
    lines = (tmp_path / "RESULTS.md").read_text(encoding="utf-8").split("## ")[1].splitlines()
    assert lines[4] == "2 programs, 2 comparisons: 1 same, 0 documented, 0 DIFFERS, 1 skipped; 0 programs broken."
    assert [line.split("|")[1].strip() for line in lines[8:10]] == ["broken_pipe", "one_step"]
    assert lines[10:] == ["", "- broken_pipe, profile, skipped: it has none"]


def test_differences_are_told_by_kind_and_page(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.beside.table._PAGE", tmp_path / "RESULTS.md")
    known = [Difference("stdout", "a became b"), Difference("status", "c"), Difference("stdout", "d")]
    differences = tuple((one, "x.md" if one.kind == "status" else "") for one in known)
    results = (Result("record", "", differences), Result("profile", "", differences[1:]))
    write([Row(read(FOLDER / "one_step.py"), results)], "On a quiet machine", "2 CPUs.")
    assert (tmp_path / "RESULTS.md").read_text(encoding="utf-8").splitlines()[-2:] == [
        "- one_step, stdout (record 2, profile 1): NOT DOCUMENTED: `a became b`",
        "- one_step, status (record 1, profile 1): docs/x.md",
    ]


WAITING = """\"\"\"Waits for ever, as does its child.\"\"\"
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
import signal
signal.pause()
"""


def test_a_run_that_hangs_is_killed_with_all_that_it_started(tmp_path):
    (tmp_path / "waiting.py").write_text(WAITING)
    ended = outcome(read(tmp_path / "waiting.py"), "bare", tmp_path / "at", 1.0)
    assert (ended.status, ended.processes) == (None, ())


def test_what_a_run_leaves_behind_is_found_and_ended(tmp_path):
    (tmp_path / "leaving.py").write_text(
        '"""Leaves a process, a file and a temporary file."""\n'
        "import os, subprocess, sys, tempfile\n"
        'subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])\n'
        'open("file", "w").write("text"); open(os.path.join(tempfile.gettempdir(), "other"), "w"); sys.exit(4)\n'
    )
    ended = outcome(read(tmp_path / "leaving.py"), "bare", tmp_path / "at", 60.0, linger_s=0)
    assert (ended.status, sorted(ended.files)) == (4, ["temporary/other", "work/file"])
    assert len(ended.processes) == 1
    assert "signal.pause()" in ended.processes[0]


@pytest.mark.parametrize("start", ["script", "module", "package", "zipped", "zipapp", "code", "text", "deleted"])
def test_every_start_runs_the_program_bare(start, tmp_path):
    (tmp_path / "shown.py").write_text(f'"""Shows its arguments."""\n# beside: start {start}\nprint(1 + 1)\n')
    ended = outcome(read(tmp_path / "shown.py"), "bare", tmp_path / "at", 60.0)
    assert (ended.status, ended.stdout, ended.stderr) == (0, "2\n", "")


def test_the_three_modes_are_started_with_profkit(tmp_path):
    program = Program(FOLDER / "one_step.py", "", arguments=("--one",))
    with staged(program, tmp_path / "at") as ready:
        lines = [command(mode, ready) for mode in MODES]
    run, target = str(tmp_path / "at" / "runs" / "run"), str(tmp_path / "at" / "code" / "one_step.py")
    assert lines == [
        [sys.executable, "-m", "profkit", "record", "--output", run, target, "--", "--one"],
        [sys.executable, "-m", "profkit", "diagnose", "--output", run, target, "--", "--one"],
        [sys.executable, driver, run, "script", target, "--one"],
    ]


def test_a_full_and_a_read_only_directory_are_mounted_where_that_is_allowed(tmp_path):
    text = "try: open('file', 'w').write('0' * 9999)\nexcept OSError as error: print(error.strerror)\n"
    for kind, said in (("full", "No space left on device\n"), ("read-only", "Read-only file system\n")):
        (tmp_path / "writing.py").write_text(f'"""Writes."""\n# beside: mount {kind}\n{text}')
        try:
            ended = outcome(read(tmp_path / "writing.py"), "bare", tmp_path / "at", 60.0)
        except PermissionError as refused:
            pytest.skip(str(refused))
        assert ended.stdout == said
