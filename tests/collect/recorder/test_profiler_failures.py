"""``profkit.profile`` if something goes wrong: the program goes on as if profkit were not there."""

from __future__ import annotations

import errno
import re
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity
from torch.profiler import profile as torch_profile

from profkit.collect.recorder.profiler import profile
from profkit.collect.recorder.recorder import Recorder
from profkit.collect.sessions.session import ProfilerSession
from profkit.run.directory import load_run
from tests.collect.reading import marks_of, read_events, steps_of, traces_in
from tests.collect.training import train


def test_an_exception_passes_and_is_noted(tmp_path):
    with pytest.raises(ZeroDivisionError), profile(tmp_path, wait=0) as recording:
        train(3, recording)
        _ = 1 / 0
    (note,) = load_run(tmp_path).notes
    assert re.fullmatch(
        r"the program failed: ZeroDivisionError: division by zero \(at test_profiler_failures\.py:\d+\)", note
    )
    assert sorted(steps_of(read_events(tmp_path))) == [0, 1]


def test_a_running_profiler_of_the_program_is_left_alone(tmp_path):
    with torch_profile(activities=[ProfilerActivity.CPU]) as own:
        with profile(tmp_path, wait=0) as recording:
            train(3, recording)
    assert "aten::addmm" in {event.name for event in own.events() or ()}
    assert load_run(tmp_path).notes == ("the program runs its own profiler: nothing was recorded",)
    assert traces_in(tmp_path) == []


def test_a_profiler_that_the_program_starts_ends_profkits_recording(tmp_path):
    with profile(tmp_path, wait=0, warmup=1, active=6) as recording:
        train(4, recording)
        with torch_profile(activities=[ProfilerActivity.CPU]) as own:
            train(2, recording)
    assert "aten::addmm" in {event.name for event in own.events() or ()}
    assert load_run(tmp_path).notes == ("the program started its own profiler: the recording ended there",)
    assert sorted(steps_of(read_events(tmp_path))) == [0, 1, 2]


def test_a_nested_profile_passes_its_steps_to_the_outer_one(tmp_path, warnings_said):
    with profile(tmp_path / "outer", wait=0, warmup=1, active=1) as outer:
        with profile(tmp_path / "inner", wait=0) as inner:
            train(4, inner)
    assert load_run(tmp_path / "outer").step_signal == "step()"
    assert not (tmp_path / "inner").exists()
    assert inner.diagnosis is None
    assert outer.directory == tmp_path / "outer"
    assert "another profkit.profile is active" in warnings_said()


def test_a_profile_records_once(tmp_path, warnings_said):
    recording = profile(tmp_path)
    for _ in range(2):
        with recording:
            torch.rand(3)
    assert len(traces_in(tmp_path)) == 1
    assert "records only once" in warnings_said()


def test_repeated_runs_into_one_directory_get_numbered_ones(tmp_path):
    directories = []
    for _ in range(3):
        with profile(tmp_path / "run") as recording:
            torch.rand(3)
        directories.append(recording.directory)
    assert directories == [tmp_path / "run", tmp_path / "run-2", tmp_path / "run-3"]
    assert [len(traces_in(directory)) for directory in directories] == [1, 1, 1]


def test_a_directory_that_meanwhile_holds_a_run_is_not_overwritten(tmp_path, warnings_said):
    early, late = profile(tmp_path), profile(tmp_path)
    with early:
        torch.rand(3)
    (before,) = traces_in(tmp_path)
    with late as recording:
        assert train(2, recording) == train(2)
    assert traces_in(tmp_path) == [before]
    assert warnings_said().startswith(f"profkit: not recording: {tmp_path}: holds another run")


def test_a_directory_that_cannot_be_made_costs_only_the_recording(tmp_path, warnings_said):
    (tmp_path / "file").write_text("")
    with profile(tmp_path / "file" / "run") as recording:
        losses = train(2, recording)
    assert losses == train(2)
    assert warnings_said().startswith("profkit: not recording: ")
    assert recording.diagnosis is None


def test_the_working_directory_may_change(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with profile("run", wait=0, warmup=1, active=1) as recording:
        train(1, recording)
        monkeypatch.chdir("elsewhere")
        train(5, recording)
    assert recording.directory == tmp_path / "run"
    assert sorted(steps_of(read_events(tmp_path / "run"))) == [0, 1]
    assert load_run(tmp_path / "run").notes == ()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_missing_working_directory_costs_only_the_recording(tmp_path, monkeypatch, warnings_said):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with profile("run") as recording:
        assert train(2, recording) == train(2)
    assert warnings_said().startswith("profkit: not recording: run: cannot be written: ")


def test_a_full_disk_costs_only_the_recording(tmp_path, monkeypatch, warnings_said):
    def fail(recording: ProfilerSession, path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ProfilerSession, "write", fail)
    with profile(tmp_path, wait=0, warmup=0, active=1) as recording:
        losses = train(6, recording)
    assert losses == train(6)
    assert warnings_said() == (
        f"profkit: recording abandoned: {tmp_path}: the trace could not be written: No space left on device\n"
    )
    assert not torch.autograd._profiler_enabled()
    assert "No space left on device" in load_run(tmp_path).notes[0]


@pytest.mark.parametrize("broken", ["start", "_turn", "finish"])
def test_an_error_in_profkit_costs_only_the_recording(broken, tmp_path, monkeypatch, warnings_said):
    def fail(*_: object) -> None:
        raise LookupError("a bug")

    monkeypatch.setattr(Recorder, broken, fail)
    with profile(tmp_path) as recording:
        losses = train(4, recording)
    assert losses == train(4)
    assert warnings_said() == "profkit: recording abandoned: LookupError: a bug\n"
    assert not torch.autograd._profiler_enabled()
    assert sys.gettrace() is None
    assert load_run(tmp_path).notes[0] == "profkit failed: LookupError: a bug"


def test_an_interrupt_inside_profkit_reaches_the_program(tmp_path, monkeypatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Recorder, "_turn", interrupt)
    with pytest.raises(KeyboardInterrupt), profile(tmp_path) as recording:
        recording.step()
    assert not torch.autograd._profiler_enabled()


def test_a_step_on_another_thread_does_not_count(tmp_path):
    """With more steps, or after a wait of more than a second, the other thread would be recorded instead."""
    train(1)  # the imports of the first optimizer take a second
    with profile(tmp_path, wait=0, warmup=0, active=2) as recording:
        thread = threading.Thread(target=lambda: train(1, recording))
        thread.start()
        thread.join()
        train(3, recording)
    assert sorted(steps_of(read_events(tmp_path))) == [0, 1]
    assert load_run(tmp_path).notes == ()


def test_a_step_during_the_capture_of_a_cuda_graph_is_ignored(tmp_path, monkeypatch):
    monkeypatch.setattr("profkit.collect.recorder.recorder.is_capturing", lambda: True)
    with profile(tmp_path, wait=0) as recording:
        train(3, recording)
        assert torch.autograd._profiler_enabled()
    assert steps_of(read_events(tmp_path)) == {}


def test_a_debugger_keeps_its_place(tmp_path):
    def debugger(frame: Any, event: str, argument: Any) -> None:
        return None

    before = sys.gettrace()
    sys.settrace(debugger)
    try:
        with profile(tmp_path, wait=0) as recording:
            train(3, recording)
            kept = sys.gettrace()
    finally:
        sys.settrace(before)
    assert kept is debugger
    assert marks_of(read_events(tmp_path)) == []
    assert load_run(tmp_path).notes == ("a debugger or a coverage tool traces the program: lines could not be located",)
