"""The recordings of one run: each is written before the next begins, to a file that is never left behind."""

from __future__ import annotations

import gc
import os
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from profkit.collect.recorder.profiler import profile
from profkit.collect.sessions import recordings as module
from profkit.collect.sessions.allowance import Allowance
from profkit.collect.sessions.recordings import Recordings
from profkit.collect.sessions.session import ProfilerSession
from tests.collect.reading import read_events, steps_of
from tests.collect.training import make_training, train


@pytest.fixture
def recordings(tmp_path: Path) -> Any:
    made = Recordings(tmp_path, lambda: None, Allowance())
    yield made
    made.remove()


def record(recordings: Recordings, operators: int = 1) -> None:
    recordings.start().begin_step(0)
    for _ in range(operators):
        torch.ones(2)


def test_each_recording_is_written_before_the_next_one_begins(tmp_path, monkeypatch):
    """Kineto converts device times by the clock of the session that started last."""
    known: list[str] = []
    start, write = ProfilerSession.start, ProfilerSession.write
    monkeypatch.setattr(ProfilerSession, "start", lambda session: (known.append("start"), start(session))[1])
    monkeypatch.setattr(
        ProfilerSession, "write", lambda session, path: (known.append("write"), write(session, path))[1]
    )
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording:
        train(8, recording)
    prologue = dropped = located = measured = ["start", "write"]
    assert (
        known == prologue + dropped + located + measured
    )  # dropped, once it is counted: the optimizer's step came before the explicit one
    assert len(steps_of(read_events(tmp_path))) == 3


def test_a_trace_has_no_name_until_it_is_complete(recordings, tmp_path):
    record(recordings)
    recordings.keep_prologue()
    record(recordings)
    recordings.keep_located()
    assert list(tmp_path.iterdir()) == []
    recordings.drop_prologue()
    record(recordings)
    name = recordings.export()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_written_recording_is_released(recordings, monkeypatch):
    gc.disable()
    try:
        record(recordings)
        assert recordings.running is not None
        results = weakref.ref(recordings.running._profiler.profiler)
        recordings.keep_located()
        assert results() is None
    finally:
        gc.enable()


def test_the_later_part_of_the_prologue_replaces_one_of_similar_size(recordings):
    record(recordings, 10)
    recordings.keep_prologue()
    first = recordings.prologue
    assert first is not None
    record(recordings, 1)
    recordings.keep_prologue()
    assert recordings.prologue is first
    record(recordings, 8)
    recordings.keep_prologue()
    assert recordings.prologue is not first
    assert first.closed


def test_a_forked_child_leaves_the_parents_files_readable(recordings, tmp_path):
    record(recordings)
    recordings.keep_prologue()
    child = os.fork()
    if child == 0:
        recordings.disown()
        os._exit(recordings.prologue is not None)
    assert os.waitpid(child, 0)[1] == 0
    recordings.export()
    assert len(steps_of(read_events(tmp_path))) == 1


def test_an_abandoned_recording_leaves_no_file(tmp_path, monkeypatch):
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
def test_a_part_of_a_step_is_kept_unless_the_prologue_holds_far_more(recordings, operators, is_kept, tmp_path):
    record(recordings, 10)
    recordings.keep_prologue()
    record(recordings, operators)
    assert recordings.keep_part() is is_kept
    assert (recordings.prologue is None, recordings.located is not None) == (is_kept, is_kept)
    recordings.export()
    made = [event for event in read_events(tmp_path) if event.get("name") == "aten::ones"]
    assert len(made) == (operators if is_kept else 10)


def test_a_large_part_of_a_step_is_kept_whatever_the_prologue_holds(recordings, monkeypatch):
    monkeypatch.setattr("profkit.collect.sessions.recordings.MANY_EVENTS", 3)
    record(recordings, 10)
    recordings.keep_prologue()
    record(recordings, 1)
    assert recordings.keep_part()


def test_the_last_recording_is_charged_too(tmp_path):
    allowance = Allowance(lambda: 0.0, lambda: 0.0)
    recordings, before = Recordings(tmp_path, lambda: None, allowance), allowance.events_left
    record(recordings, 100)
    recordings.export()
    assert allowance.events_left < before


@pytest.mark.parametrize("end", ["drop", "keep_prologue", "keep_part", "keep_located", "export"])
def test_the_memory_of_a_released_recording_is_given_back(end, tmp_path, monkeypatch):
    recordings = Recordings(tmp_path, lambda: None, Allowance())
    session, held = recordings.start(), list[object]()
    monkeypatch.setattr(module, "give_back", lambda: held.append(session._profiler.profiler))
    try:
        torch.ones(8)
        getattr(recordings, end)()
    finally:
        recordings.remove()
    assert held == [None]
