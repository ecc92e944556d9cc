"""The copies between the host and the device that the program calls for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.patterns.program import calling_operator, copies_named
from profkit.patterns.time.wait_causes import pytorchs_own
from profkit.trace.events import Bools, Int32s, Int64s, Rows
from profkit.trace.statistics import distinct


class Transfers(Struct, frozen=True):
    """The copies between host and device that the measured steps call for on the threads that take turns, as columns in
    the order of the calls: the device's work, the runtime call, the operator that the program called, and its line.

    ``is_pageable`` and ``is_pinned`` say what the host's memory is; neither is true if the recording does not tell.
    What PyTorch copies by itself, in an optimizer or a DataLoader, is left out.
    """

    work: Rows
    call: Rows
    place: Rows
    site: Int32s
    size_bytes: Int64s
    to_device: Bools
    is_pageable: Bools
    is_pinned: Bools

    def __len__(self) -> int:
        return len(self.work)

    def at(self, chosen: Bools | Rows) -> Transfers:
        """The chosen ones."""
        return Transfers(*(getattr(self, name)[chosen] for name in self.__struct_fields__))

    def by_line(self) -> Iterator[Transfers]:
        """Those of each line; those without a line are one group."""
        return (self.at(self.site == code) for code in distinct(self.site))


@derived_once
def program_transfers(facts: Facts) -> Transfers:
    """The program's transfers."""
    events, launches = facts.trace.events, facts.launches
    to_device, to_host, pageable, pinned = (
        copies_named(facts, part) for part in ("HtoD", "DtoH", "Pageable", "Pinned")
    )
    call = launches.call
    chosen = (to_device | to_host) & (call >= 0)
    chosen &= facts.measured[call] & facts.serial_lanes[events.lane[call]]
    order = np.flatnonzero(chosen)
    order = order[~pytorchs_own(facts)[call[order]]] if order.size else order
    order = order[np.argsort(events.start_ns[call[order]], kind="stable")]
    place = calling_operator(facts, call[order])
    work = launches.work[order]
    size = events.size_bytes[work].clip(min=0)
    kinds = (to_device[order], pageable[order], pinned[order])
    return Transfers(work, call[order], place, facts.lines.site[place], size, *kinds)


def has_unlinked_copies(facts: Facts) -> bool:
    """Whether the device copies to or from the host, and no copy has a record of its call."""
    copies = copies_named(facts, "HtoD", "DtoH")
    return bool(copies.any()) and not (facts.launches.call[copies] >= 0).any()


def waits_below(facts: Facts, places: Rows) -> Rows:
    """The host's waits in these operators."""
    inside = facts.tree.under(facts.trace.mask_of(places))
    return facts.waits.rows[inside[facts.waits.rows] & ~facts.waits.own]
