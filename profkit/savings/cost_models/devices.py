"""The peak rates of GPUs, from their makers' data sheets, by the names in traces.

Peak rates are those of dense matrix products (makers print twice as much for structured sparsity), at boost clock. For
doubles it is the rate of the tensor or matrix units if a GPU has them for doubles, as the vendors' libraries use those
for products. If a data sheet does not mention doubles, the ratio comes from the table of arithmetic throughput in the
CUDA C++ Programming Guide: 1/32 of float32 for compute capability 7.5, 1/64 for 8.6, 8.9 and 12.0. Products of 16 and
of 8 bits are summed in float32, as in PyTorch: gaming cards are half as fast at that as their data sheets say.
"""

from __future__ import annotations

import re

from msgspec import Struct

from profkit.core.printing import visible
from profkit.derive.facts import Facts
from profkit.run.directory import Rates
from profkit.trace.events import Bools, Category, Rows

_SIZE = re.compile(r"\d+gb|hbm\d\w?")
_NEUTRAL = frozenset(("nvidia", "amd", "tesla", "geforce", "instinct", "oam", "vf"))
"""Words of a name that change nothing (``VF``: an MI300X in a virtual machine). Any other word may mean another chip
(``Ti``, ``Laptop``, ``MIG``)."""


OLD_DOUBLES = "d884"
"""Part of the names of CUTLASS's kernels with `mma.m8n8k4` on doubles, from compute capability 8.0 on. `m16n8k4` and
larger ones came with 9.0 (PTX ISA, "Matrix multiply-accumulate operation using mma instruction"), and with them twice
the rate of a multiprocessor; with the old one large products reach 0.48 of an H100's rate."""
ALLOWING_TF32 = ("high", "medium")
"""The settings of `torch.set_float32_matmul_precision` that let products use TF32 or less."""
TF32_KERNEL = re.compile(r"tf32|s1688gemm|nvjet_\w*_sss", re.IGNORECASE)
"""In the names of kernels of cuBLAS and cuDNN that multiply in TF32, if the tensors are float32."""
_HOPPER = frozenset(("h100", "h200", "gh200"))
_TYPES = ("float64", "float32", "tf32", "float16", "bfloat16", "float8")


class _Sheet(Struct, frozen=True):
    """The words of the name, GB/s, and TFLOP/s by type: doubles, floats, TF32, half, bfloat16 and 8 bits."""

    name: str
    bandwidth: float
    float64: float
    float32: float
    tf32: float | None
    float16: float
    bfloat16: float | None
    float8: float | None = None

    @property
    def words(self) -> frozenset[str]:
        return frozenset(self.name.split())

    def rates(self, name: str) -> Rates:
        rates = {kind: getattr(self, kind) for kind in _TYPES}
        return Rates(name, self.bandwidth * 1e9, {kind: rate * 1e12 for kind, rate in rates.items() if rate})


def _sheet(words: str, bandwidth: float, *rates: float | None) -> _Sheet:
    return _Sheet(words, bandwidth, *rates)  # type: ignore[arg-type]  # float64, float32, float16 are given


def _gaming(words: str, bandwidth: float, cores: int, boost_ghz: float, has_float8: bool) -> _Sheet:
    """A GeForce card by its cores and clock: two operations per core and cycle. TF32 is as fast as float32, half summed
    in float32 twice as fast, and 8 bits four times (Ampere GA102, Ada and RTX Blackwell white papers, whose figures
    for the 3090, 4090 and 5090 follow so, too); doubles: 1/64."""
    float32 = 2 * cores * boost_ghz / 1e3
    half = 2 * float32
    return _sheet(words, bandwidth, float32 / 64, float32, float32, half, half, 4 * float32 if has_float8 else None)


_SHEETS = (
    # NVIDIA Tesla V100 data sheet, January 2020 (also V100S).
    _sheet("v100 sxm2", 900, 7.8, 15.7, None, 125, None),
    _sheet("v100 pcie", 900, 7.0, 14.0, None, 112, None),
    _sheet("v100s pcie", 1134, 8.2, 16.4, None, 130, None),
    # NVIDIA DGX Station data sheet, 2018: four V100 with 500 TFLOPS of mixed precision; else as the SXM2 board.
    _sheet("v100 dgxs", 900, 7.8, 15.7, None, 125, None),
    # NVIDIA T4 product brief PB-09256 (320 GB/s) and data sheet; doubles: 1/32.
    _sheet("t4", 320, 0.253, 8.1, None, 65, None),
    # NVIDIA Turing architecture white paper, appendix A: reference board, half summed in float32; doubles: 1/32.
    _sheet("rtx 2080 ti", 616, 0.42, 13.4, None, 53.8, None),
    # NVIDIA A10 data sheet; doubles: 1/64.
    _sheet("a10", 600, 0.488, 31.2, 62.5, 125, 125),
    # NVIDIA A10G data sheet (the card of AWS's G5): more cores than the A10, tensor cores at half rate; doubles: 1/64.
    _sheet("a10g", 600, 0.547, 35, 35, 70, 70),
    # NVIDIA A30 data sheet, March 2022; doubles on tensor cores.
    _sheet("a30", 933, 10.3, 10.3, 82, 165, 165),
    # NVIDIA A40 data sheet; doubles: 1/64.
    _sheet("a40", 696, 0.584, 37.4, 74.8, 149.7, 149.7),
    # NVIDIA Ampere GA102 architecture white paper, RTX A6000; doubles: 1/64.
    _sheet("rtx a6000", 768, 0.605, 38.7, 77.4, 154.8, 154.8),
    # NVIDIA A100 data sheet, May 2020 (40 GB) and June 2021 (80 GB); doubles on tensor cores.
    _sheet("a100 sxm4 40gb", 1555, 19.5, 19.5, 156, 312, 312),
    _sheet("a100 pcie 40gb", 1555, 19.5, 19.5, 156, 312, 312),
    _sheet("a100 sxm4 80gb", 2039, 19.5, 19.5, 156, 312, 312),
    _sheet("a100 pcie 80gb", 1935, 19.5, 19.5, 156, 312, 312),
    # NVIDIA L4 data sheet, halved as it prints sparse rates; doubles: 1/64.
    _sheet("l4", 300, 0.473, 30.3, 60, 121, 121, 242.5),
    # NVIDIA L40 and L40S data sheets, which print both rates; doubles: 1/64.
    _sheet("l40", 864, 1.41, 90.5, 90.5, 181.05, 181.05, 362),
    _sheet("l40s", 864, 1.43, 91.6, 183, 362.05, 362.05, 733),
    # NVIDIA RTX 6000 Ada Generation data sheet: 1457 at 8 bits and sparse, half of it dense; float16 has half of that,
    # TF32 a quarter (NVIDIA Ada GPU architecture white paper); doubles: 1/64.
    _sheet("rtx 6000 ada generation", 960, 1.42, 91.1, 182.1, 364.2, 364.2, 728.5),
    # NVIDIA Ampere GA102 architecture white paper: half with float32 accumulation; doubles: 1/64.
    _sheet("rtx 3090", 936, 0.556, 35.6, 35.6, 71, 71),
    # NVIDIA Ada GPU architecture white paper, appendix A: with float32 accumulation; doubles: 1/64.
    _sheet("rtx 4090", 1008, 1.29, 82.6, 82.6, 165.2, 165.2, 330.3),
    # NVIDIA RTX Blackwell GPU architecture white paper: with float32 accumulation; doubles: 1/64.
    _sheet("rtx 5090", 1792, 1.64, 104.8, 104.8, 209.5, 209.5, 419),
    # NVIDIA's specifications of its GeForce cards: GB/s, cores and boost clock. An RTX 3060 is the one with 12 GB, an
    # RTX 3080 the one with 10 GB, as the others of the same name are rare.
    _gaming("rtx 3060", 360, 3584, 1.777, has_float8=False),
    _gaming("rtx 3060 ti", 448, 4864, 1.665, has_float8=False),
    _gaming("rtx 3070", 448, 5888, 1.725, has_float8=False),
    _gaming("rtx 3070 ti", 608, 6144, 1.770, has_float8=False),
    _gaming("rtx 3080", 760, 8704, 1.710, has_float8=False),
    _gaming("rtx 3080 ti", 912, 10240, 1.665, has_float8=False),
    _gaming("rtx 3090 ti", 1008, 10752, 1.860, has_float8=False),
    _gaming("rtx 4060", 272, 3072, 2.460, has_float8=True),
    _gaming("rtx 4060 ti", 288, 4352, 2.535, has_float8=True),
    _gaming("rtx 4070", 504, 5888, 2.475, has_float8=True),
    _gaming("rtx 4070 super", 504, 7168, 2.475, has_float8=True),
    _gaming("rtx 4070 ti", 504, 7680, 2.610, has_float8=True),
    _gaming("rtx 4070 ti super", 672, 8448, 2.610, has_float8=True),
    _gaming("rtx 4080", 717, 9728, 2.505, has_float8=True),
    _gaming("rtx 4080 super", 736, 10240, 2.550, has_float8=True),
    _gaming("rtx 5070", 672, 6144, 2.512, has_float8=True),
    _gaming("rtx 5070 ti", 896, 8960, 2.452, has_float8=True),
    _gaming("rtx 5080", 960, 10752, 2.617, has_float8=True),
    # NVIDIA H100 data sheet, halved where it prints sparse rates; doubles on tensor cores. SXM boards name their HBM.
    _sheet("h100 hbm3", 3350, 67, 67, 494.5, 989.5, 989.5, 1979),
    _sheet("h100 sxm5", 3350, 67, 67, 494.5, 989.5, 989.5, 1979),
    _sheet("h100 pcie", 2000, 51, 51, 378, 756.5, 756.5, 1513),
    _sheet("h100 nvl", 3900, 60, 60, 417.5, 835.5, 835.5, 1670.5),
    # NVIDIA H200 data sheet (SXM), halved where it prints sparse rates.
    _sheet("h200", 4800, 67, 67, 494.5, 989.5, 989.5, 1979),
    # NVIDIA GH200 Grace Hopper Superchip data sheet: 480 GB of the processor's memory come with 96 GB of HBM3.
    _sheet("gh200 480gb", 4000, 67, 67, 494.5, 989.5, 989.5, 1979),
    # NVIDIA H20: the specification that NVIDIA gave its distributors, dense, as the press printed it in November 2023.
    _sheet("h20", 4000, 1, 44, 74, 148, 148, 296),
    # NVIDIA Blackwell data sheet, HGX B200, per GPU, halved where it prints sparse rates.
    _sheet("b200", 7700, 37, 75, 1100, 2250, 2250, 4500),
    # AMD Instinct MI100 data sheet; floats on matrix cores. Its bfloat16 is half as fast as its half, and left out.
    _sheet("mi100", 1228.8, 11.5, 46.1, None, 184.6, None),
    # AMD Instinct MI210 data sheet; floats and doubles on matrix cores.
    _sheet("mi210", 1638, 45.3, 45.3, None, 181, 181),
    # AMD Instinct MI250X data sheet; its two dies are a device each, which has half of what the sheet says. ROCm gives
    # the MI250, which is 5 % slower, the second name too.
    _sheet("mi250x", 1638, 47.85, 47.85, None, 191.5, 191.5),
    _sheet("mi250x mi250", 1638, 47.85, 47.85, None, 191.5, 191.5),
    # AMD Instinct MI300X and MI325X data sheets.
    _sheet("mi300x", 5300, 163.4, 163.4, 653.7, 1307.4, 1307.4, 2614.9),
    _sheet("mi325x", 6000, 163.4, 163.4, 653.7, 1307.4, 1307.4, 2614.9),
    # AMD Instinct MI355X data sheet; CDNA 4 has no TF32.
    _sheet("mi355x", 8000, 78.6, 157.3, None, 2516.6, 2516.6, 5033.2),
)


def find_rates(name: str) -> Rates | None:
    """The peak rates of the GPU of that name; None if no data sheet is known for exactly that one."""
    words = frozenset(re.findall(r"[a-z0-9]+", name.lower()))
    sizes = frozenset(word for word in words if _SIZE.fullmatch(word))
    known = [sheet for sheet in _SHEETS if sheet.words <= words and words - sheet.words <= _NEUTRAL | sizes]
    return max(known, key=lambda sheet: len(sheet.words)).rates(name) if known else None


def known_cards() -> tuple[str, ...]:
    """The words of each data sheet, as a person would type them."""
    return tuple(sheet.name for sheet in _SHEETS)


def has_tf32(rates: Rates) -> bool:
    """Whether PyTorch's TF32 settings have an effect; on AMD's GPUs they only have one on some."""
    return "tf32" in rates.products and not rates.device.startswith("AMD")


def in_tf32(facts: Facts, work: Rows) -> Bools:
    """Which kernels multiply floats in TF32 by their names. Those of AMD's do not tell, so the setting decides where it
    was recorded."""
    named: Bools = facts.trace.matching(TF32_KERNEL)[work]
    return named | (facts.device.present and facts.run.flags.get("float32_matmul_precision") in ALLOWING_TF32)


_BY_TARGET = (
    (re.compile(r"_ISA942_|gfx942|igemm_\w{1,20}_gtcx3_|(?<![a-z])aiter"), "MI300X"),
    (re.compile(r"_ISA950_|gfx950|igemm_\w{1,20}_gtcx35_"), "MI355X"),
    (re.compile(r"_ISA90a_|gfx90a|igemm_\w{1,20}_gtcx2_"), "MI210"),
    (re.compile(r"_ISA908_|gfx908|igemm_\w{1,20}_gtcx_"), "MI100"),
)
"""AMD's kernels are built for one architecture, which Tensile's names tell; AITER has none before gfx942. MIOpen's
assembly says ``gtcx`` on gfx908, ``gtcx2`` on gfx90a, ``gtcx3`` on gfx94x and ``gtcx35`` on gfx950 (``ToKernelName`` in
its ``conv_asm_implicit_gemm_gtc_*_nhwc.cpp``). Each card is the slowest of its kind, so a share of its rates is at
least as high as the true one."""
ASK_FOR_CARD = "`--card NAME` says which it was"
"""Ends a reason why nobody looked."""
_MOST_NAMES, _LONGEST_NAME = 3, 80
"""Of devices in a message of one line, and the characters of one."""
PRESUMED = "a device like an "
"""Begins the name of a device that only its kernels tell."""


def presumed_rates(facts: Facts) -> Rates | None:
    """The same, and for a recording that does not name its device those that the names of its kernels tell."""
    known = rates_of(facts)
    if known is not None or not facts.device.present or any(facts.trace.recording.devices):
        return known
    kernels = facts.trace.events.category == Category.KERNEL
    for pattern, card in _BY_TARGET:
        if (facts.trace.matching(pattern) & kernels).any():
            found = find_rates(card)
            return None if found is None else Rates(PRESUMED + card, found.bandwidth, found.products)
    return None


def why_no_rates(facts: Facts) -> str:
    """Why the peak rates of the recording's GPU are not known, and what to do about it."""
    names = sorted({name for name in facts.trace.recording.devices if name})
    if not names:
        return f"the recording does not name its device, nor do its kernels ({ASK_FOR_CARD})"
    first = " or ".join(visible(name[:_LONGEST_NAME]) for name in names[:_MOST_NAMES])
    more = f" or {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return f"no data sheet is known for {first}{more} ({ASK_FOR_CARD})"


def double_rates(rates: Rates, with_old_instruction: bool) -> Rates:
    """The rates for a product of doubles: half of Hopper's if a kernel uses the instruction of the generation
    before."""
    peak = rates.products.get("float64")
    hopper = _HOPPER & frozenset(re.findall(r"[a-z0-9]+", rates.device.lower()))
    if peak is None or not with_old_instruction or not hopper:
        return rates
    return Rates(rates.device, rates.bandwidth, {**rates.products, "float64": peak / 2})


def rates_of(facts: Facts) -> Rates | None:
    """The peak rates of the recording's device: as measured on the recording machine, or by a GPU's data sheet."""
    measured = facts.run.rates
    names = {name for name in facts.trace.recording.devices if name}
    if not facts.device.present:
        return None if measured is not None and measured.device == facts.run.device else measured  # a GPU's
    if len(names) != 1:
        return None
    name = names.pop()
    return measured if measured is not None and measured.device == name else find_rates(name)
