"""Rounds of the program that leave memory behind, by a memory snapshot alone.

A snapshot shows which lines allocated what is held, not which name holds it. So the sign is that the same lines
allocate in turns, again and again until the end of the history, and none of it is freed. Or the program frees it all
after the last of its work, as where a function returns, and then only graphs of whole passes count: outputs and caches
may be meant to last that long.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from profkit.derive.facts import Facts, derived_once
from profkit.derive.memory.allocator import Allocator, DeviceUse
from profkit.derive.memory.origins import Origin
from profkit.derive.memory.purposes import Purpose
from profkit.patterns.allocator.lines import allocator_of, calling_frames_of_stacks
from profkit.trace.events import NONE, Bools, Int64s, Rows
from profkit.trace.statistics import median

MIN_ROUNDS = 4
"""As in `holding.MIN_SAMPLES`: fewer rounds do not tell growth from fluctuation."""
_STEADY = 3
"""No round keeps more than this many times the median, nor less than the median divided by it."""
_NOTABLE_SHARE = 0.1
"""The share of the peak from which a lower peak counts."""


class KeptRounds(Struct, frozen=True):
    """Rounds that leave memory behind: how many, what each leaves (median) and all together have left by now, and how
    much of that comes from calls of the model. ``last`` is the frame that allocates last in a round, ``largest`` the
    frame that leaves most. ``keeps_passes`` says that what is left is more than half of what the model's calls
    allocated in these rounds: a pass without a graph leaves only its result. ``had_backward`` says that a backward pass
    ran in between, ``is_over`` that the program freed it all in the end."""

    device: int
    rounds: int
    each_bytes: int
    total_bytes: int
    forward_bytes: int
    last: int
    largest: int
    keeps_passes: bool
    had_backward: bool
    is_over: bool


@derived_once
def kept_rounds(facts: Facts) -> KeptRounds | None:
    """The rounds that leave memory behind on the fullest device. None if there are none, or if the backward pass that
    frees the memory may be still to come, as it did before."""
    allocator = allocator_of(facts)
    if not allocator.devices or not allocator.fullest.has_history:
        return None
    use, found = allocator.fullest, allocator.allocations
    mine = found.device == use.device
    if kept := _rounds_of(facts, use, mine & found.is_held, use.rows[1]):
        return kept
    end = _end_of_work(allocator, use)
    over = _rounds_of(facts, use, mine & _freed_by_the_program(allocator, end), end, is_over=True)
    return over if over is not None and over.keeps_passes else None


def _end_of_work(allocator: Allocator, use: DeviceUse) -> int:
    """The row of a device's history after the last one in which the model or an optimizer worked."""
    works = np.isin(allocator.entries, (Origin.FORWARD, Origin.BACKWARD, Origin.OPTIMIZER))
    works &= allocator.snapshot.history.device == use.device
    return int(np.flatnonzero(works).max(initial=NONE)) + 1


def _freed_by_the_program(allocator: Allocator, begin: int) -> Bools:
    """The pieces that the program's own lines freed from this row of the history on."""
    freed = allocator.allocations.freed_by >= begin
    freed[freed] = allocator.entries[allocator.allocations.freed_by[freed]] == Origin.PROGRAM
    return freed


def _rounds_of(facts: Facts, use: DeviceUse, pieces: Bools, end: int, is_over: bool = False) -> KeptRounds | None:
    """The rounds that left these pieces behind until the row ``end`` of the history."""
    allocator = allocator_of(facts)
    found, history = allocator.allocations, allocator.snapshot.history
    kept = _own_pieces(facts, pieces)
    starts = _round_starts(facts, kept)
    if len(starts) < MIN_ROUNDS:
        return None
    rows = found.made_by[kept]
    of_round = np.searchsorted(rows[starts], rows, side="right") - 1
    sizes = np.bincount(of_round[of_round >= 0], found.size_bytes[kept[of_round >= 0]], len(starts))
    begins = rows[starts]
    origins = allocator.entries
    backward = np.flatnonzero((origins == Origin.BACKWARD) & (history.device == use.device))
    had_backward = bool(((backward > begins[0]) & (backward < begins[-1])).any())
    if not _is_growth(sizes, begins, end, origins) or (len(backward) and not had_backward):
        return None
    rounds = len(sizes) - int(sizes[-1] * _STEADY < median(sizes[:-1]))  # the last may be no more than begun
    if rounds < MIN_ROUNDS:
        return None
    kept = kept[of_round >= 0]
    if found.size_bytes[kept].sum() < _NOTABLE_SHARE * use.peak_bytes:
        return None
    frames = calling_frames_of_stacks(facts)[found.stack[kept]]
    forward = allocator.origins[found.stack[kept]] == Origin.FORWARD
    return KeptRounds(
        device=use.device,
        rounds=rounds,
        each_bytes=int(median(sizes)),
        total_bytes=int(sizes.sum()),
        forward_bytes=int(found.size_bytes[kept[forward]].sum()),
        last=int(frames[starts[1] - starts[0] - 1]),
        largest=_heaviest(frames, found.size_bytes[kept]),
        keeps_passes=_keeps_passes(allocator, use, kept[forward], int(begins[0])),
        had_backward=had_backward,
        is_over=is_over,
    )


class HeldPasses(Struct, frozen=True):
    """Calls of the model that left what they saved for a backward pass: in how many rounds, and from which frame."""

    rounds: int
    frame: int


def held_passes(facts: Facts, pieces: Bools) -> HeldPasses | None:
    """Whose calls of the model left most of what these pieces hold; None if no piece comes from such a call."""
    allocator = allocator_of(facts)
    found, kept = allocator.allocations, _own_pieces(facts, pieces)
    kept_forward = kept[allocator.origins[found.stack[kept]] == Origin.FORWARD]
    if not len(kept_forward):
        return None
    frames = calling_frames_of_stacks(facts)[found.stack[kept_forward]]
    return HeldPasses(max(1, len(_round_starts(facts, kept))), _heaviest(frames, found.size_bytes[kept_forward]))


def _own_pieces(facts: Facts, pieces: Bools) -> Rows:
    """Those of the pieces that the program's own threads allocated outside of the optimizer, in time order, and of
    these only what comes from the one function, outside of the model, that leaves most."""
    allocator = allocator_of(facts)
    stacks, found = allocator.snapshot.stacks, allocator.allocations
    wanted = pieces & (found.made_by != NONE) & np.isin(allocator.purposes, (Purpose.ACTIVATIONS, Purpose.OWN))
    kept: Rows = np.flatnonzero(wanted)
    kept = kept[np.argsort(found.made_by[kept], kind="stable")]
    frames = calling_frames_of_stacks(facts)[found.stack[kept]]
    kept, frames = kept[frames != NONE], frames[frames != NONE]
    if not len(kept):
        return kept
    codes = stacks.file[frames].astype(np.int64) * len(stacks.functions) + stacks.function[frames]
    of_one: Rows = kept[codes == _heaviest(codes, found.size_bytes[kept])]
    return of_one


def _round_starts(facts: Facts, kept: Rows) -> Rows:
    """Where among these pieces, in time order, rounds begin: at each turn of the line that has most turns. A turn ends
    where another line comes; what a line calls the model for and what it does itself count as two lines. With only one
    line, the rounds of a loop cannot be told from the layers of a model."""
    allocator = allocator_of(facts)
    stack = allocator.allocations.stack[kept]
    in_model = allocator.origins[stack] == Origin.FORWARD
    key = calling_frames_of_stacks(facts)[stack] * 2 + in_model
    turns = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]])) if len(key) else np.zeros(0, dtype=np.int64)
    known, first, counts = np.unique(key[turns], return_index=True, return_counts=True)
    if len(known) < 2:
        return turns[:0]
    most = counts == counts.max()
    leader = known[most][first[most].argmin()]
    starts: Rows = turns[key[turns] == leader]
    return starts


def _is_growth(sizes: Int64s, begins: Rows, end: int, origins: NDArray[np.uint8]) -> bool:
    """Whether each round leaves about as much, the model works in each, and the last is not long past. The last round
    may be unfinished."""
    whole = sizes[:-1]
    middle = median(whole)
    steady = bool((whole <= _STEADY * middle).all() and (whole * _STEADY >= middle).all())
    works = np.concatenate([[0], np.cumsum(np.isin(origins, (Origin.FORWARD, Origin.BACKWARD)))])
    busy = bool((np.diff(works[begins]) > 0).all())
    return steady and busy and end - int(begins[-1]) <= _STEADY * int(median(np.diff(begins)))


def _keeps_passes(allocator: Allocator, use: DeviceUse, kept: Rows, begin: int) -> bool:
    """Whether most of what the model's calls allocated from ``begin`` on is held."""
    found = allocator.allocations
    made = (found.device == use.device) & (found.made_by >= begin)
    made &= allocator.origins[found.stack] == Origin.FORWARD
    return 2 * int(found.size_bytes[kept].sum()) > int(found.size_bytes[made].sum())


def _heaviest(keys: Int64s, weights: Int64s) -> int:
    """The key with the most weight."""
    known, at = np.unique(keys, return_inverse=True)
    return int(known[np.bincount(at, weights).argmax()])
