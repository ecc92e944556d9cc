"""The device waits for its data: they come in the stream that computes, and nothing runs meanwhile.

What it detects
Copies of more than 64 KiB from pinned memory to the device in a stream that computes, in most steps, if the kernels
after them wait but the host does not, and the step would be at least a tenth shorter with the data already there. Less
is not worth a second stream. Copies that run beside other work cost nothing and are not reported. If the host reads
from the device in each step and takes its data from no DataLoader, what it sends may depend on what it read, and
nothing is reported. Other rules cover copies from memory that is not pinned, copies that the host waits for, and data
that need not be sent.

Why is this bad?
With `non_blocking=True` the host continues, but a stream runs its work in order: the kernels of the step wait for the
copy of its batch. A GPU has separate engines for copies, which work in another stream while kernels run, so the next
batch can travel while this one is computed.

Example
    for batch in loader:  # pin_memory=True
        batch = batch.to(device, non_blocking=True)
        train_step(batch)

Use instead
    side, current = torch.cuda.Stream(), torch.cuda.current_stream()
    batches = iter(loader)
    ahead = next(batches).to(device)
    while ahead is not None:
        current.wait_stream(side)
        batch, following = ahead, next(batches, None)
        batch.record_stream(current)
        with torch.cuda.stream(side):
            ahead = None if following is None else following.to(device, non_blocking=True)
        train_step(batch)

Images sent as bytes (`uint8`) and converted to floats on the device are a quarter of the data.

How the saving is estimated
The recorded steps are replayed without the copies. The link carries no more than it did: whatever the copies take
beyond the device's other work stays. Memory has to hold one more batch. Kernels may be a few per cent slower beside a
copy.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns import costliest_lines, sum_per_step
from profkit.patterns.time.wait_causes import STAGED_BYTES, WaitCause, wait_causes
from profkit.patterns.transfers.copies import Transfers, has_unlinked_copies, program_transfers
from profkit.patterns.transfers.faults import TransferFault, coming_again, transfer_faults
from profkit.rules.base import (
    HIGH_FROM,
    CannotLook,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_bytes,
    format_time,
    rule,
)
from profkit.savings import Edit, shrink_work
from profkit.savings.cost_models.bus import slow_link
from profkit.savings.replay import device_alone_ns
from profkit.trace import Bools, Category, among, distinct

_UNCERTAINTY = 0.2
"""Kernels and copies share the device's memory."""
_FIX = (
    "Send the next batch on its own stream while this one is computed with: `with torch.cuda.stream(side): "
    "ahead = batch.to(device, non_blocking=True)`. Before it is used, call "
    "`torch.cuda.current_stream().wait_stream(side)`. Or send less: images as `uint8`, converted to floats on "
    "the device."
)


@rule(Kind.OPPORTUNITY, Need.DEVICE)
def exposed_transfer(facts: Facts) -> Suspicions:
    """One finding for all lines: a batch is sent ahead as a whole."""
    sent = program_transfers(facts)
    if not len(sent) and has_unlinked_copies(facts):
        raise CannotLook("the recording does not say which calls copy between host and device")
    waited = facts.tree.holding(facts.trace.mask_of(facts.waits.rows)) | facts.trace.mask_of(facts.waits.rows)
    chosen = sent.to_device & sent.is_pinned & (sent.size_bytes > STAGED_BYTES)
    chosen &= (transfer_faults(facts) == TransferFault.NONE) & ~waited[sent.place]
    transfers = coming_again(facts, sent.at(chosen & _beside_kernels(facts, sent)))
    if not len(transfers) or len(facts.steps) == 1 or _may_depend_on_results(facts):
        return
    took_ns = facts.steps.per_step_ns(int(facts.trace.events.duration_ns[transfers.work].sum()))
    size = sum_per_step(facts, transfers.size_bytes)
    yield Suspicion(
        message=f"{format_bytes(size)} a step is copied to the device from pinned memory in {format_time(took_ns)}, "
        "and the kernels wait for it in the same stream. Sent on its own stream while the previous step "
        f"computes, it would delay nothing.{slow_link(facts, to_device=True)}",
        fix=_FIX,
        rows=distinct(transfers.place),
        edit=_sent_ahead(facts, transfers),
        worth=HIGH_FROM,  # it takes a second stream, memory for one more batch, and care with what is overwritten when
        confidence=0.8,
        places=costliest_lines(facts, transfers.place),
        evidence={"bytes_per_step": size, "copying_ns_per_step": took_ns},
    )


def _may_depend_on_results(facts: Facts) -> bool:
    """Whether the host waits for results in the measured steps and asks no DataLoader for what it sends."""
    read = among(wait_causes(facts), np.array((WaitCause.DATA_FROM_DEVICE, WaitCause.NUMBER_FROM_DEVICE)))
    return bool(read.any()) and not bool((facts.loading & facts.measured).any())


def _sent_ahead(facts: Facts, transfers: Transfers) -> Edit:
    """Of the copies, only what the device's other work cannot hide stays."""
    duration_ns = facts.trace.events.duration_ns[transfers.work]
    others_ns = device_alone_ns(facts, shrink_work(transfers.work, np.zeros_like(duration_ns), 0.0))
    left = max(0.0, 1 - others_ns / max(int(duration_ns.sum()), 1))
    return shrink_work(transfers.work, (duration_ns * left).astype(np.int64), _UNCERTAINTY)


def _beside_kernels(facts: Facts, transfers: Transfers) -> Bools:
    """The copies in a stream in which kernels run."""
    events, work = facts.trace.events, facts.launches.work
    kernels = work[events.category[work] == Category.KERNEL]
    return among(events.lane[transfers.work], distinct(events.lane[kernels]))
