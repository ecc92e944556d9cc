"""Gradients that nobody uses, and those of which an optimizer or the program makes something."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import CannotLook
from profkit.rules.unused_gradients import unused_gradients
from profkit.run.directory import CallSite, GradientUse, Run, Unwatched
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, mark, op, step

Json = dict[str, Any]
SITES = (CallSite("gan.py", 7, "train", "loss.backward()"),)
LENGTH = 200
"""Of a step, in microseconds."""


def node(name: str, at: float, duration: float) -> Json:
    return op(f"autograd::engine::evaluate_function: {name}", at, duration)


def store(at: float, shape: list[int]) -> list[Json]:
    return [
        node("torch::autograd::AccumulateGrad", at, 4),
        op("torch::autograd::AccumulateGrad", at + 1, 2, dims=[shape], types=["float"]),
    ]


def layer(at: float) -> list[Json]:
    """54 µs: a product for the input (12), one for the weight (16), the bias's sum (5), and what stores both (4, 4)."""
    return [
        node("AddmmBackward0", at, 40),
        op("aten::mm", at + 2, 12, dims=[[8, 16], [16, 4]], types=["float"] * 2),
        op("aten::mm", at + 16, 16, dims=[[16, 8], [8, 4]], types=["float"] * 2),
        op("aten::sum", at + 34, 5, dims=[[8, 16], [], []], types=["float"]),
        *store(at + 41, [1, 16]),
        node("TBackward0", at + 46, 3),
        *store(at + 50, [16, 4]),
    ]


def two_layers(at: float) -> list[Json]:
    """The discriminator's layer, then the generator's."""
    return [op("aten::linear", at, 20), *layer(at + 40), *layer(at + 110)]


def facts_with(use: GradientUse | None, part: Any = two_layers, steps: int = 4, **run: Any):
    events = [mark(0, 30, 160)]
    for i in range(steps):
        events += [step(i, LENGTH * i, LENGTH), *part(LENGTH * i)]
    return facts_of(events, run=Run(gradients=use, **run), callsites=SITES)


def find(facts) -> list[Any]:
    return list(unused_gradients.check(facts))


def test_gradients_that_are_thrown_away_are_reported_at_the_backward_pass():
    (found,) = find(facts_with(GradientUse(thrown_away=(0, 1), taken=(2, 3))))
    assert found.evidence == {"gradients_per_step": 2}
    assert "before the optimizer" in found.message
    assert "inputs=" in found.fix


@pytest.mark.parametrize("use", [GradientUse(thrown_away=(0, 1, 2)), GradientUse(unheld=(0, 1, 2))])
def test_weights_gradients_of_an_attack_on_the_inputs_are_reported(use):
    """The fourth is that of the input: nobody knows its use, so the pass is not for nothing."""
    facts = facts_with(use)
    (found,) = find(facts)
    assert found.evidence == {"gradients_per_step": 3}
    assert predict_saving(facts, found.edit).time_ns_per_step < 60_000  # the products for inputs stay


def test_gradients_of_parameters_that_no_optimizer_holds_are_reported():
    (found,) = find(facts_with(GradientUse(unheld=(2, 3), taken=(0, 1))))
    assert "no optimizer holds" in found.message
    assert "requires_grad_(False)" in found.fix
    assert found.places.also == ()


def test_the_part_that_no_optimizer_holds_is_named_by_the_lines_that_run_it():
    def part(at: float) -> list[Json]:
        first, *others = layer(at + 110)
        return [
            op("aten::linear", at + 5, 20, sequence=7),
            *layer(at + 40),
            {**first, "args": {"Sequence number": 7}},
            *others,
        ]

    sites = (*SITES, CallSite("moco.py", 43, "MoCo.forward", "k = self.keys(view)"))
    located = [mark(0, 30, 160), mark(1, 4, 22), step(0, 0, LENGTH), *part(0)]
    later = [event for i in range(1, 4) for event in (step(i, LENGTH * i, LENGTH), *part(LENGTH * i))]
    use = GradientUse(unheld=(2, 3), taken=(0, 1))
    (found,) = find(facts_of([*located, *later], run=Run(gradients=use), callsites=sites))
    assert [place.line for place in found.places.also] == [43]


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(GradientUse(), id="nothing is known to be unused"),
        pytest.param(GradientUse(taken=(0, 1, 2, 3)), id="all is used"),
        pytest.param(GradientUse(thrown_away=(0, 1, 2, 3)), id="the whole pass is given up, as of a loss that is NaN"),
        pytest.param(GradientUse(thrown_away=(90,), taken=(0,)), id="a number that the trace does not have"),
    ],
)
def test_it_is_silent_where_nothing_is_for_nothing(use):
    assert find(facts_with(use)) == []


def test_another_pass_that_an_optimizer_uses_does_not_make_this_one_useless():
    def two_passes(at: float) -> list[Json]:
        return [op("aten::linear", at, 20), *layer(at + 40), op("aten::linear", at + 96, 8), *layer(at + 110)]

    assert find(facts_with(GradientUse(thrown_away=(0, 1), taken=(2, 3)), two_passes)) == []


def test_a_whole_pass_is_in_vain_where_an_optimizer_steps_with_other_gradients():
    def one_layer(at: float) -> list[Json]:
        return [op("aten::linear", at, 20), *layer(at + 40), annotation("Optimizer.step#SGD.step", at + 120, 20)]

    (found,) = find(facts_with(GradientUse(thrown_away=(0, 1)), one_layer))
    assert found.evidence == {"gradients_per_step": 2}
    assert "remove it" in found.fix
    facts = facts_with(GradientUse(thrown_away=(0, 1)), one_layer)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((40 + 4 + 3 + 4) / LENGTH, abs=0.03)


def test_what_was_not_watched_it_cannot_judge():
    with pytest.raises(CannotLook, match="run a program that trains"):
        find(facts_with(None))
    with pytest.raises(CannotLook, match="30,000 parameters are alive"):
        find(facts_with(None, unwatched=(Unwatched("gradients", "30,000 parameters are alive"),)))


def test_before_others_that_are_used_the_weights_product_and_the_stores_vanish():
    """16 for the product, 5 for the sum, 4 and 4 for the stores, 3 for the node that turns the weight's gradient."""
    facts = facts_with(GradientUse(thrown_away=(0, 1), taken=(2, 3)))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((16 + 5 + 4 + 4 + 3) / LENGTH, abs=1e-4)


def test_behind_the_last_gradient_that_is_used_all_vanishes():
    """40 for the layer's node, 3 and 4 and 4 for those behind it."""
    facts = facts_with(GradientUse(unheld=(2, 3), taken=(0, 1)))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((40 + 3 + 4 + 4) / LENGTH, abs=1e-4)


def first_layer(at: float) -> list[Json]:
    """30 µs in a layer whose input needs no gradient: one product, the sum, and the stores."""
    return [
        node("AddmmBackward0", at, 16),
        op("aten::mm", at + 2, 8, dims=[[16, 8], [8, 4]], types=["float"] * 2),
        op("aten::sum", at + 11, 4, dims=[[8, 16], [], []], types=["float"]),
        *store(at + 17, [1, 16]),
        node("TBackward0", at + 22, 3),
        *store(at + 26, [16, 4]),
    ]


def test_a_branch_that_ends_before_another_begins_vanishes_whole():
    """As of a second encoder that follows the first by a moving average: 40 + 3 + 4 + 4 µs, then 16 + 3 + 4 + 4."""

    def part(at: float) -> list[Json]:
        return [op("aten::linear", at, 20), *layer(at + 30), *first_layer(at + 90), *layer(at + 130)]

    facts = facts_with(GradientUse(unheld=(0, 1, 2, 3), taken=(4, 5)), part)
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((51 + 27) / LENGTH, abs=1e-4)


@pytest.mark.parametrize(("of_input", "gone_us"), [(True, 25 + 4), (False, 60 + 4)])
def test_a_convolution_tells_whether_its_input_needs_a_gradient(of_input, gone_us):
    convolution = {"dims": [[2, 8, 6, 6], [2, 4, 8, 8], [8, 4, 3, 3]], "types": ["float"] * 3}
    given = ["", "", "", "[8]", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1", f"[{of_input}, True, True]"]

    def part(at: float) -> list[Json]:
        backward = [
            node("ConvolutionBackward0", at + 40, 60),
            op("aten::convolution_backward", at + 42, 50, **convolution, concrete=given),
            *store(at + 101, [8, 4, 3, 3]),
        ]
        return [op("aten::conv2d", at, 20), *backward, *layer(at + 110)]

    facts = facts_with(GradientUse(unheld=(0,), taken=(1, 2)), part)
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx(gone_us / LENGTH, abs=1e-4)


def test_half_of_a_convolutions_backward_vanishes():
    def part(at: float) -> list[Json]:
        convolution = [
            node("ConvolutionBackward0", at + 40, 60),
            op(
                "aten::convolution_backward",
                at + 42,
                50,
                dims=[[2, 8, 6, 6], [2, 4, 8, 8], [8, 4, 3, 3]],
                types=["float"] * 3,
            ),
            *store(at + 101, [8, 4, 3, 3]),
        ]
        return [op("aten::conv2d", at, 20), *convolution, *layer(at + 110)]

    facts = facts_with(GradientUse(thrown_away=(0,), taken=(1, 2)), part)
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((50 / 2 + 4) / LENGTH, abs=1e-4)


@pytest.mark.parametrize(("steps_with_it", "reported"), [(2, 1), (1, 0)])
def test_half_of_the_measured_steps_are_the_least(steps_with_it, reported):
    def part(at: float) -> list[Json]:
        return two_layers(at) if at < LENGTH * (1 + steps_with_it) else [op("aten::linear", at, 20)]

    found = find(facts_with(GradientUse(thrown_away=(0, 1), taken=(2, 3)), part, steps=5))
    assert len(found) == reported
