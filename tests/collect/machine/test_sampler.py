"""When the load of the machine is sampled, and how much of it is due to other processes."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, NamedTuple

import psutil
import pytest

from profkit.collect.machine.sampler import Sampler, _Others, rss_bytes_of
from tests.forks import LONGEST_S

SHORT_S = 0.01


def test_the_load_is_sampled_again_and_again():
    thrice = threading.Event()
    sampler = Sampler(1, interval_s=SHORT_S, on_tick=lambda: thrice.set() if len(sampler.samples) >= 3 else None)
    sampler.start()
    assert thrice.wait(LONGEST_S)
    sampler.stop()
    times = [sample.time_ns for sample in sampler.samples]
    assert times == sorted(times)


def test_while_it_is_urgent_there_are_more_ticks_than_samples():
    """Four for each, once the first samples are taken, which are as close together."""
    ticks, enough = list[int](), threading.Event()

    def tick() -> None:
        ticks.append(len(sampler.samples))
        if len(ticks) >= 100:
            enough.set()

    sampler = Sampler(1, interval_s=SHORT_S, on_tick=tick, is_urgent=lambda: True)
    sampler.start()
    assert enough.wait(LONGEST_S)
    sampler.stop()
    assert ticks[15] > 8
    assert ticks[99] - ticks[20] < 60


def test_errors_of_the_system_reach_nobody_and_end_nothing(monkeypatch):
    """The program may open no file for a while, and the thread has no caller that could handle that."""
    ticks, enough, reached = list[int](), threading.Event(), list[object]()
    monkeypatch.setattr(threading, "excepthook", reached.append)

    def tick() -> None:
        ticks.append(len(sampler.samples))
        if len(ticks) > 4:
            enough.set()
        raise psutil.AccessDenied if len(ticks) % 2 else PermissionError

    sampler = Sampler(1, interval_s=SHORT_S, on_tick=tick)
    take, takes = sampler._take, iter([False, True, False] + 1000 * [True])
    monkeypatch.setattr(sampler, "_take", lambda: take() if next(takes) else psutil.Process(2**30))
    sampler.start()
    assert enough.wait(LONGEST_S)
    sampler.stop()
    assert ticks[:4] == [0, 1, 1, 2]
    assert reached == []


def test_memory_is_known_where_the_systems_files_cannot_be_read(monkeypatch):
    process = psutil.Process()
    known = rss_bytes_of(process)
    monkeypatch.setattr(process, "memory_info", lambda: open("/no/such/file"))
    assert rss_bytes_of(process) >= 0.9 * known > 0


def test_a_last_sample_is_taken_at_the_end(monkeypatch):
    monkeypatch.setattr("profkit.collect.machine.sampler._SOON", 0.0)
    sampler = Sampler(1, interval_s=LONGEST_S, on_tick=lambda: pytest.fail("nothing is left to look at"))
    sampler.start()
    sampler.stop()
    assert len(sampler.samples) == 1


def test_no_last_sample_is_taken_soon_after_another():
    sampler = Sampler(1, interval_s=LONGEST_S)
    sampler.start()
    sampler.stop()
    assert sampler.samples == []


def test_the_first_samples_come_sooner(monkeypatch):
    waits, stopped = list[float](), threading.Event()
    sampler = Sampler(1, interval_s=1.0)

    def wait(timeout: float) -> bool:
        waits.append(timeout)
        return len(waits) > 20

    monkeypatch.setattr(stopped, "wait", wait)
    monkeypatch.setattr(sampler, "_stopped", stopped)
    sampler.start()
    sampler.stop()
    assert waits[:2] == [0.25, 0.25]
    assert waits[20] == 1.0
    assert len(sampler.samples) == 20


class Machine:
    """Two CPUs whose times are set by hand, in seconds, and one process."""

    def __init__(self) -> None:
        self.now_s = self.own_s = 0.0
        self.busy_s, self.iowait_s = [0.0, 0.0], 0.0

    def monotonic(self) -> float:
        return self.now_s

    def cpu_times(self, percpu: bool = False) -> Any:
        if not percpu:
            return SimpleNamespace(user=self.own_s, system=0.0)
        return [_Times(busy, 0.0, 0.0, self.now_s - busy - self.iowait_s, self.iowait_s) for busy in self.busy_s]


class _Times(NamedTuple):
    user: float
    nice: float
    system: float
    idle: float
    iowait: float


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr("profkit.collect.machine.sampler.time", machine)
    monkeypatch.setattr("profkit.collect.machine.sampler.psutil", machine)
    monkeypatch.setattr("profkit.collect.machine.sampler.os.sched_getaffinity", lambda _: {0, 1}, raising=False)
    return machine


def read_others(machine: Machine, cpus: int = 2) -> list[float | None]:
    """Two samples, 2 s apart: the first CPU is busy throughout, 1.5 s of it with this process, the second for 0.5 s."""
    others = _Others(cpus, machine)  # stands in for this process too: only its times are read
    first = others.read()
    machine.now_s, machine.own_s, machine.busy_s, machine.iowait_s = 2.0, 1.5, [2.0, 0.5], 0.0
    return [first, others.read()]


def test_the_load_of_other_processes_is_known_from_the_second_sample_on(machine):
    assert read_others(machine) == [None, 0.5]


def test_under_a_quota_the_load_of_other_processes_is_unknown(machine):
    assert read_others(machine, cpus=1) == [None, None]


def test_with_very_many_cpus_the_load_of_other_processes_is_not_read(machine, monkeypatch):
    monkeypatch.setattr("profkit.collect.machine.sampler.os.cpu_count", lambda: 65)
    assert read_others(machine) == [None, None]
