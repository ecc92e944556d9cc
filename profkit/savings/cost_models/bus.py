"""How fast data gets from the host's memory to the device and back, if the host's memory is pinned.

The link's rates, one direction, 16 lanes: PCI-SIG, PCI Express Base Specification 3.0 (8 GT/s a lane), 4.0 (16 GT/s)
and 5.0 (32 GT/s), with 128b/130b encoding. The data sheet of a GPU says which of them it has.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

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
            "3080",
            "3090",
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
    **dict.fromkeys(("h20", "h100", "h200", "b100", "b200", "5080", "5090", "mi300x", "mi325x", "mi355x"), _GEN5),
    "gh200": _NVLINK_C2C,
}
"""By a word of the GPU's name."""
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
    sheet = by_data_sheet(facts)
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
