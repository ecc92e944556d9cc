"""Convolutions with long kernels: by their shapes and their time, and those that are cheap as they are."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import CannotLook, Need, Suspicion
from profkit.rules.long_kernel_convolution import long_kernel_convolution
from tests.traces import facts_of, kernel, op, runtime, step

Json = dict[str, Any]
STEP = 1_000


def convolution(
    took: float = 800, taps: int = 1024, stride: str = "[1]", padding: str = "[0]", length: int = 1024
) -> Json:
    return op(
        "aten::conv1d",
        10,
        took,
        dims=[[1, 1, length], [1, 1, taps], [], [], [], [], []],
        types=["float", "float", "", "", "", "", ""],
        concrete=["", "", "", stride, padding, "[1]", "1"],
    )


def find(*events: Json) -> list[Suspicion]:
    steps = [
        event
        for i in range(3)
        for event in (step(i, STEP * i, STEP), *({**one, "ts": one["ts"] + STEP * i} for one in events))
    ]
    return list(long_kernel_convolution.check(facts_of(steps)))


def test_the_transforms_cost_what_their_shapes_say():
    (found,) = find(convolution())
    assert found.message == (
        "1 convolution a step has a kernel of 1,024 weights for each pair of channels. By the arithmetic, Fourier "
        "transforms would do the same in about 2.5 % of the time."
    )
    # three transforms of 2.5 x 1,024 x 10 operations and 4,096 products, four in a ns: 20,224 of 800,000 ns
    assert found.evidence == {"kernel_elements": 1024, "transforms_share": 0.0253}


@pytest.mark.parametrize("took", [60, 10])
def test_a_convolution_that_is_as_cheap_is_left_alone(took):
    assert find(convolution(took=took)) == []


def test_boundary():
    assert len(find(convolution(took=61))) == 1
    assert len(find(convolution(taps=256))) == 1
    assert find(convolution(taps=255)) == []


@pytest.mark.parametrize(
    "event",
    [
        convolution(stride="[2]"),
        op("aten::conv1d", 10, 800, dims=[[1, 1, 1024]], types=["float"]),
        op("aten::linear", 10, 800, dims=[[1, 1024], [8, 1024]], types=["float"] * 2),
    ],
)
def test_what_transforms_do_not_replace_is_left_alone(event):
    assert find(event) == []


def test_padding_makes_the_transforms_longer_and_its_name_counts_for_nothing():
    plain, padded, same = (find(convolution(padding=text))[0] for text in ("[0]", "[300]", '"same"'))
    assert padded.evidence["transforms_share"] > 1.5 * float(plain.evidence["transforms_share"])
    assert same.evidence == plain.evidence


def test_missing_data():
    assert Need.SHAPES in long_kernel_convolution.needs
    with pytest.raises(CannotLook, match="on this GPU"):
        find(convolution(), runtime("cudaLaunchKernel", 20, 5, correlation=1), kernel("conv", 30, 900, correlation=1))
