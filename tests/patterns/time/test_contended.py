"""What is computed beside collectives, compared with the same computed alone."""

from __future__ import annotations

import pytest

from profkit.diagnosis.pipeline import diagnose
from profkit.findings.values import BesideCommunication
from profkit.patterns.time.contended import beside_communication
from profkit.report import render
from tests.traces import Json, facts_of, kernel, op, runtime, step

SHAPES = [[512, 512], [512, 512]]


def recording(
    beside: float = 130,
    alone: float = 100,
    *,
    each: int = 5,
    shapes: list | None = SHAPES,
    other: list | None = None,
    name: str = "ampere_sgemm_128x64_nn",
    stream: int = 7,
    covered: float = 1.0,
) -> list[Json]:
    """Four steps of 5 ms: so many products of these µs under a collective, and as many without."""
    events: list[Json] = []
    for number in range(4):
        at, ids = 5000 * number, 100 * number + 1
        events += [step(number, at, 5000), op("aten::mm", at, 1, dims=SHAPES)]
        length = each * beside * covered
        events += [
            runtime("cudaLaunchKernel", at + 2, 1, correlation=ids),
            kernel("ncclDevKernel_AllReduce", at + 100, length, correlation=ids, stream=27),
        ]
        begin = at + 100.0
        for place in range(2 * each):
            us, dims = (beside, shapes) if place < each else (alone, other or shapes)
            one, host = ids + 1 + place, at + 5 + 4 * place
            events += [
                op("aten::mm", host, 3, dims=dims, types=["float", "float"]),
                runtime("cudaLaunchKernel", host + 1, 1, correlation=one),
                kernel(name, begin, us, correlation=one, stream=stream if place % 2 else 7),
            ]
            begin += us
    return events


def found(*args: float, **more) -> BesideCommunication | None:
    return beside_communication(facts_of(recording(*args, **more)))


def test_kernels_of_the_same_shapes_are_compared():
    assert found() == BesideCommunication(20, 20, 1.3, 5 * 30_000)


@pytest.mark.parametrize(("beside", "ratio"), [(110, 1.1), (107, None), (104, 1.04), (90, 0.9)])
def test_a_difference_of_a_few_per_cent_is_not_told(beside, ratio):
    one = found(beside)
    assert (one and one.ratio) == ratio


def test_other_shapes_and_none_are_not_compared():
    assert found(other=[[512, 256], [256, 512]]) is None
    assert found(shapes=None) is None
    assert found(shapes=[[], []]) is None  # lists of tensors in older traces


@pytest.mark.parametrize("name", ["void cub::DeviceRadixSortOnesweepKernel<>()", "indexSelectLargeIndex", "mystery"])
def test_what_depends_on_the_numbers_is_not_compared(name):
    assert found(name=name) is None


def test_few_kernels_show_nothing():
    assert found(each=4) is None
    assert found(each=5) is not None


def test_what_a_collective_covers_in_part_counts_for_neither():
    assert found(covered=0.5) is None


def test_kernels_that_compute_at_once_slow_each_other_down():
    events = recording()
    aside = [
        event
        for number in range(4)
        for event in (
            runtime("cudaLaunchKernel", 5000 * number + 90, 1, correlation=5000 + number),
            kernel("relu", 5000 * number + 100, 650, correlation=5000 + number, stream=9),
        )
    ]
    assert beside_communication(facts_of([*events, *aside])) is None


def test_without_collectives_nothing_is_compared():
    events = [event for event in recording() if "nccl" not in event["name"]]
    assert beside_communication(facts_of(events)) is None


def test_reports_tell_it():
    text = " ".join(render(diagnose(facts_of(recording())), "text").split())
    assert "20 kernels take 1.30 times as long beside it as 20 of their kind alone, 150 µs a step more" in text
    text = " ".join(render(diagnose(facts_of(recording(100))), "text").split())
    assert "20 kernels take no longer beside it than 20 of their kind alone" in text
