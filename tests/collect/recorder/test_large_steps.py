"""Steps that hold more than may be recorded: they are recorded in part or later, with a note."""

from __future__ import annotations

import sys
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch

from profkit.collect.ranks.launchers import Place
from profkit.collect.recorder.phase_recordings import _POSTPONED
from profkit.collect.recorder.profiler import profile
from profkit.collect.recorder.prologue import Prologue
from profkit.collect.sessions.allowance import Allowance
from profkit.collect.sessions.bounds import Bounds
from profkit.collect.sessions.lines import LineTracer
from profkit.collect.sessions.recordings import Recordings
from profkit.run.directory import load_run
from profkit.run.plan import Plan, Subject
from profkit.source.user_code import UserFiles
from tests.collect.reading import read_events, steps_of
from tests.collect.training import train

CUT_OFF = "a step was so long that the recording ended in the middle of it"


def unrolled(length: int) -> torch.Tensor:
    state = leaf = torch.ones(4, requires_grad=True)
    for _ in range(length):
        state = state * 2
    assert leaf.is_leaf
    return state.sum()


def train_unrolled(length: int, directory: Path) -> list[str]:
    """Train six steps with an unrolled loop of this length; the names of the recorded events."""
    with profile(directory, wait=1, warmup=1, active=1) as recording:
        for _ in range(6):
            unrolled(length).backward()
            recording.step()
    return [event["name"] for event in read_events(directory)]


@pytest.mark.parametrize(("length", "is_part"), [(200, True), (10, False)])
def test_the_backward_pass_of_too_large_a_graph_is_not_recorded(tmp_path, monkeypatch, length, is_part):
    """Both lengths run the same lines. The short step is recorded whole, the long one up to its backward pass."""
    monkeypatch.setattr("profkit.collect.recorder.phase_recordings.FEW_EVENTS", 300)
    monkeypatch.setattr("profkit.collect.sessions.allowance.MAX_EVENTS", 600)
    names = train_unrolled(length, tmp_path)
    run = load_run(tmp_path)
    assert ("MulBackward0" in names) is not is_part
    assert names.count("aten::mul") >= length
    assert (run.is_part, CUT_OFF in run.notes) == (is_part, is_part)


def test_an_unrecorded_backward_pass_gives_the_same_gradients(tmp_path, monkeypatch):
    monkeypatch.setattr("profkit.collect.recorder.phase_recordings.FEW_EVENTS", 0)
    monkeypatch.setattr("profkit.collect.sessions.allowance.MAX_EVENTS", 0)
    leaf = torch.ones(4, requires_grad=True)
    with profile(tmp_path, wait=0):
        (leaf * 2 * 2).sum().backward()
        (given,) = torch.autograd.grad((leaf * 3).sum(), leaf)
    assert leaf.grad is not None
    assert (leaf.grad.tolist(), given.tolist()) == ([4.0] * 4, [3.0] * 4)


def test_the_tracer_announces_a_backward_pass_with_its_roots():
    known: list[object] = []
    tracer = LineTracer(UserFiles((Path(__file__).parent,)), on_backward=known.append)
    leaf = torch.ones(2, requires_grad=True)
    loss, other = leaf.sum(), leaf.prod()
    tracer.start(sys._getframe())
    try:
        loss.backward()
        torch.autograd.grad([other], [leaf])
    finally:
        tracer.stop(sys._getframe())
    assert [one if isinstance(one, (list, tuple)) else [one] for one in known] == [[loss], [other]]


def run_with_little_left(directory: Path, monkeypatch: pytest.MonkeyPatch, enough_after: int) -> None:
    """Train ten steps after a prologue that was too short for one. At first any step is expected to hold more events
    than are left; after ``enough_after`` steps there are enough for ten seconds."""
    left, plan = {"events": 0}, Plan(wait=1, warmup=1, active=1, after=0)
    monkeypatch.setattr(Allowance, "events_left", property(lambda _: left["events"]))
    monkeypatch.setattr(Prologue, "was_filled_by_events", property(lambda _: True))
    with profile.planned(directory, plan, Subject()) as recording:
        recording._allowance.events_per_s = 1e8
        for number in range(10):
            left["events"] = 10**9 if number >= enough_after else 0
            train(1, recording)


def test_a_large_step_is_recorded_once_it_is_affordable(tmp_path, monkeypatch):
    run_with_little_left(tmp_path, monkeypatch, enough_after=6)
    run = load_run(tmp_path)
    assert _POSTPONED in run.notes
    assert min(steps_of(read_events(tmp_path))) >= 5


def test_the_prologue_stays_if_a_large_step_never_becomes_affordable(tmp_path, monkeypatch):
    run_with_little_left(tmp_path, monkeypatch, enough_after=99)
    run = load_run(tmp_path)
    assert _POSTPONED in run.notes
    assert any(note.endswith("only the program's beginning was recorded") for note in run.notes)


def test_a_step_known_to_be_small_is_recorded_whatever_was_spent(tmp_path, monkeypatch):
    monkeypatch.setattr(Allowance, "events_left", property(lambda _: 0))
    with profile(tmp_path, wait=1, warmup=1, active=1) as recording:
        train(8, recording)
    run = load_run(tmp_path)
    assert _POSTPONED not in run.notes
    assert 0 in steps_of(read_events(tmp_path))


def test_a_rank_does_not_wait_as_it_would_record_other_steps_than_the_rest(tmp_path, monkeypatch):
    monkeypatch.setattr("profkit.collect.ranks.identity.find_place", lambda: Place(0, 2))
    run_with_little_left(tmp_path, monkeypatch, enough_after=99)
    assert _POSTPONED not in load_run(tmp_path).notes


def train_with_a_long_step(directory: Path, monkeypatch: pytest.MonkeyPatch, left_later: int, steps: int = 9) -> None:
    """The located step has a backward pass that is larger than what is left; from the fourth step on more is left."""
    left = {"events": 600}
    monkeypatch.setattr("profkit.collect.recorder.phase_recordings.FEW_EVENTS", 300)
    monkeypatch.setattr(Allowance, "events_left", property(lambda _: left["events"]))
    with profile(directory, wait=1, warmup=1, active=1) as recording:
        for number in range(steps):
            left["events"] = left_later if number >= 4 else 600
            unrolled(200).backward()
            recording.step()


def test_a_step_that_was_cut_off_is_recorded_once_more_is_left(tmp_path, monkeypatch):
    train_with_a_long_step(tmp_path, monkeypatch, left_later=100_000)
    run, names = load_run(tmp_path), [event["name"] for event in read_events(tmp_path)]
    assert (run.is_part, CUT_OFF in run.notes, _POSTPONED in run.notes) == (False, False, True)
    assert names.count("MulBackward0") >= 400  # a located and a measured step
    assert min(steps_of(read_events(tmp_path))) >= 4


def test_the_part_stays_if_no_more_is_left(tmp_path, monkeypatch):
    train_with_a_long_step(tmp_path, monkeypatch, left_later=600)
    run, names = load_run(tmp_path), [event["name"] for event in read_events(tmp_path)]
    assert (run.is_part, CUT_OFF in run.notes) == (True, True)
    assert "MulBackward0" not in names
    assert names.count("aten::mul") >= 200


@pytest.mark.parametrize(("left_later", "tries"), [(1203, 1), (1204, 2)])
def test_a_foreseen_backward_pass_is_not_tried_again_before_it_may_fit(tmp_path, monkeypatch, left_later, tries):
    """However little lies before it: four times the 301 events that were foreseen must be left."""
    begun: list[object] = []
    begin, put_aside = Bounds.begin, Recordings.put_aside
    monkeypatch.setattr(Bounds, "begin", lambda *given, **named: begun.append(None) or begin(*given, **named))
    monkeypatch.setattr(Recordings, "put_aside", lambda recordings: min(27, put_aside(recordings)))
    train_with_a_long_step(tmp_path, monkeypatch, left_later=left_later, steps=6)
    assert len(begun) == tries


def record_cut_off(directory: Path, monkeypatch: pytest.MonkeyPatch, cuts: int, steps: int = 12) -> list[int]:
    """Train steps of which the first that are located are cut off by their time, so many times. Returns the steps in
    which that happened."""
    cut: list[int] = []
    is_over = {"now": False}  # not whenever the recorder itself looks
    monkeypatch.setattr(Bounds, "are_exceeded", lambda *_, **__: is_over["now"])
    with profile(directory, wait=1, warmup=1, active=1) as recording:
        for number in range(steps):
            loss, recorder = unrolled(50), recording._recorder
            if len(cut) < cuts and recorder is not None and recorder._recordings.running and not recorder.over:
                is_over["now"] = number > 0
                recorder._watchdog.lines_ended()
                cut += [number] * is_over["now"]
                is_over["now"] = False
            loss.backward()
            recording.step()
    return cut


@pytest.mark.parametrize("cuts", [1, 2, 3])
def test_a_step_is_located_however_often_earlier_ones_were_cut_off(tmp_path, monkeypatch, cuts):
    cut = record_cut_off(tmp_path, monkeypatch, cuts)
    run, names = load_run(tmp_path), [event["name"] for event in read_events(tmp_path)]
    assert len(cut) == cuts
    assert (run.is_part, CUT_OFF in run.notes) == (False, False)
    assert names.count("MulBackward0") == 100  # a located and a measured step
    assert not [one for one in run.unwatched if one.watch == "lines"]


@pytest.mark.parametrize(("few", "trusted"), [(5000, [False, False, True, True]), (10, [False] * 4)])
def test_the_pace_of_two_tries_with_few_events_is_believed_for_no_longer_than_steps_last(
    tmp_path, monkeypatch, few, trusted
):
    begun: list[tuple[bool, float]] = []
    begin = Bounds.begin

    def begin_noted(bounds: Bounds, *given: Any, trusts_pace: bool = False) -> None:
        begun.append((trusts_pace, given[3]))
        begin(bounds, *given, trusts_pace=trusts_pace)

    monkeypatch.setattr(Bounds, "begin", begin_noted)
    monkeypatch.setattr("profkit.collect.recorder.phase_recordings.FEW_EVENTS", few)
    assert len(record_cut_off(tmp_path, monkeypatch, cuts=3)) == 3
    assert [is_trusted for is_trusted, _ in begun[:4]] == trusted
    assert all((most_s < inf) is is_trusted for is_trusted, most_s in begun[:4])


def test_after_four_steps_that_were_cut_off_a_part_has_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr("profkit.collect.sessions.recordings._ABOUT_AS_MUCH", 0)  # its beginning holds more
    cut = record_cut_off(tmp_path, monkeypatch, cuts=99)
    run, names = load_run(tmp_path), [event["name"] for event in read_events(tmp_path)]
    assert len(cut) == 4
    assert (run.is_part, CUT_OFF in run.notes) == (True, True)
    assert names.count("aten::mul") == 50


def test_no_step_is_tried_again_that_no_allowance_would_hold(tmp_path, monkeypatch):
    monkeypatch.setattr("profkit.collect.recorder.phase_recordings.MAX_EVENTS", 100)
    assert len(record_cut_off(tmp_path, monkeypatch, cuts=99)) == 2  # the first may have been cut off by chance


def test_a_step_that_is_too_large_again_is_kept_in_part(tmp_path, monkeypatch):
    monkeypatch.setattr("profkit.collect.recorder.phase_recordings._TIMES_CUT", 0)
    train_with_a_long_step(tmp_path, monkeypatch, left_later=600)
    run = load_run(tmp_path)
    assert (run.is_part, CUT_OFF in run.notes) == (True, True)
