"""Running a program in several processes: its directory, and what becomes of the files of its ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profkit.cli import _launching
from profkit.collect.launch import parent
from profkit.core.errors import RunDirectoryError, UsageError
from profkit.run.directory import RankIdentity, Run, save

WISHES = {"stop_after_recording": False}


class Launcher:
    """Leaves runs of these ranks, light or complete, and ends with ``status``."""

    def __init__(self, ranks: dict[int, bool], status: int = 0) -> None:
        self._ranks, self._status = ranks, status
        self.asked: list[tuple[Any, ...]] = []

    def __call__(self, *asked: Any, **options: Any) -> int:
        self.asked.append((*asked, options))
        for rank, is_light in self._ranks.items():
            folder = asked[3] / f"rank{rank}"
            folder.mkdir()
            save(folder, "run.json", Run(identity=RankIdentity(rank), is_light=is_light))
            (folder / "a.pt.trace.json").touch()
        return self._status


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def launch(monkeypatch: pytest.MonkeyPatch, launcher: Launcher, output: Path | None = None) -> Any:
    monkeypatch.setattr(parent, "launch_ranks", launcher)
    return _launching.run("some/train.py", ("a",), output, False, nproc=3, **WISHES)


def test_each_launch_gets_the_next_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("launch", "launch-2"):
        launcher = Launcher({10: False, 9: False})
        recorded = launch(monkeypatch, launcher)
        where = Path("traces", "train", name)
        assert recorded.directories == (where, where / "rank9", where / "rank10")
        assert launcher.asked == [(3, "some/train.py", ("a",), where, {"module": False, **WISHES})]


def test_a_directory_that_holds_a_launch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("run").mkdir()
    Path("run", "launch.json").touch()
    with pytest.raises(RunDirectoryError, match="holds another run"):
        launch(monkeypatch, Launcher({0: False}), Path("run"))


@pytest.mark.parametrize(("status", "expected"), [(0, 2), (1, 3)])
def test_a_launch_that_left_no_trace_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: int, expected: int
) -> None:
    with pytest.raises(SystemExit) as ended:
        launch(monkeypatch, Launcher({}, status))
    assert ended.value.code == expected
    assert "no rank was recorded" in capsys.readouterr().err


def test_ranks_get_time_to_end_while_others_wait_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent, "launch_ranks", Launcher({0: False}))
    with pytest.raises(UsageError, match="stop-after-recording"):
        _launching.run("train.py", (), None, False, nproc=2, stop_after_recording=True)
