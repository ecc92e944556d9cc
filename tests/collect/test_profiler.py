"""``profkit.profile`` around real training loops: what it leaves, and that the program never notices."""

from __future__ import annotations

import errno
import functools
import gc
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import optimizer as optimizers
from torch.profiler import ProfilerActivity
from torch.profiler import profile as torch_profile
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

import profkit
from profkit.collect import bounds, opening
from profkit.collect.profiler import profile
from profkit.collect.recorder import Recorder
from profkit.collect.sampler import Sampler
from profkit.collect.session import Recording
from profkit.errors import UnreadableInput
from profkit.run import load_callsites, load_live, load_run, load_samples
from tests.collect.reading import is_inside, marks_around, marks_of, read_events, steps_of

Step = Callable[[], Tensor]


def make_training() -> Step:
    """A small model and the function that trains it for one step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(torch.rand(8, 16)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return train_step


def train(steps: int, recording: profile | None = None) -> list[float]:
    """The losses; with a recording each step is ended explicitly."""
    train_step, losses = make_training(), []
    for _ in range(steps):
        losses.append(train_step().item())
        if recording is not None:
            recording.step()
    return losses


@pytest.fixture
def warnings_said(capfd: pytest.CaptureFixture[str]) -> Callable[[], str]:
    return lambda: capfd.readouterr().err


def traces_in(directory: Path) -> list[Path]:
    return list(directory.glob("*.pt.trace.json.gz"))


def test_the_located_step_is_followed_by_the_measured_ones(tmp_path: Path) -> None:
    with profile(tmp_path, wait=2, warmup=1, active=3) as recording:
        train(8, recording)
    assert sorted(steps_of(read_events(tmp_path))) == [1, 3, 4, 5]


def test_only_located_steps_carry_line_marks(tmp_path: Path) -> None:
    with profile(tmp_path, wait=1, warmup=2, active=2):
        train(8)
    events = read_events(tmp_path)
    steps = steps_of(events)
    marked = {step for step, around in steps.items() for mark in marks_of(events) if is_inside(mark, around)}
    assert marked == {0, 1}
    assert sorted(steps) == [0, 1, 3, 4]
    assert all(any(is_inside(mark, steps[step]) for step in marked) for mark in marks_of(events))


def test_every_operator_of_a_located_step_lies_in_the_mark_of_its_line(tmp_path: Path) -> None:
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
    assert site.file == __file__


def test_steps_and_pauses_never_overlap_anything(tmp_path: Path) -> None:
    with profile(tmp_path, wait=0, warmup=1, active=3):
        train(6)
    events = read_events(tmp_path)
    steps = list(steps_of(events).values())
    pauses = [event for event in events if event["name"] == "profkit.pause"]
    assert len(steps) == len(pauses) == 4
    for step in steps:
        for other in events:
            apart = other["ts"] + other["dur"] <= step["ts"] or step["ts"] + step["dur"] <= other["ts"]
            assert apart or is_inside(other, step) or other["name"] == "PyTorch Profiler (0)", other
    assert not any(is_inside(pause, step) for pause in pauses for step in steps)


def test_the_run_file_says_what_was_done(tmp_path: Path) -> None:
    with profile(tmp_path, wait=3, warmup=1, active=2, target="my-run") as recording:
        train(8, recording)
    run = load_run(tmp_path)
    assert run.trace == traces_in(tmp_path)[0].name
    assert (run.target, run.step_signal, run.exit_status, run.device) == ("my-run", "step()", None, "cpu")
    assert run.torch == torch.__version__
    assert run.python == sys.version.split()[0]
    assert run.notes == ()
    assert len(run.reference_step_ns) == 3 + 1  # eight steps: opening, 3 waited, 3 recorded, 1 after
    assert all(0 < time_ns < 10**10 for time_ns in run.reference_step_ns)
    assert run.host is not None
    assert run.host.torch_threads == torch.get_num_threads()
    assert run.flags["anomaly_mode"] is False
    assert [use.name for use in run.optimizers] == ["SGD"]


def test_the_settings_are_those_of_the_steps(tmp_path: Path) -> None:
    with profile(tmp_path, wait=1, warmup=0, active=1) as recording:
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            train(3, recording)
    assert load_run(tmp_path).flags["anomaly_mode"] is True


def test_what_the_names_hold_grows_from_step_to_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profkit.collect.looks._DEAR", 1e9)
    losses: list[Tensor] = []
    train_step = make_training()
    with profile(tmp_path, wait=1, warmup=1, active=3) as recording:
        for _ in range(7):
            losses.append(train_step())
            recording.step()
    samples = load_live(tmp_path)
    held = [next(holder for holder in sample.holders if holder.path == "losses") for sample in samples]
    assert [sample.step for sample in samples] == [0, 1, 2, 3, 4]
    assert [holder.tensors for holder in held] == [2, 3, 4, 5, 6]  # the first step was the opening
    assert held[0].site is not None
    assert held[0].site.source == "losses.append(train_step())"


def test_results_are_the_same_to_the_last_bit(tmp_path: Path) -> None:
    plain = train(12)
    with profile(tmp_path):
        recorded = train(12)
    assert recorded == plain


def test_no_hook_no_tracer_and_no_thread_is_left(tmp_path: Path) -> None:
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

    train(1)  # the first optimizer of a process imports the compiler, which sets variables of its own
    before = state()
    during = []
    with profile(tmp_path, wait=0, warmup=1, active=1) as recording:
        during.append(state())
        train(34, recording)
        after_the_last_step = state()
    assert [a == b for a, b in zip(during[0], before, strict=True)] == [False] * 7 + [True]
    assert after_the_last_step == before == state()


def test_a_program_without_steps_is_recorded_from_its_start(tmp_path: Path) -> None:
    with profile(tmp_path):
        torch.rand(8) * 2
    run, events = load_run(tmp_path), read_events(tmp_path)
    (multiplication,) = [event for event in events if event["name"] == "aten::mul"]
    assert load_callsites(tmp_path)[marks_around(multiplication, events)[-1]].source == "torch.rand(8) * 2"
    assert (run.step_signal, run.reference_step_ns, steps_of(events)) == (None, (), {})


def test_a_program_that_ends_while_it_is_timed_leaves_its_beginning(tmp_path: Path) -> None:
    with profile(tmp_path, wait=5) as recording:
        train(3, recording)
    run = load_run(tmp_path)
    assert run.notes == (
        "only 2 whole steps passed, none of them recorded: the program's beginning is all there is",
    )
    assert "aten::addmm" in {event["name"] for event in read_events(tmp_path)}
    assert len(run.reference_step_ns) == 2


def test_a_program_that_ends_among_the_recorded_steps_leaves_the_whole_ones(tmp_path: Path) -> None:
    train_step = make_training()
    with profile(tmp_path, wait=1, warmup=1, active=4) as recording:
        for _ in range(4):
            train_step()
            recording.step()
        train_step()
    events = read_events(tmp_path)
    assert sorted(steps_of(events)) == [0, 2]
    assert [event["name"] for event in events if event["name"] == "profkit.remainder"] == ["profkit.remainder"]


def test_the_beginning_is_better_than_a_part_of_a_step(tmp_path: Path) -> None:
    with profile(tmp_path, wait=0, warmup=0, active=1) as recording:
        torch.rand(8) * 2
        recording.step()
        torch.rand(8) + 2
    assert load_run(tmp_path).notes == (
        "only 0 whole steps passed, none of them recorded: the program's beginning is all there is",
    )
    assert "aten::mul" in {event["name"] for event in read_events(tmp_path)}


def test_a_forgotten_step_is_replaced_by_the_optimizers(tmp_path: Path) -> None:
    with profile(tmp_path, wait=1, warmup=1, active=2):
        train(6)
    assert load_run(tmp_path).step_signal == "optimizer"
    assert sorted(steps_of(read_events(tmp_path))) == [0, 2, 3]


def test_an_explicit_step_after_the_first_optimizer_step_takes_over(tmp_path: Path) -> None:
    with profile(tmp_path, wait=0, warmup=0, active=2) as recording:
        train(4, recording)
    run, events = load_run(tmp_path), read_events(tmp_path)
    assert run.step_signal == "step()"
    names = [event["name"] for event in events if event["name"].startswith(("ProfilerStep#", "Optimizer.step#"))]
    assert names == ["ProfilerStep#0", "Optimizer.step#SGD.step", "ProfilerStep#1", "Optimizer.step#SGD.step"]


def test_batches_are_steps_where_nothing_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profkit.collect.steps.living_optimizers", list)  # other tests' may live on
    model = nn.Linear(4, 1)
    with profile(tmp_path, wait=1, warmup=1, active=2), torch.no_grad():
        for (batch,) in DataLoader(TensorDataset(torch.rand(64, 4)), batch_size=8):
            model(batch)
    run, events = load_run(tmp_path), read_events(tmp_path)
    assert run.step_signal == "dataloader"
    assert [(use.workers, use.batch_size) for use in run.loaders] == [(0, 8)]
    assert (run.handing_over is not None) == hasattr(os, "memfd_create")
    for step in steps_of(events).values():
        inside = [event["name"] for event in events if is_inside(event, step)]
        assert inside.count("aten::linear") == 1
        assert sum(name.startswith("enumerate(DataLoader)#") for name in inside) == 1


def test_an_exception_passes_and_is_noted(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), profile(tmp_path, wait=0) as recording:
        train(3, recording)
        _ = 1 / 0
    assert load_run(tmp_path).notes == ("the program failed: ZeroDivisionError: division by zero",)
    assert sorted(steps_of(read_events(tmp_path))) == [0, 1]


def test_a_profiler_of_the_programs_that_is_on_is_left_alone(tmp_path: Path) -> None:
    with torch_profile(activities=[ProfilerActivity.CPU]) as own:
        with profile(tmp_path, wait=0) as recording:
            train(3, recording)
    assert "aten::addmm" in {event.name for event in own.events() or ()}
    assert load_run(tmp_path).notes == ("the program runs a profiler of its own: nothing was recorded",)
    assert traces_in(tmp_path) == []


def test_a_profiler_that_the_program_starts_gets_its_recording_and_profkit_ends_its_own(tmp_path: Path) -> None:
    with profile(tmp_path, wait=0, warmup=1, active=6) as recording:
        train(4, recording)
        with torch_profile(activities=[ProfilerActivity.CPU]) as own:
            train(2, recording)
    assert "aten::addmm" in {event.name for event in own.events() or ()}
    assert load_run(tmp_path).notes == ("the program started a profiler of its own: the recording ended there",)
    assert sorted(steps_of(read_events(tmp_path))) == [0, 1, 2]


def test_a_nested_profile_gives_its_steps_to_the_outer_one(
    tmp_path: Path, warnings_said: Callable[[], str]
) -> None:
    with profile(tmp_path / "outer", wait=0, warmup=1, active=1) as outer:
        with profile(tmp_path / "inner", wait=0) as inner:
            train(4, inner)
    assert load_run(tmp_path / "outer").step_signal == "step()"
    assert not (tmp_path / "inner").exists()
    assert inner.diagnosis is None
    assert outer.directory == tmp_path / "outer"
    assert "another profkit.profile is on" in warnings_said()


def test_a_profile_records_once(tmp_path: Path, warnings_said: Callable[[], str]) -> None:
    recording = profile(tmp_path)
    for _ in range(2):
        with recording:
            torch.rand(3)
    assert len(traces_in(tmp_path)) == 1
    assert "records once" in warnings_said()


def test_a_directory_that_holds_a_run_is_not_overwritten(tmp_path: Path, warnings_said: Callable[[], str]) -> None:
    with profile(tmp_path):
        torch.rand(3)
    (before,) = traces_in(tmp_path)
    with profile(tmp_path) as recording:
        assert train(2, recording) == train(2)
    assert traces_in(tmp_path) == [before]
    assert warnings_said().startswith(f"profkit: not recording: {tmp_path}: holds another run")


def test_a_directory_that_cannot_be_made_costs_the_recording_only(
    tmp_path: Path, warnings_said: Callable[[], str]
) -> None:
    (tmp_path / "file").write_text("")
    with profile(tmp_path / "file" / "run") as recording:
        losses = train(2, recording)
    assert losses == train(2)
    assert warnings_said().startswith("profkit: not recording: ")
    assert recording.diagnosis is None


def test_a_full_disk_costs_the_recording_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings_said: Callable[[], str]
) -> None:
    def fail(recording: Recording, path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Recording, "export", fail)
    with profile(tmp_path, wait=0, warmup=0, active=1) as recording:
        losses = train(6, recording)
    assert losses == train(6)
    assert warnings_said() == (
        f"profkit: recording abandoned: {tmp_path}: the trace could not be written: No space left on device\n"
    )
    assert not torch.autograd._profiler_enabled()
    assert "No space left on device" in load_run(tmp_path).notes[0]


@pytest.mark.parametrize("broken", ["start", "_turn", "finish"])
def test_an_error_of_profkits_own_costs_the_recording_only(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings_said: Callable[[], str]
) -> None:
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


def test_an_interrupt_inside_profkit_reaches_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Recorder, "_turn", interrupt)
    with pytest.raises(KeyboardInterrupt), profile(tmp_path) as recording:
        recording.step()
    assert not torch.autograd._profiler_enabled()


def test_steps_of_other_threads_do_not_count(tmp_path: Path) -> None:
    with profile(tmp_path, wait=0, warmup=0, active=2) as recording:
        thread = threading.Thread(target=lambda: train(3, recording))
        thread.start()
        thread.join()
        train(3, recording)
    assert sorted(steps_of(read_events(tmp_path))) == [0, 1]
    assert load_run(tmp_path).notes == ()


def test_a_step_while_a_cuda_graph_is_captured_touches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profkit.collect.recorder.is_capturing", lambda: True)
    with profile(tmp_path, wait=0) as recording:
        train(3, recording)
        assert torch.autograd._profiler_enabled()
    assert steps_of(read_events(tmp_path)) == {}


def test_as_a_decorator_it_records_the_first_call(tmp_path: Path) -> None:
    @profile(tmp_path, wait=0, warmup=1, active=1)
    def main(steps: int) -> list[float]:
        return train(steps)

    assert main(4) == main(4) == train(4)
    assert main.__name__ == "main"
    assert sorted(steps_of(read_events(tmp_path))) == [0, 1]


@pytest.fixture
def watched_closely(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampling thread looks as often as it can."""
    monkeypatch.setattr("profkit.collect.recorder.Sampler", functools.partial(Sampler, interval_s=0.0))


def compute_until(condition: Callable[[], bool]) -> None:
    """Operators without end, from one line, but for a bound that no working condition reaches."""
    total = torch.zeros(8)
    for _ in range(5_000_000):
        if condition():
            return
        total = total + 1


def spend_lines_of(recording: profile, count: int) -> None:
    """Leave the tracer so many lines, now and at each start."""
    assert recording._recorder is not None
    tracer = recording._recorder._tracer
    tracer.max_lines = tracer._lines_left = count


def is_off() -> bool:
    return not torch.autograd._profiler_enabled()


@pytest.mark.usefixtures("watched_closely")
def test_the_opening_ends_after_its_time_even_in_a_loop_of_operators(tmp_path: Path) -> None:
    with profile(tmp_path, limit_s=0.0):
        compute_until(is_off)
    assert load_run(tmp_path).notes[0].startswith("no step ended for so long that only the beginning")
    assert is_off()
    assert "aten::add" in {event["name"] for event in read_events(tmp_path)}


@pytest.mark.usefixtures("watched_closely")
def test_the_opening_ends_when_enough_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "GROWTH_BYTES", 0)
    with profile(tmp_path) as recording:
        spend_lines_of(recording, 1000)
        compute_until(is_off)
    assert load_run(tmp_path).notes[0].startswith("no step ended for so long that only the beginning")
    assert is_off()


@pytest.mark.usefixtures("watched_closely")
def test_an_opening_without_operators_begins_anew_until_there_are_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[int] = []
    look_at = opening.Opening.look_at

    def count(self: opening.Opening) -> bool:
        parts.append(1)
        return look_at(self)

    monkeypatch.setattr(opening.Opening, "look_at", count)
    with profile(tmp_path) as recording:
        spend_lines_of(recording, 100)
        for _ in range(5_000_000):
            if len(parts) > 2:
                break
        torch.rand(8) * 2
    run, events = load_run(tmp_path), read_events(tmp_path)
    assert run.notes == ()
    (multiplication,) = [event for event in events if event["name"] == "aten::mul"]
    assert load_callsites(tmp_path)[marks_around(multiplication, events)[-1]].source == "torch.rand(8) * 2"


@pytest.mark.usefixtures("watched_closely")
def test_a_step_that_never_ends_is_cut_off(tmp_path: Path) -> None:
    with profile(tmp_path, wait=0, warmup=0, active=1, limit_s=0.0) as recording:
        recording.step()
        compute_until(is_off)
    assert "a step was so long that the recording was ended in the middle of it" in load_run(tmp_path).notes
    assert sorted(steps_of(read_events(tmp_path))) == [0]


@pytest.mark.usefixtures("watched_closely")
def test_a_located_step_of_too_many_lines_is_cut_off_once_it_has_grown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "GROWTH_BYTES", -1)
    monkeypatch.setattr(bounds, "_GRACE_S", 0.0)
    with profile(tmp_path, wait=0) as recording:
        spend_lines_of(recording, 1000)
        recording.step()
        compute_until(is_off)
    assert "a step was so long that the recording was ended in the middle of it" in load_run(tmp_path).notes
    assert sorted(steps_of(read_events(tmp_path))) == [0]


def test_a_located_step_of_too_many_lines_is_followed_by_the_measured_ones(tmp_path: Path) -> None:
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording:
        for _ in range(8):
            torch.rand(8) * 2
            recording.step()
            spend_lines_of(recording, 3)
            for _ in range(100):
                len("a line without an operator")
    assert load_run(tmp_path).notes == ("lines were located for the first 3 lines that ran, and no longer",)
    assert sorted(steps_of(read_events(tmp_path))) == [0, 2, 3]


def test_a_full_opening_foretells_large_steps_of_which_fewer_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profkit.collect.recorder.MAX_EVENTS", 300)
    with profile(tmp_path, wait=0, warmup=1, active=50) as recording:
        for _ in range(100):
            torch.rand(8) * 2
        recording.step()
        train(8, recording)
    assert sorted(steps_of(read_events(tmp_path))) == [0, 1]
    assert load_run(tmp_path).notes == ("fewer steps were recorded than planned, because they are long",)


def test_long_steps_are_fewer_and_that_is_noted(tmp_path: Path) -> None:
    with profile(tmp_path, wait=0, warmup=1, active=50, limit_s=1e-6) as recording:
        train(8, recording)
    assert sorted(steps_of(read_events(tmp_path))) == [0, 1]
    assert "fewer steps were recorded than planned, because they are long" in load_run(tmp_path).notes


def test_a_debugger_keeps_its_place(tmp_path: Path) -> None:
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


def test_progress_is_told_step_by_step(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    with profile(tmp_path, wait=1, warmup=1, active=1, on_progress=lambda *step: told.append(step)) as recording:
        train(5, recording)
    said = [("opening", 0, 3), ("located", 1, 3), ("reference", 2, 3), ("active", 3, 3)]
    assert [step for step in told if step in said][-4:] == said


def test_the_diagnosis_is_made_once_and_only_of_a_whole_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(profile, "diagnoser", lambda directory: asked.append(directory) or "a diagnosis")
    with profile(tmp_path) as recording:
        assert recording.diagnosis is None
    assert recording.diagnosis == recording.diagnosis == "a diagnosis"
    assert asked == [tmp_path]


def test_the_diagnosis_is_left_in_the_run_directory_too(tmp_path: Path) -> None:
    with profkit.profile(tmp_path, wait=1) as recording:
        train(6, recording)
    assert not (tmp_path / "diagnosis.json").exists()
    assert recording.diagnosis.timing.measured_steps is not None
    assert json.loads((tmp_path / "diagnosis.json").read_text())["timing"]["steps"] == recording.diagnosis.timing.steps
    assert (tmp_path / "report.html").stat().st_size > 1000


def test_a_diagnosis_that_fails_is_none_and_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings_said: Callable[[], str]
) -> None:
    def refuse(directory: Path) -> Any:
        raise UnreadableInput(directory, "holds no trace")

    monkeypatch.setattr(profile, "diagnoser", refuse)
    with profile(tmp_path) as recording:
        pass
    assert recording.diagnosis is None
    assert warnings_said() == f"profkit: no diagnosis: {tmp_path}: holds no trace\n"


@pytest.mark.usefixtures("watched_closely")
def test_the_load_is_sampled(tmp_path: Path) -> None:
    with profile(tmp_path) as recording:
        compute_until(lambda: bool(recording._recorder._sampler.samples))  # type: ignore[union-attr]  # it is on
    samples = load_samples(tmp_path)
    assert samples
    assert all(sample.rss_bytes > 10**6 and 0 <= sample.cpu_share <= 1 for sample in samples)


def test_collections_of_garbage_are_marked_in_the_steps(tmp_path: Path) -> None:
    with profile(tmp_path, wait=0, warmup=0, active=1) as recording:
        recording.step()
        gc.collect()
        recording.step()
    (step,) = steps_of(read_events(tmp_path)).values()
    full = [event for event in read_events(tmp_path) if event["name"] == "profkit.gc#2"]
    assert any(is_inside(event, step) for event in full)
