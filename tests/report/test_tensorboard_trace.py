from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from profkit.report.tensorboard_trace import Fields, rewrite_events
from tests.report.gpu_trace import gpu_trace


def rewritten(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    raw = msgspec.json.decode(json.dumps(events).encode(), type=list[Fields])
    value = json.loads(msgspec.json.encode(rewrite_events(raw)))
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


def test_a_loader_becomes_an_operator_and_other_annotations_stay() -> None:
    names = ["enumerate(DataLoader)#x.__next__", "enumerate(DataPipe)#y", "Optimizer.step#SGD.step"]
    events = rewritten([complete("user_annotation", name) for name in names])
    assert [event["cat"] for event in events] == ["cpu_op", "cpu_op", "user_annotation"]


def test_the_shadow_of_a_step_on_the_device_is_no_second_step() -> None:
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


def test_a_collective_owns_its_kernel_also_under_its_newer_names() -> None:
    for recorded, known in (("all_reduce", "all_reduce"), ("_all_gather_base", "all_gather")):
        events = [
            complete("cpu_op", "record_param_comms", 0, 100, **{"External id": 1}),
            complete("user_annotation", f"nccl:{recorded}", 10, 50, **{"External id": 2}),
            complete("cuda_runtime", "launch", 20, 1, correlation=7, **{"External id": 1}),
            complete("kernel", "ncclDevKernel", 30, 9, correlation=7, **{"External id": 1}),
        ]
        assert id_of(rewritten(events), "ncclDevKernel") == 2
        assert rewritten(events)[1]["name"] == f"nccl:{known}"


def test_memory_of_another_maker_s_device_counts_as_the_gpu_s() -> None:
    memory = [{"ph": "i", "name": "[memory]", "ts": 1.0, "args": {"Device Type": kind}} for kind in (0, 1, 6)]
    assert [event["args"]["Device Type"] for event in rewritten(memory)] == [0, 1, 1]


def test_what_the_plugin_takes_for_granted_is_filled() -> None:
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


def test_what_is_not_changed_is_copied_to_the_letter() -> None:
    event = b'{"ph":"X","cat":"cpu_op","name":"a\\u0062","ts":4356367903117.370,"dur":1e1,"args":{"n":1.50}}'
    raw = msgspec.json.decode(b"[" + event + b"]", type=list[Fields])
    assert msgspec.json.encode(rewrite_events(raw)) == b"[" + event + b"]"


def test_a_trace_that_is_right_already_stays_right() -> None:
    once = rewritten(gpu_trace()["traceEvents"])
    assert rewritten(once) == once
