"""Layers of experts with few tokens or a slow kernel, and those that compute well."""

from __future__ import annotations

import pytest

from profkit.derive.facts import Facts
from profkit.rules.base import CannotLook, Need, missing_needs
from profkit.rules.scattered_experts import scattered_experts
from tests.rules.roofs import BFLOAT16, MI300X, found, on_device, saved
from tests.savings.roofline.launching import call
from tests.traces import facts_of, step


def recording(us: float, tokens: int, experts: int, chosen: int, card: str = MI300X, idle: float = 0.0) -> Facts:
    """An expert has 25.2 M weights, 50.3 MB: 9.5 µs at 5.3 TB/s. A token takes 50.3 M operations in each."""
    dims = [[tokens, 2048], [experts, 8192, 2048], [experts, 2048, 4096], [tokens, chosen]]
    types = [BFLOAT16] * 3 + ["float"]
    return on_device(call("vllm::some_fused_moe", dims, types, ("fused_moe_kernel", us)), card=card, idle=idle)


def test_half_a_token_for_each_expert_is_found():
    facts = recording(900, tokens=16, experts=64, chosen=2)
    (one,) = found(scattered_experts, facts)
    assert "16 tokens go to 2 of 64 experts each, 0.5 for each expert" in one.message
    assert one.evidence["tokens_per_expert"] == 0.5
    assert "batch more requests" in one.fix
    assert saved(facts, one) == pytest.approx(450 / 930, abs=0.01)


def test_a_slow_kernel_with_many_tokens_is_found():
    """8,192 tokens take 412 G operations: 315 µs at 1,307 TFLOP/s."""
    facts = recording(2_500, tokens=8192, experts=8, chosen=1)
    (one,) = found(scattered_experts, facts)
    assert "1,024 tokens for each of 8 experts they reach 13 %" in one.message
    assert saved(facts, one) == pytest.approx((2_500 - 630) / 2_530, abs=0.03)


def test_tokens_that_prefer_some_experts_reach_fewer_of_them():
    """At random 32 choices reach 25 of 64 experts, 240 µs; in 120 µs the memory reads 13 of them."""
    facts = recording(120, tokens=16, experts=64, chosen=2)
    (one,) = found(scattered_experts, facts)
    assert one.evidence["share_of_possible"] == 1.0
    assert found(scattered_experts, recording(12, tokens=16, experts=64, chosen=2)) == []  # not even two


def test_a_layer_that_computes_well_is_silent():
    assert found(scattered_experts, recording(600, tokens=8192, experts=8, chosen=1)) == []


def test_the_boundary_is_what_hides_the_reading():
    """1,307.4 TFLOP/s over 5.3 TB/s are 246.7 operations a byte, and as many tokens in 16 bits."""
    assert found(scattered_experts, recording(900, tokens=64 * 246, experts=64, chosen=1))
    assert found(scattered_experts, recording(900, tokens=64 * 300, experts=64, chosen=1)) == []


def test_it_is_silent_where_the_device_idles_for_other_reasons():
    assert found(scattered_experts, recording(900, tokens=16, experts=64, chosen=2, idle=90_000)) == []


def test_an_unknown_card_cannot_be_judged():
    with pytest.raises(CannotLook, match="peak rates"):
        found(scattered_experts, recording(900, 16, 64, 2, card="Some GPU"))


def test_shapes_are_needed():
    assert Need.SHAPES in missing_needs(facts_of([step(0, 0, 100)]), scattered_experts.needs)


def test_kernels_tell_a_device_that_is_not_named():
    dims = [[16, 2048], [64, 8192, 2048], [64, 2048, 4096], [16, 2]]
    types = [BFLOAT16] * 3 + ["float"]
    facts = on_device(call("vllm::rocm_aiter_fused_moe", dims, types, ("aiter_fused_moe_kernel", 900)), card="")
    (one,) = found(scattered_experts, facts)
    assert one.message.endswith("does not name its device; by its kernels it is counted as an MI300X.")


def test_a_device_that_only_kernels_tell_may_be_a_faster_one():
    dims = [[8192, 2048], [8, 8192, 2048], [8, 2048, 4096], [8192, 1]]
    types = [BFLOAT16] * 3 + ["float"]
    facts = on_device(call("vllm::rocm_aiter_fused_moe", dims, types, ("aiter_fused_moe_kernel", 600)), card="")
    with pytest.raises(CannotLook, match="on an MI300X these are not slow"):
        found(scattered_experts, facts)
