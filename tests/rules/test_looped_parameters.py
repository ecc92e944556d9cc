"""Loops over parameters that call small operators for one tensor after another, and loops that look like them."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.findings.values import Kind
from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.looped_parameters import looped_parameters
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.rules.located_loops import looped
from tests.traces import facts_of, kernel, op, runtime, step

Json = dict[str, Any]
LENGTH = 4000
"""Of a step, in microseconds."""
LOOP = "for p in model.parameters():"
CLIP = "p.grad.mul_(factor)"
WEIGHT = [32, 32]


def find(facts) -> list[Suspicion]:
    return list(looped_parameters.check(facts))


def tensor_op(name: str, at: float, duration: float, *shapes: list[int], **more: Any) -> Json:
    return op(f"aten::{name}", at, duration, dims=list(shapes), types=["float"] * len(shapes), **more)


def scaling(at: float, _: int) -> list[Json]:
    """Two operators of 2 µs on a weight, with 3 µs of Python between them, and one on numbers."""
    return [
        tensor_op("linalg_vector_norm", at, 2, WEIGHT),
        tensor_op("mul", at + 5, 2, [], []),
        tensor_op("mul_", at + 10, 2, WEIGHT, []),
    ]


def recording(lines: tuple[str, ...] = (LOOP, CLIP), body=scaling, **more: Any):
    sites = tuple(CallSite("train.py", 6 + i, "clip", line) for i, line in enumerate(lines))
    return looped(sites, body, LENGTH, **more)


def test_of_each_round_only_the_operators_on_tensors_stay():
    facts = recording()
    (found,) = find(facts)
    assert looped_parameters.kind is Kind.FAULT
    assert found.evidence == {
        "rounds_per_step": 40,
        "operators_per_step": 120,
        "operators_on_tensors_per_step": 80,
    }
    assert found.location is not None
    assert (found.location.line, [place.line for place in found.also]) == (7, [6])
    lasted, kept = 39 * 20 + 12, 40 * (2 + 2) + 2
    assert predict_saving(facts, found.edit).fraction == pytest.approx((lasted - kept) / LENGTH, abs=1e-4)
    assert "`torch._foreach_norm`" in found.fix
    assert "`torch._foreach_mul_`" in found.fix


def test_what_python_works_between_the_operators_stays():
    facts = recording(every=60)
    (found,) = find(facts)
    lasted, kept = 39 * 60 + 12, 40 * (2 + 2) + 2 + 39 * (60 - 12 - 10)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((lasted - kept) / LENGTH, abs=1e-4)


def test_a_moving_average_becomes_one_operator_for_each_tensor():
    def averaging(at: float, _: int) -> list[Json]:
        return [tensor_op("mul_", at, 2, WEIGHT, []), tensor_op("add_", at + 5, 2, WEIGHT, WEIGHT)]

    facts = recording(lines=("for m, p in zip(mean.parameters(), new):", "m.mul_(d).add_(p)"), body=averaging)
    (found,) = find(facts)
    lasted, kept = 39 * 20 + 7, 40 * 2 + 39 * (20 - 7 - 10)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((lasted - kept) / LENGTH, abs=1e-4)


@pytest.mark.parametrize("again", [False, True])
def test_a_penalty_in_the_loss_keeps_one_operator_and_one_node_of_k(again):
    def squaring(at: float, k: int) -> list[Json]:
        return [
            tensor_op("pow", at, 2, WEIGHT, [], sequence=int(at)),
            tensor_op("sum", at + 5, 2, WEIGHT, sequence=int(at) + 1),
            tensor_op("add", at + 10, 2, [], [], sequence=int(at) + 2),
        ]

    def with_backward(at: float, k: int) -> list[Json]:
        start = at // LENGTH * LENGTH + 2000 + 20 * k
        node = "autograd::engine::evaluate_function: PowBackward0"
        return [*squaring(at, k), op(node, start, 12, sequence=int(at), external=None)]

    facts = recording(
        lines=("penalty = sum(p.pow(2).sum() for p in model.parameters())",), body=with_backward, again=again
    )
    (found,) = find(facts)
    assert "`weight_decay`" in found.fix
    host = 39 * 20 + 12 - (40 * 2 + 2)
    backward = 40 * 12 / 2 + 39 * 8 / 2
    assert predict_saving(facts, found.edit).fraction == pytest.approx((host + backward) / LENGTH, abs=1e-3)


def test_on_a_device_launches_become_one():
    def launching(at: float, k: int) -> list[Json]:
        number = int(at) * 10
        return [
            tensor_op("mul_", at, 6, WEIGHT, []),
            runtime("cudaLaunchKernel", at + 1, 2, correlation=number),
            kernel("scale", at + 5, 4, correlation=number),
            tensor_op("mul_", at + 8, 6, WEIGHT, []),
            runtime("cudaLaunchKernel", at + 9, 2, correlation=number + 1),
            kernel("scale", at + 13, 4, correlation=number + 1),
        ]

    (found,) = find(recording(body=launching))
    assert found.edit is not None
    assert found.edit.work_kept_ns.max() < 4000


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param((LOOP, CLIP), id="in place"),
        pytest.param((LOOP, "if p.grad is not None:", CLIP), id="behind a test"),
        pytest.param((LOOP, "if p.grad is None: continue", CLIP), id="past a test"),
        pytest.param((LOOP, "total += p.grad.norm(2).item() ** 2"), id="added up"),
        pytest.param(("for name, p in a.state_dict().items():", "p *= d"), id="in place, by an operator"),
        pytest.param((LOOP, "p.grad = p.grad * factor"), id="a new gradient"),
        pytest.param(("for n, p in model.named_parameters():", "shadow[n] = d * shadow[n] + p.data"), id="by name"),
        pytest.param(
            ("for group in opt.param_groups:", "for p in group['params']:", "p.data.mul_(decay)"), id="by group"
        ),
        pytest.param(("norms = [p.grad.norm() for p in ps if p.grad is not None]",), id="filtered comprehension"),
    ],
)
def test_rounds_that_only_touch_their_own_parameter_are_reported(lines):
    assert len(find(recording(lines=lines))) == 1


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(("for x in xs:", "x.mul_(2)"), id="no model"),
        pytest.param((LOOP, "last = last * p.data"), id="recurrence"),
        pytest.param((LOOP, "model.weight.mul_(factor)"), id="another tensor is written to"),
        pytest.param((LOOP, "p.grad.mul_(next(factors))"), id="iterator"),
        pytest.param((LOOP, "hook(p)", "self.optimizer.step()"), id="effects"),
        pytest.param(("while todo:", "todo.pop().grad.mul_(2)"), id="while"),
    ],
)
def test_rounds_that_may_need_each_other_are_silent(lines):
    assert find(recording(lines=lines)) == []


@pytest.mark.parametrize("name", ["mm", "bernoulli_", "sort", "index_put_"])
def test_operators_without_a_form_for_lists_are_silent(name):
    def body(at: float, k: int) -> list[Json]:
        return [*scaling(at, k), tensor_op(name, at + 13, 2, WEIGHT)]

    assert find(recording(body=body)) == []


@pytest.mark.parametrize(("rounds", "count"), [(31, 0), (32, 1)])
def test_thirty_two_rounds_are_the_least(rounds, count):
    assert len(find(recording(rounds=rounds))) == count


def test_arithmetic_on_numbers_alone_is_silent():
    def body(at: float, _: int) -> list[Json]:
        return [tensor_op("mul", at + 4 * i, 2, [], []) for i in range(3)]

    assert find(recording(body=body)) == []


def test_lines_and_shapes_are_needed():
    assert Need.LINES in looped_parameters.needs
    assert missing_needs(facts_of([step(0, 0, 100), op("aten::mul", 10, 5)]), looped_parameters.needs)
