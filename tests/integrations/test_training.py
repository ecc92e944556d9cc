"""What the callbacks of all frameworks have in common."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import profkit
from profkit.collect.recorder.profiler import profile
from profkit.integrations.training import TrainingRecording
from profkit.run.directory import load_run
from tests.collect.reading import read_events, steps_of


@pytest.fixture(autouse=True)
def _the_program_is_the_test(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this test file counts as the program: reading hundreds of loaded files takes longer than recording."""
    own = str(request.path)
    monkeypatch.setattr("profkit.collect.recorder.archive.user_sources", lambda is_user: [own] if is_user(own) else [])


def train(recording: TrainingRecording, steps: int) -> None:
    recording.begin()
    for _ in range(steps):
        torch.rand(8) * 2
        recording.end_step()


def test_the_end_of_the_recording_and_the_report_are_announced(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recording = TrainingRecording(tmp_path / "run", wait=0, warmup=1, active=1)
    assert recording.diagnosis is None
    train(recording, 50)
    recording.finish()
    recording.report()
    printed = capfd.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in printed] == ["profkit"] * 3
    assert printed[0].endswith(f"the report comes when the training ends, or now: profkit diagnose {tmp_path}/run")
    assert printed[2] == f"profkit: the report: {tmp_path}/run/report.html"
    assert recording.diagnosis is not None
    assert recording.diagnosis.timing.steps == 1


def test_a_rank_that_does_not_report_only_records(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    recording = TrainingRecording(tmp_path / "run", wait=0, warmup=1, active=1)
    recording.begin(reports=False)
    train(recording, 50)
    recording.finish()
    recording.report()
    assert capfd.readouterr().err == ""
    assert len(steps_of(read_events(tmp_path / "run"))) == 2
    assert not (tmp_path / "run" / "report.html").exists()


def test_a_second_training_is_not_recorded(tmp_path: Path) -> None:
    recording = TrainingRecording(tmp_path / "run", wait=0, warmup=0, active=2)
    train(recording, 4)
    recording.finish()
    train(recording, 4)
    assert profile._current is None
    assert len(steps_of(read_events(tmp_path / "run"))) == 2


def test_an_enclosing_recording_gets_the_steps(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    inner = TrainingRecording(tmp_path / "inner", wait=0, warmup=0, active=2)
    with profkit.profile(tmp_path / "outer", wait=0, warmup=0, active=2):
        train(inner, 3)
        inner.pause()
        torch.rand(8).exp()
        inner.resume()
        train(inner, 3)
        inner.finish()
        inner.report()
    assert not (tmp_path / "inner").exists()
    assert (inner.directory, inner.diagnosis) == (None, None)
    assert load_run(tmp_path / "outer").step_signal == "step()"
    assert "the report" not in capfd.readouterr().err


def test_a_training_that_failed_says_where_its_recording_lies(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recording = TrainingRecording(tmp_path / "run", wait=0, warmup=0, active=2)
    train(recording, 4)
    recording.finish(ValueError("bad"))
    assert f"recorded in {tmp_path}/run up to the error: profkit diagnose {tmp_path}/run" in capfd.readouterr().err
    assert "the program failed: ValueError: bad" in load_run(tmp_path / "run").notes


def test_without_a_training_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    recording = TrainingRecording()
    recording.end_step()
    recording.pause()
    recording.resume()
    recording.finish()
    recording.report()
    assert capfd.readouterr().err == ""


def test_invalid_settings_are_refused_before_the_training() -> None:
    with pytest.raises(ValueError, match="active at least 1"):
        TrainingRecording(active=0)
