"""A recording of the optimizer's steps in the place of one that came too early."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader

from profkit.collect.recorder import prologue, replacement
from profkit.collect.recorder.profiler import profile
from profkit.run import find_trace, load_live, load_run
from tests.collect.reading import is_inside, read_events, steps_of

ROUND = 40
"""Calls of the model before each step of the optimizer: more than are timed after a recording."""


@pytest.fixture(autouse=True)
def the_prologue_is_short(monkeypatch: pytest.MonkeyPatch, watched_closely: None) -> None:
    monkeypatch.setattr(prologue, "GROWTH_BYTES", -1)
    monkeypatch.setattr("profkit.collect.boundaries.forwards._was_compiled", lambda: False)  # by other tests
    monkeypatch.setattr("profkit.collect.boundaries.forwards._given_to_compiler", tuple)
    monkeypatch.setattr("profkit.collect.boundaries.accumulation.living_optimizers", list)


class Player:
    """Learns from what it played, one step of the optimizer a round."""

    def __init__(self) -> None:
        self.model = nn.Linear(8, 2)
        self.optimizer = SGD(self.model.parameters(), lr=0.1)

    def wait_until_calls_are_steps(self) -> None:
        while not nn.modules.module._global_forward_hooks:
            torch.ones(1).neg()

    def play(self, calls: int = ROUND) -> torch.Tensor:
        return torch.stack([torch.zeros(()), *(self.model(torch.ones(1, 8)).sum() for _ in range(calls))]).sum()

    def learn(self) -> None:
        self.optimizer.zero_grad()
        self.play().backward()
        self.optimizer.step()


@pytest.mark.parametrize("calls", [5, 10, ROUND], ids=["amid", "after", "over"])
def test_the_optimizers_steps_take_the_place_of_calls_of_the_model(tmp_path: Path, calls: int) -> None:
    """Whether these were still being recorded, only timed any more, or over when it stepped for the first time."""
    player = Player()
    with profile(tmp_path, wait=1, warmup=1, active=2):
        player.wait_until_calls_are_steps()
        player.play(calls)
        for _ in range(8):
            player.learn()
    run = load_run(tmp_path)
    assert (run.step_signal, run.window, run.was_outdone) == ("optimizer", 2, False)
    assert replacement.NOTES["optimizer"] in run.notes
    assert [path.name for path in tmp_path.glob("*.pt.trace.json.gz")] == [run.trace]
    events = read_events(tmp_path)
    assert len(steps_of(events)) == 3
    assert sum(event.get("name") == "aten::linear" for event in events) == 3 * ROUND


def test_what_was_recorded_first_stands_where_no_step_of_the_optimizer_was_measured(tmp_path: Path) -> None:
    player = Player()
    with profile(tmp_path, wait=1, warmup=1, active=2):
        player.wait_until_calls_are_steps()
        player.play()
        for _ in range(2):
            player.learn()
    run = load_run(tmp_path)
    assert (run.step_signal, run.window, run.was_outdone) == ("forward", 1, True)
    assert run.trace is not None
    assert find_trace(tmp_path) == tmp_path / run.trace
    assert len(steps_of(read_events(tmp_path))) == 3
    assert [sample.step for sample in load_live(tmp_path)][:2] == [0, 1]
    assert json.loads((tmp_path / "run.json").read_text())["trace"] == run.trace


def test_a_look_at_the_data_is_not_what_the_program_is_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profkit.collect.boundaries.signals.living_optimizers", list)  # other tests' may live on
    loader = DataLoader(torch.ones(60, 8), batch_size=2)  # type: ignore[arg-type]  # a tensor is a dataset
    with profile(tmp_path, wait=1, warmup=1, active=2):
        mean = torch.stack([batch.mean() for batch in loader]).mean()
        player = Player()
        for _ in range(8):
            player.learn()
    assert mean == 1
    assert load_run(tmp_path).step_signal == "optimizer"


def test_an_optimizer_that_steps_long_after_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    player = Player()
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording:
        player.wait_until_calls_are_steps()
        player.play()
        assert recording.is_over
        late = replacement.time.monotonic() + replacement.PATIENCE_S + 1
        monkeypatch.setattr(replacement, "time", SimpleNamespace(monotonic=lambda: late))
        for _ in range(8):
            player.learn()
    run = load_run(tmp_path)
    assert (run.step_signal, run.was_outdone) == ("forward", False)


CALLS = 64
"""Calls of the model in each step that the program announces."""


class Generator(Player):
    """Calls its model many times in each step, and says where these end."""

    def generate(self, recording: profile, steps: int) -> None:
        for _ in range(steps):
            self.play(CALLS)
            recording.step()


def assert_steps_are_the_programs(directory: Path, notes: str | None) -> None:
    run = load_run(directory)
    assert run.step_signal == "step()"
    assert [note for note in run.notes if note in replacement.NOTES.values()] == ([] if notes is None else [notes])
    assert [path.name for path in directory.glob("*.pt.trace.json.gz")] == [run.trace]
    events = read_events(directory)
    steps = steps_of(events)
    assert len(steps) == 3
    calls = [event for event in events if event.get("name") == "aten::linear"]
    assert [sum(is_inside(call, step) for call in calls) for step in steps.values()] == [CALLS] * 3


@pytest.mark.parametrize("calls", [0, 2, 5, 10, ROUND], ids=["waiting", "located", "amid", "after", "over"])
def test_steps_that_the_program_announces_take_the_place_of_calls_of_the_model(tmp_path: Path, calls: int) -> None:
    """However far the recording of these came, here before the first announced step began."""
    player = Generator()
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording:
        player.wait_until_calls_are_steps()
        player.play(calls)
        recording.step()
        player.generate(recording, 8)
    assert_steps_are_the_programs(tmp_path, replacement.NOTES["step()"] if calls > 1 else None)


def test_a_program_that_announces_its_steps_from_the_start_has_no_others(tmp_path: Path) -> None:
    player = Generator()
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording:
        player.wait_until_calls_are_steps()
        player.generate(recording, 8)
    assert_steps_are_the_programs(tmp_path, replacement.NOTES["step()"])


def test_announced_steps_take_the_place_of_many_steps_of_the_optimizer(tmp_path: Path) -> None:
    player = Player()
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording:
        for _ in range(8):
            for _ in range(12):
                player.optimizer.zero_grad()
                player.play(2).backward()
                player.optimizer.step()
            recording.step()
    assert load_run(tmp_path).step_signal == "step()"
    events = read_events(tmp_path)
    assert sum(event.get("name") == "aten::linear" for event in events) == 3 * 12 * 2


def test_announced_steps_outdo_those_of_an_optimizer_that_outdid_others(tmp_path: Path) -> None:
    player = Generator()
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording:
        player.wait_until_calls_are_steps()
        player.play()
        for _ in range(20):
            player.learn()
        assert load_run(tmp_path).step_signal == "optimizer"
        player.generate(recording, 8)
    assert_steps_are_the_programs(tmp_path, replacement.NOTES["step()"])


def test_what_was_recorded_first_stands_where_too_few_steps_were_announced(tmp_path: Path) -> None:
    player = Generator()
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording:
        player.wait_until_calls_are_steps()
        player.generate(recording, 2)
    run = load_run(tmp_path)
    assert (run.step_signal, run.was_outdone) == ("forward", False)
    assert any(
        note.startswith("the program announced its first step after others were recorded, and too few")
        for note in run.notes
    )
    assert len(steps_of(read_events(tmp_path))) == 3


def test_a_chosen_signal_is_not_outdone_by_announced_steps(tmp_path: Path) -> None:
    player = Generator()
    with profile(tmp_path, wait=1, warmup=1, active=2, steps_from="forward") as recording:
        player.generate(recording, 8)
    assert load_run(tmp_path).step_signal == "forward"


def test_an_announced_step_on_another_thread_begins_nothing(tmp_path: Path) -> None:
    player = Generator()
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording:
        player.wait_until_calls_are_steps()
        player.play()
        assert recording.is_over
        other = threading.Thread(target=recording.step)
        other.start()
        other.join()
        assert recording.is_over
        recording.step()
        assert not recording.is_over


def test_a_signal_that_was_asked_for_is_not_outdone(tmp_path: Path) -> None:
    player = Player()
    with profile(tmp_path, wait=1, warmup=1, active=2, steps_from="forward"):
        player.play()
        for _ in range(8):
            player.learn()
    assert load_run(tmp_path).step_signal == "forward"
