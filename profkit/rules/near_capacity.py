"""At its peak the program takes more than nine tenths of the memory there is.

What it detects
A GPU with more than 90 % of its memory in use at the peak: by tensors, and by what else uses the GPU, such as CUDA's
own memory and other processes. Memory that PyTorch only keeps for later tensors does not count: it gives that back when
needed. Without a GPU, a process whose own memory takes more than 90 % of the machine's, or of its container's limit;
mapped files do not count, as the system drops them when it needs room. It is for information, unless PyTorch's
allocator ran out of memory during the recorded steps and had to give back what it kept.

Why is this bad?
It is no fault by itself: memory is there to be used. But the next larger batch, a longer sequence or an evaluation
between two steps does not fit and ends the program. Before that, PyTorch waits until the GPU is done, gives everything
it keeps back to the driver and asks again. A process that fills the machine is killed, or slowed down by swapping.

Example
    for x, y in loader:                      # batches of up to 2,048 tokens, the longest of which just fit
        train_step(x, y)

Use instead
    for x, y in loader:                      # at most so many tokens in a batch, whatever their number
        for part in split(x, y):
            backward(part)                   # gradients accumulate
        optimizer.step()

How the saving is estimated
Not at all: a change gives room, not time.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns.memory_use import MemoryUse, memory_uses
from profkit.rules.base import (
    CannotLook,
    Facts,
    Kind,
    Severity,
    Suspicion,
    Suspicions,
    format_bytes,
    format_count,
    format_share,
    rule,
)
from profkit.trace import Rows

_FULL = 0.9
"""Use varies from step to step, and pieces that are too small to use take some of the rest."""
_ON_GPU = (
    "Leave a margin: a smaller batch with accumulated gradients, bfloat16, checkpointing of the largest blocks, "
    "or a limit on the length of inputs. If sizes vary, set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`."
)
_ON_HOST = (
    "Leave a margin: load the data in parts or map them (`numpy.load(path, mmap_mode='r')`), and use fewer workers, as "
    "each has memory of its own."
)


@rule(Kind.FAULT)
def near_capacity(facts: Facts) -> Suspicions:
    """One finding for each device."""
    uses = memory_uses(facts)
    if not any(use.is_known for use in uses):
        raise CannotLook("how much memory there is, or how much of it was in use, was not recorded")
    for use in uses:
        if use.share <= _FULL:
            continue
        if use.is_host:
            yield from _on_host(facts, use)
        elif use.allocated_bytes:
            yield _on_gpu(facts, use)
        else:
            raise CannotLook("nearly all memory is taken, but how much of it by tensors was not recorded")


def _on_gpu(facts: Facts, use: MemoryUse) -> Suspicion:
    before, during = _retries(facts, use.device)
    times = format_count(during or before, "time")
    when = "in the recorded steps" if during else "before them"
    again = f" PyTorch ran out of memory {times} {when}, gave back what it had cached and asked again."
    return Suspicion(
        message=f"{_full(use, use.used_bytes)}, {format_bytes(use.allocated_bytes)} of it in "
        f"tensors. A larger batch or a longer input would not fit.{again if during or before else ''}",
        fix=_ON_GPU,
        rows=_at_peak(facts),
        count=1,
        severity=Severity.MEDIUM if during else Severity.INFO,
        evidence={"used_bytes": use.used_bytes, "memory_bytes": use.total_bytes, "retries": before + during},
    )


def _on_host(facts: Facts, use: MemoryUse) -> Suspicions:
    """Only the memory that belongs to the process alone counts."""
    own = [one.rss_bytes - one.shared_bytes for one in facts.samples if one.shared_bytes is not None]
    if not own:
        raise CannotLook("nearly all memory is taken, but how much of it by mapped files was not recorded")
    if max(own) > _FULL * use.total_bytes:
        yield Suspicion(
            message=f"{_full(use, max(own))}: a larger batch, or another worker, would not fit.",
            fix=_ON_HOST,
            count=1,
            severity=Severity.INFO,
            evidence={"used_bytes": max(own), "memory_bytes": use.total_bytes},
        )


def _full(use: MemoryUse, used_bytes: int) -> str:
    total_bytes = use.total_bytes
    taken = f"{format_bytes(used_bytes)} of {format_bytes(total_bytes)} ({format_share(used_bytes / total_bytes)})"
    return f"At its peak {use.where} takes {taken}" if use.is_host else f"At the peak {taken} of {use.where} are in use"


def _retries(facts: Facts, device: int) -> tuple[int, int]:
    """How often the allocator found no room before the first recorded step ended, and from there to the last."""
    counted = [one.retries for one in facts.device_memory if one.device == device and one.step >= 0]
    return (counted[0], counted[-1] - counted[0]) if counted else (0, 0)


def _at_peak(facts: Facts) -> Rows:
    """The allocation that reached the peak, if it was recorded."""
    memory = facts.memory
    if not memory.is_absolute:
        return np.zeros(0, dtype=np.int64)
    peak_ns = memory.times_ns[memory.held_bytes.argmax()]
    reaching: Rows = memory.rows[facts.trace.events.start_ns[memory.rows] == peak_ns][-1:]
    return reaching
