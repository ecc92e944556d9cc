"""Oddities of real files, each in a small synthetic one.

Other oddities are tested in `test_kineto` (categories of 2021, ids, odd names, order), `test_times` (times and
durations), `test_damaged_files` (damaged and cut-off files) and `test_hostile_files` (files that are no trace).
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from profkit.derive.facts import Facts
from profkit.diagnosis.health import check_recording
from profkit.diagnosis.pipeline import diagnose
from profkit.patterns.time.shares import time_shares
from profkit.savings.edits import Edit
from profkit.savings.replay import replay
from profkit.trace.events import NONE, Category, Trace
from tests.traces import (
    facts_of,
    json_of,
    kernel,
    memcpy,
    memory,
    op,
    rows_named,
    runtime,
    step,
    trace_of,
    trace_of_bytes,
)


def names_of(trace: Trace) -> list[str]:
    return [trace.name_of(row) for row in range(len(trace.events))]


# Top level


def test_additional_top_level_keys_are_ignored():
    site = {"site": {"host": ["a", {"b": 1}]}, "trace_id": "F" * 32, "cupti_version": 26, "otherData": None}
    trace = trace_of([op("a", 0, 1)], **site)
    assert (names_of(trace), trace.health) == (["a"], ())


def test_a_bare_array_of_events_has_no_properties():
    trace = trace_of_bytes(json.dumps([op("a", 0, 1), kernel("k", 1, 1)]).encode())
    assert sorted(names_of(trace)) == ["a", "k"]
    assert (trace.recording.devices, trace.recording.rank, trace.recording.has_shapes) == ((), None, None)


# Clock


@pytest.mark.parametrize("unit", [{}, {"displayTimeUnit": "ms"}, {"displayTimeUnit": "ns"}, {"displayTimeUnit": 7}])
def test_times_are_microseconds_whatever_the_display_unit(unit):
    trace = trace_of([op("a", 10, 2.25), op("b", 19.5, 1)], **unit)
    assert trace.events.start_ns.tolist() == [0, 9_500]
    assert trace.events.duration_ns.tolist() == [2_250, 1_000]


@pytest.mark.parametrize(
    ("base", "expected"), [(10**18, 10**18 + 5_000), (None, 5_000), ("soon", 5_000), (1.5, 5_000), ([1], 5_000)]
)
def test_a_base_time_that_is_no_integer_is_ignored(base, expected):
    assert trace_of([op("a", 5, 1)], baseTimeNanoseconds=base).base_ns == expected


def test_two_ranks_are_aligned_by_their_base_times():
    early, late = (trace_of([op("a", 5, 1)], baseTimeNanoseconds=base) for base in (10**18, 10**18 + 7_000))
    assert late.base_ns - early.base_ns == 7_000


def test_a_file_may_write_times_in_several_forms():
    events = [{**op(f"op{i}", 0, 1), "ts": form} for i, form in enumerate([100, 110.5, "120", "130.25", 1.4e2])]
    assert trace_of(events).events.start_ns.tolist() == [0, 10_500, 20_000, 30_250, 40_000]


# Names by era and vendor


@pytest.mark.parametrize("category", ["cuda_runtime", "cuda_driver", "Runtime"])
def test_launch_calls_of_every_era_are_recognised(category):
    call = {**runtime("cudaLaunchKernel", 0, 5, correlation=3), "cat": category}
    facts = facts_of([step(0, 0, 90), call, kernel("k", 10, 9, correlation=3)])
    assert facts.launches.unlaunched == 0


@pytest.mark.parametrize("key", ["External id", "external id"])
def test_the_external_id_has_two_spellings(key):
    owner, work = op("aten::mul", 0, 5), kernel("k", 10, 9)
    owner["args"] = work["args"] = {key: 4}
    facts = facts_of([owner, work])
    assert facts.launches.operator.tolist() == rows_named(facts.trace, "aten::mul")


@pytest.mark.parametrize("flow", ["ac2g", "async_cpu_to_gpu", "async_gpu", "fwdbwd", "forward_backward"])
def test_flows_of_every_era_are_not_events(flow):
    ends = [{"ph": phase, "id": 3, "pid": 1, "tid": 1, "ts": 2, "cat": flow, "name": flow} for phase in "stf"]
    assert names_of(trace_of([op("a", 0, 9), *ends])) == ["a"]


def _vendor(prefix: str, wait: str, device_type: int) -> list[dict]:
    return [
        event
        for n in range(4)
        for at in [100 * n]
        for event in (
            step(n, at, 100),
            op("aten::mul", at + 1, 20, external=n + 1),
            op("aten::item", at + 30, 60),
            runtime(f"{prefix}LaunchKernel", at + 5, 5, correlation=2 * n + 1),
            kernel("mul", at + 15, 60, correlation=2 * n + 1),
            runtime(wait, at + 31, 55, correlation=2 * n + 2),
            memcpy("Memcpy DtoH (Device -> Pageable)", at + 80, 2, correlation=2 * n + 2, size_bytes=4),
            memory(at + 6, 512, 64, device_type=device_type),
            memory(at + 95, -512, 64, device_type=device_type),
        )
    ]


def test_rocm_is_read_like_cuda():
    cuda = facts_of(_vendor("cuda", "cudaMemcpyAsync", 1))
    rocm = facts_of(_vendor("hip", "hipMemcpyWithStream", 6))
    assert rocm.launches.call.tolist() == cuda.launches.call.tolist()
    assert rocm.waits.rows.tolist() == cuda.waits.rows.tolist()
    assert len(rocm.waits.rows) == 4
    assert rocm.memory.rows.tolist() == cuda.memory.rows.tolist()
    assert rocm.memory.peak_bytes == cuda.memory.peak_bytes == 512
    found = [[(finding.rule, finding.saving) for finding in diagnose(facts).findings] for facts in (rocm, cuda)]
    assert found[0] == found[1]
    assert "host-sync-in-step" in dict(found[0])


# Missing and odd fields


def test_events_may_lack_everything_but_their_time():
    trace = trace_of([{"ph": "X", "ts": 0}, {"ph": "X", "ts": 5, "cat": "kernel"}, {"ph": "X", "ts": 7, "name": "a"}])
    assert trace.events.correlation.tolist() == [NONE] * 3
    assert trace.health == ()
    assert check_recording(Facts(trace))


def test_device_work_without_device_stream_or_correlation_still_counts():
    bare = [{"ph": "X", "cat": "kernel", "name": "k", "ts": 10 * n, "dur": 5} for n in range(3)]
    facts = facts_of([step(0, 0, 90), op("aten::mul", 0, 5), *bare])
    assert facts.device.busy.total_ns == 15_000
    assert facts.launches.unlaunched == 3
    (note,) = check_recording(facts)
    assert note == "no launch is recorded for 3 of 3 GPU events: they cannot be traced back to a line"


def test_memory_events_may_lack_their_totals():
    events = [memory(10, 512, 64, device_type=1), memory(20, -512, 64, device_type=1)]
    facts = facts_of([step(0, 0, 90), op("aten::mul", 0, 5), *events])
    assert (facts.memory.size_bytes.tolist(), facts.memory.peak_bytes) == ([512], 512)


def test_properties_of_devices_may_be_missing_or_nameless():
    assert trace_of([op("a", 0, 1)]).recording.devices == ()
    assert trace_of([op("a", 0, 1)], deviceProperties=[{"id": 0}, None, 7]).recording.devices == ("",)
    assert trace_of([op("a", 0, 1)], deviceProperties="A100", distributedInfo=3).recording.devices == ()


def test_launches_without_any_kernel_get_a_note():
    facts = facts_of([step(0, 0, 90), op("aten::mul", 0, 5), runtime("cudaLaunchKernel", 1, 2, correlation=4)])
    assert not facts.device.present
    (note,) = check_recording(facts)
    assert "1 kernel launch but no kernels" in note


# Order, overlap, sizes


def test_kernels_of_one_stream_may_overlap_and_count_once():
    facts = facts_of([step(0, 0, 90), op("a", 0, 1), kernel("k", 10, 20), kernel("k", 25, 10), kernel("k", 26, 4)])
    assert facts.device.busy.total_ns == 25_000


def test_crossing_slices_of_a_thread_are_cut_and_counted():
    facts = facts_of([op("a", 0, 10), op("b", 5, 10), op("c", 20, 1)])
    assert facts.tree.overlapping == 1
    assert facts.tree.end_ns.tolist() == [10_000, 10_000, 21_000]
    assert any(note.startswith("host events overlap without nesting (1)") for note in check_recording(facts))


def test_all_kernels_of_a_graph_launch_belong_to_its_call_and_operator():
    work = [kernel(f"k{n}", 10 + 5 * n, 4, correlation=7) for n in range(20)]
    facts = facts_of([step(0, 0, 200), op("replay", 0, 8), runtime("cudaGraphLaunch", 1, 5, correlation=7), *work])
    assert facts.launches.call.tolist() == rows_named(facts.trace, "cudaGraphLaunch") * 20
    assert facts.launches.operator.tolist() == rows_named(facts.trace, "replay") * 20


def test_events_in_any_order_read_the_same():
    events = [
        step(0, 0, 100),
        op("aten::mul", 10, 20),
        op("aten::add", 40, 5),
        runtime("cudaLaunchKernel", 12, 3, correlation=2),
        kernel("k", 30, 20, correlation=2),
    ]
    for order in ([4, 3, 2, 1, 0], [2, 0, 4, 1, 3]):
        facts, sorted_facts = facts_of([events[i] for i in order]), facts_of(events)
        assert sorted(names_of(facts.trace)) == sorted(names_of(sorted_facts.trace))
        assert facts.steps.median_ns == 100_000
        assert time_shares(facts) == time_shares(sorted_facts)
        assert replay(facts, Edit()).recorded_ns == replay(sorted_facts, Edit()).recorded_ns


def test_a_very_long_name_is_kept():
    name = "void at::native::" + "vectorized<" * 400 + ">" * 400
    assert names_of(trace_of([kernel(name, 0, 1)])) == [name]


def test_events_of_zero_length_are_kept():
    trace = trace_of([op("a", 0, 0), op("b", 0, 0), kernel("k", 3, 0)])
    assert (len(trace.events), trace.events.duration_ns.tolist(), trace.health) == (3, [0, 0, 0], ())
    assert sum(time_ns for _, time_ns in time_shares(Facts(trace))) == 3_000


def test_a_file_may_contain_more_metadata_than_events():
    metadata = [
        {"ph": "M", "name": "thread_sort_index", "pid": 1, "tid": n, "ts": 0, "args": {"sort_index": n}}
        for n in range(5000)
    ]
    trace = trace_of([*metadata[:2500], op("a", 0, 1), *metadata[2500:], op("b", 1, 1)])
    assert names_of(trace) == ["a", "b"]
    assert len(trace.lanes) == 1


# Reported upstream


@pytest.mark.parametrize("broken", ['f(x="a")', "C:\\temp\\new", 'quote" in, the "middle'])
def test_unescaped_quotes_and_backslashes_lose_at_most_that_event(broken):
    content = json_of([op("before", 0, 1), op("left_right", 2, 1), op("after", 4, 1)])
    trace = trace_of_bytes(content.replace(b"left_right", broken.encode()))
    assert {"before", "after"} <= set(names_of(trace))
    lost = 3 - len(trace.events)
    assert len(trace.health) == lost


def test_an_unquoted_not_available_loses_that_event_with_a_note():
    content = json_of([op("a", 0, 1), kernel("k", 2, 1, correlation=424_242), op("b", 4, 1)])
    trace = trace_of_bytes(content.replace(b"424242", b"N/A"))
    assert names_of(trace) == ["a", "b"]
    assert trace.health[0].startswith("the file is damaged in 1 place, first at byte ")


def test_not_available_as_text_is_a_missing_value():
    event = kernel("k", 2, 1)
    event["args"] = {"correlation": "N/A", "device": "N/A", "stream": "N/A", "bytes": "N/A", "External id": "N/A"}
    trace = trace_of([event])
    assert (trace.events.correlation.tolist(), trace.events.size_bytes.tolist(), trace.health) == ([NONE], [0], ())


@pytest.mark.parametrize("duration", [-1, -5.5, 1.8446744073709552e16, 9e18, "N/A", float("1e30")])
def test_a_kernel_of_an_impossible_duration_keeps_its_start(duration):
    facts = facts_of([step(0, 0, 100), op("a", 0, 5), {**kernel("k", 10, 5), "dur": duration}, kernel("k", 20, 5)])
    assert facts.device.busy.total_ns == 5_000
    assert len(facts.device.work) == 2
    assert facts.trace.health == ("read as instants, because of an impossible duration: 1 event",)


def test_a_kernel_of_seconds_among_those_of_microseconds_gets_a_note():
    calls = [runtime("cudaLaunchKernel", 100 * n, 5, correlation=n + 1) for n in range(40)]
    work = [kernel("k", 100 * n + 10, 5e6 if n == 3 else 50, correlation=n + 1) for n in range(40)]
    facts = facts_of([step(0, 0, 4000), step(1, 4000, 4000), op("a", 0, 5), *calls, *work])
    (note,) = check_recording(facts)
    assert note.startswith("1 GPU event cannot have lasted as long as recorded, by up to 5.00 s")


# Traps for a diagnosis


def test_the_last_wait_of_the_profiler_is_not_counted():
    events = [
        step(0, 0, 90),
        op("aten::mul", 0, 9),
        runtime("cudaLaunchKernel", 1, 2, correlation=3),
        kernel("k", 5, 9, correlation=3),
        runtime("cudaDeviceSynchronize", 95, 50),
    ]
    facts = facts_of(events)
    assert facts.waits.own.tolist() == [True]
    assert not any("waits" in note for note in check_recording(facts))


def test_a_cold_first_step_is_not_measured():
    facts = facts_of([*(step(n, 1000 * n, 1000 if n == 0 else 100) for n in range(5)), op("a", 0, 1)])
    assert (facts.steps.measured_count, facts.steps.median_ns) == (4, 100_000)


def test_slices_of_a_helper_thread_are_not_steps():
    helper = [{**op("tqdm", 0, 9_000), "tid": 99}]
    work = [event for n in range(6) for event in (op("aten::mm", 1000 * n, 500), op("aten::add", 1000 * n + 500, 400))]
    facts = facts_of([*work, *helper, *(step(n, 1000 * n, 950) for n in range(6))])
    assert facts.steps.main_lane != facts.trace.events.lane[rows_named(facts.trace, "tqdm")[0]]
    assert np.isin(facts.trace.events.category, Category.OPERATOR).sum() == 13
