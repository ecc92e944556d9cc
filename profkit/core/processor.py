"""What the system says about the CPU."""

from __future__ import annotations

import platform
from contextlib import suppress
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_BFLOAT16 = frozenset(("avx512_bf16", "amx_bf16", "bf16", "svebf16"))
"""Linux's names for instruction sets with dot products and tiles (``cpufeatures.h`` on x86, ``hwcap.h`` on Arm).
``avx_ne_convert`` only converts."""


def processor_name() -> str:
    """The CPU's model as its maker calls it; outside Linux, what Python knows."""
    with suppress(OSError):
        for line in _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def multiplies_bfloat16(cpuinfo: Path = _CPUINFO) -> bool | None:
    """Whether the processor multiplies bfloat16 in hardware; None if the system does not list instruction sets."""
    with suppress(OSError):
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            kind, _, listed = line.partition(":")
            if kind.strip() in ("flags", "Features"):  # x86, Arm
                return not _BFLOAT16.isdisjoint(listed.split())
    return None
