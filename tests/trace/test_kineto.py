"""The reader of Kineto traces, on files of every era."""

from __future__ import annotations

import dataclasses
import gzip
import json
from unittest.mock import patch

import msgspec
import pytest

from profkit.trace import containers
from profkit.trace.events import NONE, Category
from profkit.trace.kineto.event_text import EventText
from tests.traces import (
    annotation,
    device_sync,
    facts_of,
    json_of,
    kernel,
    mark,
    memcpy,
    memory,
    memset,
    op,
    pause,
    python,
    rows_named,
    runtime,
    step,
    thread_name,
    trace_of,
    trace_of_bytes,
)

EVENTS = [
    step(3, 0, 100),
    op("aten::mul", 10, 20.5, dims="[[4],[4]]", types='["float","float"]', sequence=5, external=7),
    kernel("multiply", 22, 6, correlation=9, external=7),
]


def test_every_kind_of_event_gets_its_category():
    trace = trace_of(
        [
            op("aten::mul", 0, 1),
            annotation("mine", 1, 1),
            python("train.py(1): main", 2, 1),
            runtime("cudaLaunchKernel", 3, 1),
            kernel("sgemm", 4, 1),
            memcpy("Memcpy DtoD", 5, 1),
            memset(6, 1),
            memory(7, 512, 4096),
            mark(12, 8, 1),
            pause(9, 1),
            op("Torch-Compiled Region: 0/0", 10, 1),
        ]
    )
    kinds = {trace.name_of(row): Category(trace.events.category[row]) for row in range(len(trace.events))}
    assert kinds == {
        "aten::mul": Category.OPERATOR,
        "mine": Category.ANNOTATION,
        "train.py(1): main": Category.PYTHON,
        "cudaLaunchKernel": Category.RUNTIME,
        "sgemm": Category.KERNEL,
        "Memcpy DtoD": Category.MEMCPY,
        "Memset (Device)": Category.MEMSET,
        "[memory]": Category.MEMORY,
        "profkit.line#12": Category.LINE_MARK,
        "profkit.pause": Category.PAUSE,
        "Torch-Compiled Region: 0/0": Category.COMPILED_CODE,
    }


def test_the_columns_hold_what_the_arguments_say():
    trace = trace_of(EVENTS)
    events, (row,), (work,) = trace.events, rows_named(trace, "aten::mul"), rows_named(trace, "multiply")
    assert (events.start_ns[row], events.duration_ns[row]) == (10_000, 20_500)
    assert (events.sequence[row], events.external[row], events.correlation[row]) == (5, 7, NONE)
    assert trace.text_of(events.dims_code[row]) == "[[4], [4]]"
    assert trace.text_of(events.types_code[row]) == '["float", "float"]'
    assert trace.text_of(events.concrete_code[row]) == ""
    assert (events.correlation[work], events.external[work]) == (9, 7)
    assert trace.lanes[events.lane[work]].on_device
    assert not trace.lanes[events.lane[row]].on_device


def test_categories_named_as_in_2021_are_read():
    era = [
        {
            "ph": "X",
            "cat": "Operator",
            "name": "aten::mul",
            "pid": 5,
            "tid": "5",
            "ts": 100,
            "dur": 10,
            "args": {"Input dims": [[4], [4]], "external id": 3},
        },
        {"ph": "X", "cat": "Operator", "name": "ProfilerStep#1", "pid": 5, "tid": "5", "ts": 90, "dur": 40, "args": {}},
        {
            "ph": "X",
            "cat": "Runtime",
            "name": "cudaLaunchKernel",
            "pid": 5,
            "tid": "5",
            "ts": 104,
            "dur": 2,
            "args": {"correlation": 8, "external id": 3},
        },
        {
            "ph": "X",
            "cat": "Kernel",
            "name": "multiply",
            "pid": 0,
            "tid": "stream 7",
            "ts": 108,
            "dur": 4,
            "args": {"correlation": 8, "external id": 3},
        },
        {
            "ph": "X",
            "cat": "Memcpy",
            "name": "Memcpy HtoD",
            "pid": 0,
            "tid": "stream 7",
            "ts": 115,
            "dur": 4,
            "args": {"bytes": 640},
        },
        {"ph": "X", "cat": "Memset", "name": "Memset", "pid": 0, "tid": "stream 7", "ts": 120, "dur": 1, "args": {}},
        {
            "ph": "i",
            "cat": "Memory",
            "name": "[memory]",
            "pid": 5,
            "tid": 5,
            "ts": 105,
            "args": {"Bytes": 512, "Addr": 64, "Device Type": 1},
        },
    ]
    trace = trace_of(era)
    events = trace.events
    kinds = {trace.name_of(row): Category(events.category[row]) for row in range(len(events))}
    assert kinds["aten::mul"] == Category.OPERATOR
    assert kinds["ProfilerStep#1"] == Category.ANNOTATION
    assert kinds["cudaLaunchKernel"] == Category.RUNTIME
    assert kinds["multiply"] == Category.KERNEL
    assert kinds["Memcpy HtoD"] == Category.MEMCPY
    assert kinds["Memset"] == Category.MEMSET
    assert kinds["[memory]"] == Category.MEMORY
    (row,) = rows_named(trace, "aten::mul")
    assert (trace.text_of(events.dims_code[row]), events.external[row]) == ("[[4], [4]]", 3)
    assert events.size_bytes[rows_named(trace, "Memcpy HtoD")] == [640]
    assert (events.size_bytes, events.device_type)[0][rows_named(trace, "[memory]")] == [512]


@pytest.mark.parametrize("indent", [None, 0, 1, 4, "\t", "\r\n"])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,\n", " : ")])
def test_any_layout_reads_the_same(indent, separators):
    content = json.dumps({"schemaVersion": 1, "traceEvents": EVENTS}, indent=indent, separators=separators).encode()
    with patch.object(containers, "PIECE_BYTES", 1):
        _assert_reads_events(content)


def _assert_reads_events(content: bytes) -> None:
    trace = trace_of_bytes(content)
    found = [(trace.name_of(i), int(trace.events.start_ns[i]), int(trace.events.duration_ns[i])) for i in range(3)]
    assert found == [("ProfilerStep#3", 0, 100_000), ("aten::mul", 10_000, 20_500), ("multiply", 22_000, 6_000)]
    assert len(trace.events) == 3
    assert trace.health == ()


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(EVENTS).encode(),
        json.dumps(EVENTS, indent=2).encode(),
        b"\xef\xbb\xbf" + json_of(EVENTS),
        b"\r\n\n" + json_of(EVENTS) + b"\n\n",
        gzip.compress(json_of(EVENTS)),
        gzip.compress(json_of(EVENTS)) + b"\0" * 512,
        gzip.compress(json_of(EVENTS)[:100]) + gzip.compress(b"") + gzip.compress(json_of(EVENTS)[100:]),
        b"".join(gzip.compress(json_of(EVENTS)[i : i + 1]) for i in range(len(json_of(EVENTS)))),
    ],
    ids=["array", "indented array", "BOM", "blank first line", "gzip", "padded gzip", "members", "a member a byte"],
)
def test_any_wrapping_reads_the_same(content):
    _assert_reads_events(content)


@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_keys_may_come_before_and_after_the_events(chunk_bytes, separators):
    document = {
        "deviceProperties": [{"id": 0, "name": "NVIDIA A100"}, {"id": 1, "name": "NVIDIA A100"}],
        "record_shapes": 1,
        "traceEvents": EVENTS,
        "with_stack": 0,
        "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8, "pg": [{"a": 1}, {"b": 2}]},
        "traceName": "trace.json",
    }
    content = json.dumps(document, separators=separators).encode()
    with patch.object(containers, "PIECE_BYTES", chunk_bytes):
        recording = trace_of_bytes(content).recording
        _assert_reads_events(content)
    assert recording.devices == ("NVIDIA A100", "NVIDIA A100")
    assert (recording.has_shapes, recording.has_stacks, recording.has_memory) == (True, False, None)
    assert (recording.rank, recording.ranks) == (3, 8)


@pytest.mark.parametrize("value", [-3, True, 3.5, "3", None, 10**9, 10**30, [3]])
def test_an_impossible_rank_is_ignored(value):
    recording = trace_of([op("a", 0, 1)], distributedInfo={"rank": value, "world_size": value}).recording
    assert (recording.rank, recording.ranks) == (None, None)


@pytest.mark.parametrize(("moment", "base_ns"), [(2**70, 0), (True, 0), ("5", 0), (10**18, 10**18), (-9, -9)])
def test_times_count_from_1970_if_the_base_time_is_impossible(moment, base_ns):
    assert trace_of([op("a", 0, 1)], baseTimeNanoseconds=moment).base_ns == base_ns


def test_a_file_with_an_unreadable_middle_has_gaps():
    whole = json.dumps({"traceEvents": [op("a", at, 1) for at in range(100)]}).encode()
    broken = whole[:3000] + b"\0" * 500 + whole[3500:]
    assert [trace_of_bytes(content).recording.has_gaps for content in (whole, broken)] == [False, True]


def test_a_list_with_another_key_is_not_taken_for_the_events():
    other = [op("a", 0, 1), op("b", 1, 1)]
    _assert_reads_events(json.dumps({"kind": "traceEvents", "other": other, "traceEvents": EVENTS}).encode())
    separators = (",", ":")
    document = {"kind": "traceEvents", "other": other, "traceEvents": [op("c", 5, 1)]}
    trace = trace_of_bytes(json.dumps(document, separators=separators).encode())
    assert [trace.name_of(row) for row in range(len(trace.events))] == ["c"]
    _assert_reads_events(json.dumps({"inner": {"traceEvents": other}, "traceEvents": EVENTS}).encode())


def test_flows_counters_and_metadata_are_not_events():
    extra = [
        {"ph": "f", "id": 9, "pid": 0, "tid": 7, "ts": 22, "cat": "ac2g", "name": "ac2g", "bp": "e"},
        {"ph": "M", "name": "process_sort_index", "pid": 1, "tid": 0, "ts": 0, "args": {"sort_index": 5}},
        {"ph": "C", "name": "GPU 0 Utilization", "pid": 0, "ts": 3, "args": {"GPU": 0.5}},
        {},
    ]
    _assert_reads_events(json_of([*extra, *EVENTS]))


def test_lanes_carry_the_names_of_their_threads():
    process = {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": {"name": "GPU 0"}}
    trace = trace_of([thread_name(1, "thread 1 (python)"), process, *EVENTS, op("x", 0, 1, tid=2)])
    assert [lane.label for lane in trace.lanes] == ["thread 1 (python)", "GPU 0", ""]


def test_a_stream_and_a_thread_with_the_same_number_are_two_lanes():
    trace = trace_of([op("aten::mul", 0, 10, tid=7), {**kernel("multiply", 4, 8, stream=7), "pid": 1}])
    assert [lane.on_device for lane in trace.lanes] == [False, True]


def test_synchronisations_recorded_by_cupti_lie_on_streams_and_are_not_work():
    facts = facts_of(
        [
            op("aten::mul", 0, 20),
            runtime("cudaLaunchKernel", 2, 1, correlation=4),
            kernel("multiply", 10, 8, correlation=4),
            runtime("cudaStreamWaitEvent", 4, 1, correlation=5),
            device_sync("Stream Wait Event", 4, 1, correlation=5, stream=20),
            runtime("cudaDeviceSynchronize", 6, 14, correlation=6),
            device_sync("Context Sync", 7, 13, correlation=6, stream=-1),
        ]
    )
    trace = facts.trace
    rows = rows_named(trace, "Stream Wait Event", "Context Sync")
    assert [Category(trace.events.category[row]) for row in rows] == [Category.DEVICE_SYNC] * 2
    assert [trace.lanes[trace.events.lane[row]].thread for row in rows] == ["20", "-1"]
    assert all(trace.lanes[trace.events.lane[row]].on_device for row in rows)
    assert facts.device.busy.total_ns == 8_000
    assert facts.device.work.tolist() == rows_named(trace, "multiply")


@pytest.mark.parametrize("thread", ["main", -17, 2**40, 2**70, None, 1.5])
def test_threads_may_have_any_number_or_name(thread):
    trace = trace_of([{**op("a", 0, 1), "tid": thread, "pid": "trainer"}, op("b", 0, 1)])
    assert [(lane.process, lane.thread) for lane in trace.lanes] == [("trainer", str(thread)), ("1", "1")]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(5, 5), ("5", 5), (5.0, 5), (10**30, NONE), (10**400, NONE), ("x", NONE), (None, NONE), ("0x7f00", 0x7F00)],
)
def test_ids_may_be_numbers_or_text_but_must_be_64_bit_integers(value, expected):
    event = op("a", 0, 1)
    event["args"] = {"correlation": value, "Addr": value, "External id": value, "Sequence number": value}
    events = trace_of([event]).events
    assert (events.correlation[0], events.address[0], events.external[0], events.sequence[0]) == (expected,) * 4


def test_an_integer_with_thousands_of_digits_counts_as_missing():
    content = json_of([op("a", 0, 1, external=123_456_789)]).replace(b"123456789", b"9" * 5000)
    assert trace_of_bytes(content).events.external[0] == NONE


def test_arguments_of_the_wrong_type_count_as_missing():
    trace = trace_of(
        [
            {**op("a", 0, 1), "args": {"External id": [1], "bytes": {}, "correlation": True}},
            {**op("b", 2, 1), "args": [3]},
            {**op("c", 4, 1), "args": None},
        ]
    )
    assert [trace.name_of(row) for row in range(3)] == ["a", "b", "c"]
    assert trace.events.external.tolist() == [NONE, NONE, NONE]


def test_a_device_type_beyond_the_known_ones_is_not_the_host():
    assert trace_of([memory(0, 8, 64, device_type=256)]).events.device_type[0] == 127


@pytest.mark.parametrize("name", ["a\x01b\tc\nd", "},{", '"},\n  {"', "\\", "ядро", "f<{lambda()#1},{lambda()#2}>"])
def test_names_are_kept_unchanged(name):
    assert rows_named(trace_of([op(name, 0, 1), op("b", 1, 1)]), name) == [0]


def test_unescaped_control_characters_in_names_are_read():
    content = json_of([op("left_right", 0, 1)]).replace(b"left_right", b"left\x01\n\tright")
    assert trace_of_bytes(content).name_of(0) == "left\x01\n\tright"


def test_bytes_that_are_not_utf8_are_replaced():
    content = json_of([op("left_right", 0, 1)]).replace(b"left_right", b"left\xff\xc3right")
    assert trace_of_bytes(content).name_of(0) == "left��right"


def test_lone_surrogates_are_replaced_so_that_reports_can_be_encoded():
    content = json_of([op("left_right", 0, 1)]).replace(b"left_right", b"left\\ud800right")
    trace = trace_of_bytes(content)
    assert trace.name_of(0) == "left?right"


@pytest.mark.parametrize(
    "other", [b'"\\ud800": 1', b'"deviceProperties": [{"name": "A\\ud800"}]', b'"deviceProperties": ["\xed\xa0"]']
)
def test_lone_surrogates_beside_the_events_are_replaced_too(other):
    content = json_of([op("a", 0, 1)])
    for whole in (content[:-1] + b", " + other + b"}", b"{" + other + b", " + content[1:]):
        trace = trace_of_bytes(whole)
        assert len(trace.events) == 1
        "".join(trace.recording.devices).encode()


def test_damage_costs_no_more_for_many_events(monkeypatch):
    """What is read event by event asks for the fields once."""
    asked = []
    fields = msgspec.structs.fields
    monkeypatch.setattr(msgspec.structs, "fields", lambda kind: asked.append(kind) or fields(kind))
    events = [{**op(f"a{i}", i, 1), "dur": [1]} for i in range(50)]
    assert len(trace_of_bytes(json_of(events)).events) == 50
    assert len(asked) <= 1


@pytest.mark.parametrize(
    "name", ["profkit.line#", "profkit.line#-1", "profkit.line#1x", "profkit.line#²", "profkit.line#123456789"]
)
def test_a_name_that_only_resembles_a_line_mark_is_an_annotation(name):
    trace = trace_of([annotation(name, 0, 1)])
    assert (trace.events.category[0], trace.events.site[0]) == (Category.ANNOTATION, NONE)


def test_events_are_sorted_by_lane_start_and_falling_length():
    trace = trace_of([op("late", 5, 1), op("short", 0, 2), op("long", 0, 9), op("other", 0, 1, tid=2)])
    assert [trace.name_of(row) for row in range(4)] == ["long", "short", "late", "other"]


def test_plain_files_are_read_the_fast_way():
    with patch.object(EventText, "_read_singly", side_effect=AssertionError("the slow way")):
        with patch.object(containers, "PIECE_BYTES", 100):
            _assert_reads_events(gzip.compress(json_of(EVENTS)))
        _assert_reads_events(json.dumps({"traceEvents": EVENTS}, separators=(",", ":")).encode())
        _assert_reads_events(json.dumps(EVENTS, indent=1).encode())


def test_empty_columns_are_as_long_as_the_others_if_events_are_left_out():
    never_ran = {**kernel("lost", 0, 0, correlation=1), "ts": 0.0, "dur": 0.0}
    events = trace_of([op("aten::relu", 100, 10), kernel("relu", 105, 5, correlation=2), never_ran]).events
    columns = [getattr(events, column.name) for column in dataclasses.fields(events)]
    assert [len(column) for column in columns] == [2] * len(columns)


def test_memory_events_have_their_device_and_its_totals():
    """Reserved memory of the host is pinned memory."""
    trace = trace_of(
        [
            memory(0, 64, 1, device_type=1, device=2, held=640, reserved=2_048),
            memory(1, 8, 2, held=8, reserved=4_096),
            memory(2, -64, 1, device_type=1, device=2, held=576, reserved=1_024),
            memory(3, 64, 1, device_type=6, device=0, reserved=512),
            op("aten::mul", 4, 1),
        ]
    )
    assert trace.events.device.tolist() == [2, NONE, 2, 0, NONE]
    assert trace.events.held_bytes.tolist() == [640, 8, 576, NONE, NONE]
    assert trace.recording.reserved_bytes == ((0, 512), (2, 2_048))


@pytest.mark.parametrize("odd", ["12", "x", None, 1e300, 2**70, -5, True, [1]])
def test_odd_totals_and_devices_are_read(odd):
    event = memory(0, 64, 1, device_type=1)
    event["args"] |= {"Total Allocated": odd, "Total Reserved": odd, "Device Id": odd}
    trace = trace_of([event, op("aten::mul", 1, 1)])
    assert len(trace.events) == 2
    assert -1 <= int(trace.events.device[0]) <= 127


def test_totals_of_a_device_without_a_number_are_read():
    event = memory(0, 64, 1, device_type=1, reserved=512)
    del event["args"]["Device Id"]
    assert trace_of([event]).recording.reserved_bytes == ((NONE, 512),)
