"""A run is made once, and anew when something that decides what it leaves is another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import recordings as module
from tests.forks import ROOT, Ended
from tests.recordings import Recordings, collecting_code, forget, tidy

FUNCTION = "tests.end_to_end.recording:main"


class Counted:
    """In the place of the forks: counts what it is asked to run, and ends as it was told to."""

    def __init__(self, status: int = 0) -> None:
        self.runs = 0
        self._status = status

    def run(self, function: str, arguments: list[str], directory: Path) -> Ended:
        self.runs += 1
        (directory / "seen").write_text(" ".join(sorted(path.name for path in directory.iterdir())))
        return Ended(self._status, f"run {self.runs}", "")


@pytest.fixture
def forks() -> Counted:
    return Counted()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text("print(1)\n")
    return path


def test_a_run_is_reused_even_by_another_session(tmp_path: Path, forks: Counted, program: Path) -> None:
    first = Recordings(tmp_path / "kept", forks).fork(FUNCTION, ["a"], reads=[program], writes={"b/c.py": "2"})
    second = Recordings(tmp_path / "kept", forks).fork(FUNCTION, ["a"], reads=[program], writes={"b/c.py": "2"})
    assert first == second
    assert (forks.runs, first.ended) == (1, Ended(0, "run 1", ""))
    assert (first.directory / "b" / "c.py").read_text() == "2"
    assert (first.directory / "seen").read_text() == "b"


def test_other_arguments_or_files_make_another_run(tmp_path: Path, forks: Counted, program: Path) -> None:
    recordings = Recordings(tmp_path / "kept", forks)
    recordings.fork(FUNCTION, ["a"], reads=[program], writes={"b": "2"})
    recordings.fork(FUNCTION, ["b"], reads=[program], writes={"b": "2"})
    recordings.fork(FUNCTION, ["a"], reads=[program], writes={"b": "3"})
    recordings.fork("tests.end_to_end.recording:record_variant", ["a"], reads=[program], writes={"b": "2"})
    program.write_text("print(2)\n")
    recordings.fork(FUNCTION, ["a"], reads=[program], writes={"b": "2"})
    assert forks.runs == 5


def test_another_source_of_the_function_makes_another_run(
    tmp_path: Path, forks: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in ("1", "2"):
        (tmp_path / "checkout" / "tests").mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkout" / "tests" / "forks.py").touch()
        (tmp_path / "checkout" / "tests" / "driver.py").write_text(text)
        monkeypatch.setattr(module, "ROOT", tmp_path / "checkout")
        Recordings(tmp_path / "kept", forks).fork("tests.driver:main")
    assert forks.runs == 2


def test_a_change_of_collect_makes_every_run_new_and_one_of_a_rule_does_not(
    tmp_path: Path, forks: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = {path.relative_to(ROOT / "profkit").as_posix() for path in collecting_code()}
    assert {"collect/recorder/recorder.py", "run/plan.py", "source/growth.py", "core/marks.py"} <= code
    above = {"rules", "derive", "savings", "report", "__init__.py"}
    assert not [path for path in code if path.partition("/")[0] in above]
    Recordings(tmp_path / "kept", forks).fork(FUNCTION)
    changed = tmp_path / "recorder.py"
    changed.write_text("")
    monkeypatch.setattr(module, "collecting_code", lambda: {changed})
    module._stamp.cache_clear()
    try:
        Recordings(tmp_path / "kept", forks).fork(FUNCTION)
    finally:
        module._stamp.cache_clear()
    assert forks.runs == 2


def test_what_a_failed_test_looked_at_is_recorded_anew(tmp_path: Path, forks: Counted) -> None:
    recordings = Recordings(tmp_path / "kept", forks)
    forget(recordings.fork(FUNCTION))
    assert recordings.fork(FUNCTION).ended.stdout == "run 2"


def test_an_interrupted_run_starts_again_from_an_empty_directory(tmp_path: Path, forks: Counted) -> None:
    recordings = Recordings(tmp_path / "kept", forks)
    begun = recordings.fork(FUNCTION)
    (begun.directory / "left").touch()
    begun.directory.with_suffix(".json").unlink()
    assert (recordings.fork(FUNCTION).directory / "seen").read_text() == ""
    assert not (begun.directory / "left").exists()


ASK = """\
import sys
from pathlib import Path
from tests.recordings import Recordings
kept = Recordings(Path(sys.argv[1]), None).start(["-c", "import tests.test_recordings as t; t.say_once()"])
print(kept.ended.stdout, end="")
"""


def say_once() -> None:
    """Says whether it is the first that was run beside this directory."""
    beside = Path.cwd().parent / "said"
    print("again" if beside.exists() else "first")
    beside.touch()


def test_of_workers_that_ask_at_the_same_time_one_runs_and_all_get_the_result(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ASK, str(tmp_path)]
    workers = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [worker.communicate()[0] for worker in workers] == ["first\n"] * 3


def test_recordings_of_old_code_that_no_session_used_lately_are_removed(tmp_path: Path) -> None:
    for age, name in enumerate(("a", "b", "c", "d")):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    tidy(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([module._stamp(), "a", "b"])


PLAIN = """\
from pathlib import Path
import pytest

@pytest.mark.parametrize("is_right", [True, False])
def test_it(recordings, is_right):
    kept = recordings.start(["-c", f"{is_right}"])
    (kept.directory.parent / f"of-{is_right}").write_text(str(kept.directory))
    assert is_right
"""


def test_only_a_test_that_passes_leaves_its_runs_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_it.py").write_text(PLAIN)
    monkeypatch.setenv(module.PLACE, str(tmp_path / "kept"))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.conftest",
        "-c",
        str(ROOT / "pyproject.toml"),
        str(tmp_path),
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in ended.stdout, ended.stdout
    (generation,) = (tmp_path / "kept").iterdir()
    of = {is_right: Path((generation / f"of-{is_right}").read_text()) for is_right in (True, False)}
    assert {is_right: path.with_suffix(".json").exists() for is_right, path in of.items()} == {True: True, False: False}
