"""The arguments of kernels and calls of collectives."""

from __future__ import annotations

import json
from typing import Any

import pytest

from profkit.trace.collectives import CollectiveArguments, read_arguments
from profkit.trace.events import Trace
from profkit.trace.kineto.chunks import ChunkDecoder
from tests.traces import json_of, kernel, op, trace_of, trace_of_bytes

Json = dict[str, Any]
SAID = {
    "Collective name": "allreduce",
    "In msg nelems": 2049000,
    "Out msg nelems": 2049000,
    "dtype": "Float",
    "Process Group Name": "0",
    "Process Group Description": "default_pg",
    "Process Group Ranks": "[0, 1]",
    "Group size": 2,
    "Global rank start": 0,
    "Global rank stride": 1,
    "Seq": 7,
}
KNOWN = CollectiveArguments("allreduce", 2049000, "Float", "0", 2, "[0, 1]", "default_pg", 0, 1, 7)


def with_arguments(event: Json, **more: Any) -> Json:
    return {**event, "args": {**event["args"], **SAID, **more}}


def said_in(trace: Trace) -> list[CollectiveArguments]:
    return [read_arguments(trace.texts[code]) for code in trace.events.collective_code.tolist() if code >= 0]


def test_kernels_and_calls_describe_their_collective():
    events = [
        with_arguments(op("record_param_comms", 0, 5, external=1)),
        op("aten::mm", 6, 1),
        with_arguments(kernel("ncclDevKernel_AllReduce", 9, 3, correlation=4), Seq=8),
    ]
    assert said_in(trace_of(events)) == [KNOWN, CollectiveArguments(*list(vars_of(KNOWN))[:9], 8)]


def vars_of(one: CollectiveArguments) -> tuple[Any, ...]:
    return tuple(getattr(one, name) for name in one.__struct_fields__)


def test_a_trace_without_collectives_has_a_column_of_no_size():
    trace = trace_of([op("aten::mm", 0, 1)])
    assert trace.events.collective_code.tolist() == [-1]
    assert trace.events.collective_code.strides == (0,)


def test_arguments_of_left_out_events_are_not_mixed_up():
    """The look-up in the text finds more events than are kept, so it must match them by id."""
    events = [
        with_arguments({**kernel("nccl", at, 3, correlation=at), "ph": phase}, Seq=at)
        for at, phase in ((1, "B"), (2, "X"), (3, "i"), (4, "X"))
    ]
    assert [one.sequence for one in said_in(trace_of(events))] == [2, 4]


def test_arguments_that_only_the_python_parser_reads_give_the_same():
    content = json_of([with_arguments(op("record_param_comms", 0, 5, external=1)), op("aten::mm", 6, 1)])
    broken = content.replace(b'"dur": 1,', b'"dur": 1, "bad": "\x01",')
    assert said_in(trace_of_bytes(broken)) == [KNOWN]


@pytest.mark.parametrize("value", ["}{", {"a": 1}, [1], 3, None, "\ud800", "x" * 20_000])
def test_any_other_value_leaves_the_events_intact(value: object):
    call = op("record_param_comms", 0, 5, external=1)
    trace = trace_of([with_arguments(call, **{"Process Group Description": value}), op("aten::mm", 6, 1)])
    assert len(trace.events) == 2
    assert said_in(trace)[0].operation == "allreduce"


def test_a_trace_read_in_chunks_gives_the_same():
    events = [with_arguments(op("record_param_comms", at, 1, external=at), Seq=at) for at in range(1, 5)]
    chunk = ChunkDecoder().decode(json.dumps(events).encode())
    assert [read_arguments(text.decode()).sequence for text in chunk.new_texts] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("ranks", "size", "first", "stride", "members"),
    [
        ("[0, 1]", 2, 0, 1, (0, 1)),
        ("[3]", -1, -1, -1, (3,)),
        ("[0, 8, 16, ...]", 4, 0, 8, (0, 8, 16, 24)),
        ("[0, 1, 5, ...]", 64, 0, -1, None),
        ("[0, 8, 16, ..., 504]", 64, -1, -1, tuple(range(0, 512, 8))),
        ("[0, 8, 16, ..., 500]", 64, -1, -1, None),
        ("[0, 1, 5, ..., 63]", 64, -1, -1, None),
        ("[0, 1, ..., 63]", -1, -1, -1, None),
        ("", 3, 2, 1, (2, 3, 4)),
        ("[0, 1]", 3, -1, -1, None),
        ("", 10**9, 0, 1, None),
    ],
)
def test_the_members_of_a_group_are_listed_or_given_by_a_stride(ranks, size, first, stride, members):
    more = CollectiveArguments(ranks=ranks, size=size, first_rank=first, rank_stride=stride)
    assert more.members == members


def test_any_other_text_gives_no_group():
    assert read_arguments('{"a": 1}') == CollectiveArguments()
