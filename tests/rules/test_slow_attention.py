"""Attention in slow kernels, and in those that are as fast as any."""

from __future__ import annotations

import pytest

from profkit.derive.facts import Facts
from profkit.rules.base import CannotLook, Need, missing_needs
from profkit.rules.slow_attention import slow_attention
from tests.rules.roofs import BFLOAT16, H100, MI300X, found, on_device, saved
from tests.savings.roofline.launching import call
from tests.traces import facts_of, op, step

FLASH = "aten::_scaled_dot_product_flash_attention"
EFFICIENT = "aten::_scaled_dot_product_efficient_attention"
AOTRITON, FLASH2, CUTLASS = "attn_fwd.kd", "void pytorch_flash::flash_fwd_kernel<>", "fmha_cutlassF_f16_aligned_64x64"


def recording(  # an attention has as many sides
    us: float,
    kernel: str = AOTRITON,
    *,
    name: str = FLASH,
    keys: int = 4096,
    width: int = 128,
    heads: int = 32,
    card: str = MI300X,
    idle: float = 0.0,
) -> Facts:
    """275 G operations with the sizes given: 210 µs on an MI300X, 278 on an H100."""
    shape = [1, heads, keys, width]
    dims = [shape, shape, shape, [], [], [], []]
    types = [BFLOAT16] * 3 + ["Scalar"] * 4
    return on_device(call(name, dims, types, (kernel, us)), card=card, idle=idle)


def test_aotriton_at_a_tenth_is_found():
    facts = recording(2_000)
    (one,) = found(slow_attention, facts)
    assert "AOTriton's kernels" in one.message
    assert "32 heads of 128 over 4,096 keys" in one.message
    assert "AITER" in one.fix
    assert saved(facts, one) == pytest.approx((2_000 - 701) / 2_030, abs=0.01)


def test_an_unusual_width_and_short_sequences_are_named():
    (wide,) = found(slow_attention, recording(2_500, width=192))
    assert "a width that is padded" in wide.message
    (short,) = found(slow_attention, recording(2_500, keys=128, heads=8192))
    assert "too short to fill" in short.message


def test_the_memory_efficient_kernels_are_found_on_nvidia():
    (one,) = found(slow_attention, recording(2_500, CUTLASS, name=EFFICIENT, card=H100))
    assert "memory-efficient" in one.message
    assert "is_causal=True" in one.fix


def test_flash_attention_2_on_a_hopper_is_found_on_long_sequences_only():
    assert found(slow_attention, recording(1_500, FLASH2, card=H100))
    assert found(slow_attention, recording(2_500, FLASH2, keys=512, heads=512, card=H100)) == []


def _written_out(us: float, kernel: str = "ampere_bf16_s16816gemm_bf16_128x128") -> Facts:
    """The math path: its products and the softmax are calls of their own."""
    shape = [1, 32, 4096, 128]
    math = op(
        "aten::_scaled_dot_product_attention_math",
        0,
        300,
        dims=[shape, shape, shape, [], [], []],
        types=[BFLOAT16] * 3 + [""] * 3,
        concrete=["", "", "", "", "0.", "False"],
    )
    flat = [[32, 4096, 128], [32, 128, 4096]]
    table = [[32, 4096, 4096], [32, 4096, 128]]
    parts = [
        *call("aten::bmm", flat, BFLOAT16, (kernel, us), at=1),
        *call("aten::_softmax", [table[0]], BFLOAT16, ("softmax", us), at=101, number=2, on_device_at=21 + us),
        *call("aten::bmm", table, BFLOAT16, (kernel, us), at=201, number=3, on_device_at=21 + 2 * us),
    ]
    return on_device([math, *parts], card=H100)


def test_the_math_path_is_found_with_all_its_kernels():
    """275 G operations are 278 µs on an H100."""
    facts = _written_out(700)
    (one,) = found(slow_attention, facts)
    assert "Attention runs once a step in single products (the math path), 2.10 ms at 13 %" in one.message
    assert "SDPBackend.FLASH_ATTENTION" in one.fix
    assert saved(facts, one) == pytest.approx((2_100 - 278 / 0.43) / 2_130, abs=0.01)


def test_a_fast_math_path_is_silent():
    assert found(slow_attention, _written_out(350)) == []


def test_other_kernels_are_as_fast_as_any():
    assert found(slow_attention, recording(2_500, "cudnn_generated_fort_native_sdpa_sm90", card=H100)) == []
    assert found(slow_attention, recording(2_500, FLASH2, card="NVIDIA A100-SXM4-80GB")) == []


def test_the_boundary_is_a_quarter_of_the_possible():
    assert found(slow_attention, recording(860))
    assert found(slow_attention, recording(830)) == []


def test_it_is_silent_where_the_device_idles_for_other_reasons():
    assert found(slow_attention, recording(2_000, idle=200_000)) == []


def test_an_unknown_card_cannot_be_judged():
    with pytest.raises(CannotLook, match="peak rates"):
        found(slow_attention, recording(2_000, card="Some GPU"))


def test_shapes_are_needed():
    assert Need.SHAPES in missing_needs(facts_of([step(0, 0, 100)]), slow_attention.needs)
