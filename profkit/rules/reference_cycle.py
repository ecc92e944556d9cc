"""Tensors stay alive in a cycle of Python objects until the garbage collector runs.

What it detects
Memory that was allocated in one step and freed in a later one, inside a garbage collection: no name reached it any
more, but the objects that held it referred to each other. Three steps or more must leave such memory. At the end of a
recording profkit runs the collector once, to see what only waits for it. A collection that the program asks for in the
same step, memory that a name keeps, and a cycle that is made once are no fault.

Why is this bad?
Objects that refer to each other in a circle are not freed when the last name goes, but when the collector runs. It runs
by the number of Python objects made, and does not know that a small object holds megabytes of a tensor. So the memory
of several steps is alive at once, and a GPU runs out of memory although nothing is leaked.

Example
    class Node:
        def __init__(self, value, parent):
            self.value, self.parent, self.children = value, parent, []
            parent.children.append(self)

Use instead
    class Node:
        def __init__(self, value, parent):
            self.value, self.parent, self.children = value, weakref.ref(parent), []
            parent.children.append(self)

How the saving is estimated
Memory, not time: by how much the peak of the recorded steps would be lower if each step's share had been freed at the
end of its step. A longer run often gains more: its garbage grows older, and the collector looks at old objects least
often.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.patterns import Places, garbage_collections, locations_of, order_sites, remarked
from profkit.patterns.loops.located import sites_of_located_step
from profkit.patterns.retention.holding import notable_growth_bytes
from profkit.patterns.retention.lifetimes import lifetimes, live_bytes
from profkit.rules.base import (
    CallSite,
    CannotLook,
    Facts,
    Kind,
    Location,
    Need,
    Suspicion,
    Suspicions,
    format_bytes,
    rule,
)
from profkit.source.remark_kinds import CYCLE_CLOSED
from profkit.source.syntax import identifiers, parse_piece
from profkit.trace import Bools, Int64s, median

_MIN_STEPS = 3
"""Garbage of fewer steps may come from a start, an exception's traceback or an epoch's iterator."""
_ALSO = 3
"""Further lines, after the one that closes the cycle. One cycle often holds the tensors of many lines."""


class _Garbage(Struct, frozen=True):
    """Allocations, by their index in the facts' memory, that a collection freed after the step that made them."""

    index: Int64s
    made_in: Int64s


@rule(Kind.FAULT, Need.MEMORY)
def reference_cycle(facts: Facts) -> Suspicions:
    """One finding, at the line that closes the cycle if the source shows it, else at the line that allocates most of
    it."""
    spans = _collections(facts)
    if not len(spans):
        raise CannotLook("no garbage collection ran while the program was recorded")
    garbage = _garbage(facts, *spans.T)
    memory, steps = facts.memory, facts.steps
    size = memory.size_bytes[garbage.index]
    left_bytes = np.bincount(garbage.made_in, weights=size, minlength=len(steps)).astype(np.int64)
    left_bytes = left_bytes[left_bytes > 0]
    if len(left_bytes) < _MIN_STEPS or median(left_bytes) < notable_growth_bytes(facts):
        return
    with_cycles, without = _peaks(facts, garbage)
    made_at = order_sites(facts.lines.site[memory.rows[garbage.index]], size)
    places = tuple(dict.fromkeys((*_closing(facts), *locations_of(facts, made_at))))
    per_step = int(median(left_bytes))
    yield Suspicion(
        message=f"{format_bytes(per_step)} a step stays in tensors that only the garbage collector frees: the objects "
        f"that hold them refer to each other. Up to {format_bytes(with_cycles - without)} waited for it.",
        fix="Break the cycle once it is not needed: refer upwards by `weakref.ref(parent)`, or clear the references "
        "at the step's end. Keep no closure or bound method of `self` in `self`.",
        rows=memory.rows[garbage.index] if not facts.lines.known else memory.rows[:0],
        places=Places.of(places[: 1 + _ALSO]),
        size_bytes=with_cycles - without,
        peak_fraction=(with_cycles - without) / max(with_cycles, 1),
        confidence=0.9,
        count=max(1, round(len(garbage.index) / len(left_bytes))),
        evidence={"bytes_per_step": per_step, "steps_with_garbage": len(left_bytes)},
    )


def _closing(facts: Facts) -> tuple[Location, ...]:
    """Lines that the source shows to close a cycle, in functions and classes that the located step ran. This is the
    line to change; the tensors may be made anywhere."""
    ran = sites_of_located_step(facts)
    functions = {(site.file, _around(site)) for site in ran}
    lines = [line for site in ran if (line := parse_piece(site.source)) is not None]
    named = set[str]().union(*map(identifiers, lines))
    return tuple(
        place
        for place in remarked(facts, CYCLE_CLOSED)
        if (place.file, _around(place)) in functions or _around(place).rpartition(".")[2] in named
    )


def _around(place: CallSite | Location) -> str:
    """The outermost class or function around a line."""
    outermost = place.function.partition(".<locals>")[0]
    return outermost.rpartition(".")[0] or outermost


def _collections(facts: Facts) -> Int64s:
    """Start and end of each garbage collection."""
    events = facts.trace.events
    rows = np.flatnonzero(garbage_collections(facts))
    spans = np.stack([events.start_ns[rows], events.ends_of(rows)], axis=1)
    return spans[np.argsort(spans[:, 0], kind="stable")]


def _garbage(facts: Facts, start_ns: Int64s, end_ns: Int64s) -> _Garbage:
    steps, (made_ns, freed_ns) = facts.steps, lifetimes(facts)
    made_in = steps.index_of(made_ns)
    last_start = np.searchsorted(start_ns, freed_ns, side="right") - 1
    in_collection: Bools = (last_start >= 0) & (freed_ns <= end_ns[last_start.clip(min=0)])
    later = (made_in >= 0) & (freed_ns > steps.end_ns[made_in.clip(min=0)])
    index = np.flatnonzero(in_collection & later)
    return _Garbage(index, made_in[index])


def _peaks(facts: Facts, garbage: _Garbage) -> tuple[int, int]:
    """The most live bytes within the measured steps, as recorded and with the garbage freed at its step's end."""
    steps, (made_ns, freed_ns) = facts.steps, lifetimes(facts)
    window_start, window_end = steps.window_ns
    freed_ns = np.minimum(freed_ns, window_end + 1)
    sooner = freed_ns.copy()
    sooner[garbage.index] = np.minimum(freed_ns[garbage.index], steps.end_ns[garbage.made_in])
    seen = made_ns >= window_start
    made_ns, size = made_ns[seen], facts.memory.size_bytes[seen]
    with_cycles, without = (live_bytes(made_ns, ends[seen], size)[1].max(initial=0) for ends in (freed_ns, sooner))
    return int(with_cycles), int(without)
