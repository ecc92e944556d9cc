"""Narrow products far below the memory's rate, and others."""

from __future__ import annotations

import pytest

from profkit.derive.facts import Facts
from profkit.rules.base import CannotLook, Need, missing_needs
from profkit.rules.skinny_product import skinny_product
from tests.rules.roofs import H100, found, on_device, saved
from tests.savings.roofline.launching import call
from tests.traces import facts_of, step

TALL = [[1_000_000, 32], [32, 32]]
"""128 MB in 16 bits: 38.2 µs at 3.35 TB/s."""


def recording(
    us: float, dims: list[list[int]] = TALL, name: str = "aten::mm", card: str = H100, idle: float = 0.0
) -> Facts:
    return on_device(call(name, dims, "c10::Half", ("gemm", us)), card=card, idle=idle)


def test_a_tall_product_at_a_tenth_of_the_rate_is_found():
    facts = recording(382)
    (one,) = found(skinny_product, facts)
    assert "1 narrow product a step (1,000,000 x 32 by 32) takes 382 µs" in one.message
    assert "10 % of its rate" in one.message
    assert saved(facts, one) == pytest.approx((382 - 38.2 / 0.7) / 412, abs=0.1)


def test_near_the_memorys_rate_it_is_silent():
    assert found(skinny_product, recording(60)) == []


def test_the_boundary_is_half_of_the_rate():
    assert found(skinny_product, recording(79))
    assert found(skinny_product, recording(74)) == []


def test_wide_products_and_batches_are_others():
    assert found(skinny_product, recording(900, [[100_000, 128], [128, 128]])) == []
    assert found(skinny_product, recording(900, [[64, 1024, 32], [64, 32, 1024]], "aten::bmm")) == []


def test_tiny_products_say_nothing():
    assert found(skinny_product, recording(14, [[64, 1024], [1024, 64]])) == []


def test_it_is_silent_where_the_device_idles_for_other_reasons():
    assert found(skinny_product, recording(382, idle=40_000)) == []


def test_an_unknown_card_cannot_be_judged():
    with pytest.raises(CannotLook, match="peak rates"):
        found(skinny_product, recording(382, card="Some GPU"))


def test_shapes_are_needed():
    assert Need.SHAPES in missing_needs(facts_of([step(0, 0, 100)]), skinny_product.needs)
