"""Gathers of FSDP's parameters that begin only when the layer before ends, and gathers that could not begin earlier."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import Suspicion
from profkit.rules.exposed_communication import exposed_communication
from profkit.rules.gather_not_prefetched import gather_not_prefetched
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, kernel, op, runtime, step

Json = dict[str, Any]
RANGE = "FullyShardedDataParallel._pre_forward"
GATHER, COMPUTE, PARTS = 400, 500, 5


def gathers(
    *,
    name: str = RANGE,
    asked_at: list[float],
    starts: list[float],
    computes: list[float],
    stream: int = 20,
    steps: int = 4,
    limiter: float = 0,
    took: float = GATHER,
) -> Any:
    """Each step gathers the parameters of one layer for each of ``asked_at``, 4 MB a rank, and runs the kernels of each
    layer. The host waits for all of them."""
    events: list[Json] = []
    for number in range(steps):
        at, first = (computes[-1] + COMPUTE) * number, 100 * number
        for i in range(2):
            events += [
                runtime("cudaLaunchKernel", at + 10 * i, 2, correlation=first + i + 1),
                kernel("fill", at + 10 * i + 8, 1, correlation=first + i + 1),
            ]
        for i, (asked, start, begin) in enumerate(zip(asked_at, starts, computes, strict=True)):
            gather, gemm = first + 10 * (i + 1), first + 10 * (i + 1) + 1
            nccl = kernel(
                "ncclDevKernel_AllGather_RING_LL(ncclDevComm*)", at + start, took, correlation=gather, stream=stream
            )
            nccl["args"] |= {
                "Collective name": "_allgather_base",
                "dtype": "BFloat16",
                "In msg nelems": 1 << 21,
                "Out msg nelems": 1 << 24,
                "Group size": 8,
                "Process Group Name": "0",
            }
            events += [
                annotation(name, at + asked - 1, 12),
                op("c10d::_allgather_base_", at + asked, 10),
                runtime("cudaLaunchKernelExC", at + asked + 2, 5, correlation=gather),
                nccl,
            ]
            for k in range(PARTS):
                events += [
                    op("aten::mm", at + asked + 12 + 2 * k, 2),
                    runtime("cudaLaunchKernel", at + asked + 12 + 2 * k, 1, correlation=gemm + k),
                    kernel("gemm", at + begin + k * COMPUTE / PARTS, COMPUTE / PARTS, correlation=gemm + k),
                ]
            if limiter and i:
                events.append(annotation("FullyShardedDataParallel.rate_limiter", at + asked - 1 - limiter, limiter))
        asked, end = asked_at[-1] + 25, computes[-1] + COMPUTE
        events += [
            op("autograd::engine::evaluate_function: MmBackward0", at + asked, 5),
            runtime("cudaDeviceSynchronize", at + asked + 10, end - asked - 10),
            step(number, at, end),
        ]
    return facts_of(events, distributedInfo={"backend": "nccl", "rank": 0, "world_size": 8})


def queued(**known: Any) -> Any:
    """Three layers: all gathers are requested at once, and each begins when the layer before has ended."""
    return gathers(asked_at=[20, 50, 80], starts=[33, 933, 1_833], computes=[433, 1_333, 2_233], **known)


def find(facts: Any) -> list[Suspicion]:
    return list(gather_not_prefetched.check(facts))


def test_gathers_held_back_until_the_layer_before_ends_are_reported_and_their_wait_is_saved():
    """The second and third gather, 400 µs each, fit behind 500 µs of compute: 800 of 2,733 µs are saved."""
    facts = queued()
    (found,) = find(facts)
    assert found.evidence == {
        "gathers_per_step": 2,
        "waited_ns_per_step": 800_000,
        "held_by": "stream",
        "pass": "forward",
    }
    assert "forward_prefetch=True" in found.fix
    assert predict_saving(facts, found.edit).time_ns_per_step == pytest.approx(800_000, rel=0.02)


def test_reported_gathers_are_not_reported_by_exposed_communication():
    facts = queued(name="user's own range")
    assert find(facts) == []
    (other,) = exposed_communication.check(facts)
    assert other.evidence["exposed_ns_per_step"] >= 1_000_000
    assert list(exposed_communication.check(queued())) == []  # not even the first gather of a step


def test_gathers_that_run_beside_compute_are_silent():
    facts = gathers(asked_at=[20, 50, 80], starts=[33, 434, 934], computes=[433, 933, 1_433])
    assert find(facts) == []


@pytest.mark.parametrize(
    "name",
    [
        "FSDP::forward_prefetch for layers.2",
        "FSDP::backward_prefetch for layers.2",
        "FullyShardedDataParallel._pre_backward_prefetch",
    ],
)
def test_prefetched_gathers_are_silent(name: str):
    assert find(queued(name=name)) == []


def test_gathers_of_activations_are_silent():
    assert find(queued(name="TensorParallel")) == []


def test_gathers_in_the_computing_stream_are_silent():
    assert find(queued(stream=7)) == []


def test_a_host_that_requests_gathers_late_is_named_as_the_cause():
    """Each gather begins 3 µs after its call has returned."""
    facts = gathers(asked_at=[20, 925, 1_830], starts=[33, 938, 1_843], computes=[433, 1_338, 2_243])
    (found,) = find(facts)
    assert found.evidence["held_by"] == "host"
    assert "hardly ahead" in found.fix


def test_the_rate_limiter_is_named_when_it_takes_most_of_the_hosts_time():
    facts = gathers(asked_at=[20, 925, 1_830], starts=[33, 938, 1_843], computes=[433, 1_338, 2_243], limiter=700)
    (found,) = find(facts)
    assert found.evidence["held_by"] == "limiter"
    assert "limit_all_gathers=False" in found.fix


@pytest.mark.parametrize(("took", "reported"), [(26, 1), (24, 0)])
def test_savings_below_three_percent_of_the_step_are_silent(took: float, reported: int):
    """Two gathers of 26 µs are 3.2 % of 1,611 µs. Two of 24 µs are 2.98 % of 1,605 µs."""
    facts = gathers(
        asked_at=[20, 50, 80],
        took=took,
        starts=[33, 533 + took, 1_033 + 2 * took],
        computes=[33 + took, 533 + 2 * took, 1_033 + 3 * took],
    )
    assert len(find(facts)) == reported


def test_the_saving_is_limited_by_the_compute_of_the_layer_before():
    """A gather takes 1,200 µs, and a layer computes for 500 µs."""
    facts = gathers(asked_at=[20, 50], starts=[33, 1_733], computes=[1_233, 2_933], took=1_200)
    (found,) = find(facts)
    assert found.evidence["gathers_per_step"] == 1
    assert predict_saving(facts, found.edit).time_ns_per_step == pytest.approx(500_000, rel=0.02)


def test_for_gathers_in_the_backward_pass_the_fix_is_backward_prefetch():
    (found,) = find(queued(name="FullyShardedDataParallel._pre_backward_hook"))
    assert found.evidence["pass"] == "backward"
    assert "BACKWARD_PRE" in found.fix


def test_a_prefetch_after_the_gradients_is_reported():
    """``BackwardPrefetch.BACKWARD_POST`` prefetches then."""
    (found,) = find(queued(name="FullyShardedDataParallel._post_backward_prefetch"))
    assert "BACKWARD_PRE" in found.fix
