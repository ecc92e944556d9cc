"""Tokens drawn on the host, and on the device."""

from __future__ import annotations

import pytest

from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.sampling_on_host import sampling_on_host
from profkit.savings.simulate import predict_saving
from tests.traces import Json, annotation, facts_of, kernel, memcpy, op, runtime

WORDS = 32_000


def steps(
    *,
    size: int = 4 * WORDS * 8,
    host_us: float = 400,
    name: str = "step[DECODE bs=8]",
    draws: tuple[str, ...] = ("aten::topk", "aten::multinomial"),
    on_device: bool = False,
    count: int = 5,
) -> list[Json]:
    """Steps of 300 µs of work, a copy, and operators on the host (or with kernels) until the next begins."""
    events: list[Json] = []
    for number in range(count):
        at, ids = (500 + host_us) * number, 10 * number
        events += [
            annotation(name, at, 60),
            op("aten::embedding", at + 1, 8, dims=[[WORDS, 64], [8, 1]]),
            runtime("cudaGraphLaunch", at + 10, 10, correlation=ids + 1),
            op("aten::_flash_attention_forward", at + 62, 3),
            kernel("gemm", at + 25, 300, correlation=ids + 1),
            op("aten::to", at + 70, 330),
            runtime("cudaMemcpyAsync", at + 72, 8, correlation=ids + 2),
            memcpy("Memcpy DtoH (Device -> Pageable)", at + 330, 60, correlation=ids + 2, size_bytes=size),
            runtime("cudaStreamSynchronize", at + 82, 312),
        ]
        begin = at + 410
        for which, draw in enumerate(draws):
            events.append(op(draw, begin, host_us / len(draws) - 5, dims=[[8, WORDS], [], []]))
            if on_device:
                events += [
                    runtime("cudaLaunchKernel", begin + 2, 4, correlation=ids + 3 + which),
                    kernel("topk", begin + 8, 20, correlation=ids + 3 + which),
                ]
            begin += host_us / len(draws)
    return events


def find(events: list[Json]) -> list[Suspicion]:
    return list(sampling_on_host.check(facts_of(events)))


def test_an_engine_that_draws_on_the_host():
    events = steps()
    (found,) = find(events)
    assert "1.02 MB of scores a step are copied there" in found.message
    assert "run there twice a step" in found.message
    assert predict_saving(facts_of(events), found.edit).fraction == pytest.approx(450 / 900, abs=0.08)


def test_a_loop_of_ones_own():
    (found,) = find(steps(name="my loop"))
    assert found.evidence["score_bytes_per_step"] == 4 * WORDS * 8


@pytest.mark.parametrize(("size", "reported"), [(8 * 1024, 1), (8 * 1024 - 1, 0)])
def test_a_kilobyte_of_each_sequence_is_the_least(size, reported):
    assert len(find(steps(size=size))) == reported


@pytest.mark.parametrize(
    ("events", "why"),
    [
        (steps(size=64), "only the tokens are copied"),
        (steps(on_device=True), "drawn on the device"),
        (steps(draws=("aten::softmax", "aten::div")), "nothing is drawn"),
        (steps(name="step[EXTEND bs=8 toks=4096]"), "prompts"),
    ],
)
def test_other_steps_are_silent(events, why):
    assert find(events) == [], why


def test_without_a_device():
    assert Need.DEVICE in missing_needs(facts_of([op("aten::topk", 0, 5)]), sampling_on_host.needs)
