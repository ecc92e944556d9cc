"""Which steps ``profkit.profile`` records, and what it keeps of programs that end early."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from profkit.collect.recorder.profiler import profile
from profkit.run.directory import load_run
from tests.collect.reading import is_inside, read_events, site_of, steps_of
from tests.collect.training import make_training, train


def test_a_program_without_steps_is_recorded_from_its_start(tmp_path):
    with profile(tmp_path):
        torch.rand(8) * 2
    run, events = load_run(tmp_path), read_events(tmp_path)
    assert site_of("aten::mul", tmp_path).source == "torch.rand(8) * 2"
    assert (run.step_signal, run.reference_step_ns, steps_of(events)) == (None, (), {})


@pytest.mark.parametrize(
    ("steps", "passed"),
    [(1, "only 1 whole step passed, unrecorded"), (2, "only 2 whole steps passed, none of them recorded")],
)
def test_of_a_program_that_ends_while_it_is_timed_the_beginning_is_kept(tmp_path, steps, passed):
    with profile(tmp_path, wait=5) as recording:
        train(1 + steps, recording)
    run = load_run(tmp_path)
    assert run.notes == (f"{passed}: only the program's beginning was recorded",)
    assert "aten::addmm" in {event["name"] for event in read_events(tmp_path)}
    assert len(run.reference_step_ns) == steps


def test_of_a_program_that_ends_amid_the_recorded_steps_the_complete_ones_are_kept(tmp_path):
    train_step = make_training()
    with profile(tmp_path, wait=1, warmup=1, active=4) as recording:
        for _ in range(4):
            train_step()
            recording.step()
        train_step()
    events = read_events(tmp_path)
    assert sorted(steps_of(events)) == [0, 2]
    assert [event["name"] for event in events if event["name"] == "profkit.remainder"] == ["profkit.remainder"]


def test_the_beginning_is_kept_rather_than_a_part_of_a_step(tmp_path):
    with profile(tmp_path, wait=0, warmup=0, active=1) as recording:
        torch.rand(8) * 2
        recording.step()
        torch.rand(8) + 2
    assert load_run(tmp_path).notes == ("no whole step passed: only the program's beginning was recorded",)
    assert "aten::mul" in {event["name"] for event in read_events(tmp_path)}


def test_without_explicit_steps_those_of_the_optimizer_count(tmp_path):
    with profile(tmp_path, wait=1, warmup=1, active=2):
        train(6)
    assert load_run(tmp_path).step_signal == "optimizer"
    assert sorted(steps_of(read_events(tmp_path))) == [0, 2, 3]


def test_an_explicit_step_after_the_first_optimizer_step_takes_over(tmp_path):
    with profile(tmp_path, wait=0, warmup=0, active=2) as recording:
        train(4, recording)
    run, events = load_run(tmp_path), read_events(tmp_path)
    assert run.step_signal == "step()"
    names = [event["name"] for event in events if event["name"].startswith(("ProfilerStep#", "Optimizer.step#"))]
    assert names == ["ProfilerStep#0", "Optimizer.step#SGD.step", "ProfilerStep#1", "Optimizer.step#SGD.step"]


def test_batches_are_steps_if_nothing_is_trained(tmp_path, monkeypatch):
    monkeypatch.setattr("profkit.collect.boundaries.signals.has_living_optimizer", bool)  # other tests' may be alive
    model = nn.Linear(4, 1)
    with profile(tmp_path, wait=1, warmup=1, active=2), torch.no_grad():
        for (batch,) in DataLoader(TensorDataset(torch.rand(64, 4)), batch_size=8):
            model(batch)
    run, events = load_run(tmp_path), read_events(tmp_path)
    assert run.step_signal == "dataloader"
    assert [(use.workers, use.batch_size) for use in run.loaders] == [(0, 8)]
    for step in steps_of(events).values():
        inside = [event["name"] for event in events if is_inside(event, step)]
        assert inside.count("aten::linear") == 1
        assert sum(name.startswith("enumerate(DataLoader)#") for name in inside) == 1


def test_a_better_signal_amid_the_located_step_keeps_the_prologue(tmp_path):
    with profile(tmp_path, wait=2, warmup=1, active=1) as recording:
        train(2)
        recording.step()
    run = load_run(tmp_path)
    assert run.notes == ("no whole step passed: only the program's beginning was recorded",)
    assert "aten::addmm" in {event["name"] for event in read_events(tmp_path)}
