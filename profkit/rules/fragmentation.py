"""The allocator takes much more of the GPU's memory than the program ever holds, as what is free lies in small pieces.

What it detects
A memory snapshot in whose history the allocator reserved at least a tenth, and 256 MiB, more than the program held at
its peak, and continued to request memory from the driver while that lay free; or a request that failed although
more than it asked for was free in gaps between used pieces. Free memory as such is no fault: PyTorch keeps it for the
next tensors. Not judged: memory reserved before the history begins, anything with expandable segments, and a device
that several streams or graphs share, because none may use another's free memory.

Why is this bad?
A piece of memory cannot serve a larger request, and pieces of two segments are never joined. Sequences or pictures of
varying sizes, and small tensors that outlive large ones beside them, leave holes that the next sizes do not fit into.
When the driver has no more memory, PyTorch hands back segments that are entirely free, and waits for it; gaps in used
segments stay. So the program runs out of memory that it does not use.

Example
    for x in batches_of_varying_length:
        train_step(x)

Use instead
    # PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py
    for x in batches_of_varying_length:
        train_step(x)

How the saving is estimated
Memory: the most that was reserved, minus the most that was held by then. With expandable segments, which grow in place,
hardly more than that is reserved.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.memory.allocator import DeviceUse, held_after, reserved_after
from profkit.patterns import Places
from profkit.patterns.allocator.failures import Failure, asking_site, failures
from profkit.patterns.allocator.lines import allocator_of, frames_of_stacks, holding_lines, site_of
from profkit.patterns.allocator.purposes import LARGE_BYTES
from profkit.rules.base import (
    CallSite,
    Facts,
    Kind,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    format_bytes,
    format_count,
    format_share,
    rule,
)
from profkit.trace.snapshot.columns import Action, Snapshot, State

_LEAST_SHARE = 0.1
_SMALL_SEGMENT = 2 << 20
"""The segment size for requests of up to 1 MiB (``kSmallBuffer``)."""
_FIX = (
    "Set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` in the environment before the program starts. "
    "Segments then grow in place, and neighbouring free pieces can be joined. Fewer sizes help too: pad to a "
    "few lengths, and allocate long-lived tensors before short-lived ones."
)


class _Growth(Struct, frozen=True):
    """The last request that raised the reserved memory to its maximum: its row, what it took, and the most that was
    reserved and held by then. ``free_bytes`` lay free at that moment."""

    row: int
    segment_bytes: int
    free_bytes: int
    reserved_bytes: int
    held_bytes: int

    @property
    def wasted_bytes(self) -> int:
        return self.reserved_bytes - self.held_bytes


@rule(Kind.FAULT, Need.SNAPSHOT)
def fragmentation(facts: Facts) -> Suspicions:
    """Each device on its own. If a request failed, the finding is about that request."""
    allocator = allocator_of(facts)
    for use in allocator.devices:
        if _is_expandable(allocator.snapshot, use.device):
            continue
        failed = [one for one in failures(facts) if one.device == use.device and one.gap_bytes >= one.asked_bytes]
        if failed:
            yield _suspect_failure(facts, use, failed[-1])
        elif not _is_shared_out(allocator.snapshot, use) and (growth := _growth(facts, use)) is not None:
            yield _suspect_growth(facts, use, growth)


def _is_expandable(snapshot: Snapshot, device: int) -> bool:
    segments, setting = snapshot.segments, snapshot.settings.get("expandable_segments", "")
    return setting == "True" or bool(segments.is_expandable[segments.device == device].any())


def _is_shared_out(snapshot: Snapshot, use: DeviceUse) -> bool:
    """Whether the stream and pool that hold most leave more than a tenth to others."""
    segments = snapshot.segments
    mine = segments.device == use.device
    _, owner = np.unique(np.stack([segments.stream[mine], segments.pool[mine]]), axis=1, return_inverse=True)
    held = np.bincount(owner.ravel(), segments.size_bytes[mine])
    return bool(held.max(initial=0) < (1 - _LEAST_SHARE) * use.reserved_bytes)


def _growth(facts: Facts, use: DeviceUse) -> _Growth | None:
    """None if the history does not show the reserved memory grow to its maximum, if no request came while as much lay
    free, or if little is wasted. Memory reserved before counts as once needed."""
    snapshot, found = allocator_of(facts).snapshot, allocator_of(facts).allocations
    first, end = use.rows
    reserved, held = reserved_after(snapshot, use.device, use.rows), held_after(found, use.device, use.rows)
    size = snapshot.history.size_bytes[first:end]
    takes = np.flatnonzero((snapshot.history.action[first:end] == Action.SEGMENT_ALLOC) & (size > _SMALL_SEGMENT))
    free, size = reserved[takes] - held[takes], size[takes]
    at = int(takes[reserved[takes + 1] == reserved.max()].max(initial=-1))
    if at < 0 or not (free >= size).any():
        return None
    most_held = max(int(held[: at + 3].max()), int(reserved[0]))  # the request itself follows its segment
    growth = _Growth(first + at, int(size[takes == at][0]), int(free[takes == at][0]), int(reserved.max()), most_held)
    is_wasteful = growth.wasted_bytes >= max(LARGE_BYTES, _LEAST_SHARE * growth.reserved_bytes)
    return growth if is_wasteful else None


def _suspect_growth(facts: Facts, use: DeviceUse, growth: _Growth) -> Suspicion:
    share = growth.wasted_bytes / growth.reserved_bytes
    stack = int(allocator_of(facts).snapshot.history.stack[growth.row])
    return Suspicion(
        message=f"{format_share(share)} of the reserved memory lay in pieces too small for the next request: "
        f"{format_bytes(growth.reserved_bytes)} was reserved, at most {format_bytes(growth.held_bytes)} held. "
        f"Here the allocator took {format_bytes(growth.segment_bytes)} more from the driver while "
        f"{format_bytes(growth.free_bytes)} lay free.",
        fix=_FIX,
        places=_places(facts, use, site_of(facts, int(frames_of_stacks(facts)[stack]))),
        size_bytes=growth.wasted_bytes,
        peak_fraction=share,
        confidence=0.8,
        count=1,
        evidence={
            "reserved_bytes": growth.reserved_bytes,
            "held_bytes": growth.held_bytes,
            "segment_bytes": growth.segment_bytes,
            "free_bytes": growth.free_bytes,
            "bytes_in_gaps": use.split_bytes,
        },
    )


def _suspect_failure(facts: Facts, use: DeviceUse, failure: Failure) -> Suspicion:
    largest = format_bytes(failure.largest_gap_bytes)
    gaps = f" in {format_count(failure.gaps, 'gap')} of at most {largest}" if failure.gaps else ""
    return Suspicion(
        message=f"A request for {format_bytes(failure.asked_bytes)} failed although {format_bytes(failure.gap_bytes)} "
        f"lay free inside used segments{gaps}.",
        fix=_FIX,
        places=_places(facts, use, asking_site(facts, failure)),
        size_bytes=failure.gap_bytes,
        confidence=0.9,
        count=1,
        severity=Severity.HIGH,
        evidence={"asked_bytes": failure.asked_bytes, "bytes_in_gaps": failure.gap_bytes},
    )


def _places(facts: Facts, use: DeviceUse, asked: CallSite | None) -> Places:
    """The line whose request did not fit into the free memory, and lines that hold pieces of the segments with gaps."""
    allocator = allocator_of(facts)
    blocks, segments, found = allocator.snapshot.blocks, allocator.snapshot.segments, allocator.allocations
    free = np.bincount(blocks.segment[blocks.state == State.INACTIVE], minlength=len(segments)) > 0
    mine = blocks.address[free[blocks.segment] & (segments.device[blocks.segment] == use.device)]
    holding = found.is_held & (found.device == use.device) & np.isin(found.address, mine)
    lines = [line.site for line in holding_lines(facts, holding)[:3]]
    return Places.of_sites((asked, *lines))
