"""What the program's names hold more of at the end of each step, and how much memory grows meanwhile.

Two signals miss different things: a census of names does not see what is held outside Python, and the allocator's
events do not show who holds it. If they agree, the growth is real and its owner known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import ceil
from typing import Protocol, TypeVar

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.patterns.attribution import order_sites
from profkit.run.directory import CallSite, LiveHolder, LiveSample
from profkit.trace.events import NONE, Float64s, Int64s
from profkit.trace.statistics import median

MIN_SAMPLES = 4
"""Fewer steps show three changes or less, which does not tell growth from fluctuation."""
_LEAST_AGREEING_SHARE = 0.5
"""How much of the census's growth the allocator must see. It rounds sizes up, never down; what it does not see was
there before or came from elsewhere (NumPy, a worker's shared memory)."""

_USED = "used_bytes"
_NOTABLE_BYTES = 100_000
"""Less per step adds up to no more than 10 GB in 100,000 steps, an ordinary training (ImageNet's 90 epochs at batch
size 256 are 450,000): losses and scores that are kept on purpose."""
_NOTABLE_SHARE = 1e-3
"""A smaller share of the peak takes a thousand steps, more than most epochs, to double it."""

_MOST = 0.5
"""Of what the smaller one gains; the rest is its own."""


class GrowingName(Struct, frozen=True):
    """A name that holds more tensors without a graph at each step's end; ``more_*`` are medians per step.

    ``more_used_bytes`` are the bytes of the held storages that some name uses. ``wasted_bytes`` is what the name holds
    in vain in the last sample. A census that did not look for it says that everything is used.
    """

    path: str
    site: CallSite | None
    is_bounded: bool
    more_tensors: int
    more_bytes: int
    more_used_bytes: int
    wasted_bytes: int

    @property
    def is_mostly_wasted(self) -> bool:
        """Whether less than half of what is kept is used, so that a copy of that half would be smaller."""
        return self.more_bytes > 2 * self.more_used_bytes


class _Growing(Protocol):
    @property
    def path(self) -> str: ...
    @property
    def site(self) -> CallSite | None: ...


Growing = TypeVar("Growing", bound=_Growing)


def first_at_each_line(names: Iterable[Growing]) -> Iterator[Growing]:
    """Of the names that one line makes grow, only the first. Names whose line is unknown all stay."""
    known = set[CallSite]()
    for name in names:
        if name.site not in known:
            yield name
        if name.site is not None:
            known.add(name.site)


def growing_names(facts: Facts) -> tuple[GrowingName, ...]:
    """The names whose tensors and bytes grow in every sampled step, or in every one from some step on, while their
    graphs do not, and whose growth the allocator confirms.

    The tensors grow steadily: no step adds more than three times what another adds. Their sizes may vary.
    """
    live_growth = live_growth_per_step(facts)
    if len(facts.live) < MIN_SAMPLES or not live_growth:
        return ()
    found = (_growth_of(facts, path, held) for path, held in held_by_name(facts))
    return tuple(name for name in found if name is not None and live_growth >= _LEAST_AGREEING_SHARE * name.more_bytes)


def held_by_name(facts: Facts) -> Iterable[tuple[str, list[LiveHolder | None]]]:
    """What each name held at the end of each sampled step, None if nothing. Of several things of one name, such as what
    the hooks of one line captured, the largest counts: the others may have been made later."""
    series: dict[str, list[LiveHolder | None]] = {}
    for at, sample in enumerate(facts.live):
        for holder in sorted(sample.holders, key=lambda one: one.bytes):
            series.setdefault(holder.path, [None] * len(facts.live))[at] = holder
    return series.items()


def held_together(
    facts: Facts, names: Iterable[Growing], column: str, more: Callable[[Growing], int]
) -> list[list[Growing]]:
    """The names, grouped: most of what the smaller gains per step is what another of its group gains too. As long as
    one of them holds it, letting go elsewhere frees nothing. ``column`` counts what they share, ``more`` what a name
    gains."""
    groups: list[list[Growing]] = []
    for name in names:
        whole = next(
            (
                group
                for group in groups
                if any(
                    _shared_per_step(facts, name.path, other.path, column) > _MOST * min(more(name), more(other))
                    for other in group
                )
            ),
            None,
        )
        if whole is None:
            groups.append([name])
        else:
            whole.append(name)
    return groups


def _shared_per_step(facts: Facts, path: str, other: str, column: str) -> float:
    """How much what both names hold grew per step, from the first sample to the last."""
    first, last = facts.live[0], facts.live[-1]
    grown = _shared(last, path, other, column) - _shared(first, path, other, column)
    return grown / max(1, last.step - first.step)


def _shared(sample: LiveSample, path: str, other: str, column: str) -> int:
    shared = (one for holder in sample.holders if holder.path == path for one in holder.shared if one.path == other)
    return next((int(getattr(one, column)) for one in shared), 0)


def growth_per_step(facts: Facts, held: list[LiveHolder | None], column: str) -> Float64s:
    """How much of ``column`` the name gained from each sample to the next, per step. ``held`` are the name's last
    samples, or all of them."""
    steps = np.array([sample.step for sample in facts.live[len(facts.live) - len(held) :]], dtype=np.int64)
    growth: Float64s = np.diff(_values(held, column)) / np.diff(steps).clip(min=1)
    return growth


def is_steady(growth: Float64s) -> bool:
    """Whether each step adds something, and none more than three times what another adds."""
    return bool(growth.min() > 0 and growth.max() <= 3 * growth.min())


def notable_growth_bytes(facts: Facts) -> float:
    """The growth per step from which it matters compared to the peak. What was there before the recording does not
    count: on a full device little growth is much."""
    return max(_NOTABLE_BYTES, _NOTABLE_SHARE * (facts.memory.peak_bytes - facts.memory.base_bytes))


def live_growth_per_step(facts: Facts) -> int:
    """How many bytes memory grows from the end of one measured step to the next: the median, 0 unless it grows every
    time."""
    ends = facts.memory.live_at_step_end_bytes[facts.steps.measured] if facts.memory.present else np.zeros(0, np.int64)
    growth = np.diff(ends)
    return int(median(growth)) if len(growth) and growth.min() > 0 else 0


def _growth_of(facts: Facts, path: str, held: list[LiveHolder | None]) -> GrowingName | None:
    last = held[-1]
    if last is None:
        return None
    held = since_growing(held, "tensors")
    names = ("tensors", "graph_tensors", "bytes", _USED)
    tensors, graphs, size, used = (growth_per_step(facts, held, column) for column in names)
    if len(held) < MIN_SAMPLES or not is_steady(tensors) or size.min() <= 0 or graphs.max() > 0:
        return None
    return GrowingName(
        path=path,
        site=last.site,
        is_bounded=last.is_bounded,
        more_tensors=ceil(median(tensors)),
        more_bytes=int(median(size)),
        more_used_bytes=int(median(used)),
        wasted_bytes=last.bytes - _used_bytes(last),
    )


def since_growing(held: list[LiveHolder | None], column: str) -> list[LiveHolder | None]:
    """The last samples, from the one before the name begins to hold more, which may be after some steps."""
    begun = np.flatnonzero(np.diff(_values(held, column)))
    return held[int(begun[0]) :] if begun.size else held[-1:]


def _values(held: list[LiveHolder | None], column: str) -> Int64s:
    return np.array([_used_bytes(one) if column == _USED else getattr(one, column, 0) for one in held], dtype=np.int64)


def _used_bytes(holder: LiveHolder | None) -> int:
    if holder is None:
        return 0
    return holder.bytes if holder.used_bytes is None else holder.used_bytes


def outliving_sites(facts: Facts) -> list[int]:
    """The call sites that allocate, in a measured step before the last, what is never freed; the largest first."""
    memory, steps = facts.memory, facts.steps
    if not memory.present:
        return []
    made_in = facts.step_of(memory.rows)
    last = int(np.flatnonzero(steps.measured)[-1])
    kept = (memory.freed_by == NONE) & (made_in >= 0) & (made_in < last) & steps.measured[made_in.clip(min=0)]
    return order_sites(facts.lines.site[memory.rows[kept]], memory.size_bytes[kept])
