"""Convolutions far below the roof, and some that are slow in the usual way."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.derive.facts import Facts
from profkit.rules.base import CannotLook, Need, missing_needs
from profkit.rules.slow_convolution import slow_convolution
from tests.rules.roofs import H100, MI300X, found, on_device, saved
from tests.savings.roofline.launching import call
from tests.traces import facts_of, step


def recording(us: float, image: list[int], weight: list[int], card: str = MI300X, **more: Any) -> Facts:
    """``more`` are settings of the convolution, and ``idle``."""
    stride, padding, dilation = (
        more.get(name, usual) for name, usual in (("stride", 1), ("padding", 1), ("dilation", 1))
    )
    pairs = [f"[{one}, {one}]" for one in (stride, padding, dilation)]
    values = ["", "", "", *pairs, str(more.get("transposed", False)), "[0, 0]", str(more.get("groups", 1))]
    dims: list[Any] = [image, weight, *[[]] * 7]
    launched = call("aten::convolution", dims, ["float", "float", *[""] * 7], ("igemm_fwd", us), values=values)
    return on_device(launched, card=card, idle=more.get("idle", 0.0))


WIDE = ([16, 256, 56, 56], [256, 256, 3, 3])
"""59.2 G operations: 362 µs at 163.4 TFLOP/s."""


def test_a_depthwise_layer_is_found():
    facts = recording(1_200, [32, 1024, 32, 32], [1024, 1, 3, 3], groups=1024)
    (one,) = found(slow_convolution, facts)
    assert "each of its 1,024 channels is a group of its own (depthwise), in float32" in one.message
    assert "channels_last" in one.fix
    assert saved(facts, one) > 0.3


@pytest.mark.parametrize(
    ("shapes", "more", "reason"),
    [
        (([2, 256, 64, 64], [256, 256, 3, 3]), {"dilation": 16, "padding": 16}, "dilated by 16"),
        (([4, 512, 8, 8], [512, 256, 4, 4]), {"stride": 2, "transposed": True}, "4x4 is transposed"),
        (([2, 256, 28, 28], [512, 256, 1, 7]), {"padding": 3}, "1x7 is long and narrow"),
        (([1, 2048, 4, 4], [2048, 2048, 3, 3]), {}, "4x4 pixels does not fill a tile"),
        (([2, 256, 28, 28], [256, 64, 3, 3]), {"groups": 4}, "in 4 groups"),
        (([1, 3, 512, 512], [64, 3, 7, 7]), {"padding": 3}, "3 channels become 64"),
    ],
)
def test_the_reason_is_named(shapes, more, reason):
    (one,) = found(slow_convolution, recording(950, *shapes, **more))
    assert reason in one.message


def test_groups_of_one_at_a_twentieth_are_usual():
    """They move 268 MB: 51 µs at 5.3 TB/s."""
    assert found(slow_convolution, recording(1_000, [32, 1024, 32, 32], [1024, 1, 3, 3], groups=1024)) == []


def test_a_usual_share_is_silent():
    assert found(slow_convolution, recording(900, *WIDE)) == []


def test_the_boundary_is_fifteen_per_cent():
    assert found(slow_convolution, recording(2_600, *WIDE))
    assert found(slow_convolution, recording(2_300, *WIDE)) == []


def test_first_layers_of_healthy_networks_are_silent():
    """Three channels and 224 x 224, at 10 % of an H100, as recorded."""
    facts = recording(800, [192, 3, 224, 224], [64, 3, 7, 7], stride=2, padding=3, card=H100)
    assert found(slow_convolution, facts) == []


def test_it_is_silent_where_the_device_idles_for_other_reasons():
    facts = recording(1_200, [32, 1024, 32, 32], [1024, 1, 3, 3], groups=1024, idle=90_000)
    assert found(slow_convolution, facts) == []


def test_an_unknown_card_cannot_be_judged():
    with pytest.raises(CannotLook, match="peak rates"):
        found(slow_convolution, recording(900, *WIDE, card="Some GPU"))


def test_shapes_are_needed():
    assert Need.SHAPES in missing_needs(facts_of([step(0, 0, 100)]), slow_convolution.needs)
