"""Devices and hosts that are nearly full, and those that only look it."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.derive.facts import Facts
from profkit.findings.values import Kind, Severity
from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.near_capacity import near_capacity
from profkit.run.directory import CallSite, DeviceMemorySample, Host, LoadSample, Run
from tests.traces import facts_of, kernel, mark, memory, op, runtime, step

TOTAL = 1_000_000


def on_device(
    held: int | None, reserved: int = 0, seen: int | None = None, samples: tuple[DeviceMemorySample, ...] = ()
) -> Facts:
    """A device of a million bytes, with so much held in all after an allocation at line 3, and after its free."""
    events = [
        step(0, 0, 100),
        mark(0, 1, 90),
        op("aten::empty", 10, 20),
        runtime("cudaLaunchKernel", 11, 1, correlation=1),
        kernel("fill", 13, 5, correlation=1),
        memory(15, 1_000, 64, device_type=1, held=held, reserved=reserved),
        memory(40, -1_000, 64, device_type=1, held=None if held is None else held - 1_000, reserved=reserved),
    ]
    facts = facts_of(
        events,
        callsites=(CallSite("train.py", 3, "main", "x = torch.empty(n)"),),
        samples=(LoadSample(0, 1, 0.5, gpu_memory_bytes=seen),),
        deviceProperties=[{"id": 0, "name": "NVIDIA H100", "totalGlobalMem": TOTAL}],
    )
    return Facts(facts.trace, facts.run, facts.callsites, samples=facts.samples, device_memory=samples)


def sample(at: int, peak: int = 0, retries: int = 0) -> DeviceMemorySample:
    return DeviceMemorySample(at, 0, TOTAL, 0, peak, 0, peak, retries=retries)


def find(facts: Facts) -> list[Suspicion]:
    return list(near_capacity.check(facts))


@pytest.mark.parametrize(("held", "count"), [(900_001, 1), (900_000, 0)])
def test_tensors_that_take_more_than_nine_tenths_are_told(held, count):
    assert len(find(on_device(held, reserved=950_000))) == count


def test_it_is_for_information_and_names_the_line_that_reached_the_peak():
    (found,) = find(on_device(950_000, reserved=960_000))
    assert near_capacity.kind is Kind.FAULT
    assert found.severity is Severity.INFO
    assert found.message == (
        "At the peak 950 kB of 1.00 MB (95 %) of GPU 0 are in use, 950 kB of it in tensors. A larger batch or a longer "
        "input would not fit."
    )
    facts = on_device(950_000)
    assert facts.trace.events.size_bytes[find(facts)[0].rows].tolist() == [1_000]
    assert found.evidence == {"used_bytes": 950_000, "memory_bytes": TOTAL, "retries": 0}


def test_memory_that_pytorch_only_keeps_is_free_for_more_tensors():
    assert find(on_device(500_000, reserved=990_000)) == []


def test_what_others_use_of_the_device_counts():
    (found,) = find(on_device(500_000, reserved=550_000, seen=960_000))
    assert found.evidence["used_bytes"] == 500_000 + 960_000 - 550_000


def test_the_allocators_own_peak_of_before_the_recording_counts():
    (found,) = find(on_device(10_000, samples=(sample(5, 10_000), sample(-1, 940_000))))
    assert found.evidence["used_bytes"] == 940_000


@pytest.mark.parametrize(
    ("retries", "severity", "words"),
    [
        ((0, 0, 0), Severity.INFO, "would not fit."),
        ((2, 2, 2), Severity.INFO, "ran out of memory 2 times before them,"),
        ((2, 3, 5), Severity.MEDIUM, "ran out of memory 3 times in the recorded steps,"),
    ],
)
def test_retries_in_the_recorded_steps_make_it_a_fault(retries, severity, words):
    reported = tuple(sample(at, 950_000, count) for at, count in enumerate(retries))
    (found,) = find(on_device(950_000, samples=(*reported, sample(-1, 950_000, 99))))
    assert found.severity is severity
    assert words in found.message


@pytest.mark.parametrize("known", [{"reserved": 950_000}, {"seen": 950_000}])
def test_it_cannot_look_where_the_memory_is_full_of_nobody_knows_what(known: dict[str, Any]):
    with pytest.raises(CannotLook, match="how much of it by tensors"):
        find(on_device(None, **known))


def test_a_device_whose_memory_is_mostly_free_whoever_takes_it_is_fine():
    assert find(on_device(None, reserved=900_000)) == []


def test_it_cannot_look_where_nothing_of_the_memory_was_recorded():
    with pytest.raises(CannotLook, match="was not recorded"):
        find(on_device(None))


def on_host(rss: int, shared: int | None) -> Facts:
    run = Run(host=Host(2, 2, memory_bytes=TOTAL))
    return facts_of([op("aten::mul", 0, 5)], run=run, samples=(LoadSample(0, rss, 0.5, shared_bytes=shared),))


@pytest.mark.parametrize(("rss", "shared", "count"), [(900_001, 0, 1), (900_000, 0, 0), (990_000, 90_000, 0)])
def test_a_process_that_fills_the_machine_is_told_but_not_for_files_that_it_maps(rss, shared, count):
    found = find(on_host(rss, shared))
    assert [one.severity for one in found] == [Severity.INFO] * count
    assert [one.message for one in found] == [
        "At its peak the process takes 900 kB of 1.00 MB (90 %): a larger batch, or another worker, would not fit."
    ] * count


def test_it_cannot_look_where_mapped_files_were_not_told_apart():
    with pytest.raises(CannotLook, match="mapped files"):
        find(on_host(950_000, None))
