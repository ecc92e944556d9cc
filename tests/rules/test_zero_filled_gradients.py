"""Gradients that are filled with zeros to be added to, and those that are kept to be accumulated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from profkit.diagnosis.pipeline import diagnose
from profkit.findings.values import Change
from profkit.rules.base import Suspicion
from profkit.rules.zero_filled_gradients import zero_filled_gradients
from profkit.run.directory import CallSite, Run
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, kernel, mark, op, rows_named, runtime, step

Json = dict[str, Any]
LARGE = [1024, 1024]
"""4 MiB of float32: more than the second-level cache of any core holds."""
SMALL = [16, 16]


def find(facts) -> list[Suspicion]:
    return list(zero_filled_gradients.check(facts))


def fill(at: float, shape: list[int] = LARGE, duration: float = 6) -> Json:
    return op("aten::zero_", at, duration, dims=[shape], types=["float"])


def accumulate(at: float, shape: list[int] = LARGE, duration: float = 8, tid: int = 1) -> list[Json]:
    return [
        op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", at, duration + 2, tid=tid),
        op("torch::autograd::AccumulateGrad", at + 0.5, duration + 1, dims=[shape], types=["float"], tid=tid),
        op("aten::add_", at + 1, duration, dims=[shape, shape, []], types=["float", "float", "Scalar"], tid=tid),
    ]


def clear(at: float, *fills: Json) -> list[Json]:
    return [annotation("Optimizer.zero_grad#SGD.zero_grad", at, 20), *fills]


def training(at: float) -> list[Json]:
    """Two gradients in a step of 100 µs; the cheapest operator takes one."""
    filled = clear(at, fill(at + 1), fill(at + 10))
    return [*filled, op("aten::detach", at + 25, 1), *accumulate(at + 40), *accumulate(at + 60)]


def steps_of(part: Callable[[float], list[Json]], length: float = 100, count: int = 4) -> list[Json]:
    return [event for i in range(count) for event in (step(i, length * i, length), *part(length * i))]


def test_the_fills_and_the_additions_vanish():
    facts = facts_of(steps_of(training))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "aten::zero_")
    assert found.count == 2
    assert found.size_bytes == 2 * 4 << 20
    assert found.evidence == {"gradients_per_step": 2.0, "additions_per_step": 2.0}
    assert predict_saving(facts, found.edit).fraction == pytest.approx((2 * 6 + 2 * 8) / 100, abs=1e-4)


def test_a_hook_of_the_optimizers_step_may_fill_them():
    def part(at: float) -> list[Json]:
        stepping = annotation("Optimizer.step#SGD.step", at, 30)
        return [stepping, *training(at + 2), op("aten::_foreach_add_", at, 1.5)]

    facts = facts_of(steps_of(part))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "aten::zero_")


def test_what_an_optimizer_fills_itself_is_silent():
    def part(at: float) -> list[Json]:
        stepping = annotation("Optimizer.step#SGD.step", at, 30)
        return [stepping, fill(at + 1), fill(at + 10), *accumulate(at + 40), *accumulate(at + 60)]

    assert find(facts_of(steps_of(part))) == []


def test_of_the_fill_of_a_gradient_that_a_cache_holds_only_the_call_vanishes():
    def part(at: float) -> list[Json]:
        return [*clear(at, fill(at + 1, SMALL)), op("aten::detach", at + 25, 1), *accumulate(at + 40, SMALL)]

    facts = facts_of(steps_of(part))
    saved = predict_saving(facts, find(facts)[0].edit).fraction
    assert saved == pytest.approx((1 + 8) / 100, abs=3e-3)  # the cheapest operator takes about 1 µs


@pytest.mark.parametrize(("side", "cached"), [(1 << 19, True), ((1 << 19) + 1, False)])
def test_two_mebibytes_are_the_most_that_a_cache_holds(side, cached):
    def part(at: float) -> list[Json]:
        return [*clear(at, fill(at + 1, [side])), op("aten::detach", at + 25, 1), *accumulate(at + 40, [side])]

    facts = facts_of(steps_of(part))
    (found,) = find(facts)
    fills = rows_named(facts.trace, "aten::zero_")
    kept = [int(ns) for row, ns in zip(found.edit.rows, found.edit.kept_ns, strict=True) if row in fills]
    assert [ns > 0 for ns in kept] == [cached] * 4


def test_gradients_that_several_backward_passes_add_to_are_silent():
    def part(at: float) -> list[Json]:
        return [*clear(at, fill(at + 1)), *accumulate(at + 30), *accumulate(at + 60)]

    assert find(facts_of(steps_of(part))) == []


@pytest.mark.parametrize(("adds", "reported"), [(3, 1), (4, 0), (1, 1), (0, 0)])
def test_additions_have_to_be_between_half_of_the_fills_and_half_as_many_more(adds, reported):
    def part(at: float) -> list[Json]:
        filled = clear(at, fill(at + 1, duration=3), fill(at + 5, duration=3))
        return [*filled, *(event for i in range(adds) for event in accumulate(at + 30 + 12 * i))]

    assert len(find(facts_of(steps_of(part)))) == reported


def test_a_zero_grad_that_drops_the_gradients_is_silent():
    def part(at: float) -> list[Json]:
        return [annotation("Optimizer.zero_grad#SGD.zero_grad", at, 20), op("aten::detach", at + 40, 2)]

    assert find(facts_of(steps_of(part))) == []


def test_a_fill_of_all_gradients_at_once_counts_for_each():
    def part(at: float) -> list[Json]:
        filled = op("aten::_foreach_zero_", at + 1, 12, dims=[[LARGE, LARGE]], types=["TensorList"])
        return [*clear(at, filled), *accumulate(at + 30), *accumulate(at + 60)]

    (found,) = find(facts_of(steps_of(part)))
    assert found.count == 2


def module_zero_grad(at: float, shapes: tuple[list[int], ...], gradients: tuple[list[int], ...]) -> list[Json]:
    fills = [fill(at + 8 * i, shape) for i, shape in enumerate(shapes)]
    return [*fills, *(event for i, shape in enumerate(gradients) for event in accumulate(at + 40 + 12 * i, shape))]


@pytest.mark.parametrize(
    ("gradients", "reported"),
    [((LARGE, SMALL), 1), ((SMALL, LARGE), 1), ((LARGE, LARGE), 0), (([8, 8], [9, 9]), 0)],
)
def test_without_a_range_the_shapes_tell_whether_gradients_are_filled(gradients, reported):
    facts = facts_of(steps_of(lambda at: module_zero_grad(at, (LARGE, SMALL), gradients)))
    assert len(find(facts)) == reported


def test_without_a_range_and_without_shapes_nothing_is_said():
    events = steps_of(lambda at: module_zero_grad(at, (LARGE,), (LARGE,)))
    for event in events:
        event["args"].pop("Input Dims", None)
    assert find(facts_of(events)) == []


def test_without_shapes_a_range_is_enough():
    events = steps_of(training)
    for event in events:
        event["args"].pop("Input Dims", None)
        event["args"].pop("Input type", None)
    (found,) = find(facts_of(events))
    assert found.size_bytes == 0


def test_two_lines_that_clear_by_turns_are_two_findings():
    sites = tuple(CallSite("gan.py", line, "train") for line in (10, 20))

    def part(at: float) -> list[Json]:
        return [*training(at), *training(at + 100)]

    first = [step(9, 0, 200), mark(0, 0, 99), mark(1, 100, 99), *part(0)]
    later = [{**event, "ts": event["ts"] + 200} for event in steps_of(part, 200)]
    facts = facts_of([*first, *later], callsites=sites)
    assert sorted(facts.callsites[facts.lines.site[found.rows[0]]].line for found in find(facts)) == [10, 20]


def test_on_a_device_the_kernels_vanish():
    """The host only launches; each of the kernels runs for 20 µs of a step that the device fills."""

    def part(at: float) -> list[Json]:
        number = int(at) // 100 * 2 + 1
        filled = [*clear(at, fill(at + 1)), runtime("cudaLaunchKernel", at + 2, 1, correlation=number)]
        added = [*accumulate(at + 40), runtime("cudaLaunchKernel", at + 42, 1, correlation=number + 1)]
        kernels = [kernel("fill", at + 5, 20, correlation=number), kernel("add", at + 50, 20, correlation=number + 1)]
        return [*filled, *added, *kernels, runtime("cudaStreamSynchronize", at + 60, 10)]

    facts = facts_of(steps_of(part))
    (found,) = find(facts)
    assert sorted(found.edit.work) == sorted(rows_named(facts.trace, "fill", "add"))
    assert not found.edit.work_kept_ns.any()


@pytest.mark.parametrize(
    ("torch", "advice"),
    [
        ("2.13.0", "Call `zero_grad()` without `set_to_none=False`, or"),
        ("1.13.1", "Call `zero_grad(set_to_none=True)`, or"),
        (None, "Call `zero_grad(set_to_none=True)`, or"),
    ],
)
def test_before_2_0_gradients_were_filled_by_default(torch, advice):
    (found,) = find(facts_of(steps_of(training), run=Run(torch=torch)))
    assert found.fix.startswith(advice)


@pytest.mark.parametrize(
    ("source", "torch", "after"),
    [
        ("optimizer.zero_grad(set_to_none=False)", "2.13.0", "optimizer.zero_grad()"),
        ("optimizer.zero_grad(set_to_none=False)", "1.13.1", None),
        ("optimizer.zero_grad(set_to_none=keep)", "2.13.0", None),
        ("p.grad.zero_()", "2.13.0", None),
    ],
)
def test_the_line_is_changed_where_it_asks_for_zeros_itself(source: str, torch: str, after: str | None) -> None:
    """Until 2.0 zeros were the default."""
    events = steps_of(lambda at: [mark(0, at, 22), *training(at)])
    facts = facts_of(events, run=Run(torch=torch), callsites=(CallSite("train.py", 20, "train", source),))
    (found,) = [one for one in diagnose(facts).findings if one.rule == "zero-filled-gradients"]
    assert found.change == (Change("train.py", 20, source, after) if after else None)
