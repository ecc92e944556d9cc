"""First calls are recognised by their names or by comparison with later calls of the same name."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.derive.facts import Facts
from profkit.patterns.time.shares import time_shares
from tests.traces import annotation, facts_of, kernel, memcpy, op, runtime, step

Json = dict[str, Any]


def products(*lengths: int, launched_after: int = 5, name: str = "aten::mm") -> list[Json]:
    """Steps of 10 ms, each with a product of the given length, which launches a kernel near its end."""
    events = []
    for i, length in enumerate(lengths):
        at, launched = 10_000 * i, 10_000 * i + length - launched_after
        events += [
            step(i, at, 10_000),
            op(name, at, length),
            kernel("gemm", launched + 5, 100, correlation=i + 1),
            runtime("cudaLaunchKernel", launched, 5, correlation=i + 1),
        ]
    return events


def names_of(facts: Facts) -> list[str]:
    return [facts.trace.name_of(int(row)) for row in facts.first_calls]


def test_an_operator_whose_first_call_takes_far_longer_is_a_first_call():
    facts = facts_of(products(3000, 50, 50, 50))
    assert names_of(facts) == ["aten::mm"]
    assert facts.steps.measured.tolist() == [False, True, True, True]


@pytest.mark.parametrize(
    ("lengths", "found"),
    [
        ((1005, 50, 50), 1),
        ((1004, 50, 50), 0),  # less than a millisecond of its own: the launch inside takes 5 µs
        ((3000, 304, 50), 1),
        ((3000, 305, 50), 0),  # a later call that takes a tenth as long: they differ for another reason
        ((50, 3000, 50), 0),  # not the first
        ((3000,), 0),  # nothing to compare it with
    ],
)
def test_what_makes_a_first_call(lengths, found):
    assert len(facts_of(products(*lengths)).first_calls) == found


@pytest.mark.parametrize(
    ("name", "length", "before", "found"),
    [
        ("cudaMalloc", 50_000, [], ["cudaMalloc"]),
        ("cudaMalloc", 49_999, [], []),
        ("cudaDeviceSynchronize", 50_000, [], []),
        ("cudaMalloc", 50_000, [runtime("cudaGetDevice", 1, 1)], []),
    ],
    ids=["long", "short", "it-may-wait-for-earlier-work", "not-the-first"],
)
def test_a_long_first_call_creates_the_context(name, length, before, found):
    assert names_of(facts_of([step(0, 0, 100_000), *before, runtime(name, 10, length)])) == found


def launching(*lengths: int, name: str = "cudaLaunchKernel", meanwhile: int = 0, copies: bool = False) -> Facts:
    """Steps of 10 ms, each with a launch of the given length while the device does other work for ``meanwhile`` µs."""
    events = []
    for i, length in enumerate(lengths):
        at, one = 10_000 * i, 10 * i + 1
        done = memcpy("Memcpy HtoD (Pinned -> Device)", at + length + 10, 50, correlation=one)
        events += [
            step(i, at, 10_000),
            runtime(name, at + 20, length, correlation=one),
            done if copies else kernel("gemm", at + length + 20, 50, correlation=one),
        ]
        if meanwhile:
            events += [
                runtime("cudaLaunchKernel", at, 5, correlation=one + 1),
                kernel("relu", at + 10, meanwhile, correlation=one + 1),
            ]
    return facts_of(events)


def test_a_kernels_first_launch_may_load_its_code():
    assert names_of(launching(4000, 5, 5)) == ["cudaLaunchKernel"]


def launching_each(*lengths: int, others: int = 6, meanwhile: int = 0) -> Facts:
    """One step: launches of 5 µs of one kernel, then one of each length, each of a kernel of its own. During these the
    device may finish other work of ``meanwhile`` µs."""
    events = [step(0, 0, 100_000)]
    for i in range(others):
        at = 100 * i
        events += [runtime("cudaLaunchKernel", at, 5, correlation=i + 1), kernel("gemm", at + 6, 9, correlation=i + 1)]
    if meanwhile:
        events += [runtime("cudaLaunchKernel", 900, 5, correlation=90), kernel("gemm", 910, meanwhile, correlation=90)]
    for i, length in enumerate(lengths):
        at, one = 1000 + 10_000 * i, 100 + i
        events += [
            runtime("cudaLaunchKernel", at, length, correlation=one),
            kernel(f"once{i}", at + length + 9, 50, correlation=one),
        ]
    return facts_of(events)


@pytest.mark.parametrize(
    ("lengths", "others", "meanwhile", "found"),
    [
        ((6000,), 6, 0, 1),
        ((6000, 3000), 6, 0, 2),
        ((999,), 6, 0, 0),  # less than a millisecond
        ((6000,), 4, 0, 0),  # five launches in all show too little of what one usually takes
        ((6000,), 6, 6000, 0),  # the queue may be full
        ((6000, 6000, 6000, 6000, 6000, 6000), 5, 0, 0),  # launches take long in this recording
    ],
)
def test_a_kernel_launched_once_is_compared_with_the_others(lengths, others, meanwhile, found):
    facts = launching_each(*lengths, others=others, meanwhile=meanwhile)
    assert names_of(facts) == ["cudaLaunchKernel"] * found


def buffered(took: int) -> Facts:
    """Two products, of which the first takes 2 ms, while CUPTI gets a buffer for ``took`` µs."""
    asked = {
        "ph": "X",
        "cat": "overhead",
        "name": "Activity Buffer Request",
        "pid": -1,
        "tid": 0,
        "ts": 50,
        "dur": took,
    }
    whole = [event for event in products(2000, 50) if not event["name"].startswith("ProfilerStep")]
    return facts_of([*whole, asked])


def test_a_buffer_for_the_profiler_is_no_first_call_of_the_program():
    facts = buffered(1800)
    assert names_of(facts) == []
    assert dict(time_shares(facts))["idle: the profiler itself works inside a call"] == 1_800_000


def test_a_first_call_is_what_the_profiler_leaves_of_it():
    facts = buffered(500)
    assert names_of(facts) == ["aten::mm"]
    shares = dict(time_shares(facts))
    assert shares["idle: the profiler itself works inside a call"] == 500_000
    assert shares["idle: compiling or loading code"] == 1_500_000


@pytest.mark.parametrize(("took", "measured"), [(101, [False, True, True]), (100, [True, True, True])])
def test_a_step_in_which_the_profiler_gets_a_buffer_is_left_out(took, measured):
    asked = {
        "ph": "X",
        "cat": "overhead",
        "name": "Activity Buffer Request",
        "pid": -1,
        "tid": 0,
        "ts": 50,
        "dur": took,
    }
    assert facts_of([*products(400, 50, 50), asked]).steps.measured.tolist() == measured


def test_a_launch_that_waits_for_a_full_queue_is_no_first_call():
    assert names_of(launching(4000, 5, 5, meanwhile=4000)) == []
    assert names_of(launching(4000, 5, 5, meanwhile=300)) == ["cudaLaunchKernel"]


def test_a_long_copy_is_no_first_call():
    assert names_of(launching(4000, 5, 5, name="cudaMemcpyAsync", copies=True)) == []


def test_calls_that_load_code_are_first_calls_however_often_they_come():
    facts = facts_of([*products(50, 50), *(runtime("cuModuleLoadData", at, 100) for at in (1000, 11_000))])
    assert names_of(facts) == ["cuModuleLoadData"] * 2


def test_a_device_that_idles_during_a_first_call_waits_for_code():
    events = [*products(3000, 50, name="aten::conv2d"), annotation("warm up", 0, 20_000)]
    whole = [event for event in events if not event["name"].startswith("ProfilerStep")]
    shares = dict(time_shares(facts_of(whole)))
    assert shares["idle: compiling or loading code"] == 3_000_000
