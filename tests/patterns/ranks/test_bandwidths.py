"""What a link carries in collectives, by the measure of nccl-tests."""

from __future__ import annotations

import pytest

from profkit.diagnosis.pipeline import diagnose
from profkit.patterns.ranks.bandwidths import bus_rates
from profkit.report import render
from tests.traces import Json, facts_of, kernel, runtime, step

MEGABYTES = 2**20


def exchanges(operation: str, elements: int, times_us: tuple[float, ...], ranks: int = 8, dtype: str = "Float") -> list:
    events: list[Json] = []
    for number, time_us in enumerate(times_us):
        at, correlation = 10_000 * number, number + 1
        one = kernel("ncclDevKernel_Generic", at + 20, time_us, correlation=correlation)
        one["args"] |= {"Collective name": operation, "In msg nelems": elements, "dtype": dtype, "Group size": ranks}
        events += [step(number, at, 10_000), runtime("cudaLaunchKernel", at + 5, 5, correlation=correlation), one]
    return events


@pytest.mark.parametrize(
    ("operation", "carried"),
    [
        ("allreduce", 2 * 7 / 8),
        ("_reduce_scatter_base", 7 / 8),
        ("_allgather_base", 7.0),
        ("alltoall_base", 7 / 8),
        ("broadcast", 1.0),
    ],
)
def test_a_link_carries_more_or_less_than_a_rank_puts_in(operation, carried):
    """16 MiB in 1000 µs."""
    (one,) = bus_rates(facts_of(exchanges(operation, 4 * MEGABYTES, (1000.0,) * 3)))
    assert (one.ranks, one.size_bytes, one.each_ns) == (8, 16 * MEGABYTES, 1_000_000)
    assert one.bytes_per_s == pytest.approx(carried * 16 * MEGABYTES / 1e-3)


def test_the_fastest_hardly_waits():
    (one,) = bus_rates(facts_of(exchanges("allreduce", 4 * MEGABYTES, (4000.0, 1000.0, 4000.0))))
    assert one.best_bytes_per_s == pytest.approx(4 * one.bytes_per_s)


@pytest.mark.parametrize(("elements", "told"), [(MEGABYTES // 4, 1), (MEGABYTES // 4 - 1, 0)])
def test_a_megabyte_is_the_least(elements, told):
    assert len(bus_rates(facts_of(exchanges("allreduce", elements, (100.0,) * 3)))) == told


@pytest.mark.parametrize("changed", [{"dtype": "Unheard"}, {"ranks": 1}, {"operation": "barrier"}])
def test_what_is_not_told_has_no_rate(changed):
    operation = changed.pop("operation", "allreduce")
    assert bus_rates(facts_of(exchanges(operation, 4 * MEGABYTES, (1000.0,) * 3, **changed))) == ()


def test_reports_tell_it():
    text = " ".join(render(diagnose(facts_of(exchanges("allreduce", 25_000_000, (2000.0,) * 4))), "text").split())
    assert "All-reduce of 100 MB among 8 ranks takes 2.00 ms, waits for other ranks included: 87.5 GB a second" in text
