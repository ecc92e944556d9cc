"""How large the inputs of a step are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from profkit.derive.launch.table import Inputs
from profkit.patterns.ranks.inputs import measure_inputs
from tests.traces import annotation, facts_of, memory, op, step

Json = dict[str, Any]


def inputs_of(events: list[Json]) -> Inputs:
    facts = facts_of(events)
    return measure_inputs(facts, np.arange(len(facts.steps)))


@pytest.mark.parametrize(
    ("name", "dims", "elements"),
    [
        ("aten::linear", [[8, 100], [50, 100], [50]], 800),
        ("aten::addmm", [[50], [8, 100], [100, 50]], 800),
        ("aten::embedding", [[30_000, 64], [4, 16]], 64),
        ("aten::scaled_dot_product_attention", [[2, 4, 16, 8], [2, 4, 16, 8], [2, 4, 16, 8]], 1024),
    ],
)
def test_what_an_operator_takes_in_besides_the_weights_counts(name, dims, elements):
    found = inputs_of([step(0, 0, 100), op(name, 10, 20, dims=dims), op("aten::relu", 40, 20, dims=[[999]])])
    assert (found.operators.tolist(), found.elements.tolist()) == ([1], [elements])
    assert found.allocated_bytes.tolist() == [-1]


def test_what_the_backward_pass_multiplies_is_not_the_input():
    node = "autograd::engine::evaluate_function: MmBackward0"
    found = inputs_of(
        [
            step(0, 0, 100),
            op("aten::mm", 10, 20, dims=[[8, 100], [100, 50]], sequence=7),
            op(node, 40, 20, sequence=7),
            op("aten::mm", 42, 10, dims=[[100, 8], [8, 50]]),
        ]
    )
    assert (found.operators.tolist(), found.elements.tolist()) == ([1], [800])


def test_a_product_inside_another_and_the_optimizers_count_once_or_not_at_all():
    dims = [[8, 100], [100, 50]]
    found = inputs_of(
        [
            step(0, 0, 100),
            op("aten::linear", 10, 20, dims=dims),
            op("aten::mm", 12, 10, dims=dims),
            annotation("Optimizer.step#Muon.step", 50, 40),
            op("aten::mm", 60, 10, dims=dims),
        ]
    )
    assert (found.operators.tolist(), found.elements.tolist()) == ([1], [800])


def test_without_shapes_what_the_operators_allocate_counts():
    found = inputs_of(
        [
            step(0, 0, 100),
            op("aten::linear", 10, 20),
            memory(15, 4000, 1),
            op("aten::relu", 40, 20),
            memory(45, 4000, 2),
            step(1, 100, 100),
            op("aten::linear", 110, 20),
            memory(115, 8000, 3),
        ]
    )
    assert (found.elements.tolist(), found.allocated_bytes.tolist()) == ([-1, -1], [4000, 8000])


def test_a_step_with_an_operator_of_unknown_shape_is_unknown():
    found = inputs_of(
        [
            step(0, 0, 100),
            op("aten::mm", 10, 20, dims=[[8, 100], [100, 50]]),
            op("aten::mm", 40, 20),
            step(1, 100, 100),
            op("aten::relu", 110, 20, dims=[[4]]),
        ]
    )
    assert (found.operators.tolist(), found.elements.tolist()) == ([2, -1], [-1, -1])
