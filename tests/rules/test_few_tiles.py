"""Products whose results have few tiles, and some that are slow for another reason or have enough."""

from __future__ import annotations

import pytest

from profkit.derive.facts import Facts
from profkit.rules.base import CannotLook, Need, missing_needs
from profkit.rules.few_tiles import few_tiles
from profkit.savings.cost_models.roofline import Product
from profkit.savings.roofline.tiles import Tiling, multiprocessors, tiling_of
from tests.rules.roofs import BFLOAT16, MI300X, found, on_device, saved
from tests.savings.roofline.launching import call
from tests.traces import facts_of, step

TENSILE = "Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1_SN_GSU1_ISA942_WGM1"
LONG = [[256, 131072], [131072, 512]]


def recording(us: float = 900, dims: list[list[int]] = LONG, name: str = TENSILE, card: str = MI300X) -> Facts:
    return on_device(call("aten::mm", dims, BFLOAT16, (name, us)), card=card)


def test_a_long_sum_in_four_tiles_is_found():
    facts = recording()
    (one,) = found(few_tiles, facts)
    assert one.evidence["tiles"] == 4
    assert one.evidence["multiprocessors"] == 304
    assert "256 x 512 has 4 tiles for 304 multiprocessors, and each sums over 131,072" in one.message
    assert 0.7 < saved(facts, one) < 0.9


def test_many_tiles_are_slow_for_another_reason():
    assert found(few_tiles, recording(dims=[[8192, 4096], [4096, 8192]])) == []


def test_the_boundary_is_half_of_the_multiprocessors():
    """128 x 153 tiles of 256 x 128: 152 of 304 places are half, 153 are more."""
    assert found(few_tiles, recording(dims=[[256, 16384], [16384, 128 * 152]]))
    assert found(few_tiles, recording(dims=[[256, 16384], [16384, 128 * 153]])) == []


def test_at_a_quarter_of_the_possible_nothing_is_said():
    """The product moves 201 MB: 38 µs at 5.3 TB/s."""
    assert found(few_tiles, recording(us=160))
    assert found(few_tiles, recording(us=150)) == []


def test_a_sum_that_is_split_has_more_tiles():
    assert found(few_tiles, recording(name=TENSILE.replace("GSU1", "GSU64"))) == []


def test_an_untold_split_is_left_out():
    facts = on_device(call("aten::mm", LONG, BFLOAT16, (TENSILE, 800), ("splitKreduce_kernel", 20)), card=MI300X)
    assert found(few_tiles, facts) == []


def test_it_is_silent_where_the_device_idles_for_other_reasons():
    facts = on_device(call("aten::mm", LONG, BFLOAT16, (TENSILE, 900)), card=MI300X, idle=50_000)
    assert found(few_tiles, facts) == []


def test_an_unknown_card_cannot_be_judged():
    with pytest.raises(CannotLook, match="peak rates"):
        found(few_tiles, recording(card="Some GPU"))


def test_shapes_are_needed():
    assert Need.SHAPES in missing_needs(facts_of([step(0, 0, 100)]), few_tiles.needs)


@pytest.mark.parametrize(
    ("name", "tiling"),
    [
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x256x64_warpgroupsize2", Tiling(128, 256, 1)),
        ("nvjet_tst_192x128_64x5_2x1_v_bz_TNT", Tiling(192, 128, 1)),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x128_64x3_tn_align8>",
            Tiling(64, 128, 1),
        ),
        (TENSILE.replace("GSU1", "GSU2"), Tiling(256, 128, 2)),
        ("gemv2T_kernel_val", None),
        ("nvjet_tst_64x8_64x16_4x1_v_bz_splitK_TNT", None),
    ],
)
def test_names_tell_the_tiles(name, tiling):
    assert tiling_of((name,)) == tiling


def test_tiles_are_counted_in_the_orientation_with_more():
    assert Tiling(256, 64, 1).count(Product(3, 256, 10, 256)) == 3 * 4
    assert Tiling(256, 64, 2).count(Product(1, 64, 10, 256)) == 2 * 4


def test_cards_have_multiprocessors():
    assert multiprocessors("NVIDIA H100 80GB HBM3") == 132
    assert multiprocessors("Some GPU") is None
