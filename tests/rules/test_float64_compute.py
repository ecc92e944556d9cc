"""Doubles: reported where they make the step longer, on the line that brought them in."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.float64_compute import float64_compute
from profkit.run import CallSite, Run
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, kernel, mark, op, rows_named, runtime, step

Json = dict[str, Any]
SITES = (
    CallSite("train.py", 10, "main", "x = torch.from_numpy(batch)"),
    CallSite("train.py", 11, "main", "y = model(x)"),
    CallSite("model.py", 5, "Net.forward", "return self.linear(x)"),
)


def linear(start: float, duration: float, kind: str = "double", rows: int = 64) -> Json:
    return op("aten::linear", start, duration, dims=[[rows, 64], [64, 64]], types=[kind, kind], sequence=int(start))


def find(facts) -> list[Suspicion]:
    return list(float64_compute.check(facts))


def steps_of(events_at: Any, count: int = 3) -> list[Json]:
    return [event for i in range(count) for event in [step(i, 100 * i, 100), *events_at(100 * i)]]


def test_doubles_are_reported_and_half_of_their_time_is_the_saving():
    facts = facts_of(steps_of(lambda at: [linear(at + 10, 40), linear(at + 60, 20)]))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "aten::linear")
    assert found.evidence["operators_per_step"] == 2
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.3)


def test_the_backward_pass_halves_with_its_forward_operators():
    def events(at: float) -> list[Json]:
        node = op("autograd::engine::evaluate_function: AddmmBackward0", at + 60, 30, sequence=int(at + 10))
        return [linear(at + 10, 40), node]

    facts = facts_of(steps_of(events))
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx(0.35)


def test_on_a_device_the_kernels_count_and_not_the_launching():
    def events(at: float) -> list[Json]:
        id_ = int(at) + 1
        return [linear(at + 1, 4), runtime("cudaLaunchKernel", at + 2, 1, correlation=id_),
                kernel("dgemm", at + 3, 90, correlation=id_), runtime("cudaStreamSynchronize", at + 6, 87)]  # fmt: skip

    facts = facts_of(steps_of(events))
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx(0.45)


def test_floats_are_silent():
    assert find(facts_of(steps_of(lambda at: [linear(at + 10, 80, kind="float")]))) == []


def test_a_compiled_region_with_one_double_among_its_tensors_is_silent():
    tensors = {"dims": [[64, 64], [64]], "types": ["float", "double"]}
    assert find(facts_of(steps_of(lambda at: [op("CompiledFunction", at, 90, **tensors)]))) == []


def test_zero_dimensional_doubles_are_silent():
    scaled = {"dims": [[64, 64], []], "types": ["float", "double"]}
    assert find(facts_of(steps_of(lambda at: [op("aten::mul", at, 90, **scaled)]))) == []


def test_converting_data_that_arrives_as_doubles_is_silent():
    def events(at: float) -> list[Json]:
        cast = op("aten::to", at, 40, dims=[[256, 256], []], types=["double", "Scalar"], concrete=["", "6"])
        return [cast, linear(at + 50, 40, kind="float")]

    assert find(facts_of(steps_of(events))) == []


def test_doubles_inside_an_optimizer_are_its_own_business():
    facts = facts_of(steps_of(lambda at: [annotation("Optimizer.step#Adam.step", at, 90), linear(at + 1, 80)]))
    assert find(facts) == []


@pytest.mark.parametrize(("duration", "reported"), [(2.0, True), (1.9, False)])
def test_it_fires_from_one_per_cent_of_the_step(duration: float, reported: bool):
    assert bool(find(facts_of(steps_of(lambda at: [linear(at, duration)])))) is reported


@pytest.mark.parametrize(("elements", "reported"), [(4096, True), (4095, False)])
def test_small_elementwise_operators_do_not_count(elements: int, reported: bool):
    add = {"dims": [[elements], [elements]], "types": ["double", "double"]}
    assert bool(find(facts_of(steps_of(lambda at: [op("aten::add", at, 50, **add)])))) is reported


def test_the_place_is_the_line_that_made_a_tensor_of_the_array():
    located = [step(9, 300, 100), mark(0, 305, 3), mark(1, 310, 60), mark(2, 315, 50), linear(320, 40)]
    facts = facts_of([*steps_of(lambda at: [linear(at + 20, 40)]), *located], callsites=SITES)
    (found,) = find(facts)
    assert found.location is not None
    assert found.location.line == 10


def test_without_such_a_line_the_place_is_the_call_of_the_model():
    located = [step(9, 300, 100), mark(1, 310, 60), mark(2, 315, 50), linear(320, 40)]
    facts = facts_of([*steps_of(lambda at: [linear(at + 20, 40)]), *located], callsites=SITES)
    (found,) = find(facts)
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("train.py", 11)
    assert {place.file for place in found.also} == {"model.py"}


@pytest.mark.parametrize(("flags", "advice"), [({}, "from_numpy"), ({"default_dtype": "float64"}, "set_default_dtype")])
def test_the_advice_names_what_made_the_doubles(flags, advice):
    facts = facts_of(steps_of(lambda at: [linear(at + 10, 40)]), run=Run(flags=flags))
    (found,) = find(facts)
    assert advice in found.fix


def test_without_shapes_it_does_not_look():
    facts = facts_of([step(0, 0, 100), op("aten::linear", 0, 90)])
    assert missing_needs(facts, float64_compute.needs) == [Need.SHAPES]
