"""A recording of optimizer steps or announced steps replaces one of a worse signal that came first."""

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

from profkit.collect.machine import patience
from profkit.collect.recorder import replacement
from profkit.collect.recorder.profiler import profile
from profkit.run.directory import find_trace, load_live, load_run
from tests.collect.reading import is_inside, read_events, steps_of

ROUND = 40
"""Calls of the model before each step of the optimizer: more than are timed after a recording."""


pytestmark = pytest.mark.usefixtures("calls_are_steps_at_once", "watched_closely")


class Player:
    """Learns from its games, with one step of the optimizer per round."""

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
def test_optimizer_steps_replace_calls_of_the_model(tmp_path, calls):
    """The first optimizer step may come while calls are recorded, while they are only timed, or later."""
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


def test_the_first_recording_stays_if_no_optimizer_step_was_measured(tmp_path):
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


def test_optimizer_steps_replace_batches_of_an_earlier_pass_over_the_data(tmp_path, monkeypatch):
    monkeypatch.setattr("profkit.collect.boundaries.signals.has_living_optimizer", bool)  # other tests' may be alive
    loader = DataLoader(torch.ones(60, 8), batch_size=2)
    with profile(tmp_path, wait=1, warmup=1, active=2):
        mean = torch.stack([batch.mean() for batch in loader]).mean()
        player = Player()
        for _ in range(8):
            player.learn()
    assert mean == 1
    assert load_run(tmp_path).step_signal == "optimizer"


def test_an_optimizer_that_steps_much_later_replaces_nothing(tmp_path, monkeypatch):
    player = Player()
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording:
        player.wait_until_calls_are_steps()
        player.play()
        assert recording.is_over
        late = patience.time.monotonic() + replacement.PATIENCE_S + 1
        monkeypatch.setattr(patience, "time", SimpleNamespace(monotonic=lambda: late))
        for _ in range(8):
            player.learn()
    run = load_run(tmp_path)
    assert (run.step_signal, run.was_outdone) == ("forward", False)


CALLS = 64
"""Calls of the model in each step that the program announces."""


class Generator(Player):
    """Calls its model many times in each step and announces the end of each."""

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
def test_announced_steps_replace_calls_of_the_model(tmp_path, calls):
    """However far the recording of these came before the first announced step."""
    player = Generator()
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording:
        player.wait_until_calls_are_steps()
        player.play(calls)
        recording.step()
        player.generate(recording, 8)
    assert_steps_are_the_programs(tmp_path, replacement.NOTES["step()"] if calls > 1 else None)


def test_announced_steps_count_from_the_first_one(tmp_path):
    player = Generator()
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording:
        player.wait_until_calls_are_steps()
        player.generate(recording, 8)
    assert_steps_are_the_programs(tmp_path, replacement.NOTES["step()"])


def test_announced_steps_replace_optimizer_steps(tmp_path):
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


def test_announced_steps_replace_optimizer_steps_that_replaced_calls(tmp_path):
    player = Generator()
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording:
        player.wait_until_calls_are_steps()
        player.play()
        for _ in range(20):
            player.learn()
        assert load_run(tmp_path).step_signal == "optimizer"
        player.generate(recording, 8)
    assert_steps_are_the_programs(tmp_path, replacement.NOTES["step()"])


def test_the_first_recording_stays_if_too_few_steps_were_announced(tmp_path):
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


def test_announced_steps_do_not_replace_a_chosen_signal(tmp_path):
    player = Generator()
    with profile(tmp_path, wait=1, warmup=1, active=2, steps_from="forward") as recording:
        player.generate(recording, 8)
    assert load_run(tmp_path).step_signal == "forward"


def test_an_announced_step_on_another_thread_replaces_nothing(tmp_path):
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


def test_optimizer_steps_do_not_replace_a_chosen_signal(tmp_path):
    player = Player()
    with profile(tmp_path, wait=1, warmup=1, active=2, steps_from="forward"):
        player.play()
        for _ in range(8):
            player.learn()
    assert load_run(tmp_path).step_signal == "forward"
