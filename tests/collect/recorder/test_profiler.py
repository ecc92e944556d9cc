"""``profkit.profile`` around real training loops: what it records, and that it does not affect the program."""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import optimizer as optimizers
from torch.utils.data.dataloader import _BaseDataLoaderIter

import profkit
from profkit.collect.recorder.profiler import profile
from profkit.collect.recorder.recorder import Recorder
from profkit.core.errors import UnreadableInput
from profkit.run.directory import load_callsites, load_live, load_run, load_samples
from tests.collect.reading import is_inside, marks_around, marks_of, read_events, steps_of, traces_in
from tests.collect.training import compute_until, make_training, train


def test_the_located_step_is_followed_by_the_measured_ones(tmp_path):
    with profile(tmp_path, wait=2, warmup=1, active=3) as recording:
        train(8, recording)
    assert sorted(steps_of(read_events(tmp_path))) == [1, 3, 4, 5]


def test_only_located_steps_carry_line_marks(tmp_path):
    with profile(tmp_path, wait=1, warmup=2, active=2):
        train(8)
    events = read_events(tmp_path)
    steps = steps_of(events)
    marked = {step for step, around in steps.items() for mark in marks_of(events) if is_inside(mark, around)}
    assert marked == {0, 1}
    assert sorted(steps) == [0, 1, 3, 4]
    assert all(any(is_inside(mark, steps[step]) for step in marked) for mark in marks_of(events))


def test_every_operator_of_a_located_step_lies_in_the_mark_of_its_line(tmp_path):
    with profile(tmp_path, wait=1, warmup=1, active=1) as recording:
        train(5, recording)
    events, sites = read_events(tmp_path), load_callsites(tmp_path)
    located = steps_of(events)[0]
    operators = [event for event in events if event["name"].startswith("aten::") and is_inside(event, located)]
    assert len(operators) > 30
    for event in operators:
        assert marks_around(event, events), event
    (square,) = [event for event in operators if event["name"] == "aten::square"]
    site = sites[marks_around(square, events)[-1]]
    assert site.source == "loss: Tensor = model(torch.rand(8, 16)).square().mean()"
    assert site.file == train.__code__.co_filename


def test_steps_and_pauses_never_overlap_anything(tmp_path):
    with profile(tmp_path, wait=0, warmup=1, active=3):
        train(6)
    events = read_events(tmp_path)
    steps = list(steps_of(events).values())
    pauses = [event for event in events if event["name"] == "profkit.pause"]
    assert len(steps) == 4 >= len(pauses) >= 1  # one after each step with a census
    for step in steps:
        for other in events:
            apart = other["ts"] + other["dur"] <= step["ts"] or step["ts"] + step["dur"] <= other["ts"]
            assert apart or is_inside(other, step) or other["name"] == "PyTorch Profiler (0)", other
    measured = steps[1:]  # in the located step there is a pause to count the graph before a backward pass
    assert not any(is_inside(pause, step) for pause in pauses for step in measured)


def test_the_run_file_describes_the_recording(tmp_path):
    with profile(tmp_path, wait=3, warmup=1, active=2, target="my-run") as recording:
        train(8, recording)
    run = load_run(tmp_path)
    assert run.trace == traces_in(tmp_path)[0].name
    assert (run.target, run.step_signal, run.exit_status, run.device) == ("my-run", "step()", None, "cpu")
    assert run.torch == torch.__version__
    assert run.python == sys.version.split()[0]
    assert run.notes == ()
    assert len(run.reference_step_ns) == 3 + 1  # eight steps: prologue, 3 waited, 3 recorded, 1 after
    assert all(0 < time_ns < 10**10 for time_ns in run.reference_step_ns)
    assert run.host is not None
    assert run.host.torch_threads == torch.get_num_threads()
    assert run.flags["anomaly_mode"] is False
    assert [use.name for use in run.optimizers] == ["SGD"]


def test_settings_are_read_during_the_steps(tmp_path):
    with profile(tmp_path, wait=1, warmup=0, active=1) as recording:
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            train(3, recording)
    assert load_run(tmp_path).flags["anomaly_mode"] is True


def test_growth_of_what_names_hold_is_seen_from_step_to_step(tmp_path, monkeypatch):
    monkeypatch.setattr("profkit.collect.recorder.census_times._DEAR", 1e9)
    losses: list[Tensor] = []
    train_step = make_training()
    with profile(tmp_path, wait=1, warmup=1, active=3) as recording:
        for _ in range(7):
            losses.append(train_step())
            recording.step()
    samples = load_live(tmp_path)
    held = [next(holder for holder in sample.holders if holder.path == "losses") for sample in samples]
    assert [sample.step for sample in samples] == [0, 1, 2, 3, 4]
    assert [holder.tensors for holder in held] == [2, 3, 4, 5, 6]  # the first step was the prologue
    assert held[0].site is not None
    assert held[0].site.source == "losses.append(train_step())"


def test_results_are_the_same_to_the_last_bit(tmp_path):
    plain = train(12)
    with profile(tmp_path):
        recorded = train(12)
    assert recorded == plain


def test_no_hook_tracer_or_thread_is_left(tmp_path):
    def state() -> tuple[Any, ...]:
        kind = torch.autograd.profiler.profile
        return (
            dict(optimizers._global_optimizer_post_hooks),
            dict(vars(_BaseDataLoaderIter)),
            kind._prepare_trace,
            list(gc.callbacks),
            sys.gettrace(),
            threading.active_count(),
            torch.autograd._profiler_enabled(),
            dict(os.environ),
        )

    train(1)  # the first optimizer of a process imports the compiler, which sets environment variables
    before = state()
    during = []
    with profile(tmp_path, wait=0, warmup=1, active=1) as recording:
        during.append(state())
        train(34, recording)
        after_the_last_step = state()
    assert [a == b for a, b in zip(during[0], before, strict=True)] == [False] * 7 + [True]
    assert after_the_last_step == before == state()


def test_as_a_decorator_it_records_the_first_call(tmp_path):
    @profile(tmp_path, wait=0, warmup=1, active=1)
    def main(steps: int) -> list[float]:
        return train(steps)

    assert main(4) == main(4) == train(4)
    assert main.__name__ == "main"
    assert sorted(steps_of(read_events(tmp_path))) == [0, 1]


def test_progress_is_reported_step_by_step(tmp_path):
    known: list[tuple[str, int, int]] = []
    with profile(tmp_path, wait=1, warmup=1, active=1, on_progress=lambda *step: known.append(step)) as recording:
        train(5, recording)
    said = [("opening", 0, 3), ("located", 1, 3), ("reference", 2, 3), ("active", 3, 3)]
    assert [step for step in known if step in said][-4:] == said


def test_progress_is_heard_of_steps_that_take_the_shortcut(tmp_path, monkeypatch):
    known: list[str] = []
    turned: list[str] = []
    turn = Recorder._turn

    def counted(self: Recorder, *given: Any) -> None:
        turned.append(self._schedule.phase.value)
        turn(self, *given)

    monkeypatch.setattr(Recorder, "_turn", counted)
    with profile(tmp_path, at_step=50, on_progress=lambda phase, *_: known.append(phase)):
        train(90)
    assert known.count("reference") == 51, "all before the recorded ones, and the one between these"
    assert turned.count("reference") < 10, "those that are only counted"


def test_the_diagnosis_is_made_once_and_only_after_the_recording(tmp_path, monkeypatch):
    asked: list[Path] = []

    def answer(directory: Path) -> str:
        asked.append(directory)
        return "a diagnosis"

    monkeypatch.setattr("profkit.collect.recorder.profiler.diagnose", answer)
    with profile(tmp_path) as recording:
        assert recording.diagnosis is None
    assert recording.diagnosis == recording.diagnosis == "a diagnosis"
    assert asked == [tmp_path]


def test_the_diagnosis_is_written_to_the_run_directory(tmp_path):
    with profkit.profile(tmp_path, wait=1) as recording:
        train(6, recording)
    assert not (tmp_path / "diagnosis.json").exists()
    assert recording.diagnosis.timing.measured_steps is not None
    assert json.loads((tmp_path / "diagnosis.json").read_text())["timing"]["steps"] == recording.diagnosis.timing.steps
    assert (tmp_path / "report.html").stat().st_size > 1000


def test_a_failed_diagnosis_is_none_with_a_line_on_stderr(tmp_path, monkeypatch, warnings_said):
    def refuse(directory: Path) -> Any:
        raise UnreadableInput(directory, "holds no trace")

    monkeypatch.setattr("profkit.collect.recorder.profiler.diagnose", refuse)
    with profile(tmp_path) as recording:
        pass
    assert recording.diagnosis is None
    assert warnings_said() == f"profkit: no diagnosis: {tmp_path}: holds no trace\n"


@pytest.mark.usefixtures("watched_closely")
def test_the_load_is_sampled(tmp_path):
    with profile(tmp_path) as recording:
        compute_until(lambda: bool(recording._recorder._sampler.samples))
    samples = load_samples(tmp_path)
    assert samples
    assert all(sample.rss_bytes > 10**6 and 0 <= sample.cpu_share <= 1 for sample in samples)


def test_garbage_collections_are_marked_in_the_steps(tmp_path):
    with profile(tmp_path, wait=0, warmup=0, active=1) as recording:
        recording.step()
        gc.collect()
        recording.step()
    (step,) = steps_of(read_events(tmp_path)).values()
    full = [event for event in read_events(tmp_path) if event["name"] == "profkit.gc#2"]
    assert any(is_inside(event, step) for event in full)
