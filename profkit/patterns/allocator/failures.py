"""Requests that found no room: what was asked for, and what was held and free at that moment."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.memory.allocator import Allocator, DeviceUse, held_after, reserved_after
from profkit.patterns.allocator.lines import allocator_of, frames_of_stacks, site_of
from profkit.patterns.retention.holding import MIN_SAMPLES
from profkit.run.directory import CallSite, OutOfMemory
from profkit.trace.events import NONE, Int64s
from profkit.trace.snapshot.columns import Action, Snapshot, State

_DEFAULT_STREAM = 0
"""CUDA's, in which programs allocate unless they make streams of their own."""


class Failure(Struct, frozen=True):
    """A request that found no room even after PyTorch had handed back all segments that were free as a whole. ``row``
    is its place in the history, ``free_bytes`` what the driver had left. ``gap_bytes`` were free inside used segments,
    where the request might have fitted. Only a snapshot taken at that moment shows how many ``gaps`` that request could
    use and how large they were; otherwise all that was free counts. ``is_last`` says that nothing was allocated
    afterwards: the request ended the program, or the snapshot was taken there. ``limit_bytes`` is what the process may
    use of the device, 0 for all or if that is unknown. ``site`` is the line that asked, if the run noted it; without
    ``has_history`` only that is known of it, and ``row`` is `NONE`."""

    device: int
    row: int
    stack: int
    asked_bytes: int
    free_bytes: int
    held_bytes: int
    reserved_bytes: int
    gap_bytes: int
    is_last: bool
    gaps: int = 0
    largest_gap_bytes: int = 0
    limit_bytes: int = 0
    site: CallSite | None = None
    has_history: bool = True

    @property
    def is_limited(self) -> bool:
        """Whether the device had room that the process may not use."""
        return self.limit_bytes > 0 and self.free_bytes >= self.asked_bytes


class Growth(Struct, frozen=True):
    """What tensors took at the end of a step, and at the end of each sampled step after it more than before."""

    step: int
    size_bytes: int


@derived_once
def failures(facts: Facts) -> tuple[Failure, ...]:
    """The requests that found no room, by device and in order. Of a run that failed while no history was kept, its last
    one: its snapshot was taken then."""
    allocator = allocator_of(facts)
    found = [failure for use in allocator.devices for failure in _of_device(facts, allocator, use)]
    noted = facts.run.out_of_memory
    uses = [use for use in allocator.devices if noted and use.device == noted.device and not use.has_history]
    return (*found, *(_of_run(facts, allocator.snapshot, use, noted) for use in uses if noted and noted.asked_bytes))


def asking_site(facts: Facts, failure: Failure) -> CallSite | None:
    """The line that asked, None if unknown."""
    return failure.site or site_of(facts, int(frames_of_stacks(facts)[failure.stack]))


def growth_before(facts: Facts, failure: Failure) -> Growth | None:
    """The first of at least `MIN_SAMPLES` sampled steps, if tensors took more after each, and most of all when the
    request failed."""
    taken = [one for one in facts.device_memory if one.device == failure.device and one.step >= 0]
    sizes = np.array([*(one.allocated_bytes for one in taken), failure.held_bytes], dtype=np.int64)
    if len(taken) < MIN_SAMPLES or not (np.diff(sizes) > 0).all():
        return None
    return Growth(taken[0].step, taken[0].allocated_bytes)


def limit_of(facts: Facts, device: int) -> int:
    """How much of the device the process may use, in bytes; 0 for all of it, or if that is unknown."""
    return max((one.limit_bytes for one in facts.device_memory if one.device == device), default=0)


def _of_run(facts: Facts, snapshot: Snapshot, use: DeviceUse, noted: OutOfMemory) -> Failure:
    gaps = _gaps(snapshot, use.device, _DEFAULT_STREAM)
    return Failure(
        device=use.device,
        row=NONE,
        stack=0,
        asked_bytes=noted.asked_bytes,
        free_bytes=noted.free_bytes,
        held_bytes=use.peak_bytes,
        reserved_bytes=use.reserved_bytes,
        gap_bytes=int(gaps.sum()),
        is_last=noted.ended,
        gaps=len(gaps),
        largest_gap_bytes=int(gaps.max(initial=0)),
        limit_bytes=limit_of(facts, use.device),
        site=noted.site,
        has_history=False,
    )


def _of_device(facts: Facts, allocator: Allocator, use: DeviceUse) -> Iterator[Failure]:
    snapshot, history, first = allocator.snapshot, allocator.snapshot.history, use.rows[0]
    mine = history.device == use.device
    rows = np.flatnonzero(mine & (history.action == Action.OOM))
    if not len(rows):
        return
    held = held_after(allocator.allocations, use.device, use.rows)[rows - first]
    reserved = reserved_after(snapshot, use.device, use.rows)[rows - first]
    last = int(np.flatnonzero(mine & (history.action == Action.ALLOC)).max(initial=-1))
    for row, held_bytes, reserved_bytes in zip(rows.tolist(), held.tolist(), reserved.tolist(), strict=True):
        is_now = use.rows[1] == row + 1
        gaps = _gaps(snapshot, use.device, int(history.stream[row])) if is_now else np.zeros(0, dtype=np.int64)
        yield Failure(
            device=use.device,
            row=row,
            stack=int(history.stack[row]),
            asked_bytes=int(history.size_bytes[row]),
            free_bytes=int(history.address[row]),
            held_bytes=held_bytes,
            reserved_bytes=reserved_bytes,
            gap_bytes=int(gaps.sum()) if is_now else reserved_bytes - held_bytes,
            is_last=row > last,
            gaps=len(gaps),
            largest_gap_bytes=int(gaps.max(initial=0)),
            limit_bytes=limit_of(facts, use.device),
        )


def _gaps(snapshot: Snapshot, device: int, stream: int) -> Int64s:
    """The sizes of what is free now for requests of a stream, without the private pools of CUDA graphs."""
    blocks, segments = snapshot.blocks, snapshot.segments
    usable = (segments.device == device) & (segments.stream == stream) & (segments.pool == 0)
    sizes: Int64s = blocks.size_bytes[usable[blocks.segment] & (blocks.state == State.INACTIVE)]
    return sizes
