"""The GPU runs at a lower clock than it can, and its driver says why.

What it detects
At least half of the looks at a busy device give the same reason for a lower clock: heat, a slowdown by the hardware, or
a power brake; then the clock must be a tenth below the device's highest. The limit of the device's power is reported
from a fifth on, as computing at full power always costs a few per cent of clock. A device that is idle has a low clock
for that reason, and a clock that somebody set is meant; neither is reported.

Why is this bad?
Work that computes takes longer by as much as the clock is lower. In a launch with several devices all wait for the
slowest one.

Example
    nvidia-smi -q -d PERFORMANCE  # HW Thermal Slowdown: Active

Use instead
    nvidia-smi -q -d TEMPERATURE,POWER  # then mend the cooling, or raise the power limit

How the saving is estimated
The share of the looks with that reason, times the share of clock that is missing, of the time in which the device was
busy. Work that waits for memory gains less, so the likely range begins at nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from profkit.patterns.whole_run.phases import whole_run
from profkit.rules.base import (
    CannotLook,
    Facts,
    Kind,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    format_share,
    rule,
)
from profkit.run.whole_run import DeviceUse
from profkit.trace import Float64s, Int64s

_REASONS = (
    (0x40, "heat, by its hardware", 0.1),
    (0x20, "heat, by its driver", 0.1),
    (0x80, "its power supply (a power brake)", 0.1),
    (0x08, "a slowdown by its hardware", 0.1),
    (0x04, "its power limit", 0.2),
)
"""Bits of ``nvmlClocksEventReasons`` in ``nvml.h``, the more telling first, and the least share of clock missing."""
_KNOWN = sum(bit for bit, *_ in _REASONS)
"""The mask has 64 bits, one of which may be taken for a sign."""
_BUSY = 0.5
"""Of NVML's sampling period: below, the device lowers its clock as it has little to do."""
_LEAST_SAMPLES = 10
"""Ten seconds of a busy device: it gets warm within minutes, but a slowdown shows at once."""
_MOSTLY = 0.5
"""Of the busy looks. Short peaks of power are no fault."""


@rule(Kind.OPPORTUNITY, Need.WHOLE_RUN)
def slow_device(facts: Facts) -> Suspicions:
    """One finding for each device."""
    account, whole = facts.account, whole_run(facts)
    if not account.devices or whole is None:
        raise CannotLook(account.no_devices or "the devices of the machine were not looked at")
    if not any(device.most_mhz and _busy_clocks(device)[0].size >= _LEAST_SAMPLES for device in account.devices):
        raise CannotLook("no device was seen busy for ten looks with a known clock")
    for device in account.devices:
        limit = _limit(device)
        if limit is not None:
            yield _suspect(device, limit, whole.programs_ns)


class _Limit(NamedTuple):
    """Why the clock is low, in which share of the busy looks, and how much of the clock is missing then."""

    name: str
    often: float
    missing: float


def _limit(device: DeviceUse) -> _Limit | None:
    clocks, reasons = _busy_clocks(device)
    if clocks.size < _LEAST_SAMPLES or not device.most_mhz:
        return None
    for bit, name, least in _REASONS:
        limited = (reasons & bit) != 0
        if float(limited.mean()) < _MOSTLY:
            continue
        missing = 1 - float(np.median(clocks[limited])) / device.most_mhz
        if missing >= least:
            return _Limit(name, float(limited.mean()), missing)
    return None


def _suspect(device: DeviceUse, limit: _Limit, run_ns: int) -> Suspicion:
    busy = _busy_clocks(device)[0].size
    share = busy / len(device.samples) * limit.often * limit.missing
    return Suspicion(
        message=f"GPU {device.index} ({device.name}) runs {format_share(limit.missing)} below its highest clock, "
        f"{device.most_mhz} MHz, in {format_share(limit.often)} of the busy looks. What holds it back: "
        f"{limit.name}.",
        fix="Look at `nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER`: at the cooling, the power limit "
        "(`nvidia-smi -pl`) and what else runs there. Or move the work to another machine.",
        severity=Severity.MEDIUM,
        run_ns=int(run_ns * share),
        run_uncertainty=1.0,
        count=1,
        confidence=0.8,
        evidence={"clock_missing": round(limit.missing, 3), "busy_looks": busy, "reason": limit.name},
    )


def _busy_clocks(device: DeviceUse) -> tuple[Float64s, Int64s]:
    """The clocks and the reasons of the looks at the busy device."""
    busy = [sample for sample in device.samples if sample.busy >= _BUSY and sample.clock_mhz > 0]
    clocks = np.array([sample.clock_mhz for sample in busy], dtype=np.float64)
    return clocks, np.array([sample.reasons & _KNOWN for sample in busy], dtype=np.int64)
