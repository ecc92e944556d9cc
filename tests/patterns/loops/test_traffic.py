"""The elements and bytes of elementwise operators, and which operators are elementwise at all."""

from __future__ import annotations

import numpy as np
import pytest

from profkit.patterns.loops.traffic import measure_traffic, tell_elementwise
from tests.traces import facts_of, memcpy, op, runtime, trace_of


def traffic_of(name: str, dims: object, types: object) -> tuple[int, int, int]:
    traffic = measure_traffic(trace_of([op(name, 0, 1, dims=dims, types=types)]), np.array([0]))
    return int(traffic.elements[0]), int(traffic.read_bytes[0]), int(traffic.written_bytes[0])


@pytest.mark.parametrize(
    ("name", "dims", "types", "expected"),
    [
        ("aten::mul", [[4, 5], []], ["float", "Scalar"], (20, 80, 80)),
        ("aten::add", [[4, 1], [1, 5], []], ["float", "double", "Scalar"], (20, 4 * 4 + 5 * 8, 20 * 8)),
        ("aten::gt", [[4, 5], [4, 5]], ["c10::Half", "c10::Half"], (20, 80, 20)),
        ("aten::where", [[20], [20], [20]], ["bool", "float", "float"], (20, 180, 80)),
        ("aten::add", [[4], [5]], ["float", "float"], (0, 36, 0)),
        ("aten::mul", [[], []], ["float", "float"], (0, 0, 0)),
        ("aten::mul", [[4]], None, (4, 16, 16)),
    ],
    ids=["a scalar", "broadcasting", "a comparison writes bools", "three inputs", "no fit", "numbers", "no types"],
)
def test_an_operator_reads_its_inputs_and_writes_their_broadcast(name, dims, types, expected):
    assert traffic_of(name, dims, types) == expected


def test_without_rows_there_is_no_traffic():
    assert measure_traffic(trace_of([op("aten::mul", 0, 1)]), np.array([], dtype=np.int64)).elements.tolist() == []


def test_whether_a_view_copies_or_a_cast_converts_follows_from_what_runs_inside():
    events = [
        op("aten::reshape", 0, 9),
        op("aten::clone", 1, 7),
        op("aten::reshape", 10, 9),
        op("aten::to", 20, 9),
        op("aten::_to_copy", 21, 7),
        op("aten::to", 30, 9),
        op("aten::tanh", 40, 9),
        op("aten::mm", 50, 9),
    ]
    facts = facts_of(events)
    elementwise, idle = tell_elementwise(facts, facts.operators.rows)
    assert elementwise.tolist() == [False, False, True, False, True, False]
    assert idle.tolist() == [False, True, False, True, False, False]


def test_a_copy_between_devices_is_neither_a_view_nor_a_cast():
    events = [
        op("aten::to", 0, 9),
        op("aten::_to_copy", 1, 7),
        runtime("cudaMemcpyAsync", 2, 3, correlation=1),
        memcpy("Memcpy HtoD (Pageable -> Device)", 6, 3, correlation=1),
    ]
    facts = facts_of(events)
    elementwise, idle = tell_elementwise(facts, facts.operators.rows)
    assert (elementwise.tolist(), idle.tolist()) == ([False], [False])
