"""What the forward pass keeps for the backward pass makes up most of a high memory peak.

What it detects
A training step whose peak of live memory is at least 256 MiB, at least half of it allocated in the forward pass and
freed in the backward pass, and a line that runs several times in the forward pass, such as the call of a block in a
loop, and allocates much of that. If the recording does not show the total use of the device's memory, parameters and
optimizer state, which mostly exist before it begins, count as three times the bytes of the gradients. If a GPU has
memory to spare, the finding is for information only. A machine's memory is shared with other programs; if there is
room, the message says so. A memory snapshot shows everything that the device holds at its peak, including the
optimizer's state; there a call of a line begins wherever its first allocation comes again.

Why is this bad?
It is no fault: backpropagation needs these activations. But they grow with the depth of the model and the size of the
batch, and limit both. Checkpointing keeps only the input of a block and computes the rest again in the backward pass:
it trades time, about one more forward pass of the blocks, for memory.

Example
    for block in blocks:
        x = block(x)

Use instead
    for block in blocks:
        x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)

How the saving is estimated
Memory: what the line's calls keep, minus what they would keep with checkpointing at the end of the forward pass (the
last tensor of each call, the input of the next) or, if that is more, in the backward pass (these without the last
call's, plus the most that one call keeps besides, computed again). The extra time is not counted against it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.memory.origins import Origin, calling_frames, innermost, outermost
from profkit.derive.memory.purposes import Purpose
from profkit.patterns import ACCUMULATES, Places, call_site
from profkit.patterns.allocator.lines import allocator_of, site_of, user_frames
from profkit.patterns.allocator.purposes import DOMINATES, LARGE_BYTES, held_for
from profkit.patterns.loops.located import lines_outwards
from profkit.patterns.memory_use import MemoryUse, memory_use
from profkit.patterns.retention.lifetimes import NEVER_NS, lifetimes, live_bytes
from profkit.rules.base import (
    CallSite,
    CannotLook,
    Facts,
    Kind,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    format_bytes,
    format_share,
    rule,
)
from profkit.trace import NONE, Int64s, Rows, distinct

_OF_BLOCKS = (
    "Where memory limits the batch, call it as `checkpoint(block, x, use_reentrant=False)` from "
    "torch.utils.checkpoint. Each call's forward pass then runs once more."
)
_OF_MODEL = (
    "Where memory limits the batch, let the model checkpoint its blocks. In transformers that is "
    "`model.gradient_checkpointing_enable()`; elsewhere call each block as `checkpoint(block, x, "
    "use_reentrant=False)` from torch.utils.checkpoint. Each block's forward pass then runs once more."
)
_STATE_PER_GRADIENT = 3
"""Parameters and Adam's two moments, each as large as the gradients; other optimizers mostly keep less."""


class _Peak(Struct, frozen=True):
    """The peak of one step: the rows and bytes of the activations live then, in time order, and all bytes."""

    rows: Rows
    size: Int64s
    total_bytes: int


class _KeepingLine(Struct, frozen=True):
    """A line that makes activations in several calls, and what checkpointing each call would give back."""

    site: int
    calls: int
    kept_bytes: int
    saved_bytes: int


def _by_snapshot(facts: Facts) -> Suspicions:
    """At most one finding, for the fullest device: the innermost line whose calls would give back most."""
    allocator = allocator_of(facts)
    if not allocator.devices or allocator.fullest.peak_bytes < LARGE_BYTES:
        return
    use, found = allocator.fullest, allocator.allocations
    at_peak = allocator.live_at_peak(use)
    activation_bytes = held_for(allocator, at_peak, Purpose.ACTIVATIONS)
    waiting = at_peak & (allocator.purposes == Purpose.ACTIVATIONS) & ~found.is_held
    waiting[waiting] = allocator.entries[found.freed_by[waiting]] == Origin.BACKWARD
    if min(activation_bytes, 2 * int(found.size_bytes[waiting].sum())) < DOMINATES * use.peak_bytes:
        return
    waiting &= allocator.origins[found.stack] == Origin.FORWARD
    best = max(_lines_of_snapshot(facts, np.flatnonzero(waiting)), key=lambda line: line.saved_bytes, default=None)
    if best is not None:
        is_of_blocks = _is_in_model(facts, best.site)
        site = site_of(facts, best.site)
        yield from _suspect(best, site, use.peak_bytes, activation_bytes, is_of_blocks=is_of_blocks)


def _is_in_model(facts: Facts, frame: int) -> bool:
    """Whether the line runs in a call of a module. Repetition below any other line may come from that line's own calls,
    or from the blocks of the single model that it calls: the model's code, in a library, calls these."""
    stacks = allocator_of(facts).snapshot.stacks
    called = outermost(stacks, calling_frames(stacks))
    here = innermost(stacks, np.arange(len(stacks.file)) == frame)
    return bool(((here != NONE) & (here < called)).any())


def _lines_of_snapshot(facts: Facts, pieces: Rows) -> Iterator[_KeepingLine]:
    """Each line of the program that allocates some of these pieces, itself or in what it calls, the innermost first."""
    allocator = allocator_of(facts)
    stacks, found = allocator.snapshot.stacks, allocator.allocations
    pieces = pieces[np.argsort(found.made_by[pieces], kind="stable")]
    stack = found.stack[pieces]
    first, count = stacks.starts[stack], stacks.starts[stack + 1] - stacks.starts[stack]
    owner = np.repeat(np.arange(len(pieces)), count)
    depth = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    frame = stacks.frames[np.repeat(first, count) + depth]
    owner, depth, frame = (column[user_frames(facts)[frame]] for column in (owner, depth, frame))
    known, of_frame = np.unique(frame, return_inverse=True)
    deepest = np.full(len(known), np.iinfo(np.int64).max)
    np.minimum.at(deepest, of_frame, depth)
    for at in np.argsort(deepest, kind="stable").tolist():
        mine = distinct(owner[of_frame == at])
        call = np.cumsum(stack[mine] == stack[mine[0]]) - 1
        if call[-1] > 0:
            yield _price(int(known[at]), call, found.size_bytes[pieces[mine]])


@rule(Kind.OPPORTUNITY, Need.MEMORY, Need.WHOLE_STEP, by_snapshot=_by_snapshot)
def activation_dominated_peak(facts: Facts) -> Suspicions:
    """At most one finding: the line whose calls would give back most."""
    if not facts.lines.backward.any():
        return
    located = np.flatnonzero(facts.steps.located)
    if not len(located):
        raise CannotLook("which line allocates what was not recorded (run the program under profkit)")
    peak = _peak_of(facts, int(located[-1]))
    activation_bytes = int(peak.size.sum())
    if peak.total_bytes < LARGE_BYTES or activation_bytes < DOMINATES * peak.total_bytes:
        return
    # Of lines that give back the same, take the outermost, found last: a call is wrapped where it is made.
    best = max(reversed(list(_lines(facts, peak))), key=lambda line: line.saved_bytes, default=None)
    if best is not None:
        memory = memory_use(facts)
        room = memory if memory.has_room_for(0) else None
        severity = (Severity.INFO if facts.device.present else Severity.LOW) if room else None
        site = call_site(facts, best.site)
        yield from _suspect(best, site, peak.total_bytes, activation_bytes, room, severity)


def _suspect(
    best: _KeepingLine,
    site: CallSite | None,
    peak_bytes: int,
    activation_bytes: int,
    room: MemoryUse | None = None,
    severity: Severity | None = None,
    is_of_blocks: bool = True,
) -> Suspicions:
    if site is None or best.saved_bytes <= 0:
        return
    what = f"{best.calls} calls here keep" if is_of_blocks else "what is called here keeps"
    in_use = f"{format_bytes(room.used_bytes)} of {format_bytes(room.total_bytes)}" if room else ""
    yield Suspicion(
        message=f"{format_share(activation_bytes / peak_bytes)} of the peak of {format_bytes(peak_bytes)} is "
        f"activations that wait for the backward pass; {what} {format_bytes(best.kept_bytes)} of it."
        + (f" There is room: at most {in_use} is in use." if room else ""),
        fix=_OF_BLOCKS if is_of_blocks else _OF_MODEL,
        places=Places.of_sites([site]),
        size_bytes=best.saved_bytes,
        peak_fraction=best.saved_bytes / peak_bytes,
        confidence=0.8,
        severity=severity,
        count=best.calls if is_of_blocks else 1,
        evidence={"peak_bytes": peak_bytes, "activation_bytes": activation_bytes, "calls": best.calls},
    )


def _peak_of(facts: Facts, step: int) -> _Peak:
    events, memory, steps = facts.trace.events, facts.memory, facts.steps
    start_ns, end_ns = int(steps.start_ns[step]), int(steps.end_ns[step])
    made_ns, freed_ns = lifetimes(facts)
    peak_ns, held_bytes = memory.most_held_within(start_ns, end_ns)
    if not memory.is_absolute:
        times, sizes = live_bytes(made_ns, freed_ns, memory.size_bytes)
        first, last = np.searchsorted(times, (start_ns, end_ns))
        peak_ns = int(times[first + sizes[first:last].argmax()]) if last > first else start_ns
    live = (made_ns <= peak_ns) & (freed_ns > peak_ns)
    within = (events.start_ns >= start_ns) & (events.start_ns < end_ns)
    backward = np.flatnonzero(facts.lines.backward & within)
    aside = facts.lines.backward | facts.updates.inside
    kept = live & (made_ns >= start_ns) & ~aside[memory.rows]
    # Freed during the backward pass and not before: what goes in the forward pass waits for nothing.
    kept &= freed_ns <= int(facts.tree.end_ns[backward].max(initial=-1))
    kept &= freed_ns >= events.start_ns[backward].min(initial=NEVER_NS)
    if not memory.is_absolute:
        gradient_bytes = int(facts.operators.input_bytes[facts.trace.named(ACCUMULATES) & within].sum())
        held_bytes = int(memory.size_bytes[live].sum()) + _STATE_PER_GRADIENT * gradient_bytes
    return _Peak(memory.rows[kept], memory.size_bytes[kept], held_bytes)


def _lines(facts: Facts, peak: _Peak) -> Iterator[_KeepingLine]:
    """Each line that runs several times with activations made in it or below it, from the innermost mark outwards."""
    for site, numbers, marks in lines_outwards(facts, peak.rows):
        calls, index = np.unique(marks, return_inverse=True)
        if len(calls) > 1:
            yield _price(site, index, peak.size[numbers])


def _price(site: int, call: Int64s, size: Int64s) -> _KeepingLine:
    """``call`` says for each activation, in time order, which call of the line made it."""
    kept = np.bincount(call, weights=size).astype(np.int64)
    last = np.zeros(len(kept), dtype=np.int64)
    last[call] = size  # a repeated index keeps its last value
    after_forward, in_backward = last.sum(), last[:-1].sum() + (kept - last).max()
    saved = int(kept.sum() - max(after_forward, in_backward))
    return _KeepingLine(site, len(kept), int(kept.sum()), saved)
