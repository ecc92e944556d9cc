"""The arrows from a runtime call to its work on the device, for traces that lack ``correlation``.

Kineto draws one for each call and each piece of work: an event ``s`` at the start of the call, an event ``f`` at the
start of the work, with the same id. Copies of traces with fewer arguments often keep them. They are dropped as soon as
an event has a correlation, which says the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from profkit.trace.events import DEVICE_WORK, NONE, Category, Int64s, Rows
from profkit.trace.kineto.convert import integers
from profkit.trace.kineto.schema import MISSING, Event
from profkit.trace.statistics import among
from profkit.trace.times import nanoseconds_of

_CATEGORIES = ("ac2g", "async_cpu_to_gpu", "async_gpu")
"""By release (``ActivityType`` in libkineto)."""


class Flows(Struct):
    """The ends of arrows: each one's id, its time, and its process and thread as an index into ``places``."""

    ids: Int64s
    at_ns: Int64s
    place: Int64s
    places: list[tuple[Any, Any]]


def flows_of(events: Sequence[Event]) -> Flows | None:
    """The arrows among these events; None without any, or if an event has a correlation."""
    if any(e.args is not None and e.args.correlation != MISSING for e in events):  # nearly always one of the first
        return None
    ends = [e for e in events if e.ph in {"s", "f"} and e.cat in _CATEGORIES]
    at_ns, known = nanoseconds_of([e.ts for e in ends])
    numbers = integers([MISSING if e.id is None else e.id for e in ends])
    if numbers is None:  # also without any arrow
        return None
    places: dict[tuple[Any, Any], int] = {}
    place = np.array([places.setdefault((e.pid, e.tid), len(places)) for e in ends], dtype=np.int64)
    kept = known & (numbers > 0)
    return Flows(numbers[kept], at_ns[kept], place[kept], list(places)) if kept.any() else None


def correlate(
    flows: Sequence[Flows], lanes: Mapping[tuple[Any, Any, bool], int], columns: Mapping[str, Any], base_ns: int
) -> Int64s:
    """The column ``correlation``: the ids of the arrows from a call to work. ``columns`` are those of the events, by
    lane and start, and count time from ``base_ns``."""
    lane, start_ns, category = columns["lane"], columns["start_ns"] + base_ns, columns["category"]
    found = np.full(len(lane), NONE, dtype=np.int64)
    is_work, is_call = np.isin(category, DEVICE_WORK), category == Category.RUNTIME
    for one in flows:
        for number, (pid, tid) in enumerate(one.places):
            mine = one.place == number
            for on_device, wanted in ((False, is_call), (True, is_work)):
                if (code := lanes.get((pid, tid, on_device))) is not None:
                    rows = np.flatnonzero((lane == code) & wanted)
                    _assign(found, rows, start_ns[rows], one.at_ns[mine], one.ids[mine])
    of_both = among(found, found[is_work]) & among(found, found[is_call])
    return np.where(of_both, found, columns["correlation"])


def _assign(found: Int64s, rows: Rows, start_ns: Int64s, at_ns: Int64s, ids: Int64s) -> None:
    """Gives the rows, in order of their starts, the ids of the arrows at these very times."""
    if not rows.size or not at_ns.size:
        return
    at = np.searchsorted(start_ns, at_ns).clip(max=len(rows) - 1)
    hit = start_ns[at] == at_ns
    found[rows[at[hit]]] = ids[hit]
