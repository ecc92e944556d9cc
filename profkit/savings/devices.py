"""What GPUs can do at most, from their makers' data sheets, by the names that traces give them.

Peak rates of products of matrices, dense (makers print twice as much for structured sparsity), at boost clock. For
doubles it is the rate of the tensor or matrix units where a GPU has such for them, as the vendors' libraries use those
for products. Where a data sheet does not name doubles, the ratio comes from the table of arithmetic throughput in the
CUDA C++ Programming Guide: 1/32 of float32 for compute capability 7.5, 1/64 for 8.6 and 8.9.
"""

from __future__ import annotations

import re

from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.run import Rates

_SIZE = re.compile(r"\d+gb|hbm\d\w?")
_NEUTRAL = frozenset(("nvidia", "amd", "tesla", "geforce", "instinct", "oam", "vf"))
"""Words of a name that change nothing (``VF``: what a virtual machine sees of an MI300X). Any other word may mean
another chip (``Ti``, ``Laptop``, ``MIG``)."""


class _Sheet(Struct, frozen=True):
    """The words that name it, GB/s, and TFLOP/s by type: doubles, floats, TF32, and half as bfloat16."""

    words: frozenset[str]
    bandwidth: float
    float64: float
    float32: float
    tf32: float | None
    float16: float
    bfloat16: float | None

    def rates(self, name: str) -> Rates:
        rates = {kind: getattr(self, kind) for kind in ("float64", "float32", "tf32", "float16", "bfloat16")}
        return Rates(name, self.bandwidth * 1e9, {kind: rate * 1e12 for kind, rate in rates.items() if rate})


def _sheet(words: str, bandwidth: float, *rates: float | None) -> _Sheet:
    return _Sheet(frozenset(words.split()), bandwidth, *rates)  # type: ignore[arg-type]  # float64, float32, float16 are given


_SHEETS = (
    # NVIDIA Tesla V100 data sheet, January 2020.
    _sheet("v100 sxm2", 900, 7.8, 15.7, None, 125, None),
    _sheet("v100 pcie", 900, 7.0, 14.0, None, 112, None),
    # NVIDIA T4 product brief PB-09256 (320 GB/s) and data sheet; doubles: 1/32.
    _sheet("t4", 320, 0.253, 8.1, None, 65, None),
    # NVIDIA Turing architecture white paper, appendix A: reference board, half summed in float32; doubles: 1/32.
    _sheet("rtx 2080 ti", 616, 0.42, 13.4, None, 53.8, None),
    # NVIDIA A10 data sheet; doubles: 1/64.
    _sheet("a10", 600, 0.488, 31.2, 62.5, 125, 125),
    # NVIDIA A100 data sheet, May 2020 (40 GB) and June 2021 (80 GB); doubles on tensor cores.
    _sheet("a100 sxm4 40gb", 1555, 19.5, 19.5, 156, 312, 312),
    _sheet("a100 pcie 40gb", 1555, 19.5, 19.5, 156, 312, 312),
    _sheet("a100 sxm4 80gb", 2039, 19.5, 19.5, 156, 312, 312),
    _sheet("a100 pcie 80gb", 1935, 19.5, 19.5, 156, 312, 312),
    # NVIDIA L4 data sheet, halved as it prints sparse rates; doubles: 1/64.
    _sheet("l4", 300, 0.473, 30.3, 60, 121, 121),
    # NVIDIA Ampere GA102 architecture white paper: half with float32 accumulation; doubles: 1/64.
    _sheet("rtx 3090", 936, 0.556, 35.6, 35.6, 71, 71),
    # NVIDIA Ada GPU architecture white paper, appendix A: half with float32 accumulation; doubles: 1/64.
    _sheet("rtx 4090", 1008, 1.29, 82.6, 82.6, 165.2, 165.2),
    # NVIDIA H100 data sheet, halved where it prints sparse rates; doubles on tensor cores. SXM boards name their HBM.
    _sheet("h100 hbm3", 3350, 67, 67, 494.5, 989.5, 989.5),
    _sheet("h100 sxm5", 3350, 67, 67, 494.5, 989.5, 989.5),
    _sheet("h100 pcie", 2000, 51, 51, 378, 756.5, 756.5),
    # NVIDIA H200 data sheet (SXM), halved where it prints sparse rates.
    _sheet("h200", 4800, 67, 67, 494.5, 989.5, 989.5),
    # AMD Instinct MI250X data sheet; its two dies are a device each, which has half of what the sheet says. ROCm gives
    # the MI250, which is 5 % slower, the second name too.
    _sheet("mi250x", 1638, 47.85, 47.85, None, 191.5, 191.5),
    _sheet("mi250x mi250", 1638, 47.85, 47.85, None, 191.5, 191.5),
    # AMD Instinct MI300X data sheet.
    _sheet("mi300x", 5300, 163.4, 163.4, 653.7, 1307.4, 1307.4),
)  # fmt: skip


def find_rates(name: str) -> Rates | None:
    """The peak rates of the GPU of that name, None where no data sheet is known for exactly that one."""
    words = frozenset(re.findall(r"[a-z0-9]+", name.lower()))
    sizes = frozenset(word for word in words if _SIZE.fullmatch(word))
    known = [sheet for sheet in _SHEETS if sheet.words <= words and words - sheet.words <= _NEUTRAL | sizes]
    return max(known, key=lambda sheet: len(sheet.words)).rates(name) if known else None


def rates_of(facts: Facts) -> Rates | None:
    """What the recording's device does at most: as it was measured on the machine that recorded, else of a GPU by its
    data sheet."""
    measured = facts.run.rates
    names = {name for name in facts.trace.recording.devices if name}
    if not facts.device.present:
        return None if measured is not None and measured.device == facts.run.device else measured  # a GPU's
    if len(names) != 1:
        return None
    name = names.pop()
    return measured if measured is not None and measured.device == name else find_rates(name)
