"""When memory is full that grows with each step."""

from __future__ import annotations

import pytest

from profkit.derive.facts import Facts
from profkit.patterns.retention.until_full import time_until_full_ns
from profkit.run.directory import Host, LoadSample, Run
from tests.traces import facts_of, kernel, memory, op, runtime, step

GB = 10**9


def on_host(total_gb: int = 16, used_gb: int = 4, **run: object) -> Facts:
    """Steps of 100 µs."""
    host = Host(cpus=2, torch_threads=2, memory_bytes=total_gb * GB)
    events = [event for at in range(4) for event in (step(at, 100 * at, 100), op("aten::mm", 100 * at + 5, 50))]
    return facts_of(events, run=Run(host=host, **run), samples=(LoadSample(0, used_gb * GB, 0.5),))


def test_on_the_host_tensors_and_nodes_fill_the_same_memory():
    """12 GB are left, for 12 million steps of 1,000 bytes."""
    assert time_until_full_ns(on_host(), 400, 600) == pytest.approx(12_000_000 * 100_000)


def test_steps_without_a_profiler_set_the_pace():
    assert time_until_full_ns(on_host(reference_step_ns=(40_000,) * 5), 1000, 0) == pytest.approx(12_000_000 * 40_000)


def test_full_memory_is_full_at_once():
    assert time_until_full_ns(on_host(used_gb=16), 1000, 0) == 0


def test_of_a_machine_whose_memory_is_unknown_nobody_knows():
    assert time_until_full_ns(on_host(total_gb=0), 1000, 0) is None
    assert time_until_full_ns(on_host(used_gb=0), 1000, 0) is None


def test_what_does_not_grow_is_never_full():
    assert time_until_full_ns(on_host(), 0, 0) is None


def on_device() -> Facts:
    """A GPU of 1 GB of which 200 MB are in use, in steps of 100 µs."""
    events = [memory(1, 200_000_000, 1, device_type=1, held=200_000_000, reserved=200_000_000)]
    for at in range(4):
        events += [step(at, 100 * at, 100), runtime("cudaLaunchKernel", 100 * at + 5, 5, correlation=at + 1)]
        events += [kernel("gemm", 100 * at + 12, 50, correlation=at + 1)]
    host = Host(cpus=2, torch_threads=2, memory_bytes=16 * GB)
    devices = [{"id": 0, "name": "GPU", "totalGlobalMem": GB}]
    return facts_of(events, run=Run(host=host), samples=(LoadSample(0, 4 * GB, 0.5),), deviceProperties=devices)


def test_on_a_device_the_one_that_is_full_first_counts():
    """800,000 steps of 1,000 bytes are left on the GPU, 12 million on the host."""
    facts = on_device()
    assert time_until_full_ns(facts, 1000, 1000) == pytest.approx(800_000 * 100_000)
    assert time_until_full_ns(facts, 0, 1000) == pytest.approx(12_000_000 * 100_000)
