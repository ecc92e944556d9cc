"""How long steps took on a device, by CUDA events that are not waited for; device and events are stand-ins."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from profkit.collect.boundaries.schedule import _MOST_LATER, Phase, Schedule
from profkit.collect.recorder.profiler import profile
from profkit.collect.sessions import device_moments
from profkit.run.directory import load_run
from profkit.run.plan import Plan, Subject
from tests.collect.reading import read_events
from tests.collect.training import make_training, train

STEP_MS = 62.0


class Gpu:
    """Works for ``STEP_MS`` on each step, long after its end on the host; ``done_ms`` is its progress."""

    def __init__(self) -> None:
        self.launched_ms = 0.0
        self.done_ms = float("inf")
        self.events = 0
        self.is_capturing = False
        self.is_broken = False
        self.slept_s = 0.0

    def launch(self, took_ms: float = STEP_MS) -> None:
        self.launched_ms += took_ms

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds
        self.done_ms += 1000 * seconds

    def event(self, enable_timing: bool) -> Event:
        assert enable_timing
        return Event(self)


class Event:
    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._at_ms: float | None = None

    def record(self) -> None:
        if self._gpu.is_broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        assert not self._gpu.is_capturing
        self._gpu.events += 1
        self._at_ms = self._gpu.launched_ms

    def query(self) -> bool:
        assert self._at_ms is not None
        return self._at_ms <= self._gpu.done_ms

    def elapsed_time(self, later: Event) -> float:
        assert self._at_ms is not None
        assert later._at_ms is not None
        return later._at_ms - self._at_ms


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """The program seems to use CUDA."""
    made = Gpu()
    monkeypatch.setattr(device_moments, "cuda_is_used", lambda: True)
    monkeypatch.setattr(device_moments, "is_capturing", lambda: made.is_capturing)
    monkeypatch.setattr(torch.cuda, "Event", made.event)
    monkeypatch.setattr(device_moments.time, "sleep", made.sleep)
    return made


def run(directory: Path, gpu: Gpu, steps: int, plan: Plan) -> None:
    step = make_training()
    with profile.planned(directory, plan, Subject()) as recording:
        for _ in range(steps):
            step()
            gpu.launch()
            recording.step()


def test_steps_are_timed_on_the_device_too(tmp_path, gpu):
    run(tmp_path, gpu, 14, Plan(wait=3, warmup=1, active=4, after=5, prologue=False))
    known = load_run(tmp_path)
    assert known.reference_step_device_ns == (62_000_000,) * 8
    assert len(known.reference_step_ns) == 8
    assert known.measured_step_device_ns == (62_000_000,) * 4
    assert known.later_step_device_ns == ()


def test_a_program_without_a_gpu_has_no_times_of_one(tmp_path):
    with profile(tmp_path, wait=2, warmup=1, active=2) as recording:
        train(8, recording)
    known = load_run(tmp_path)
    assert (known.reference_step_device_ns, known.measured_step_device_ns) == ((), ())


def test_the_device_is_waited_for_only_at_the_end(tmp_path, gpu):
    gpu.done_ms = 0.0
    step = make_training()
    with profile.planned(tmp_path, Plan(wait=1, warmup=1, active=1, after=2, prologue=False), Subject()) as recording:
        for _ in range(5):
            step()
            gpu.launch()
            recording.step()
        assert recording.is_over
        assert gpu.slept_s == 0
    assert load_run(tmp_path).reference_step_device_ns == (62_000_000,) * 3
    assert gpu.slept_s == pytest.approx(0.31)


def test_a_device_that_hangs_does_not_delay_the_exit(tmp_path, gpu, monkeypatch):
    gpu.done_ms = 62.0
    monkeypatch.setattr(device_moments.time, "sleep", lambda _: None)
    monkeypatch.setattr("profkit.collect.sessions.device_moments._LONGEST_WAIT_S", 0.0)
    run(tmp_path, gpu, 6, Plan(wait=2, warmup=0, active=1, after=2, prologue=False))
    assert load_run(tmp_path).reference_step_device_ns == (62_000_000, 0, 0, 0)


def test_no_event_is_recorded_while_a_graph_is_captured(gpu):
    gpu.is_capturing = True
    assert device_moments.take_moment() is None
    assert gpu.events == 0


def test_an_error_in_a_kernel_of_the_program_is_not_raised_here(tmp_path, gpu):
    gpu.is_broken = True
    run(tmp_path, gpu, 8, Plan(wait=2, warmup=1, active=2, after=2, prologue=False))
    known = load_run(tmp_path)
    assert known.reference_step_device_ns == ()
    assert len(known.reference_step_ns) == 4


def test_far_from_the_window_no_event_is_recorded(gpu):
    """Only for the last thirty steps before it, and at the beginning of the first of them."""
    schedule = Schedule(Plan(at_step=1000, prologue=False), device_moments.take_moment)
    schedule.begin(0)
    now_ns, skipped = 0, 0
    while schedule.phase is Phase.REFERENCE:
        now_ns += 10**6
        gpu.launch()
        if skipped:
            skipped -= 1
        elif passed := schedule.pass_by(now_ns, lambda: 0):
            skipped = passed - 1
        else:
            schedule.advance(now_ns, 0, device_moments.take_moment())
    assert schedule.counted["reference_step_device_ns"] == (62_000_000,) * 30
    assert gpu.events <= 32


def test_only_some_of_many_steps_after_the_window_are_timed(gpu):
    plan = Plan(wait=0, warmup=0, active=1, after=1, prologue=False)
    schedule = Schedule(plan, device_moments.take_moment)
    for now_ns in range(2):
        schedule.begin(now_ns, 0, device_moments.take_moment())
        gpu.launch()
        schedule.advance(now_ns, 0, device_moments.take_moment())
    schedule.go_on_timing()
    schedule.begin(2, 0, device_moments.take_moment())
    for now_ns in range(3, _MOST_LATER + 53):
        gpu.launch()
        assert schedule.pass_behind(now_ns, lambda: 0, 10**9)
    counted = schedule.counted
    assert counted["reference_step_device_ns"] == (62_000_000,)
    assert counted["later_step_device_ns"] == (62_000_000,) * _MOST_LATER + (0,) * 50
    assert len(counted["later_step_ns"]) == _MOST_LATER + 50


def test_in_a_recording_the_events_are_marked_as_pauses(tmp_path, gpu, monkeypatch):
    """The time of their runtime calls does not belong to the step."""
    record = Event.record

    def record_and_show(event: Event) -> None:
        torch.ops.aten.neg(torch.ones(1))
        record(event)

    monkeypatch.setattr(Event, "record", record_and_show)
    run(tmp_path, gpu, 6, Plan(wait=1, warmup=1, active=2, after=2, prologue=False))
    events = read_events(tmp_path)
    shown = [event for event in events if event["name"] == "aten::neg"]
    pauses = [event for event in events if event["name"] == "profkit.pause"]
    steps = [event for event in events if event["name"].startswith("ProfilerStep#")]
    inside = [one for one in shown if any(step["ts"] <= one["ts"] < step["ts"] + step["dur"] for step in steps)]
    assert len(inside) == 3
    assert all(any(p["ts"] <= one["ts"] < p["ts"] + p["dur"] for p in pauses) for one in inside)
