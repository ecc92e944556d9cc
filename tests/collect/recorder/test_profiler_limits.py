"""``profkit.profile`` around steps that last too long or hold too much."""

from __future__ import annotations

import pytest
import torch

from profkit.collect.recorder import prologue
from profkit.collect.recorder.profiler import profile
from profkit.collect.sessions import bounds, recordings
from profkit.collect.sessions.recordings import Recordings
from profkit.collect.tensors import call_budget
from profkit.diagnosis.pipeline import diagnose_path
from profkit.run.directory import load_run
from tests.collect.reading import read_events, site_of, steps_of
from tests.collect.training import compute_until, train

_DEAR = "fewer steps were recorded than planned, so that recording adds at most 5 s or a tenth to the program's time"


def spend_lines_of(recording: profile, count: int) -> None:
    """Leave the tracer this many lines, now and at each start."""
    assert recording._recorder is not None
    tracer = recording._recorder._tracer
    tracer.max_lines = tracer._lines_left = count


def hold(monkeypatch: pytest.MonkeyPatch, events: int) -> None:
    """Let the located step seem to hold this many events."""
    known = property(lambda _: events, lambda _recordings, _counted: None)
    monkeypatch.setattr(Recordings, "located_events", known, raising=False)


def is_off() -> bool:
    return not torch.autograd._profiler_enabled()


@pytest.mark.usefixtures("watched_closely")
def test_the_prologue_ends_after_its_time_even_in_a_loop_of_operators(tmp_path):
    with profile(tmp_path, limit_s=0.0):
        compute_until(is_off)
    assert load_run(tmp_path).notes[0].startswith("no step ended for so long that only the beginning")
    assert is_off()
    assert "aten::add" in {event["name"] for event in read_events(tmp_path)}


@pytest.mark.usefixtures("watched_closely")
def test_the_prologue_ends_when_enough_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(prologue, "GROWTH_BYTES", 0)
    with profile(tmp_path) as recording:
        spend_lines_of(recording, 1000)
        compute_until(is_off)
    assert load_run(tmp_path).notes[0].startswith("no step ended for so long that only the beginning")
    assert is_off()


@pytest.mark.usefixtures("watched_closely")
def test_a_later_stretch_of_a_program_without_steps_replaces_its_beginning(tmp_path, monkeypatch):
    monkeypatch.setattr(prologue, "GROWTH_BYTES", 0)
    monkeypatch.setattr(recordings, "_ABOUT_AS_MUCH", 0.0)  # on a busy machine the first part ends late and is large
    monkeypatch.setattr(prologue, "_AGAIN", (2.0,))  # else another part may be due by then, and would end at once
    monkeypatch.setattr(prologue, "_LEAST_WAIT_S", 0.3)  # by then the program multiplies
    with profile(tmp_path) as recording:
        spend_lines_of(recording, 1000)
        compute_until(is_off)
        monkeypatch.setattr(prologue, "GROWTH_BYTES", 1 << 20)  # the later part holds some products
        product = torch.ones(8)
        for _ in range(5_000_000):
            product = product * 2
            if recording._recorder._prologue.was_renewed:
                break
    assert load_run(tmp_path).notes[0].startswith("no step ended for so long that only a stretch of the program")
    assert "aten::mul" in {event["name"] for event in read_events(tmp_path)}


@pytest.mark.usefixtures("watched_closely")
def test_a_prologue_without_operators_begins_anew_until_there_are_some(tmp_path, monkeypatch):
    parts: list[int] = []
    look_at = prologue.Prologue.look_at

    def count(self: prologue.Prologue) -> bool:
        parts.append(1)
        return look_at(self)

    monkeypatch.setattr(prologue.Prologue, "look_at", count)
    with profile(tmp_path) as recording:
        spend_lines_of(recording, 100)
        for _ in range(5_000_000):
            if len(parts) > 2:
                break
        torch.rand(8) * 2
    assert load_run(tmp_path).notes == ()
    assert site_of("aten::mul", tmp_path).source == "torch.rand(8) * 2"


@pytest.mark.usefixtures("watched_closely")
def test_a_step_that_never_ends_is_cut_off(tmp_path):
    with profile(tmp_path, wait=0, warmup=0, active=1, limit_s=0.0) as recording:
        recording.step()
        compute_until(is_off)
    assert "a step was so long that the recording ended in the middle of it" in load_run(tmp_path).notes
    assert sorted(steps_of(read_events(tmp_path))) == [0]


@pytest.mark.usefixtures("watched_closely")
def test_a_located_step_of_too_many_lines_is_cut_off_once_it_has_grown(tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "GROWTH_BYTES", -1)
    with profile(tmp_path, wait=0) as recording:
        spend_lines_of(recording, 1000)
        recording.step()
        compute_until(is_off)
    assert "a step was so long that the recording ended in the middle of it" in load_run(tmp_path).notes
    assert sorted(steps_of(read_events(tmp_path))) == [0]


def test_a_located_step_of_too_many_lines_is_followed_by_the_measured_ones(tmp_path):
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording:
        for _ in range(8):
            torch.rand(8) * 2
            recording.step()
            spend_lines_of(recording, 3)
            for _ in range(100):
                len("a line without an operator")
    assert load_run(tmp_path).notes == (
        "lines were located for the first 3 lines that ran, and no longer (record a shorter step, --at-step N)",
    )
    assert sorted(steps_of(read_events(tmp_path))) == [0, 2, 3]


def test_after_a_full_prologue_fewer_steps_are_recorded(tmp_path, monkeypatch):
    """Until the located step shows their size, steps count as large: one of three planned is recorded."""
    hold(monkeypatch, 200)
    monkeypatch.setattr("profkit.collect.sessions.allowance.MAX_EVENTS", 300)
    with profile(tmp_path, wait=0, warmup=3, active=50) as recording:
        for _ in range(100):
            torch.rand(8) * 2
        recording.step()
        train(8, recording)
    assert sorted(steps_of(read_events(tmp_path))) == [0, 1]
    assert _DEAR in load_run(tmp_path).notes


def test_after_a_located_step_that_takes_all_events_none_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr("profkit.collect.sessions.allowance.MAX_EVENTS", 0)
    with profile(tmp_path, wait=1, warmup=1, active=4) as recording:
        train(12, recording)
    assert sorted(steps_of(read_events(tmp_path))) == [0]
    assert load_run(tmp_path).notes == (_DEAR,)
    assert diagnose_path(tmp_path).timing.steps == 1


def test_as_many_steps_are_measured_as_the_located_one_leaves_room_for(tmp_path, monkeypatch):
    hold(monkeypatch, 100)
    monkeypatch.setattr("profkit.collect.sessions.allowance.MAX_EVENTS", 299)
    with profile(tmp_path, wait=1, warmup=1, active=4) as recording:
        train(12, recording)
    assert sorted(steps_of(read_events(tmp_path))) == [0, 2, 3]


def test_of_long_steps_fewer_are_recorded_with_a_note(tmp_path, monkeypatch):
    monkeypatch.setattr(bounds.Bounds, "are_exceeded", lambda *_: False)  # none is cut off
    with profile(tmp_path, wait=0, warmup=1, active=50, limit_s=1e-6) as recording:
        train(8, recording)
    assert sorted(steps_of(read_events(tmp_path))) == [0, 1]
    assert "fewer steps were recorded than planned, because they are long" in load_run(tmp_path).notes


@pytest.fixture
def calls_can_be_watched(monkeypatch):
    """What earlier tests compiled, or left alive, keeps nobody from watching."""
    monkeypatch.setattr("profkit.collect.tensors.recomputation._is_unnoticed", lambda: True)


@pytest.mark.usefixtures("calls_can_be_watched")
def test_a_watch_that_ended_early_is_told_by_its_rule_and_by_what_stopped_it(tmp_path, monkeypatch):
    monkeypatch.setattr(call_budget, "MOST_CALLS", 1)
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording:
        for _ in range(6):
            torch.rand(8).relu().exp()
            recording.step()
    (ended,) = load_run(tmp_path).unwatched
    used = "watching for repeated calls used its room for 1 calls after 1 calls"
    assert (ended.watch, ended.reason) == ("calls", f"{used}: record a step with fewer (--at-step N)")
    assert recording.diagnosis.skipped["redundant-recomputation"] == ended.reason


@pytest.mark.usefixtures("calls_can_be_watched")
def test_no_watch_ends_early_in_a_small_program(tmp_path):
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording:
        for _ in range(6):
            torch.rand(8).relu().exp()
            recording.step()
    assert load_run(tmp_path).unwatched == ()
