"""Decode steps launched kernel by kernel, and steps that look alike."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.eager_decode import eager_decode
from profkit.rules.launch_bound import launch_bound
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, kernel, op, runtime

Json = dict[str, Any]
DECODE = "execute_context_0(0)_generation_8(8)"


def find(events: list[Json]) -> list[Suspicion]:
    return list(eager_decode.check(facts_of(events)))


def eager(
    name: str = DECODE, count: int = 4, kernels: int = 40, interval_us: float = 50, kernel_us: float = 10, at: float = 0
) -> list[Json]:
    """Steps with kernels at equal distances, each 5 µs after its launch."""
    events: list[Json] = []
    for number in range(count):
        begin, free = at + (kernels * interval_us + 20) * number, 0.0
        events.append(annotation(name, begin, kernels * interval_us + 10))
        for i in range(kernels):
            call = begin + 5 + i * interval_us
            start = max(call + 5, free)
            free = start + kernel_us
            correlation = int(at) * 100 + 1000 * number + i + 1
            events += [
                op("aten::mm", call - 1, interval_us - 2),
                runtime("cudaLaunchKernel", call, 4, correlation=correlation),
                kernel("gemm", start, kernel_us, correlation=correlation),
            ]
    return events


def replayed(count: int, at: float) -> list[Json]:
    events: list[Json] = []
    for number in range(count):
        begin, correlation = at + 500 * number, 900_000 + number
        events += [
            annotation("execute_context_0(0)_generation_4(4)", begin, 60),
            runtime("cudaGraphLaunch", begin + 5, 10, correlation=correlation),
            *(kernel("gemm", begin + 20 + 10 * i, 10, correlation=correlation) for i in range(40)),
        ]
    return events


def test_decode_steps_launched_kernel_by_kernel():
    events = eager()
    (found,) = find(events)
    assert found.message.startswith("Steps that add a token to each of 8 sequences launch 40 kernels one by one")
    assert found.evidence["idle_fraction"] == pytest.approx(1 - (10 + 1.5) / 50, abs=0.02)
    assert "--enforce-eager" in found.fix
    assert predict_saving(facts_of(events), found.edit).fraction > 0.6


def test_launch_bound_leaves_them_to_this_rule():
    assert list(launch_bound.check(facts_of(eager()))) == []
    assert len(list(launch_bound.check(facts_of(eager("step 1") + eager("step 2", at=50_000))))) == 1


@pytest.mark.parametrize("name", ["step[DECODE bs=8]", "[Executor] _forward_step 7: 0 ctx reqs, 8 gen reqs"])
def test_other_engines(name):
    (found,) = find(eager(name))
    assert found.evidence["sequences"] == 8
    assert "--disable-cuda-graph" in found.fix or "cuda_graph_config" in found.fix


def test_prefill_is_silent():
    assert find(eager("execute_context_8(4096)_generation_0(0)")) == []


@pytest.mark.parametrize(("kernel_us", "reported"), [(38, 1), (39, 0)])
def test_a_fifth_idle_is_the_least(kernel_us, reported):
    assert len(find(eager(kernel_us=kernel_us))) == reported


def test_kernels_that_hide_the_launches_are_silent():
    assert find(eager(kernel_us=60)) == []


def test_replayed_steps_are_silent():
    assert find(replayed(6, 0)) == []


def test_some_batch_sizes_have_a_graph():
    (found,) = find(eager() + replayed(3, 8200))
    assert "3 steps of the same kind come from a graph." in found.message


TABLE = [1000, 64]


def loop(ids: list[int], count: int = 5, drawn: bool = True) -> list[Json]:
    """A loop without ranges: a lookup, 40 short kernels, and a draw from the scores, for each token."""
    events: list[Json] = []
    for number in range(count):
        begin = 2200 * number
        events.append(op("aten::embedding", begin, 10, dims=[TABLE, ids]))
        for i in range(40):
            call, correlation = begin + 20 + 50 * i, 1000 * number + i + 1
            events += [
                op("aten::mm", call - 1, 40, dims=[[ids[0], 64], [64, 64]]),
                runtime("cudaLaunchKernel", call, 4, correlation=correlation),
                kernel("gemm", call + 8, 10, correlation=correlation),
            ]
        events.append(op("aten::scaled_dot_product_attention", begin + 2040, 20, dims=[[ids[0], 4, 1, 16]] * 3))
        if drawn:
            events.append(op("aten::argmax", begin + 2100, 10, dims=[[ids[0], 1000], [], []]))
    return events


def test_a_loop_of_ones_own():
    (found,) = find(loop([4, 1]))
    assert "a token to each of 4 sequences" in found.message
    assert "cache_implementation='static'" in found.fix


def test_a_classifier_of_whole_texts_is_no_such_loop():
    assert find(loop([4, 16])) == []
    assert find(loop([4, 1], drawn=False)) == []


def test_a_recording_that_does_not_tell_launches_cannot_be_judged():
    with pytest.raises(CannotLook, match="which call launched which kernel"):
        find([annotation(DECODE, 0, 50), kernel("gemm", 1, 5)])


def test_other_programs_need_no_such_recording():
    assert find([annotation("train 1", 0, 50), kernel("gemm", 1, 5)]) == []


def test_without_a_device():
    assert Need.DEVICE in missing_needs(facts_of([op("aten::add", 0, 5)]), eager_decode.needs)
