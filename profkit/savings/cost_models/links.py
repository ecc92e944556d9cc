"""What links between the devices of one machine carry, and what collectives would take at that rate.

NVIDIA's data sheets give NVLink for both directions together; half of it counts here, as in the bus bandwidth of
nccl-tests. AMD's give Infinity Fabric for each of seven links. Cards without either exchange data by PCI Express. A
card for PCI Express of a kind that may have bridges between two of them is left out.
"""

from __future__ import annotations

import re
from dataclasses import replace

from profkit.derive.facts import Facts
from profkit.findings.values import ExchangeRate
from profkit.savings.cost_models.bus import by_data_sheet

_GIGA = 1e9
_LINKS = (
    ("v100 sxm2", 150),
    ("v100 sxm3", 150),
    ("a100 sxm4", 300),
    ("a800 sxm4", 200),
    ("h100 hbm3", 450),
    ("h800", 200),
    ("h200", 450),
    ("h20", 450),
    ("b200", 900),
    ("mi300x", 448),
    ("mi325x", 448),
)
"""GB/s in one direction, by words of the name (A800 and H800: the rates that export rules left)."""
_BRIDGED = frozenset(("pcie", "nvl", "mig", "gh200", "gb200"))
"""Words of a name with other links than the board for eight of them."""
_ONLY_BUS = frozenset(("t4", "a10", "a10g", "l4", "l40", "l40s")) | {
    *("3060", "3070", "3080", "4060", "4070", "4080", "4090", "5070", "5080", "5090")
}
"""Cards without any link but PCI Express."""
_FAR_BELOW, _REACHED = 0.25, 0.75
"""Shares of a link's rate: what is told, and what collectives of 128 MB and more reach on eight cards. With 25 MB, as
DistributedDataParallel sends by default, it is about two fifths on an H100 (nccl-tests)."""
_LEAST_BYTES = 16e6
"""Carried in one call: below that a collective's start still counts, on fast links above all."""


def with_links(facts: Facts, rates: tuple[ExchangeRate, ...], exposed_ns: float) -> tuple[ExchangeRate, ...]:
    """The rates, with what a link carries where the fastest call stays far below that. What all of them could save in a
    step is at most ``exposed_ns``, the time of communication that nothing hides."""
    names = {name for name in facts.trace.recording.devices if name}
    link = _between(names.pop()) if len(names) == 1 else 0.0
    link = link or (by_data_sheet(facts) or 0.0) * _GIGA * _has_only_bus(facts)
    found = []
    for one in rates:
        is_large = one.each_ns * one.bytes_per_s / 1e9 >= _LEAST_BYTES
        if not link or not one.is_local or not is_large or one.best_bytes_per_s >= _FAR_BELOW * link:
            found.append(one)
            continue
        each_ns = one.each_ns * one.bytes_per_s * (1 / one.best_bytes_per_s - 1 / (_REACHED * link))
        saved_ns = min(each_ns * one.count / max(facts.steps.measured_count, 1), exposed_ns)
        found.append(replace(one, link_bytes_per_s=link, could_save_ns=int(saved_ns)))
    return tuple(found)


def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", name.lower()))


def _between(name: str) -> float:
    """Bytes per second between cards of this name in one machine; 0 if that is not known."""
    words = _words(name)
    if words & _BRIDGED:
        return 0.0
    return next((rate * _GIGA for one, rate in _LINKS if words >= set(one.split())), 0.0)


def _has_only_bus(facts: Facts) -> bool:
    return any(_words(name) & _ONLY_BUS for name in facts.trace.recording.devices)
