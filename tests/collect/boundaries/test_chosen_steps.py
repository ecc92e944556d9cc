"""Where steps end by the user's choice of a signal, and from which step on they are recorded."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import profkit
from profkit.collect.boundaries import forwards
from profkit.collect.recorder.profiler import profile
from profkit.run.directory import load_run
from profkit.run.plan import COUNTED_AS, ROUND, SIGNALS
from tests.collect.reading import is_inside, read_events, steps_of

EPOCHS, BATCHES = 12, 3
SAID = {
    "step": "calls of step()",
    "optimizer": "the optimizer's steps",
    "dataloader": "the DataLoader's batches",
    "backward": "backward passes",
    "forward": "calls of the model",
    "epoch": "passes over the DataLoader",
}


def train(recording: profile) -> None:
    """In each step the model is called twice and the optimizer once; `step()` is called once per epoch."""
    loader = DataLoader(TensorDataset(torch.rand(4 * BATCHES, 8)), batch_size=4)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(EPOCHS):
        for count, (batch,) in enumerate(loader):
            optimizer.zero_grad()
            (model(batch) + model(batch)).sum().backward()
            optimizer.step()
            if count == 0:
                recording.step()


@pytest.fixture(autouse=True)
def nothing_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even by other tests of this process."""
    monkeypatch.setattr(forwards, "_was_compiled", lambda: False)


@pytest.mark.parametrize(
    ("chosen", "calls_a_step"),
    [
        ("step", 2 * BATCHES),
        ("optimizer", 2),
        ("dataloader", 2),
        ("backward", 2),
        ("forward", 1),
        ("epoch", 2 * BATCHES),
    ],
)
def test_the_chosen_signal_ends_the_steps_and_the_report_names_it(tmp_path, chosen, calls_a_step):
    with profkit.profile(tmp_path, wait=1, active=3, steps_from=chosen) as recording:
        train(recording)
    assert load_run(tmp_path).step_signal == SIGNALS[chosen]
    assert load_run(tmp_path).notes == ()
    events = read_events(tmp_path)
    linears = [event for event in events if event["name"] == "aten::linear"]
    counts = [sum(is_inside(linear, step) for linear in linears) / 2 for step in steps_of(events).values()]
    assert len(counts) == 4
    assert max(counts) == calls_a_step  # less in a step that ends with a request beyond the last batch
    assert recording.diagnosis.timing.steps_from == SAID[chosen]
    assert f"found from {SAID[chosen]}" in " ".join(str(recording.diagnosis).split())


def test_without_a_choice_the_best_signal_ends_the_steps(tmp_path):
    with profile(tmp_path, wait=1, active=1) as recording:
        train(recording)
    assert load_run(tmp_path).step_signal == "step()"


def test_a_chosen_signal_that_never_comes_is_noted_and_the_beginning_is_kept(tmp_path):
    with profile(tmp_path, steps_from="dataloader"):
        parameter = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        for _ in range(9):
            (parameter * 2).sum().backward()
            optimizer.step()
    assert "no step ended by the requested signal: dataloader" in load_run(tmp_path).notes
    assert "aten::mul" in {event["name"] for event in read_events(tmp_path)}


def test_a_model_made_after_the_start_is_found(tmp_path):
    with profile(tmp_path, wait=0, active=1, steps_from="forward"):
        model = nn.Sequential(nn.Linear(4, 4))
        for _ in range(6):
            model(torch.ones(1, 4))
    assert load_run(tmp_path).step_signal == "forward"


@pytest.mark.parametrize("wrong", ["steps", "", "Optimizer"])
def test_an_unknown_signal_is_refused_with_a_list_of_the_known_ones(wrong):
    with pytest.raises(ValueError, match="auto or one of step, optimizer, dataloader, backward, forward, epoch"):
        profile("never-made", steps_from=wrong)


def test_every_signal_has_a_description():
    assert set(SAID) == set(SIGNALS)
    assert set(COUNTED_AS) == {*SIGNALS.values(), ROUND}


def test_the_recording_begins_at_the_requested_step(tmp_path):
    with profkit.profile(tmp_path, at_step=20, active=2, steps_from="optimizer") as recording:
        train(recording)
    assert sorted(steps_of(read_events(tmp_path))) == [20, 22, 23]
    assert recording.diagnosis.timing.measured_steps == (22, 23)
