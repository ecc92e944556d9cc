"""Calls of cuDNN's attention that make a plan, calls that reuse one, and calls that are slow for another reason."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.derive.facts import Facts
from profkit.rules.attention_plan_per_shape import attention_plan_per_shape
from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.run.directory import CallSite
from profkit.savings.replay import replay
from tests.traces import facts_of, kernel, mark, op, runtime, step

Json = dict[str, Any]
OUTER, INNER = "aten::_scaled_dot_product_cudnn_attention", "aten::_cudnn_attention_forward"
STEP_US = 20_000


def find(facts: Facts) -> list[Suspicion]:
    return list(attention_plan_per_shape.check(facts))


def attention(at: float, us: float, number: int, launch_us: float = 10, name: str = INNER) -> list[Json]:
    """A call of ``us`` microseconds that ends with a launch of ``launch_us``."""
    return [
        op("aten::scaled_dot_product_attention", at, us + 4),
        op(OUTER, at + 1, us + 2),
        op(name, at + 2, us),
        runtime("cuLaunchKernelEx", at + 2 + us - launch_us, launch_us, correlation=number),
        kernel("cudnn_generated_fort_native_sdpa", at + 3 + us, 50, correlation=number),
    ]


def layers(at: float, first_us: float, number: int, **more: Any) -> list[Json]:
    """Three layers: the first takes ``first_us``, the others 100 µs each."""
    return [
        *attention(at, first_us, number, **more),
        *attention(at + first_us + 10, 100, number + 1),
        *attention(at + first_us + 200, 100, number + 2),
    ]


def recording(*first_us: float, **more: Any) -> Facts:
    """One step of three layers for each of ``first_us``."""
    steps = [step(i, STEP_US * i, STEP_US) for i in range(len(first_us))]
    inside = [event for i, us in enumerate(first_us) for event in layers(STEP_US * i + 10, us, 10 * i + 1, **more)]
    return facts_of([*steps, *inside])


def test_a_planned_call_in_each_step_keeps_the_time_of_an_ordinary_call():
    facts = recording(*[10_000] * 4)
    (found,) = find(facts)
    assert (found.count, found.spent_ns) == (1, 9_992_000)  # the outer call takes 2 µs of its own
    assert "a new cuDNN plan, 9.99 ms each" in found.message
    assert found.edit is not None
    assert found.edit.kept_ns.tolist() == [10_000 + 90_000 + 2_000] * 4
    assert replay(facts, found.edit).fraction == pytest.approx(0.495, abs=0.01)
    assert "enable_cudnn_sdp(False)" in found.fix


@pytest.mark.parametrize(("us", "reported"), [(5_020, 1), (4_980, 0)])
def test_calls_shorter_than_five_milliseconds_do_not_count_as_planned(us, reported):
    assert len(find(recording(*[us] * 4))) == reported


@pytest.mark.parametrize(
    ("first_us", "reported"),
    [
        pytest.param((100, 9_000, 9_000, 9_000), 1, id="three steps of four"),
        pytest.param((100, 100, 9_000, 9_000), 0, id="two steps, which the start-up may be"),
        pytest.param((9_000, 9_000, 9_000, *[100] * 4), 0, id="three of seven: most lengths have come"),
    ],
)
def test_plans_in_too_few_of_the_steps_are_silent(first_us, reported):
    assert len(find(recording(*first_us))) == reported


def test_a_call_that_spends_its_time_in_the_launch_is_silent():
    assert find(recording(*[10_000] * 4, launch_us=9_900)) == []


def test_slow_calls_of_other_attention_kernels_are_silent():
    events = [op("aten::_flash_attention_forward", STEP_US * i + 10, 10_000) for i in range(4)]
    launched = [
        call
        for i in range(4)
        for call in (
            runtime("cudaLaunchKernel", STEP_US * i + 20, 5, correlation=i + 1),
            kernel("flash_fwd_kernel", STEP_US * i + 40, 50, correlation=i + 1),
        )
    ]
    assert find(facts_of([*(step(i, STEP_US * i, STEP_US) for i in range(4)), *events, *launched])) == []


def test_when_every_call_is_planned_an_assumed_time_is_kept():
    steps = [step(i, STEP_US * i, STEP_US) for i in range(4)]
    (found,) = find(facts_of([*steps, *(e for i in range(4) for e in attention(STEP_US * i + 10, 10_000, i + 1))]))
    assert found.edit is not None
    assert found.edit.kept_ns.tolist() == [10_000 + 250_000] * 4


def test_plans_in_the_backward_pass_are_reported():
    assert len(find(recording(*[9_000] * 4, name="aten::_cudnn_attention_backward"))) == 1


def test_the_reported_line_calls_the_attention():
    sites = (CallSite("net.py", 7, "forward", "x = scaled_dot_product_attention(q, k, v)"),)
    steps = [step(i, STEP_US * i, STEP_US) for i in range(4)]
    inside = [event for i in range(4) for event in layers(STEP_US * i + 10, 9_000, 10 * i + 1)]
    (found,) = find(facts_of([*steps, mark(0, 8, 9_100), *inside], callsites=sites))
    assert found.location is not None
    assert found.location.line == 7


def test_without_a_device_it_cannot_look():
    facts = facts_of([step(0, 0, 100), op(OUTER, 10, 60)])
    assert Need.DEVICE in missing_needs(facts, attention_plan_per_shape.needs)
