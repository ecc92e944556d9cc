"""The measured steps, divided among lines, functions, operators and kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from profkit.patterns.time.divided import divide_steps
from profkit.patterns.time.innermost import find_innermost
from profkit.run.directory import CallSite
from profkit.trace.events import Category
from tests.traces import annotation, facts_of, kernel, mark, op, pause, python, runtime, step

SITES = tuple(CallSite("/a/train.py", line, "main", f"line {line}") for line in range(4))


def shares(events: list[dict[str, Any]], **more: Any) -> dict[str, float]:
    """The share of each place, by its line or name."""
    facts = facts_of(events, callsites=SITES, **more)
    divided = divide_steps(facts)
    names = [*(site.source for site in SITES[: divided.lines]), *facts.trace.names, "nowhere"]
    places, taken_ns = divided.by_place()
    return {
        names[place]: time / divided.total_ns for place, time in zip(places.tolist(), taken_ns.tolist(), strict=True)
    }


def located(*events: dict[str, Any]) -> list[dict[str, Any]]:
    return [step(0, 0, 1000), *events]


def test_operators_have_their_own_time_and_gaps_are_divided_as_in_the_located_step():
    traced = located(
        *(mark(0, 0, 100), op("aten::mm", 0, 100)),
        *(mark(1, 100, 600), mark(2, 700, 200)),  # Python, three quarters of it in line 1
        *(mark(3, 900, 100), op("aten::add", 900, 100)),
    )
    measured = [step(1, 1000, 100), op("aten::mm", 1000, 50), op("aten::add", 1090, 10)]
    found = shares([*traced, *measured])
    assert found == pytest.approx({"line 0": 0.5, "line 1": 0.3, "line 2": 0.1, "line 3": 0.1})


def test_what_the_tracer_adds_to_each_line_is_not_the_lines_time():
    short = [mark(1, 100 + 2 * i, 2) for i in range(100)]  # a loop of nothing
    traced = located(
        mark(0, 0, 100), op("aten::mm", 0, 100), *short, mark(2, 300, 100), mark(3, 400, 600), op("aten::add", 400, 600)
    )
    found = shares([*traced, step(1, 1000, 100), op("aten::mm", 1000, 50), op("aten::add", 1090, 10)])
    assert found["line 2"] == pytest.approx(0.4, rel=0.01)
    assert found["line 1"] < 0.01


def test_backward_operators_belong_to_the_line_of_the_forward_pass():
    traced = located(
        *(mark(0, 0, 100), op("aten::mm", 0, 100, sequence=5)),
        *(mark(1, 100, 900), op("autograd::engine::evaluate_function: MmBackward0", 100, 900, sequence=5)),
    )
    measured = [
        step(1, 1000, 100),
        op("aten::mm", 1000, 40, sequence=6),
        op("autograd::engine::evaluate_function: MmBackward0", 1040, 60, sequence=6),
    ]
    assert shares([*traced, *measured]) == pytest.approx({"line 0": 1.0})


def test_a_gap_between_operators_that_the_located_step_lacks_is_at_no_place():
    traced = located(mark(0, 0, 1000), op("aten::mm", 0, 1000))
    found = shares([*traced, step(1, 1000, 100), op("aten::abs", 1000, 20), op("aten::neg", 1060, 40)])
    assert found == pytest.approx({"nowhere": 0.4, "aten::neg": 0.4, "aten::abs": 0.2})


def test_profkits_own_pauses_are_nobodys_time():
    found = shares([step(0, 0, 100), op("aten::mm", 0, 40), pause(40, 50), op("aten::add", 90, 10)])
    assert found == pytest.approx({"aten::mm": 0.8, "aten::add": 0.2})


def test_without_lines_the_functions_of_the_user_are_the_places():
    events = [
        step(0, 0, 100),
        *(python("train.py(1): main", 0, 100), python("model.py(7): forward", 0, 60), op("aten::mm", 10, 40)),
    ]
    assert shares(events) == pytest.approx({"model.py(7): forward": 0.6, "train.py(1): main": 0.4})


def test_without_lines_and_functions_operators_and_ranges_are_the_places():
    events = [
        step(0, 0, 100),
        *(op("aten::mm", 0, 40, sequence=1), annotation("evaluate", 40, 30)),
        op("autograd::engine::evaluate_function: MmBackward0", 70, 30, sequence=1),
    ]
    assert shares(events) == pytest.approx({"aten::mm": 0.7, "evaluate": 0.3})


def test_while_the_device_works_the_time_is_that_of_what_launched_it():
    events = [
        step(0, 0, 100),
        *(op("aten::mm", 0, 10), runtime("cudaLaunchKernel", 2, 3, correlation=1)),
        *(op("aten::add", 10, 60), runtime("cudaLaunchKernel", 60, 3, correlation=2)),
        *(kernel("gemm", 10, 40, correlation=1), kernel("add", 70, 30, correlation=2)),
    ]
    found = shares(events)
    assert (found["aten::mm"], found["aten::add"]) == pytest.approx((0.5, 0.5), abs=0.03)  # less what recording added


def test_work_of_a_replayed_graph_is_named_by_its_kernels():
    graph = runtime("cudaGraphLaunch", 0, 10, correlation=1)
    found = shares(
        [step(0, 0, 110), graph, kernel("gemm", 10, 80, correlation=1), kernel("norm", 90, 20, correlation=1)]
    )
    assert (found["gemm"], found["norm"]) == pytest.approx((0.73, 0.18), abs=0.02)


def test_the_innermost_of_nested_events_at_any_moment():
    facts = facts_of([annotation("a", 0, 100), annotation("b", 20, 30), annotation("c", 50, 50)])
    innermost = find_innermost(facts, facts.trace.rows(Category.ANNOTATION))
    at = innermost.at(np.array([-1, 0, 20, 49_999, 50_000, 99_999, 100_000]))
    names = [facts.trace.name_of(row) if row >= 0 else "" for row in at.tolist()]
    assert names == ["", "a", "a", "b", "c", "c", ""]


def test_ranges_with_too_many_stretches_are_left_out():
    facts = facts_of([annotation("a", 0, 10), annotation("b", 10, 10), annotation("c", 30, 10)])
    innermost = find_innermost(facts, facts.trace.rows(Category.ANNOTATION))
    number, row, length_ns = innermost.stretches(np.array([0, 5_000]), np.array([40_000, 15_000]), most=3)
    assert number.tolist() == [1, 1]
    assert [facts.trace.name_of(one) for one in row.tolist()] == ["a", "b"]
    assert length_ns.tolist() == [5_000, 5_000]
