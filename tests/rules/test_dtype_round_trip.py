"""Casts that are undone right away, and casts whose result is used."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from profkit.findings.values import Kind
from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.dtype_round_trip import dtype_round_trip
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, mark, op, rows_named, runtime, step

Json = dict[str, Any]
NUMBERS = {"float": "6", "double": "7", "c10::BFloat16": "15", "long int": "4", "int": "3"}
ELEMENTS = 8192


def find(facts) -> list[Suspicion]:
    return list(dtype_round_trip.check(facts))


def cast(at: float, source: str, target: str, elements: int = ELEMENTS, sequence: int | None = None) -> list[Json]:
    """A cast of 10 µs."""
    dims = [[elements], [], []]
    return [
        op("aten::to", at, 10, dims=dims, types=[source, "Scalar", "Scalar"], sequence=sequence),
        op("aten::_to_copy", at + 1, 8, dims=dims, types=[source, "Scalar", ""], concrete=["", NUMBERS[target], ""]),
    ]


def row(at: float, *types: str) -> list[Json]:
    """Casts from each type to the next, one after another."""
    return [event for i, (a, b) in enumerate(pairwise(types)) for event in cast(at + 12 * i, a, b)]


def recording(events: list[Json], steps: int = 4) -> Any:
    moved = [{**event, "ts": event["ts"] + 100 * i} for i in range(steps) for event in events]
    return facts_of([*(step(i, 100 * i, 100) for i in range(steps)), *moved])


def test_both_casts_of_a_round_trip_are_saved():
    facts = recording(row(10, "float", "double", "float"))
    (found,) = find(facts)
    assert sorted(found.rows.tolist()) == rows_named(facts.trace, "aten::to")
    assert found.evidence == {"round_trips_per_step": 1, "moved_bytes_per_step": 2 * ELEMENTS * 12}
    assert found.kind is Kind.FAULT
    assert predict_saving(facts, found.edit).fraction == pytest.approx(20 / 100, abs=1e-4)


def test_a_round_trip_over_a_narrower_type_is_an_opportunity():
    (found,) = find(recording(row(10, "float", "c10::BFloat16", "float")))
    assert found.kind is Kind.OPPORTUNITY


@pytest.mark.parametrize(
    ("types", "trips", "kind"),
    [
        (["float", "double", "float", "double"], 1, Kind.FAULT),
        (["double", "float", "double", "float"], 1, Kind.FAULT),
        (["float", "double"] * 2 + ["float"], 2, Kind.FAULT),
        (["double", "float"] * 2 + ["double"], 2, Kind.OPPORTUNITY),
    ],
)
def test_pairs_in_a_row_of_casts_are_saved_and_pairs_that_widen_are_preferred(types, trips, kind):
    facts = recording(row(10, *types))
    (found,) = find(facts)
    assert (found.count, found.kind) == (trips, kind)
    assert predict_saving(facts, found.edit).fraction == pytest.approx(20 * trips / 100, abs=1e-4)


def test_a_round_trip_is_reported_across_a_view():
    view = op("aten::select", 22, 2, dims=[[2, ELEMENTS], [], []], types=["double", "Scalar", "Scalar"])
    assert len(find(recording([*cast(10, "float", "double"), view, *cast(30, "double", "float")]))) == 1


@pytest.mark.parametrize("name", ["mul", "linear", "native_layer_norm"])
def test_a_computation_in_the_other_type_is_silent(name):
    use = op(f"aten::{name}", 22, 5, dims=[[ELEMENTS], [ELEMENTS]], types=["float", "float"])
    events = [*cast(10, "c10::BFloat16", "float"), use, *cast(30, "float", "c10::BFloat16")]
    assert find(recording(events)) == []


def test_a_kernel_launched_between_the_casts_is_silent():
    events = [*cast(10, "c10::BFloat16", "float"), *cast(30, "float", "c10::BFloat16")]
    launch = [runtime("cuLaunchKernel", 25, 2, correlation=7)]
    on_device = {
        "ph": "X",
        "cat": "kernel",
        "name": "fused_norm",
        "pid": 0,
        "tid": 7,
        "ts": 26,
        "dur": 3,
        "args": {"correlation": 7, "device": 0, "stream": 7},
    }
    assert len(find(facts_of([step(0, 0, 100), *events]))) == 1
    assert find(facts_of([step(0, 0, 100), *events, *launch, on_device])) == []


def test_a_second_cast_of_another_tensor_is_silent():
    assert find(recording([*cast(10, "float", "double"), *cast(30, "double", "float", 2 * ELEMENTS)])) == []


@pytest.mark.parametrize("types", [("float", "long int", "float"), ("float", "double", "c10::BFloat16")])
def test_casts_that_do_not_return_to_the_same_numbers_are_silent(types):
    assert find(recording(row(10, *types))) == []


def test_round_trips_of_integers_are_reported():
    assert len(find(recording(row(10, "int", "long int", "int")))) == 1


@pytest.mark.parametrize(("elements", "reported"), [(4096, 1), (4095, 0)])
def test_casts_of_fewer_than_4096_elements_are_silent(elements, reported):
    events = [*cast(10, "float", "double", elements), *cast(30, "double", "float", elements)]
    assert len(find(recording(events))) == reported


def test_a_cast_inside_another_operator_is_silent():
    inside = op("aten::_to_copy", 31, 8, dims=[[ELEMENTS], []], types=["double", "Scalar"], concrete=["", "6"])
    softmax = op("aten::softmax", 30, 12, dims=[[ELEMENTS], []], types=["double", "Scalar"])
    assert find(recording([*cast(10, "float", "double"), softmax, inside])) == []


def test_the_backward_pass_of_the_casts_is_saved_too():
    events = [*cast(10, "float", "double", sequence=3), *cast(30, "double", "float", sequence=4)]
    nodes = [
        op("autograd::engine::evaluate_function: ToCopyBackward0", 50 + 20 * i, 15, sequence=4 - i) for i in range(2)
    ]
    facts = facts_of([step(0, 0, 100), *events, *nodes])
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((20 + 30) / 100, abs=1e-4)


def test_the_line_of_the_first_cast_is_reported_before_the_line_of_the_second():
    sites = (CallSite("out.py", 3, "finish", "return x.double()"), CallSite("in.py", 5, "begin", "x = x.float()"))
    events = row(10, "float", "double", "float")
    located = [step(0, 0, 100), mark(0, 9, 12), mark(1, 21, 20), *events]
    later = [{**event, "ts": event["ts"] + 100 * i} for i in (1, 2) for event in events]
    (found,) = find(facts_of([*located, step(1, 100, 100), step(2, 200, 100), *later], callsites=sites))
    assert found.location is not None
    assert (found.location.line, [place.line for place in found.also]) == (3, [5])


def test_without_shapes_it_cannot_look():
    facts = facts_of([step(0, 0, 100), op("aten::to", 1, 9)])
    assert Need.SHAPES in missing_needs(facts, dtype_round_trip.needs)
