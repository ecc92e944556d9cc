"""What the device did, what launched it, and where the host waited for it."""

from __future__ import annotations

import pytest

from profkit.derive.timeline.intervals import Intervals
from profkit.trace.events import NONE
from tests.traces import (
    annotation,
    busy_fraction,
    facts_of,
    kernel,
    mark,
    memcpy,
    memset,
    op,
    python,
    rows_named,
    runtime,
    step,
)

SYNC = "cudaDeviceSynchronize"


def _pairs(intervals: Intervals) -> list[tuple[int, int]]:
    return [(int(s) // 1000, int(e) // 1000) for s, e in zip(intervals.start_ns, intervals.end_ns, strict=True)]


def test_work_is_linked_to_its_call_and_its_operator():
    facts = facts_of(
        [
            op("aten::linear", 0, 50),
            op("aten::addmm", 5, 40),
            runtime("cudaLaunchKernel", 10, 5, correlation=3),
            kernel("sgemm", 20, 9, correlation=3),
        ]
    )
    launches = facts.launches
    assert launches.work.tolist() == rows_named(facts.trace, "sgemm")
    assert launches.call.tolist() == rows_named(facts.trace, "cudaLaunchKernel")
    assert launches.operator.tolist() == rows_named(facts.trace, "aten::addmm")
    assert launches.unlaunched == 0


def test_kernels_of_one_graph_launch_share_their_call():
    facts = facts_of(
        [
            op("aten::mul", 0, 5),
            runtime("cudaGraphLaunch", 10, 5, correlation=3),
            *(kernel("node", 20 + 10 * i, 9, correlation=3) for i in range(3)),
        ]
    )
    assert facts.launches.call.tolist() == rows_named(facts.trace, "cudaGraphLaunch") * 3
    assert facts.launches.operator.tolist() == [NONE] * 3


def test_each_recording_of_a_file_may_count_its_ids_from_one():
    """CUPTI does so once it was detached, and profkit joins the located steps' recording with the measured ones'."""
    facts = facts_of(
        [
            op("aten::mul", 0, 20, external=7),
            runtime("cudaLaunchKernel", 10, 5, correlation=3),
            kernel("early", 20, 9, correlation=3, external=7),
            op("aten::mul", 1_000, 20, external=7),
            runtime("cudaLaunchKernel", 1_010, 5, correlation=3),
            kernel("late", 1_020, 9, correlation=3, external=7),
        ]
    )
    events, launches = facts.trace.events, facts.launches
    assert (events.start_ns[launches.call] - events.start_ns.min()).tolist() == [10_000, 1_010_000]
    assert (events.start_ns[launches.operator] - events.start_ns.min()).tolist() == [0, 1_000_000]


def test_work_before_all_calls_with_its_id_belongs_to_the_first():
    """By clocks that disagree a kernel may begin before its launch."""
    facts = facts_of(
        [
            op("aten::mul", 0, 3_000),
            runtime("cudaLaunchKernel", 10, 5, correlation=3),
            kernel("k", 8, 9, correlation=3),
            runtime("cudaLaunchKernel", 1_010, 5, correlation=3),
        ]
    )
    events = facts.trace.events
    assert (events.start_ns[facts.launches.call] - events.start_ns.min()).tolist() == [10_000]


def test_work_without_a_launch_record_is_counted_and_linked_by_the_operator_id():
    facts = facts_of(
        [
            op("aten::mul", 0, 5, external=11),
            op("aten::add", 6, 5, external=12),
            kernel("known", 10, 2, correlation=99, external=12),
            kernel("unknown", 13, 2, external=50),
            kernel("bare", 16, 2),
            runtime("cudaLaunchKernel", 1, 1, correlation=0),
            kernel("zero", 19, 1, correlation=0),
        ]
    )
    assert facts.launches.unlaunched == 4
    assert facts.launches.operator.tolist() == [*rows_named(facts.trace, "aten::add"), NONE, NONE, NONE]


def test_a_trace_without_device_work_has_no_device():
    facts = facts_of([op("aten::mul", 0, 5), runtime("cudaLaunchKernel", 1, 1, correlation=3)])
    assert not facts.device.present
    assert busy_fraction(facts, 0, 5000) == 0.0
    assert facts.launches.unlaunched == 0


def test_the_device_is_busy_while_any_stream_works():
    facts = facts_of(
        [
            op("aten::mul", 0, 5),
            kernel("a", 10, 10),
            kernel("b", 15, 10, stream=20),
            memcpy("Memcpy DtoD", 40, 5),
            memset(60, 5, stream=20),
            kernel("overlapping", 12, 4),
        ]
    )
    assert _pairs(facts.device.busy) == [(10, 25), (40, 45), (60, 65)]
    assert _pairs(facts.device.computing) == [(10, 25)]
    assert busy_fraction(facts, 0, 100_000) == pytest.approx(0.25)
    assert busy_fraction(facts, 42_000, 62_000) == pytest.approx(0.25)


def test_collectives_are_not_computation():
    facts = facts_of([op("a", 0, 1), kernel("ncclDevKernel_AllReduce_Sum", 10, 10), kernel("sgemm", 18, 10)])
    assert _pairs(facts.device.computing) == [(18, 28)]
    assert facts.device.collective.tolist() == [True, False]


@pytest.mark.parametrize(
    ("lag_us", "is_behind"),
    [(0, False), (2_497, False), (2_498, True)],
)
def test_a_long_first_lag_is_work_only_if_later_work_is_as_far_behind(lag_us, is_behind):
    """The first lag is 4,995 µs. A later launch, behind which the first kernel runs, lags by this much."""
    later = [
        runtime("cudaLaunchKernel", 5_090, 10, correlation=2),
        kernel("mul", 5_100 + lag_us, 10, correlation=2),
    ]
    facts = facts_of(
        [
            op("aten::mul", 0, 10),
            runtime("cudaLaunchKernel", 2, 3, correlation=1),
            kernel("mul", 5_000, 100 + lag_us, correlation=1),
            *later,
        ]
    )
    assert facts.device.is_behind is is_behind
    assert _pairs(facts.device.first_lag) == [(5, 5_000)]
    assert _pairs(facts.device.inherited) == ([(5, 5_000)] if is_behind else [])
    assert _pairs(facts.device.occupied) == [(5, 5_110 + lag_us)]


def test_what_is_launched_during_the_first_lag_proves_no_earlier_work():
    """A kernel whose code is loaded for 5 ms, and one launched meanwhile, which waits behind it."""
    calls = [runtime("cudaLaunchKernel", 10 * n, 5, correlation=n) for n in (1, 2)]
    facts = facts_of(
        [op("aten::mul", 0, 10), *calls, *(kernel("mul", 5_000 * n, 5_000, correlation=n) for n in (1, 2))]
    )
    assert not facts.device.is_behind


def test_a_slightly_longer_launch_does_not_mean_earlier_work():
    facts = facts_of(
        [
            op("aten::mul", 0, 10),
            runtime("cudaLaunchKernel", 2, 3, correlation=1),
            kernel("mul", 1_005, 9, correlation=1),
        ]
    )
    assert _pairs(facts.device.inherited) == []


@pytest.mark.parametrize(
    ("call", "waits"),
    [
        ("cudaStreamSynchronize", True),
        ("cudaStreamSynchronize_ptsz", True),
        ("cudaDeviceSynchronize", True),
        ("cudaEventSynchronize", True),
        ("cuCtxSynchronize", True),
        ("cudaMemcpy", True),
        ("cuMemcpyDtoH_v2", True),
        ("hipMemcpyWithStream", True),
        ("hipStreamSynchronize", True),
        ("cudaMemcpyAsync", False),
        ("cudaStreamWaitEvent", False),
        ("cudaLaunchKernel", False),
        ("cudaEventQuery", False),
    ],
)
def test_calls_that_wait_are_recognised_by_name(call, waits):
    facts = facts_of([step(0, 0, 99), op("aten::item", 1, 40), runtime(call, 10, 20)])
    assert len(facts.waits.rows) == waits
    if waits:
        assert facts.waits.duration_ns.tolist() == [20_000]
        assert facts.waits.operator.tolist() == rows_named(facts.trace, "aten::item")
        assert facts.waits.own.tolist() == [False]


def test_a_copy_from_pageable_memory_makes_the_host_wait():
    facts = facts_of(
        [
            step(0, 0, 99),
            runtime("cudaMemcpyAsync", 10, 20, correlation=1),
            runtime("cudaMemcpyAsync", 40, 2, correlation=2),
            memcpy("Memcpy HtoD (Pageable -> Device)", 15, 10, correlation=1),
            memcpy("Memcpy HtoD (Pinned -> Device)", 45, 10, correlation=2),
        ]
    )
    assert facts.waits.rows.tolist() == rows_named(facts.trace, "cudaMemcpyAsync")[:1]


def test_a_wait_inside_a_wait_is_part_of_it():
    facts = facts_of([step(0, 0, 99), runtime("cudaMemcpy", 10, 20), runtime("cuStreamSynchronize", 12, 15)])
    assert facts.waits.rows.tolist() == rows_named(facts.trace, "cudaMemcpy")


def test_the_last_synchronise_belongs_to_the_profiler():
    facts = facts_of([step(0, 0, 50), op("aten::mm", 5, 9), runtime(SYNC, 30, 5), runtime(SYNC, 60, 5)])
    assert facts.waits.own.tolist() == [False, True]
    assert facts.waits.whole_device.tolist() == [True, True]


def test_a_synchronise_at_the_end_of_every_step_belongs_to_the_program():
    steps = [step(i, 100 * i, 90) for i in range(3)]
    facts = facts_of([*steps, op("aten::mm", 1, 9), *(runtime(SYNC, 100 * i + 80, 9) for i in range(3))])
    assert facts.waits.own.tolist() == [False] * 3


def test_without_step_marks_a_synchronise_before_or_after_all_operators_belongs_to_the_profiler():
    facts = facts_of(
        [
            runtime(SYNC, 0, 5),
            op("aten::mm", 10, 9),
            runtime(SYNC, 20, 5),
            op("aten::mm", 30, 9),
            runtime(SYNC, 40, 5),
            runtime(SYNC, 50, 5),
        ]
    )
    assert facts.waits.own.tolist() == [True, False, True, True]


def test_a_stream_wait_or_one_inside_an_operator_never_belongs_to_the_profiler():
    item = [op("aten::item", 20, 9), runtime(SYNC, 21, 5)]
    facts = facts_of([step(0, 0, 9), *item, runtime("cudaStreamSynchronize", 40, 5)])
    assert facts.waits.own.tolist() == [False, False]


def test_a_synchronise_called_by_the_program_outside_its_steps_belongs_to_the_program():
    in_main = [python("train.py(3): main", 0, 100), runtime(SYNC, 40, 5)]
    on_a_marked_line = [mark(3, 119, 9), runtime(SYNC, 120, 5)]
    facts = facts_of([step(0, 0, 9), op("aten::mm", 5, 2), *in_main, *on_a_marked_line])
    assert facts.waits.own.tolist() == [False, False]


def test_a_synchronise_under_a_frame_of_the_profiler_belongs_to_the_profiler():
    facts = facts_of(
        [
            python("profile_it.py(3): main", 0, 100),
            step(0, 0, 9),
            op("aten::mm", 5, 2),
            python("torch/profiler/profiler.py(741): __exit__", 35, 20),
            runtime(SYNC, 40, 5),
            python("/opt/lib/python3.11/site-packages/torch/autograd/profiler.py(350): __exit__", 60, 20),
            python("torch/cuda/__init__.py(1004): synchronize", 62, 9),
            runtime(SYNC, 64, 5),
            python("my_profiler.py(3): stop", 84, 10),
            runtime(SYNC, 85, 5),
        ]
    )
    assert facts.waits.own.tolist() == [True, True, False]


def test_a_trace_without_waits_has_none():
    facts = facts_of([annotation("x", 0, 5)])
    assert facts.waits.rows.tolist() == []
    assert facts.waits.own.tolist() == []


def on_second(event):
    return {**event, "pid": 1, "tid": 7, "cat": "kernel"}


def test_two_devices_that_take_turns_both_have_idle_time():
    """One works for 60 of 100 µs, the other for the remaining 40."""
    facts = facts_of(
        [
            op("aten::mul", 0, 5),
            step(0, 0, 100),
            kernel("a", 0, 30),
            kernel("a", 70, 30),
            on_second(kernel("b", 30, 40)),
        ]
    )
    assert len(facts.device.work) == 3
    assert _pairs(facts.device.busy) == [(0, 30), (70, 100)]


def test_collectives_keep_the_device_busy_but_not_computing():
    facts = facts_of([op("aten::mul", 0, 5), kernel("mm", 0, 30), kernel("ncclDevKernel_AllReduce", 20, 40, stream=20)])
    assert _pairs(facts.device.busy) == [(0, 60)]
    assert _pairs(facts.device.computing) == [(0, 30)]
    assert _pairs(facts.device.communicating) == [(20, 60)]


def _uncorrelated(calls, kernels, *, external=5):
    """An operator whose calls and kernels share its external id and have no correlation; the calls' indices."""
    events = [op("aten::mm", 0, 50, external=external)]
    events += [runtime(name, 10 * at, 2, external=external) for at, name in enumerate(calls, 1)]
    events += [kernel("k", 100 + 10 * at, 5, external=external) for at in range(kernels)]
    facts = facts_of(events)
    wanted = [row for name in dict.fromkeys(calls) for row in rows_named(facts.trace, name)]
    order = sorted(wanted, key=lambda row: facts.trace.events.start_ns[row])
    return [order.index(row) if row >= 0 else None for row in facts.launches.call.tolist()]


@pytest.mark.parametrize(
    ("calls", "kernels", "joined"),
    [
        (["cudaLaunchKernel", "cudaLaunchKernel"], 2, [0, 1]),
        (["cudaLaunchKernel", "hipGetDeviceProperties"], 1, [0]),
        (["cudaGraphLaunch"], 3, [0, 0, 0]),
        (["cudaLaunchKernel", "cudaLaunchKernel"], 3, [None, None, None]),
        (["cudaStreamSynchronize"], 1, [None]),
    ],
)
def test_calls_and_work_of_one_operator_are_joined_in_order_where_no_correlation_is_recorded(calls, kernels, joined):
    assert _uncorrelated(calls, kernels) == joined


def test_a_correlation_that_leads_nowhere_is_not_replaced_by_the_order():
    facts = facts_of(
        [
            op("aten::mm", 0, 50, external=5),
            runtime("cudaLaunchKernel", 10, 2, correlation=1, external=5),
            kernel("k", 100, 5, correlation=2, external=5),
        ]
    )
    assert facts.launches.call.tolist() == [-1]
    assert facts.trace.name_of(int(facts.launches.operator[0])) == "aten::mm"
