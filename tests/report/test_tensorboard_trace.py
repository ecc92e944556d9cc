"""How the copy of a trace is changed for TensorBoard's plugin."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from profkit.report.tensorboard.rewriting import Fields, Window, rewrite_events
from tests.report.gpu_trace import gpu_trace


def rewritten(events: list[dict[str, Any]], *steps: Window) -> list[dict[str, Any]]:
    raw = msgspec.json.decode(json.dumps(events).encode(), type=list[Fields])
    value = json.loads(msgspec.json.encode(rewrite_events(raw, steps)))
    assert isinstance(value, list)
    return value


def complete(category: str | None, name: str, at: Any = 0.0, duration: Any = 1.0, **arguments: Any) -> dict[str, Any]:
    event = {"ph": "X", "name": name, "pid": 9, "tid": 9, "ts": at, "dur": duration, "args": arguments}
    return event if category is None else {**event, "cat": category}


def id_of(events: list[dict[str, Any]], name: str) -> Any:
    (event,) = (event for event in events if event["name"] == name)
    return event["args"].get("External id")


@pytest.mark.parametrize("category", ["cuda_runtime", "cuda_driver", "xpu_runtime", "Runtime"])
def test_launches_of_every_device_are_runtime(category: str) -> None:
    assert rewritten([complete(category, "launch")])[0]["cat"] == "Runtime"


def test_a_loader_becomes_an_operator_and_other_annotations_are_kept() -> None:
    names = ["enumerate(DataLoader)#x.__next__", "enumerate(DataPipe)#y", "Optimizer.step#SGD.step"]
    events = rewritten([complete("user_annotation", name) for name in names])
    assert [event["cat"] for event in events] == ["cpu_op", "cpu_op", "user_annotation"]


def test_the_device_annotation_of_a_step_is_not_a_second_step() -> None:
    (event,) = rewritten([complete("gpu_user_annotation", "ProfilerStep#1")])
    assert event["cat"] == "gpu_annotation"


def test_links_from_forward_to_backward_keep_their_category() -> None:
    link = {"ph": "s", "id": 1, "pid": 9, "tid": 9, "ts": 1.0, "cat": "fwdbwd", "name": "fwdbwd"}
    assert rewritten([link]) == [link]


def test_profkit_s_own_marks_are_removed() -> None:
    events = [complete("cpu_op", "profkit.line#3"), complete("cpu_op", "profkit.pause"), complete("cpu_op", "mine")]
    assert [event["name"] for event in rewritten(events)] == ["mine"]


def test_a_launch_belongs_to_the_innermost_operator_around_it_on_its_thread() -> None:
    events = [
        complete("cpu_op", "outer", 0, 100, **{"External id": 1}),
        complete("cpu_op", "inner", 10, 20, **{"External id": 2}),
        {**complete("cpu_op", "elsewhere", 10, 20, **{"External id": 3}), "tid": 10},
        complete("cuda_runtime", "in inner", 29, 0, correlation=7),
        complete("cuda_runtime", "in outer", 31, 1, correlation=8, **{"External id": 99}),
        complete("cuda_runtime", "across the end", 95, 10, correlation=9, **{"External id": 1}),
        complete("cuda_runtime", "after", 200, 1, correlation=10),
        complete("kernel", "of inner", 50, 1, correlation=7),
        complete("gpu_memcpy", "of outer", 51, 1, correlation=8, **{"external id": 99}),
        complete("kernel", "of nobody", 52, 1, correlation=11, **{"External id": 5}),
    ]
    result = rewritten(events)
    launched = ("in inner", "in outer", "across the end", "after", "of inner", "of outer", "of nobody")
    assert [id_of(result, name) for name in launched] == [2, 1, 0, 0, 2, 1, 5]


def test_a_collective_owns_its_kernel_under_newer_names_too() -> None:
    for recorded, known in (("all_reduce", "all_reduce"), ("_all_gather_base", "all_gather")):
        events = [
            complete("cpu_op", "record_param_comms", 0, 100, **{"External id": 1}),
            complete("user_annotation", f"nccl:{recorded}", 10, 50, **{"External id": 2}),
            complete("cuda_runtime", "launch", 20, 1, correlation=7, **{"External id": 1}),
            complete("kernel", "ncclDevKernel", 30, 9, correlation=7, **{"External id": 1}),
        ]
        assert id_of(rewritten(events), "ncclDevKernel") == 2
        assert rewritten(events)[1]["name"] == f"nccl:{known}"


def two_steps() -> list[dict[str, Any]]:
    """Steps of 100 µs; each launches a kernel that runs later."""
    events: list[dict[str, Any]] = []
    for number, at in enumerate((0.0, 100.0)):
        events += [
            complete("user_annotation", f"ProfilerStep#{number}", at + 1, 98),
            complete("cpu_op", f"op {number}", at + 10, 50),
            complete("cuda_runtime", f"launch {number}", at + 20, 1, correlation=number + 1),
            {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": at + 11, "args": {"Bytes": number}},
            complete("kernel", f"kernel {number}", at + 150, 10, correlation=number + 1),
        ]
    return events


SECOND = Window(101_000, 199_000, 101_000, measured=True, located=False)


def names_of(events: list[dict[str, Any]]) -> set[str]:
    return {event["name"] for event in events}


def test_the_located_step_is_removed_with_its_launched_work_but_not_its_allocations() -> None:
    events = rewritten(two_steps(), Window(1_000, 99_000, 1_000, measured=False, located=True), SECOND)
    assert names_of(events) == {"ProfilerStep#1", "op 1", "launch 1", "kernel 1", "[memory]"}
    assert [event["args"]["Bytes"] for event in events if event["name"] == "[memory]"] == [0, 1]


def test_recordings_that_were_joined_may_each_count_their_launches_from_one() -> None:
    events = two_steps()
    events += [{**event, "ts": event["ts"] + 1_000} for event in events]
    located = [Window(at + 1_000, at + 99_000, at + 1_000, measured=False, located=True) for at in (0, 100_000)]
    measured = [Window(at + 1_000, at + 99_000, at + 1_000, True, False) for at in (1_000_000, 1_100_000)]
    kept = [event for event in rewritten(events, *located, *measured) if event["cat"] in ("kernel", "Runtime")]
    assert [(event["name"], event["ts"]) for event in kept] == [
        ("launch 0", 1_020),
        ("launch 1", 1_120),
        ("kernel 0", 1_150),
        ("kernel 1", 1_250),
    ]


def test_an_unmeasured_step_is_kept_without_its_mark() -> None:
    steps = Window(1_000, 99_000, 1_000, measured=False, located=False), SECOND
    expected = names_of(two_steps()) - {"ProfilerStep#0"} | {"not measured: ProfilerStep#0"}
    assert names_of(rewritten(two_steps(), *steps)) == expected


def test_located_steps_are_kept_if_there_are_no_others() -> None:
    steps = [Window(at + 1_000, at + 99_000, at + 1_000, measured=True, located=True) for at in (0, 100_000)]
    assert names_of(rewritten(two_steps(), *steps)) == names_of(two_steps())


def test_unmarked_steps_get_marks_on_their_thread() -> None:
    elsewhere = {**complete("cpu_op", "elsewhere", 20), "tid": 10}
    unmarked = [event for event in two_steps() if not event["name"].startswith("ProfilerStep#")]
    events = rewritten([elsewhere, *unmarked], SECOND, Window(1_000, 99_000, 1_000, measured=False, located=False))
    (mark,) = (event for event in events if event["name"].startswith("ProfilerStep#"))
    assert (mark["cat"], mark["ts"], mark["dur"], mark["tid"]) == ("user_annotation", 101, 98, 9)
    assert len(events) == len(unmarked) + 2


BUSY = "busy until here with what was not recorded"


def test_the_mark_of_a_first_step_begins_after_unrecorded_earlier_work() -> None:
    events = rewritten(two_steps(), Window(1_000, 99_000, 140_000, measured=True, located=False))
    (mark,) = (event for event in events if event["name"] == BUSY)
    assert (mark["cat"], mark["ts"], mark["dur"]) == ("gpu_memset", 140, 0)
    at_the_kernel = rewritten(two_steps(), Window(1_000, 99_000, 150_000, measured=True, located=False))
    assert [event["ts"] for event in at_the_kernel if event["name"] == BUSY] == [149.5]
    assert BUSY not in names_of(rewritten(two_steps(), Window(1_000, 99_000, 1_000, measured=True, located=False)))


def test_earlier_work_is_removed_if_the_first_step_had_begun() -> None:
    before = [complete("kernel", name, at, 5, correlation=77) for name, at in (("early", 20), ("late", 100))]
    events = rewritten(before + two_steps(), Window(1_000, 99_000, 30_000, measured=True, located=False))
    assert names_of(events) >= {"early", "kernel 0", "kernel 1"}
    assert "late" not in names_of(events)


def test_device_work_without_a_time_is_removed_and_an_operator_at_zero_kept() -> None:
    events = [complete(category, category, 0.0, 0.0) for category in ("kernel", "cuda_runtime", "cpu_op")]
    assert names_of(rewritten(events)) == {"cpu_op"}


def test_memory_of_any_kind_of_device_counts_as_gpu_memory() -> None:
    memory = [{"ph": "i", "name": "[memory]", "ts": 1.0, "args": {"Device Type": kind}} for kind in (0, 1, 6)]
    assert [event["args"]["Device Type"] for event in rewritten(memory)] == [0, 1, 1]


def test_fields_that_the_plugin_requires_are_filled() -> None:
    events = [
        complete(None, "no category"),
        complete("cpu_op", "text", "12.5", "3"),
        complete("cpu_op", "unfinished", 1.0, -1),
        complete("cpu_op", "no duration", 1.0, None),
        {"ph": "M", "args": {}},
    ]
    assert [(e["name"], e.get("cat"), e.get("ts"), e.get("dur")) for e in rewritten(events)] == [
        ("no category", "", 0.0, 1.0),
        ("text", "cpu_op", 12.5, 3.0),
        ("unfinished", "cpu_op", 1.0, 0.0),
        ("no duration", "cpu_op", 1.0, 0.0),
        ("", None, None, None),
    ]


@pytest.mark.parametrize("at", [None, "x", "nan", [], {}])
def test_an_event_without_a_time_is_left_out(at: Any) -> None:
    assert rewritten([complete("kernel", "when", at)]) == []


def test_unchanged_events_are_copied_literally() -> None:
    event = b'{"ph":"X","cat":"cpu_op","name":"a\\u0062","ts":4356367903117.370,"dur":1e1,"args":{"n":1.50}}'
    raw = msgspec.json.decode(b"[" + event + b"]", type=list[Fields])
    assert msgspec.json.encode(rewrite_events(raw)) == b"[" + event + b"]"


def test_a_correct_trace_stays_correct() -> None:
    once = rewritten(gpu_trace()["traceEvents"])
    assert rewritten(once) == once
