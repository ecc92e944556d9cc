"""What the notes say about memory that ran out."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.derive.facts import Facts
from profkit.diagnosis.health import check_recording
from profkit.diagnosis.health.memory import check_memory_failures, describe_end_of_memory
from profkit.run.directory import KILLED, CallSite, DeviceMemorySample, Host, LoadSample, OutOfMemory, Run
from tests.traces import facts_of, kernel, op, runtime, step

SITE = CallSite("home/train.py", 31, "main", "loss.backward()")
WORK = [
    step(0, 0, 50),
    step(1, 50, 50),
    op("aten::mul", 1, 9),
    runtime("cudaLaunchKernel", 2, 1, correlation=1),
    kernel("mul", 4, 5, correlation=1),
]


def facts(events: list[dict[str, Any]] = WORK, **failed: Any) -> Facts:
    run = Run(host=Host(2, 2, 24_000), out_of_memory=OutOfMemory(**failed), step_signal="optimizer")
    samples = (LoadSample(0, 300, 0.5),)
    counted = (DeviceMemorySample(-1, 1, 80_000, 10, 70_000, 20, 75_000),)
    return Facts(facts_of(events).trace, run, samples=samples, device_memory=counted)


def test_a_request_on_a_gpu_is_reported_with_its_size_and_the_free_memory():
    failed = facts(device=1, asked_bytes=2_000, total_bytes=80_000, free_bytes=500, site=SITE, ended=True)
    assert describe_end_of_memory(failed) == (
        "out of memory: train.py:31 asked for 2.00 kB of GPU 1's 80.0 kB, of which 500 B were free; tensors took up to "
        "70.0 kB"
    )
    assert check_memory_failures(failed) is None
    assert check_recording(failed)[0] == describe_end_of_memory(failed)


@pytest.mark.parametrize("total_bytes", [2_000, 80_000])
def test_a_limit_of_the_process_is_named_where_the_gpu_had_room(total_bytes: int):
    """PyTorch tells the limit as the total, and what is free of the whole GPU."""
    base = facts(device=0, asked_bytes=16, total_bytes=total_bytes, free_bytes=70_000, site=SITE, ended=True)
    limited = (DeviceMemorySample(-1, 0, 80_000, 10, 1_900, 20, 1_950, limit_bytes=2_000),)
    known = Facts(base.trace, base.run, samples=base.samples, device_memory=limited)
    assert describe_end_of_memory(known) == (
        "out of memory: train.py:31 asked for 16 B of GPU 0, beyond the 2.00 kB that the process may use "
        "(set_per_process_memory_fraction), though 70.0 kB of the GPU were free; tensors took up to 1.90 kB"
    )


def test_a_limit_shows_in_more_free_memory_than_there_is():
    """As in runs of a PyTorch that does not say how much the process may use."""
    failed = facts(device=1, asked_bytes=16, total_bytes=2_000, free_bytes=70_000, site=SITE, ended=True)
    assert "beyond the 2.00 kB that the process may use" in str(describe_end_of_memory(failed))


def test_a_limit_is_no_cause_where_the_gpu_itself_is_full():
    base = facts(device=0, asked_bytes=500, total_bytes=80_000, free_bytes=100, site=SITE, ended=True)
    limited = (DeviceMemorySample(-1, 0, 80_000, 10, 1_900, 20, 1_950, limit_bytes=2_000),)
    known = Facts(base.trace, base.run, samples=base.samples, device_memory=limited)
    assert "of GPU 0's 80.0 kB, of which 100 B were free" in str(describe_end_of_memory(known))


@pytest.mark.parametrize(
    ("known", "text"),
    [
        ({}, "an unknown line asked for more memory of the host's memory; the process held 300 B of 24.0 kB"),
        ({"device": 0}, "an unknown line asked for more memory of GPU 0's memory"),
        ({"device": 0, "asked_bytes": 5, "site": SITE}, "train.py:31 asked for 5 B of GPU 0's memory"),
    ],
)
def test_what_is_unknown_about_the_request_is_left_out(known: dict[str, Any], text: str):
    events = WORK if "device" in known else [op("aten::mul", 1, 9)]
    assert describe_end_of_memory(facts(events, **known, ended=True)) == f"out of memory: {text}"


def test_a_program_killed_by_the_system_is_reported_as_killed():
    killed = facts([op("aten::mul", 1, 9)], message=KILLED, ended=True)
    assert describe_end_of_memory(killed) == (
        "out of memory: the system killed the program, as no room was left on the host; the process held 300 B of "
        "24.0 kB"
    )


def test_a_program_that_went_on_gets_a_note_and_no_headline():
    failed = facts(device=1, asked_bytes=2_000, total_bytes=80_000, free_bytes=500, site=SITE, count=3)
    assert describe_end_of_memory(failed) is None
    assert check_memory_failures(failed) == (
        "a GPU's memory ran out 3 times, and the program went on: last train.py:31 asked for 2.00 kB of GPU 1's "
        "80.0 kB, of which 500 B were free; tensors took up to 70.0 kB"
    )


def test_a_program_that_never_ran_out_of_memory_gets_neither():
    whole = facts_of(WORK)
    assert describe_end_of_memory(whole) is None
    assert check_memory_failures(whole) is None
