"""The recordings of one run: each is written before the next one begins, to a file that cannot be left behind."""

from __future__ import annotations

import gc
import os
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from profkit.collect.recorder.profiler import profile
from profkit.collect.sessions.allowance import Allowance
from profkit.collect.sessions.recordings import Tape
from profkit.collect.sessions.session import Recording
from tests.collect.reading import read_events, steps_of
from tests.collect.training import make_training, train


@pytest.fixture
def tape(tmp_path: Path) -> Any:
    made = Tape(tmp_path, lambda: None)
    yield made
    made.remove()


def record(tape: Tape, operators: int = 1) -> None:
    tape.start().begin_step(0)
    for _ in range(operators):
        torch.ones(2)


def test_each_recording_is_written_before_the_next_one_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kineto tells the times on a device by the clock of the last session that began."""
    told: list[str] = []
    start, write = Recording.start, Recording.write
    monkeypatch.setattr(Recording, "start", lambda recording: (told.append("start"), start(recording))[1])
    monkeypatch.setattr(Recording, "write", lambda recording, path: (told.append("write"), write(recording, path))[1])
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording:
        train(8, recording)
    opening, dropped, located, measured = ["start", "write"], ["start"], ["start", "write"], ["start", "write"]
    assert told == opening + dropped + located + measured  # dropped: the optimizer's step came before the explicit one
    assert len(steps_of(read_events(tmp_path))) == 3


def test_what_was_written_has_no_name_until_it_is_whole(tape: Tape, tmp_path: Path) -> None:
    record(tape)
    tape.keep_opening()
    record(tape)
    tape.keep_located()
    assert list(tmp_path.iterdir()) == []
    tape.drop_opening()
    record(tape)
    name = tape.export()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_recording_that_was_written_is_no_longer_held(tape: Tape, monkeypatch: pytest.MonkeyPatch) -> None:
    gc.disable()
    try:
        record(tape)
        assert tape.running is not None
        results = weakref.ref(tape.running._profiler.profiler)
        tape.keep_located()
        assert results() is None
    finally:
        gc.enable()


def test_of_two_parts_of_the_opening_the_later_one_stays_where_it_holds_about_as_much(tape: Tape) -> None:
    record(tape, 10)
    tape.keep_opening()
    first = tape.opening
    assert first is not None
    record(tape, 1)
    tape.keep_opening()
    assert tape.opening is first
    record(tape, 8)
    tape.keep_opening()
    assert tape.opening is not first
    assert first.closed


def test_a_child_of_a_fork_leaves_the_parents_files_readable(tape: Tape, tmp_path: Path) -> None:
    record(tape)
    tape.keep_opening()
    child = os.fork()
    if child == 0:
        tape.disown()
        os._exit(tape.opening is not None)
    assert os.waitpid(child, 0)[1] == 0
    tape.export()
    assert len(steps_of(read_events(tmp_path))) == 1


def test_a_recording_that_is_given_up_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = make_training()
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording:
        for _ in range(3):
            step()
            recording.step()
        monkeypatch.setattr("profkit.collect.boundaries.schedule.Schedule.advance", None)
        step()
        recording.step()
    assert list(tmp_path.glob(".*")) == []
    assert list(tmp_path.glob("*.pt.trace.json*")) == []


@pytest.mark.parametrize(("operators", "is_kept"), [(1, False), (8, True)])
def test_a_part_of_a_step_is_kept_unless_the_opening_holds_far_more(
    tape: Tape, operators: int, is_kept: bool, tmp_path: Path
) -> None:
    record(tape, 10)
    tape.keep_opening()
    record(tape, operators)
    assert tape.keep_part() is is_kept
    assert (tape.opening is None, tape.located is not None) == (is_kept, is_kept)
    tape.export()
    made = [event for event in read_events(tmp_path) if event.get("name") == "aten::ones"]
    assert len(made) == (operators if is_kept else 10)


def test_of_a_part_that_is_large_it_does_not_matter_what_the_opening_holds(
    tape: Tape, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profkit.collect.sessions.recordings._ENOUGH_EVENTS", 3)
    record(tape, 10)
    tape.keep_opening()
    record(tape, 1)
    assert tape.keep_part()


def test_what_the_last_recording_held_is_paid_for(tmp_path: Path) -> None:
    allowance = Allowance(lambda: 0.0, lambda: 0.0)
    tape, before = Tape(tmp_path, lambda: None, allowance), allowance.events_left
    record(tape, 100)
    tape.export()
    assert allowance.events_left < before
