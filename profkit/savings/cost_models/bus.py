"""How fast data gets from the host's memory to the device and back, if the host's memory is pinned.

The link's rates, one direction, 16 lanes: PCI-SIG, PCI Express Base Specification 3.0 (8 GT/s a lane), 4.0 (16 GT/s)
and 5.0 (32 GT/s), with 128b/130b encoding. The data sheet of a GPU says which of them it has.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from profkit.core.units import format_bytes
from profkit.derive.facts import Facts
from profkit.patterns.transfers.copies import Transfers, waits_below
from profkit.savings.edits import Edit, combine, shrink_work, unblock
from profkit.trace.events import Category, Int64s
from profkit.trace.statistics import median

_GEN3, _GEN4, _GEN5 = 15.75, 31.5, 63.0
"""GB/s."""
_NVLINK_C2C = 450.0
"""NVIDIA GH200 Grace Hopper Superchip data sheet: 900 GB/s in both directions together."""
_LINKS = {
    **dict.fromkeys(("p100", "v100", "v100s", "t4", "1080", "2080", "mi50", "mi100"), _GEN3),
    **dict.fromkeys(
        (
            "a10",
            "a10g",
            "a30",
            "a40",
            "a100",
            "a6000",
            "3060",
            "3070",
            "3080",
            "3090",
            "4070",
            "4080",
            "4090",
            "l4",
            "l40",
            "l40s",
            "ada",
            "mi210",
            "mi250",
            "mi250x",
        ),
        _GEN4,
    ),
    **dict.fromkeys(
        ("h20", "h100", "h200", "b100", "b200", "5070", "5080", "5090", "mi300x", "mi325x", "mi355x"), _GEN5
    ),
    "4060": _GEN4 / 2,  # eight lanes (NVIDIA's specifications)
    "gh200": _NVLINK_C2C,
}
"""By a word of the GPU's name."""
_BY_GENERATION = {1: 0.25, 2: 0.5, 3: 0.984, 4: 1.969, 5: 3.938, 6: 7.563}
"""GB/s of a lane in one direction."""
_MOST_LANES = 16
_FAR_BELOW = 0.4
"""Of what copies reach: half may be the generation before, in a machine older than the card."""
_ACHIEVED = 0.85
"""The share of the link's rate that copies reach: headers of packets of 256 bytes take a tenth (PCI Express Base
Specification 3.0, 2.1), flow control the rest; an H100 copies 55 of 63 GB/s."""
_BY_DATA_SHEET, _UNKNOWN = 0.3, 0.5
"""The uncertainty of a price. Boards have fewer lanes than their GPUs, and share them; an H100 behind a link of the
fourth generation copies 28 GB/s."""
_MEASURED = 0.1
_LEAST_BYTES = 1 << 20
"""The least size of a copy that shows the rate: in smaller ones the start counts."""
_SET_UP_NS = 1_400
"""What a copy of a few bytes takes on the device (H100)."""


class Link(Struct, frozen=True):
    """Bytes per nanosecond in one direction, and the uncertainty of a price that rests on it. ``is_measured``: copies
    of the same recording show the rate."""

    bytes_per_ns: float
    uncertainty: float
    is_measured: bool

    def copy_ns(self, size_bytes: Int64s) -> Int64s:
        """How long copies of these sizes take on the device, from or to pinned memory."""
        return (size_bytes / self.bytes_per_ns).astype(np.int64) + _SET_UP_NS


def host_link(facts: Facts, to_device: bool) -> Link:
    """By the recording's own copies of pinned memory, else by the data sheet of its device; at least as fast as any
    copy of the recording."""
    pinned, others = (_rates(facts, to_device, kind) for kind in ("Pinned", "Pageable"))
    least = float(others.max(initial=0.0))
    if pinned.size:
        return Link(max(float(median(pinned)), least), _MEASURED, True)
    sheet = carried_by_link(facts)
    rate = _ACHIEVED * (sheet or _GEN3)
    return Link(max(rate, least), _BY_DATA_SHEET if sheet else _UNKNOWN, False)


def pin(facts: Facts, transfers: Transfers, link: Link) -> Edit:
    """The host does not wait, and the copies take as long as from or to pinned memory."""
    kept = np.minimum(link.copy_ns(transfers.size_bytes), facts.trace.events.duration_ns[transfers.work])
    waits = waits_below(facts, transfers.place)
    return combine([unblock(waits, link.uncertainty), shrink_work(transfers.work, kept, link.uncertainty)])


def _rates(facts: Facts, to_device: bool, kind: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Bytes per nanosecond of each large copy from, or to, such memory of the host."""
    events, direction = facts.trace.events, "HtoD" if to_device else "DtoH"
    named = facts.trace.where_name(lambda name: direction in name and kind in name)
    chosen = named & (events.category == Category.MEMCPY) & (events.size_bytes >= _LEAST_BYTES)
    rows = np.flatnonzero(chosen & (events.duration_ns > 0))
    return events.size_bytes[rows] / events.duration_ns[rows]


def by_data_sheet(facts: Facts) -> float | None:
    """GB/s of the PCI Express link of the recording's device; None if it is not known."""
    names = {name for name in facts.trace.recording.devices if name}
    words = {word for name in names for word in re.findall(r"[a-z0-9]+", name.lower())}
    known = {_LINKS[word] for word in words if word in _LINKS}
    return known.pop() if len(names) == len(known) == 1 else None


def carried_by_link(facts: Facts) -> float | None:
    """GB/s of the device's link in this machine: by its data sheet, or less if the driver says that the link has fewer
    lanes or is older here. None if neither is known."""
    sheet, here = by_data_sheet(facts), _in_this_machine(facts)
    if sheet is None or here is None or sheet == _NVLINK_C2C:
        return sheet or here
    return min(sheet, here)


def _in_this_machine(facts: Facts) -> float | None:
    names = {name for name in facts.trace.recording.devices if name}
    links = {(one.link_generation, one.link_lanes) for one in facts.account.devices if one.name in names}
    generation, lanes = links.pop() if len(links) == 1 else (0, 0)
    known = _BY_GENERATION.get(generation)
    return known * lanes if known and 0 < lanes <= _MOST_LANES else None


def slow_link(facts: Facts, to_device: bool) -> str:
    """A sentence, with a space before it, on copies of pinned memory far below what the device's link carries; empty if
    they are not."""
    link, sheet = host_link(facts, to_device), by_data_sheet(facts)
    if not link.is_measured or sheet is None or link.bytes_per_ns >= _FAR_BELOW * _ACHIEVED * sheet:
        return ""
    here = _in_this_machine(facts)
    told = f"has {format_bytes(here * 1e9)}/s here" if here and here < sheet else "has fewer lanes, or is shared, here"
    return (
        f" They go at {format_bytes(link.bytes_per_ns * 1e9)}/s, where the link of such a device carries "
        f"{format_bytes(sheet * 1e9)}/s: it {told} (`nvidia-smi -q` names its lanes)."
    )
