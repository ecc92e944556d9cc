"""Programs that end or fail amid their recording: each goes on as if profkit were not there, and the part that was
written is diagnosed. Real processes. `launch/test_unchanged_results` tests that their output stays the same."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest

from profkit.run.directory import load_run
from tests.collect.guarded import RECORDED, TRAINING, assert_diagnosed, run
from tests.collect.reading import read_events, steps_of
from tests.end_to_end.running import judge, record_program
from tests.forks import LONGEST_S

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("os._exit(9)", 9),
        ("os.kill(os.getpid(), signal.SIGTERM)", 128 + signal.SIGTERM),
        ("os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL),
        ("os.abort()", 128 + signal.SIGABRT),
    ],
)
def test_a_recording_written_before_a_sudden_end_is_diagnosed(recordings, end, status):
    outcome = run(recordings, f"train({RECORDED})\n{end}\n")
    assert outcome.status == 3
    assert f"the program itself failed with exit status {status}" in outcome.stderr
    assert_diagnosed(outcome)
    assert load_run(outcome.run).exit_status == status


@pytest.mark.parametrize(
    ("end", "status", "note"),
    [
        ("os._exit(9)", 9, "the program ended by os._exit"),
        ("os.kill(os.getpid(), signal.SIGTERM)", 128 + signal.SIGTERM, "the program was ended by SIGTERM"),
    ],
)
def test_a_sudden_end_amid_the_recorded_steps_keeps_the_complete_ones(recordings, end, status, note):
    outcome = run(recordings, f"train(7)\n{end}\ntrain(1)\n")
    assert outcome.status == 3
    assert f"the program itself failed with exit status {status}" in outcome.stderr
    assert "trained 1 " not in outcome.stdout
    assert sorted(steps_of(read_events(outcome.run))) == [2, 4, 5]  # the located step and two measured ones
    assert note in load_run(outcome.run).notes


def test_an_interrupt_amid_the_recorded_steps_keeps_the_complete_ones(recordings):
    program = TRAINING + "train(7)\nos.kill(os.getpid(), signal.SIGINT)\n"
    outcome = judge(record_program(recordings, "program.py", writes={"program.py": program}, alone=True))
    assert outcome.status == 3
    assert f"the program itself failed with exit status {128 + signal.SIGINT}" in outcome.stderr
    assert sorted(steps_of(read_events(outcome.run))) == [2, 4, 5]


def test_a_program_that_handles_sigterm_goes_on(recordings):
    """Even if its handler calls the previous one, as those of some libraries do."""
    handle = (
        "def handle(number, frame):\n    print('saved', flush=True)\n"
        "    if callable(before): before(number, frame)\n"
        "before = signal.signal(signal.SIGTERM, handle)\n"
    )
    outcome = run(recordings, f"train(7)\n{handle}os.kill(os.getpid(), signal.SIGTERM)\ntrain(8)\n")
    assert outcome.status == 0, outcome.stderr
    assert re.search("saved\ntrained 8 ", outcome.stdout)
    assert_diagnosed(outcome)


def test_a_handler_that_passes_the_signal_on_ends_the_program(recordings):
    """By the handler of before if there was one, else by the default action, as the program would by itself."""
    handle = (
        "def handle(number, frame):\n    print('saved', flush=True)\n"
        "    if callable(before): before(number, frame)\n"
        "    else: signal.signal(number, before); os.kill(os.getpid(), number)\n"
        "before = signal.signal(signal.SIGTERM, handle)\n"
    )
    outcome = run(recordings, f"train(7)\n{handle}os.kill(os.getpid(), signal.SIGTERM)\ntrain(8)\n")
    assert outcome.status == 3
    assert "saved" in outcome.stdout
    assert "trained 8 " not in outcome.stdout
    assert f"exit status {128 + signal.SIGTERM}" in outcome.stderr
    assert sorted(steps_of(read_events(outcome.run))) == [2, 4, 5]


def test_sigterm_ends_a_forked_child_as_usual(recordings):
    fork = (
        "import _signal\nchild = os.fork()\nif child == 0:\n    print(_signal.getsignal(signal.SIGTERM), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n    os._exit(0)\nprint('child', os.waitpid(child, 0)[1])\n"
    )
    outcome = run(recordings, f"train(7)\n{fork}train(8)\n")
    assert outcome.status == 0, outcome.stderr
    assert f"{int(signal.SIG_DFL)}\nchild {int(signal.SIGTERM)}\n" in outcome.stdout
    assert_diagnosed(outcome)


def test_after_the_recording_sigterm_has_its_default_handler(recordings):
    say = "import _signal; print('by default:', _signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)\n"
    outcome = run(recordings, f"{say}train(60)\n{say}", "--at-step", "1")  # then no step is timed after the recording
    assert re.findall("by default: (.*)", outcome.stdout) == ["False", "True"]


def test_an_immediate_exit_of_a_forked_child_does_not_end_the_recording(recordings):
    fork = "child = os.fork()\nif child == 0:\n    os._exit(4)\nprint(os.waitpid(child, 0)[1] >> 8)\n"
    outcome = run(recordings, f"train(4)\n{fork}train(8)\n")
    assert outcome.status == 0, outcome.stderr
    assert "\n4\n" in outcome.stdout
    assert load_run(outcome.run).exit_status == 0
    assert_diagnosed(outcome)


def test_a_kill_before_anything_is_written_is_reported_in_a_line(recordings):
    outcome = run(recordings, "train(3)\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert outcome.status == 3
    assert "nothing was recorded: the program ended without Python's own exit" in outcome.stderr


def test_profkit_passes_sigterm_on_to_the_program(recordings):
    """For example from ``timeout 600 profkit diagnose``: the program must not be left running."""
    # The signal may come before `signal.pause()` begins, which then waits for ever.
    wait = "while True:\n    signal.sigtimedwait([signal.SIGUSR2], 1)\n"
    end = f"train({RECORDED})\nos.kill(os.getppid(), signal.SIGTERM)\n{wait}"
    outcome = run(recordings, end)
    assert outcome.status == 3
    assert f"exit status {128 + signal.SIGTERM}" in outcome.stderr
    assert_diagnosed(outcome)


@pytest.mark.parametrize("end", ["raise RuntimeError('lost')", "raise KeyboardInterrupt"])
def test_an_exception_amid_the_recorded_steps_keeps_the_complete_ones(recordings, end):
    outcome = run(recordings, f"train(7)\n{end}\n")
    assert outcome.status == 3
    assert outcome.diagnosis["timing"]["steps"] >= 1
    assert any("the program failed" in note for note in load_run(outcome.run).notes)


def test_a_full_disk_costs_only_the_recording(recordings):
    """No file of the program's process may exceed four pages, as the trace does. Python would leave truncated bytecode
    files, because it does not check how much it wrote."""
    limit = "sys.dont_write_bytecode = True; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, 1 << 14))"
    outcome = run(recordings, f"{limit}\ntrain({RECORDED})\n")
    assert outcome.stdout.startswith(f"trained {RECORDED} ")
    assert outcome.status == 2
    assert "run: the trace could not be written: File too large" in outcome.stderr
    assert list(outcome.run.glob("*trace*")) == list(outcome.run.glob(".*")) == []


def test_a_disk_too_full_for_the_reports_shows_no_traceback(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(TRAINING + f"train({RECORDED})\n")
    limit = "export PYTHONDONTWRITEBYTECODE=1; ulimit -f 4"  # as above
    limited = ["bash", "-c", f"{limit}; exec {sys.executable} -m profkit diagnose --output run program.py"]
    result = subprocess.run(limited, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=LONGEST_S)
    assert result.stdout.startswith(f"trained {RECORDED} ")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("end", "status"), [("", 2), ("sys.exit(5)\n", 3)])
def test_a_directory_that_vanishes_costs_only_the_recording(recordings, end, status):
    """The failure of the program itself is reported even so."""
    outcome = run(recordings, f"train(4)\nshutil.rmtree('run')\ntrain(8)\n{end}")
    assert outcome.stdout.startswith("trained 4 ")
    assert "trained 8 " in outcome.stdout
    assert outcome.status == status
    gone = "the directory is gone, removed or renamed while the program ran"
    assert f"nothing was recorded: run cannot be written: {gone}" in outcome.stderr


@pytest.mark.parametrize("end", ["", "sys.exit(7)\n"])
def test_a_program_may_change_its_working_directory(recordings, end):
    program = f"{TRAINING}os.mkdir('elsewhere')\nos.chdir('elsewhere')\ntrain({RECORDED})\n{end}"
    kept = recordings.fork("tests.end_to_end.recording:main", ["record", "program.py"], writes={"program.py": program})
    assert kept.ended.returncode == (3 if end else 0), kept.ended.stderr
    assert list((kept.directory / "elsewhere").iterdir()) == []
    (directory,) = (kept.directory / "traces" / "program").iterdir()
    assert sorted(steps_of(read_events(directory))) == [2, 4, 5, 6, 7]
    assert load_run(directory).notes == ()


def test_a_read_only_directory_is_refused_before_the_program_starts(tmp_path):
    (tmp_path / "program.py").write_text("print('started')\n")
    command = [sys.executable, "-m", "profkit", "diagnose", "--output", "/proc/profkit-run", "program.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=LONGEST_S)
    assert (result.returncode, result.stdout) == (2, "")
    assert re.fullmatch(r"profkit: /proc/profkit-run: cannot be written: .*\n", result.stderr)
