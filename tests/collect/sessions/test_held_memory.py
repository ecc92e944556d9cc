"""What a recording holds, told apart from what the C library merely keeps free."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from psutil import Process

from profkit.collect.machine.heap import give_back, in_use_bytes
from profkit.collect.machine.sampler import rss_bytes_of
from profkit.collect.recorder.profiler import profile
from profkit.collect.recorder.recorder import Recorder
from profkit.collect.sessions import allowance, bounds, held_memory
from profkit.collect.sessions.counting import count_events
from profkit.collect.sessions.exporting import write_plain
from profkit.collect.sessions.held_memory import HeldMemory
from profkit.collect.sessions.session import ProfilerSession

MB = 1 << 20
needs_told = pytest.mark.skipif(in_use_bytes() is None, reason="the C library does not tell what is in use")


class Heap:
    """A process with this much memory resident and in use. After giving back, only the memory in use and ``mapped_mb``
    of files are resident."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, available_mb: int = 100_000) -> None:
        self.resident_mb, self.in_use_mb, self.mapped_mb = 300, 200, 100
        self.now, self.read_s, self.reads, self.returns = 50.0, 0.0, 0, 0
        monkeypatch.setattr(held_memory, "give_back", self.give_back)
        memory = SimpleNamespace(available=available_mb * MB)
        monkeypatch.setattr(held_memory.psutil, "virtual_memory", lambda: memory)
        self.held = HeldMemory(lambda: self.resident_mb * MB, self.read, lambda: self.now, lambda: self.now)

    def read(self) -> int:
        self.reads, self.now = self.reads + 1, self.now + self.read_s
        return self.in_use_mb * MB

    def give_back(self) -> None:
        self.returns, self.resident_mb = self.returns + 1, self.in_use_mb + self.mapped_mb

    def measured_mb(self, *, resident: int, in_use: int) -> int:
        self.resident_mb, self.in_use_mb = resident, in_use
        return self.held.measure() // MB


@pytest.fixture
def heap(monkeypatch: pytest.MonkeyPatch) -> Heap:
    return Heap(monkeypatch)


def test_free_memory_is_not_held(heap):
    assert heap.held.begin() == 300 * MB
    assert heap.measured_mb(resident=500, in_use=219) == 319
    assert heap.measured_mb(resident=500, in_use=390) == 490


def test_memory_in_use_that_was_never_written_is_not_held(heap):
    heap.held.begin()
    assert heap.measured_mb(resident=310, in_use=1224) == 310


def test_without_a_count_of_the_heap_all_resident_memory_is_held(monkeypatch):
    monkeypatch.setattr(held_memory, "give_back", lambda: pytest.fail("no free memory is known"))
    held = HeldMemory(iter([300 * MB, 5000 * MB]).__next__, lambda: None)
    assert [held.begin(), held.measure()] == [300 * MB, 5000 * MB]


def test_much_free_memory_is_given_back(heap):
    heap.held.begin()
    assert (heap.measured_mb(resident=300 + 128, in_use=200), heap.returns) == (300, 0)
    assert (heap.measured_mb(resident=300 + 257, in_use=200), heap.returns, heap.resident_mb) == (300, 1, 300)


def test_as_much_as_the_program_once_used_may_stay_free(heap):
    """It allocates and frees 900 MB again and again, which would take new pages each time."""
    heap.held.begin()
    assert [heap.measured_mb(resident=1200, in_use=in_use) for in_use in (1100, 200, 1100, 200)] == [1200, 300] * 2
    assert heap.measured_mb(resident=1200 + 128, in_use=200) == 300
    assert heap.returns == 0
    assert (heap.measured_mb(resident=1200 + 129, in_use=200), heap.returns) == (300, 1)


def test_with_little_available_memory_less_may_stay_free(monkeypatch):
    heap = Heap(monkeypatch, available_mb=1500)
    heap.held.begin()
    assert (heap.measured_mb(resident=300 + 100, in_use=200), heap.returns) == (300, 0)
    assert (heap.measured_mb(resident=300 + 101, in_use=200), heap.returns) == (300, 1)


def test_earlier_free_memory_that_is_given_back_hides_no_events(heap):
    heap.mapped_mb = 30
    heap.held.begin()
    assert heap.measured_mb(resident=300 + 132, in_use=203) == 303
    assert heap.resident_mb == 233
    assert heap.measured_mb(resident=243, in_use=213) == 313


def test_memory_that_cannot_be_given_back_is_requested_only_once(heap):
    """A mapped file of 900 MB is neither held by the recording nor free."""
    heap.held.begin()
    heap.mapped_mb = 1000
    assert [heap.measured_mb(resident=1200, in_use=200) for _ in range(3)] == [300, 300, 300]
    assert heap.returns == 1
    assert (heap.measured_mb(resident=1200 + 257, in_use=200), heap.returns) == (300, 2)


def test_a_slow_heap_is_read_in_at_most_a_twentieth_of_the_time(heap):
    heap.read_s = 0.09
    heap.held.begin()
    assert heap.measured_mb(resident=400, in_use=210) == 310
    reads = heap.reads
    for _ in range(8):  # for 1.6 of the 1.8 s until the next reading all growth counts
        heap.now += 0.2
        assert heap.measured_mb(resident=420, in_use=210) == 330
    assert heap.reads == reads
    heap.now += 0.3
    assert heap.measured_mb(resident=420, in_use=210) == 310
    assert heap.reads == reads + 1


def test_a_slow_heap_is_read_early_if_the_process_grows_fast(heap):
    heap.read_s = 0.09
    heap.held.begin()
    heap.measured_mb(resident=300, in_use=200)
    assert (heap.measured_mb(resident=300 + 128, in_use=200), heap.returns) == (300 + 128, 0)
    assert (heap.measured_mb(resident=300 + 257, in_use=200), heap.returns) == (300, 1)


def large_results() -> Callable[[], object]:
    """Few operators with results of a megabyte, which are freed at once."""
    batch, layer = torch.ones(256, 256), torch.nn.Linear(256, 1024)

    def step() -> None:
        for _ in range(10):
            layer(batch).square().mean().backward()
            layer.zero_grad()

    return step


def small_operators() -> Callable[[], object]:
    """Many operators with small results, which are freed at once."""

    def step() -> None:
        x = torch.ones(1)
        for _ in range(200):
            x = (x * 0.5 + 1.0).abs()

    return step


@needs_told
@pytest.mark.parametrize("program", [large_results, small_operators])
def test_a_recording_holds_a_few_hundred_bytes_per_event(program, tmp_path):
    """glibc does not reuse the places of large results: the process grows by 50 kB per event without
    holding that much."""
    step, memory = program(), HeldMemory(lambda: rss_bytes_of(Process()))
    session = ProfilerSession(cuda=False)
    session.start()
    try:
        step()
        give_back()  # else events fill places that are already resident
        begun = memory.begin()
        for _ in range(10):
            step()
        grown = memory.measure() - begun
    finally:
        session.stop()
    with write_plain(session, tmp_path) as file:
        events = count_events(file).events
    assert 150 < grown / events < 1000


@needs_told
@pytest.mark.parametrize(("program", "is_cut_off"), [(large_results, False), (small_operators, True)])
def test_a_step_is_cut_off_for_what_its_recording_holds_not_for_free_memory(program, is_cut_off, tmp_path, monkeypatch):
    """Both steps make the process grow by more than 16 MB, the one with large results by 300 MB. The other lasts for
    several looks at the memory, which come twenty times a second. On a busy machine its price would be a limit too.
    Whether a later step is located in its place depends on how much of it was recorded until then."""
    monkeypatch.setattr(allowance, "LEAST_S", 1e6)
    monkeypatch.setattr(bounds, "peak_rss_bytes", lambda: 0)
    monkeypatch.setattr(bounds, "_MOST_BYTES", 16 * MB)
    cuts, cut_step_off = list[int](), Recorder._cut_step_off

    def count_cut(recorder: Recorder, foreseen: int = 0) -> None:
        cuts.append(foreseen)
        cut_step_off(recorder, foreseen)

    monkeypatch.setattr(Recorder, "_cut_step_off", count_cut)
    step = program()
    step()
    with profile(tmp_path, wait=0, warmup=1, active=1) as recording:
        recording.step()
        for _ in range(10 if program is large_results else 90):
            step()
        recording.step()
        step()
        recording.step()
    assert bool(cuts) is is_cut_off
