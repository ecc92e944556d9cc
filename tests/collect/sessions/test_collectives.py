"""What a light recording keeps of a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from profkit.collect.sessions.collectives import reduce_to_collectives


def event(name: str, cat: str = "cpu_op", correlation: int | None = None) -> dict[str, Any]:
    arguments = {} if correlation is None else {"correlation": correlation}
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": 1.5, "dur": 2, "args": arguments}


THREAD = {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "python"}}
END = {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 9.0}
ARROW = {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 7, "pid": 1, "tid": 1, "ts": 1.5}
KEPT = [
    THREAD,
    event("ProfilerStep#3", "user_annotation"),
    event("c10d::allreduce_"),
    event("record_param_comms"),
    event("gloo:all_reduce", "user_annotation"),
    event("nccl:all_reduce", "gpu_user_annotation"),
    event("cudaLaunchKernelExC", "cuda_runtime", 12),
    event("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "kernel", 12),
    END,
]
LEFT_OUT = [
    event("aten::mm"),
    event("my_c10d::allreduce_"),
    event("volta_sgemm_128x64_nn", "kernel", 13),
    event("cudaLaunchKernel", "cuda_runtime", 13),
    event("[memory]", "cpu_instant_event"),
    ARROW,
]


def reduce_text(text: str, directory: Path) -> str:
    path = directory / "trace"
    path.write_text(text)
    with path.open("rb") as trace, reduce_to_collectives(trace, directory) as reduced:
        reduced.seek(0)
        return reduced.read().decode()


def trace_of(events: list[dict[str, Any]]) -> str:
    body = ",\n".join(json.dumps(one) for one in events)
    return f'{{\n "schemaVersion": 1,\n "traceEvents": [\n{body}\n ],"traceName": "a" }}'


def test_only_collectives_and_steps_are_kept(tmp_path):
    events = [THREAD, *LEFT_OUT[:3], *KEPT[1:-1], *LEFT_OUT[3:], END]
    reduced = json.loads(reduce_text(trace_of(events), tmp_path))
    assert reduced == {"schemaVersion": 1, "traceEvents": KEPT, "traceName": "a"}
    assert [path.name for path in tmp_path.iterdir()] == ["trace"]


def test_a_trace_without_collectives_keeps_its_steps(tmp_path):
    reduced = json.loads(reduce_text(trace_of([KEPT[1], *LEFT_OUT, END]), tmp_path))
    assert reduced["traceEvents"] == [KEPT[1], END]


@pytest.mark.parametrize("broken", ['"ts": nan', '"ts": 1, "name": "a\\qb"'])
def test_a_trace_that_cannot_be_parsed_is_kept_whole(tmp_path, broken):
    text = trace_of([THREAD, END]).replace('"pid": 1, "tid": 1', broken, 1)
    assert reduce_text(text, tmp_path) == text
