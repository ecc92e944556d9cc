"""The operators as rules look at them: shapes, types, bytes, and which of them the program called."""

from __future__ import annotations

import pytest

from profkit.derive.operators.operators import has_type, item_bytes, parse_dims, parse_types
from tests.traces import annotation, facts_of, kernel, op, python, rows_named, runtime, step


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("[[4, 10], [], [10]]", [[4, 10], [], [10]]),
        ("[[[4], [5, 6]], []]", [[4], [5, 6], []]),
        ("[]", []),
        ("", []),
        ("{}", []),
        ("[1, null, [2.5], [[1], 3]]", [[1]]),
        ("[[true], [3], [[false], [5]]]", [[3], [5]]),
        ("[[4", []),
        ("[" * 100_000, []),
    ],
)
def test_shapes_are_parsed_and_anything_else_is_left_out(text, shapes):
    assert parse_dims(text) == shapes


@pytest.mark.parametrize(
    ("text", "types"),
    [('["float", "", "Scalar"]', ["float", "", "Scalar"]), ("[1]", [""]), ("", []), ('{"a": 1}', []), ('["', [])],
)
def test_types_are_parsed(text, types):
    assert parse_types(text) == types


def test_the_size_of_an_element_follows_from_the_type_name_of_the_profiler():
    names = ["double", "float", "c10::Half", "long int", "bool", "c10::complex<double>", "Scalar"]
    assert [item_bytes(name) for name in names] == [8, 4, 2, 8, 1, 16, 0]


@pytest.mark.parametrize(
    ("dims", "types", "size", "elements"),
    [
        ("[[4, 10], [10]]", '["float", "double"]', 240, 40),
        ("[[4, 10], []]", '["c10::Half", "Scalar"]', 80, 40),
        ("[[[4], [6]], []]", '["TensorList", "Scalar"]', 40, 6),
        ("[[0, 5]]", '["float"]', 0, 0),
        ("[[-3, 5]]", '["float"]', 0, 0),
        (None, None, 0, 0),
        (str([[2**20, 2**20]]), '["double"]', 2**43, 2**40),
        (str([[2**20, 2**20 + 1], [2]]), '["double", "double"]', 16, 2),  # no tensor is that large
        (str([[10**30] * 20] * 3), '["double", "double", "double"]', 0, 0),
        (str([[-3, -5]]), '["float"]', 0, 0),
    ],
)
def test_input_sizes_follow_from_shapes_and_types(dims, types, size, elements):
    facts = facts_of([op("aten::mul", 0, 5, dims=dims, types=types)])
    assert facts.operators.input_bytes[:].tolist() == [size]
    assert facts.operators.elements[:].tolist() == [elements]
    assert facts.operators.has_shapes is (dims is not None)


def test_the_program_called_the_outermost_operators_of_its_thread():
    facts = facts_of(
        [
            step(0, 0, 300),
            annotation("mine", 5, 60),
            op("aten::linear", 10, 40),
            op("aten::addmm", 12, 30),
            runtime("cudaLaunchKernel", 14, 2),
            op("aten::relu", 60, 5),
            op("aten::mm", 70, 5, tid=9),
            op("autograd::engine::evaluate_function: ReluBackward0", 100, 50),
            op("ReluBackward0", 101, 48),
            op("aten::threshold_backward", 102, 40),
        ]
    )
    names = [facts.trace.name_of(row) for row in facts.operators.rows]
    assert names == ["aten::linear", "aten::relu", "autograd::engine::evaluate_function: ReluBackward0"]


def test_operators_in_an_autograd_function_are_called_by_the_program():
    facts = facts_of(
        [
            step(0, 0, 100),
            op("Reversal", 5, 40),
            op("aten::to", 6, 10),
            op("aten::_to_copy", 7, 8),
            op("aten::mul", 20, 10),
            op("detach", 50, 5),
            op("CompiledFunction", 60, 20),
            op("aten::mm", 62, 9),
            op("CompiledFunction", 90, 5),
        ]
    )
    names = [facts.trace.names[code] for code in facts.trace.events.name_code[facts.operators.rows]]
    assert names == ["aten::to", "aten::mul", "detach", "aten::mm", "CompiledFunction"]
    nodes = [facts.trace.names[code] for code in facts.trace.events.name_code[facts.operators.nodes]]
    assert nodes == ["Reversal", "detach", "CompiledFunction", "CompiledFunction"]


def test_frames_inside_an_autograd_function_do_not_hide_its_operators():
    facts = facts_of(
        [
            step(0, 0, 100),
            op("Reversal", 5, 40),
            python("model.py(4): forward", 6, 30),
            op("aten::mul", 20, 10),
        ]
    )
    assert [facts.trace.name_of(row) for row in facts.operators.rows] == ["aten::mul"]


@pytest.mark.parametrize("category", ["cpu_op", "user_annotation"])
def test_operators_inside_a_compiled_region_count_as_called(category):
    graph = {**op("## Call CompiledFxGraph f3a ##", 40, 50), "cat": category}
    facts = facts_of(
        [
            step(0, 0, 100),
            op("TorchDynamo Cache Lookup", 5, 5),
            op("Torch-Compiled Region: 0/0", 12, 80),
            op("Pregraph bytecode", 13, 2),
            op("AOTDispatcher Runtime Wrapper Prologue", 20, 5),
            op("CompiledFunction", 30, 60),
            graph,
            op("triton_poi_fused_gelu_0", 45, 10),
            runtime("cuLaunchKernel", 47, 5, correlation=1),
            op("aten::addmm", 60, 20),
            op("aten::empty", 62, 3),
            kernel("triton_poi_fused_gelu_0", 50, 9, correlation=1),
        ]
    )
    names = [facts.trace.name_of(row) for row in facts.operators.rows]
    assert names == ["triton_poi_fused_gelu_0", "aten::addmm"]
    assert [facts.trace.name_of(row) for row in facts.launches.operator] == ["triton_poi_fused_gelu_0"]


def test_events_with_an_input_of_a_type_are_found():
    facts = facts_of([op("a", 0, 1, types='["double", "float"]'), op("b", 2, 1, types='["float"]'), op("c", 4, 1)])
    assert has_type(facts.trace, "double", "c10::complex<double>").tolist() == [True, False, False]
    assert rows_named(facts.trace, "a") == [0]
