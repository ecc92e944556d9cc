"""How long the host takes to give the memory of large tensors back to the system."""

from __future__ import annotations

from profkit.patterns.time.freeing import frees
from tests.traces import facts_of, kernel, memory, op, rows_named, runtime, step

MIB = 1 << 20


def block(size_bytes: int, freed_at: float, device_type: int = 0) -> list:
    """Allocated by an operator from 10 to 20 µs, and freed later."""
    return [
        step(0, 0, 2000),
        op("aten::mul", 10, 10),
        memory(11, size_bytes, 64, device_type=device_type),
        memory(freed_at, -size_bytes, 64, device_type=device_type),
    ]


def test_it_ends_with_the_next_event():
    facts = facts_of([*block(MIB, 50), op("aten::add", 90, 10)])
    found = frees(facts)
    assert found.allocated_by.tolist() == rows_named(facts.trace, "[memory]")[:1]
    assert (found.end_ns - found.start_ns).tolist() == [40_000]


def test_it_takes_no_more_than_a_microsecond_a_page():
    found = frees(facts_of([*block(MIB, 50), op("aten::add", 900, 10)]))
    assert (found.end_ns - found.start_ns).tolist() == [256_000]


def test_small_blocks_stay_with_the_c_library():
    added = op("aten::add", 90, 10)
    assert len(frees(facts_of([*block(128 << 10, 50), added])).start_ns) == 1
    assert len(frees(facts_of([*block((128 << 10) - 1, 50), added])).start_ns) == 0


def test_a_block_that_is_not_freed_is_not_given_back():
    events = [one for one in block(MIB, 50) if one.get("args", {}).get("Bytes", 0) >= 0]
    assert len(frees(facts_of([*events, op("aten::add", 90, 10)])).start_ns) == 0


def test_memory_of_a_device_is_not_the_systems():
    launch, ran = runtime("cudaLaunchKernel", 12, 1, correlation=1), kernel("mul", 13, 5, correlation=1)
    assert len(frees(facts_of([*block(MIB, 50, device_type=1), launch, ran])).start_ns) == 0


def test_without_recorded_memory_nothing_is_known():
    assert len(frees(facts_of([step(0, 0, 100), op("aten::mul", 10, 10)])).start_ns) == 0
