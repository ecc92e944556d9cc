"""Biases that the normalisation right after them removes again, and biases that have an effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.bias_before_batchnorm import bias_before_batchnorm
from profkit.run.directory import CallSite, Remark, Run
from profkit.savings.simulate import predict_saving
from profkit.source.remark_kinds import BIASED_LAYER_MADE
from tests.traces import annotation, facts_of, mark, op, rows_named, step

Json = dict[str, Any]
IMAGE = [8, 16, 32, 32]
KERNEL = [16, 16, 3, 3]
BIAS = [16]


def find(facts) -> list[Suspicion]:
    return list(bias_before_batchnorm.check(facts))


def convolution(
    at: float, *, bias: list[int] = BIAS, name: str = "aten::conv2d", dims: list[Any] | None = None
) -> Json:
    shapes = dims or [IMAGE, KERNEL, bias, [], [], [], []]
    return op(name, at, 10, dims=shapes, types=["float"] * 3 + [""] * (len(shapes) - 3), sequence=int(at))


def norm(at: float, *, training: str = "True", name: str = "aten::batch_norm", of: list[int] = IMAGE) -> Json:
    values = ["", "", "", "", "", training, "0.1", "1e-05", "True"]
    return op(name, at, 10, dims=[of, BIAS, BIAS, BIAS, BIAS, [], [], [], []], concrete=values)


def counter(at: float) -> Json:
    """A batch norm counts its batches before it runs."""
    return op("aten::add_", at, 2, dims=[[], [], []], types=["long int", "Scalar", "Scalar"])


def layer(at: float) -> list[Json]:
    return [convolution(at), counter(at + 12), norm(at + 15)]


def steps_of(part: Callable[[float], list[Json]], length: float = 100, count: int = 4) -> list[Json]:
    return [event for i in range(count) for event in (step(i, length * i, length), *part(length * i))]


def test_a_convolution_with_a_bias_before_a_batch_norm_that_trains_is_reported():
    facts = facts_of(steps_of(layer))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "aten::conv2d")
    assert found.evidence == {"layers_per_step": 1}


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(lambda at: [convolution(at, bias=[]), norm(at + 15)], id="no bias"),
        pytest.param(lambda at: [convolution(at), norm(at + 15, training="False")], id="evaluation"),
        pytest.param(lambda at: [convolution(at), norm(at + 15, name="aten::group_norm")], id="group norm"),
        pytest.param(lambda at: [convolution(at), norm(at + 15, name="aten::layer_norm")], id="layer norm"),
        pytest.param(
            lambda at: [convolution(at), op("aten::relu", at + 11, 2, dims=[IMAGE], types=["float"]), norm(at + 15)],
            id="an operator in between",
        ),
        pytest.param(lambda at: [convolution(at), norm(at + 15, of=[8, 32, 32, 32])], id="another tensor"),
        pytest.param(lambda at: [norm(at), convolution(at + 15)], id="the other way round"),
    ],
)
def test_biases_that_have_an_effect_are_silent(part):
    assert find(facts_of(steps_of(part))) == []


@pytest.mark.parametrize("value", ["True", "true"])
def test_a_bias_before_an_instance_norm_is_reported(value):
    def part(at: float) -> list[Json]:
        return [convolution(at), norm(at + 15, name="aten::instance_norm", training=value)]

    assert len(find(facts_of(steps_of(part)))) == 1


@pytest.mark.parametrize(
    ("name", "dims"),
    [("aten::linear", [[8, 4], [16, 4], BIAS]), ("aten::addmm", [BIAS, [8, 4], [4, 16], [], []])],
)
def test_a_linear_layer_with_a_bias_before_a_batch_norm_is_reported(name, dims):
    def part(at: float) -> list[Json]:
        return [convolution(at, name=name, dims=dims), norm(at + 15, of=[8, 16])]

    assert len(find(facts_of(steps_of(part)))) == 1


def test_a_linear_layer_without_a_bias_is_silent():
    def part(at: float) -> list[Json]:
        return [convolution(at, name="aten::linear", dims=[[8, 4], [16, 4], []]), norm(at + 15, of=[8, 16])]

    assert find(facts_of(steps_of(part))) == []


def test_a_bias_is_reported_across_a_view():
    def part(at: float) -> list[Json]:
        return [convolution(at), op("aten::view", at + 11, 1, dims=[IMAGE, []], types=["float"]), norm(at + 15)]

    assert len(find(facts_of(steps_of(part)))) == 1


def test_the_copy_gradient_and_updates_of_the_bias_are_saved():
    """In a step of 200 µs these are saved: 2 of the 3 µs that copy the bias, 5 µs that sum up its gradient, and 4 µs
    that store it; a quarter of the 12 µs that the optimizer spends outside its four updates; and a third of its three
    updates of vectors, which take 2 µs each."""

    def store(at: float, shape: list[int]) -> list[Json]:
        return [
            op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", at, 4),
            op("torch::autograd::AccumulateGrad", at + 1, 2, dims=[shape], types=["float"]),
        ]

    def part(at: float) -> list[Json]:
        number = int(at)
        dims = [[8, 4], [16, 4], BIAS]
        forward = [
            op("aten::linear", at, 20, dims=dims, types=["float"] * 3),
            op("aten::addmm", at + 2, 16, dims=[BIAS, [8, 4], [4, 16]], types=["float"] * 3, sequence=number),
            op("aten::copy_", at + 3, 3, dims=[[8, 16], [8, 16]], types=["float"] * 2),
            norm(at + 25, of=[8, 16]),
        ]
        backward = [
            *store(at + 50, BIAS),
            *store(at + 55, BIAS),
            op("autograd::engine::evaluate_function: AddmmBackward0", at + 60, 20, sequence=number),
            op("aten::sum", at + 70, 5, dims=[[8, 16], [], []], types=["float"]),
            *store(at + 80, BIAS),
            *store(at + 90, [16, 4]),
        ]
        updates = [
            op("aten::add_", at + 102 + 4 * i, 2, dims=[shape, shape], types=["float"] * 2)
            for i, shape in enumerate((BIAS, BIAS, BIAS, [16, 4]))
        ]
        return [*forward, *backward, annotation("Optimizer.step#SGD.step", at + 100, 20), *updates]

    facts = facts_of(steps_of(part, 200))
    (found,) = find(facts)
    gone = 2 + 5 + 4 + (20 - 8) / 4 + 3 * 2 / 3
    assert predict_saving(facts, found.edit).fraction == pytest.approx(gone / 200, abs=1e-4)


@pytest.mark.parametrize(("source", "gone"), [([16, 1, 1], 2), ([8, 16, 32, 32], 0)])
def test_copying_a_bias_over_an_image_is_saved_and_other_copies_are_not(source, gone):
    """The cheapest operator takes 2 µs, so that is what the call of the copy costs."""

    def part(at: float) -> list[Json]:
        spread = op("aten::copy_", at + 2, 6, dims=[IMAGE, source, []], types=["float", "float", "Scalar"])
        return [convolution(at), spread, counter(at + 12), norm(at + 15)]

    facts = facts_of(steps_of(part))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx(gone / 100, abs=1e-3)


def test_without_the_values_of_inputs_it_cannot_look():
    events = steps_of(layer)
    for event in events:
        event["args"].pop("Concrete Inputs", None)
    with pytest.raises(CannotLook):
        find(facts_of(events))


def test_without_shapes_it_cannot_look():
    facts = facts_of(steps_of(lambda at: [op("aten::conv2d", at, 20), op("aten::batch_norm", at + 20, 20)]))
    assert Need.SHAPES in missing_needs(facts, bias_before_batchnorm.needs)


@pytest.mark.parametrize(("faulty", "reported"), [(2, 1), (1, 0)])
def test_biases_in_fewer_than_half_of_the_steps_are_silent(faulty, reported):
    def part(at: float) -> list[Json]:
        return layer(at) if at < 100 * faulty else [convolution(at, bias=[]), norm(at + 15)]

    assert len(find(facts_of(steps_of(part)))) == reported


CALLS = (CallSite("net.py", 20, "forward", "x = self.e1(x)"), CallSite("net.py", 21, "forward", "x = self.e2(x)"))


def on_two_lines(*made: tuple[int, int]) -> list[Suspicion]:
    """A located step and three measured ones, with a layer on each of two lines; ``made`` are makers and callers."""
    events = steps_of(lambda at: [*layer(at), *layer(at + 40)])
    marks = [mark(0, 0, 39), mark(1, 40, 39)]
    remarks = tuple(
        Remark(BIASED_LAYER_MADE, CallSite("net.py", maker, "block"), used_at=called) for maker, called in made
    )
    return find(facts_of([*events, *marks], callsites=CALLS, run=Run(remarks=remarks)))


def test_layers_made_by_one_line_are_one_finding_at_that_line():
    (found,) = on_two_lines((5, 20), (5, 21))
    assert [place.line for place in found.places.all()] == [5, 20, 21]
    assert found.evidence == {"layers_per_step": 2}


def test_layers_made_by_two_lines_are_two_findings():
    found = on_two_lines((5, 20), (6, 21))
    assert [[place.line for place in one.places.all()] for one in found] == [[5, 20], [6, 21]]


def test_without_a_known_maker_the_calling_line_leads():
    found = on_two_lines((5, 99))
    assert [[place.line for place in one.places.all()] for one in found] == [[20], [21]]
