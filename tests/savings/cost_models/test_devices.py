"""The table of data sheets: which names it knows, and which it must not take for another's."""

from __future__ import annotations

import pytest

from profkit.run.directory import Rates, Run
from profkit.savings.cost_models.devices import _SHEETS, find_rates, presumed_rates, rates_of, why_no_rates
from tests.traces import facts_of, kernel, op, runtime


@pytest.mark.parametrize(
    ("name", "bandwidth", "float64", "float32"),
    [
        ("Tesla V100-SXM2-16GB", 900e9, 7.8e12, 15.7e12),
        ("Tesla V100-SXM2-32GB", 900e9, 7.8e12, 15.7e12),
        ("Tesla V100-PCIE-16GB", 900e9, 7.0e12, 14.0e12),
        ("Tesla T4", 320e9, 0.253e12, 8.1e12),
        ("NVIDIA GeForce RTX 2080 Ti", 616e9, 0.42e12, 13.4e12),
        ("GeForce RTX 2080 Ti", 616e9, 0.42e12, 13.4e12),
        ("NVIDIA A10", 600e9, 0.488e12, 31.2e12),
        ("NVIDIA A100-SXM4-40GB", 1555e9, 19.5e12, 19.5e12),
        ("NVIDIA A100 80GB PCIe", 1935e9, 19.5e12, 19.5e12),
        ("NVIDIA L4", 300e9, 0.473e12, 30.3e12),
        ("NVIDIA GeForce RTX 3090", 936e9, 0.556e12, 35.6e12),
        ("NVIDIA GeForce RTX 3060", 360e9, 12.738e12 / 64, 12.738e12),
        ("NVIDIA GeForce RTX 3090 Ti", 1008e9, 39.997e12 / 64, 39.997e12),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", 672e9, 44.099e12 / 64, 44.099e12),
        ("NVIDIA GeForce RTX 4090", 1008e9, 1.29e12, 82.6e12),
        ("NVIDIA H100 80GB HBM3", 3350e9, 67e12, 67e12),
        ("NVIDIA H100 PCIe", 2000e9, 51e12, 51e12),
        ("NVIDIA H200", 4800e9, 67e12, 67e12),
        ("AMD Instinct MI250X / MI250", 1638e9, 47.85e12, 47.85e12),
        ("Tesla V100S-PCIE-32GB", 1134e9, 8.2e12, 16.4e12),
        ("NVIDIA A10G", 600e9, 0.547e12, 35e12),
        ("NVIDIA A30", 933e9, 10.3e12, 10.3e12),
        ("NVIDIA A40", 696e9, 0.584e12, 37.4e12),
        ("NVIDIA RTX A6000", 768e9, 0.605e12, 38.7e12),
        ("NVIDIA L40", 864e9, 1.41e12, 90.5e12),
        ("NVIDIA L40S", 864e9, 1.43e12, 91.6e12),
        ("NVIDIA RTX 6000 Ada Generation", 960e9, 1.42e12, 91.1e12),
        ("NVIDIA GeForce RTX 5090", 1792e9, 1.64e12, 104.8e12),
        ("NVIDIA H100 NVL", 3900e9, 60e12, 60e12),
        ("NVIDIA GH200 480GB", 4000e9, 67e12, 67e12),
        ("NVIDIA H20", 4000e9, 1e12, 44e12),
        ("NVIDIA B200", 7700e9, 37e12, 75e12),
        ("AMD Instinct MI210", 1638e9, 45.3e12, 45.3e12),
        ("AMD Instinct MI325X", 6000e9, 163.4e12, 163.4e12),
        ("AMD Instinct MI355X", 8000e9, 78.6e12, 157.3e12),
        ("AMD Instinct MI300X", 5300e9, 163.4e12, 163.4e12),
        ("AMD Instinct MI300X VF", 5300e9, 163.4e12, 163.4e12),
    ],
)
def test_names_of_traces_are_known(name, bandwidth, float64, float32):
    rates = find_rates(name)
    assert rates is not None
    assert (rates.device, rates.bandwidth) == (name, bandwidth)
    assert (rates.products["float64"], rates.products["float32"]) == pytest.approx((float64, float32), rel=1e-4)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "NVIDIA A10M",
        "NVIDIA L40G",
        "NVIDIA L20",
        "NVIDIA GeForce RTX 3060 Laptop GPU",
        "NVIDIA A40-48Q",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 5090 D",
        "NVIDIA A100-SXM4-40GB MIG 3g.20gb",
        "NVIDIA GH200 144G HBM3e",
        "Tesla P100-PCIE-16GB",
        "NVIDIA A100-PG509-200",
        "NVIDIA H20-3e",
        "NVIDIA H200 NVL",
        "NVIDIA GB200",
        "NVIDIA B300",
        "Quadro RTX 6000",
        "NVIDIA RTX 6000D",
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        "AMD Instinct MI300A",
        "AMD Instinct MI350X",
    ],
)
def test_a_chip_of_a_similar_name_is_not_taken_for_another(name):
    assert find_rates(name) is None


@pytest.mark.parametrize("sheet", _SHEETS, ids=lambda sheet: " ".join(sorted(sheet.words)))
def test_the_rates_of_each_card_are_physically_sane(sheet):
    """Fewer bits are faster, half of them twice as fast, and each byte that is read allows 5 to 450 operations."""
    rates = sheet.rates("card").products
    assert rates["float64"] <= rates["float32"] <= rates.get("tf32", rates["float16"]) <= rates["float16"]
    assert rates.get("bfloat16", rates["float16"]) == rates["float16"]
    if "tf32" in rates:
        assert 1.9 <= rates["float16"] / rates["tf32"] <= 2.1
    if "float8" in rates:
        assert 1.9 <= rates["float8"] / rates["float16"] <= 2.1
    assert 5 <= rates["float16"] / (sheet.bandwidth * 1e9) <= 450


def test_no_name_finds_two_cards():
    for sheet in _SHEETS:
        name = " ".join(sheet.words)
        found = find_rates(name)
        assert found is not None
        assert found.bandwidth == sheet.bandwidth * 1e9
        assert found.products == sheet.rates(name).products


@pytest.mark.parametrize(
    ("name", "float8"),
    [
        ("NVIDIA H100 80GB HBM3", 1979e12),
        ("NVIDIA L4", 242.5e12),
        ("NVIDIA B200", 4500e12),
        ("AMD Instinct MI300X", 2614.9e12),
    ],
)
def test_cards_with_units_for_8_bits_have_their_rate(name, float8):
    rates = find_rates(name)
    assert rates is not None
    assert rates.products["float8"] == float8


def test_a_type_without_units_of_its_own_has_no_rate():
    rates = find_rates("Tesla V100-SXM2-16GB")
    assert rates is not None
    assert set(rates.products) == {"float64", "float32", "float16"}


def _facts(*names: str, on_device: bool = True, run: Run | None = None):
    work = [runtime("cudaLaunchKernel", 1, 1, correlation=1), kernel("k", 3, 5, correlation=1)] * on_device
    return facts_of([op("aten::mm", 0, 10), *work], run=run, deviceProperties=[{"name": name} for name in names])


def test_a_recording_with_kernels_has_the_rates_of_the_gpu_that_it_names():
    t4, measured = "Tesla T4", Rates("cpu", 1e10, {})
    assert rates_of(_facts(t4, t4)) == find_rates(t4)
    assert rates_of(_facts(t4, run=Run(rates=measured))) == find_rates(t4)
    assert rates_of(_facts(t4, "NVIDIA A10")) is None
    assert rates_of(_facts("")) is None


def test_what_was_measured_on_the_recorded_gpu_takes_the_place_of_its_data_sheet():
    measured = Rates("Tesla T4", 2.6e11, {"float32": 4e12, "tf32": 4e12, "float16": 2.4e13})
    assert rates_of(_facts("Tesla T4", run=Run(rates=measured))) == measured
    assert rates_of(_facts("NVIDIA A10", run=Run(rates=measured))) == find_rates("NVIDIA A10")


def test_what_was_measured_on_a_gpu_tells_nothing_of_the_host():
    measured = Rates("Tesla T4", 2.6e11, {"float32": 4e12})
    assert rates_of(_facts("Tesla T4", on_device=False, run=Run(device="Tesla T4", rates=measured))) is None


def test_a_recording_of_the_host_alone_has_what_was_measured_there():
    measured = Rates("cpu", 1e10, {"float32": 1e11})
    assert rates_of(_facts(on_device=False, run=Run(rates=measured))) == measured
    assert rates_of(_facts("Tesla T4", on_device=False)) is None


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("Cijk_Ailk_Bljk_BBS_BH_MT256x112x64_GSU1_ISA942_WGM1", "a device like an MI300X"),
        ("Cijk_Ailk_Bljk_BBS_BH_MT256x112x64_GSU1_ISA90a_WGM1", "a device like an MI210"),
        ("aiter_fused_moe_kernel_bf16", "a device like an MI300X"),
        ("igemm_fwd_gtcx_nhwc_fp32_bx0", "a device like an MI100"),
        ("igemm_fwd_gtcx2_nhwc_fp32_bx0", "a device like an MI210"),
        ("igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1", "a device like an MI300X"),
        ("igemm_fwd_gtcx35_nhwc_fp32_bx0", "a device like an MI355X"),
        ("ampere_sgemm_128x64_tn", None),
        (f"{'igemm_' * 20_000}_gtcx3", None),
    ],
)
def test_kernels_tell_a_device_that_is_not_named(name, card):
    rates = presumed_rates(facts_of([kernel(name, 0, 10)]))
    assert (None if rates is None else rates.device) == card


def test_a_name_counts_more_than_kernels():
    named = facts_of([kernel("aiter_fused_moe", 0, 10)], deviceProperties=[{"id": 0, "name": "AMD Instinct MI325X"}])
    assert presumed_rates(named) == rates_of(named)
    unknown = facts_of([kernel("aiter_fused_moe", 0, 10)], deviceProperties=[{"id": 0, "name": "Something new"}])
    assert presumed_rates(unknown) is None


def test_unknown_rates_have_a_reason_that_names_the_remedy():
    assert "does not name its device" in why_no_rates(_facts())
    unknown = why_no_rates(_facts("Something new"))
    assert "no data sheet is known for Something new" in unknown
    assert "--card" in unknown
