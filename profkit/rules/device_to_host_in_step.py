"""In every step the host reads data from the device and can launch nothing until they are there.

What it detects
Lines that read more than one number from the device in most steps (`.cpu()`, `.numpy()`, `.tolist()`, `.to("cpu")`),
with kernels before and after the read in the same step, or more than 64 KiB at any time, if the step would be shorter
without the wait. `host-sync-in-step` reports single numbers, and a few that are logged at a step's end. This rule also
reports copies to the host with `non_blocking=True` after which the program never waits for the device although a host
operator works on a tensor of that shape: it may see what was in that memory before.

Why is this bad?
A value exists only once the device has done everything queued before it. However small the read is, the host waits that
long, the queue runs empty, and what follows is launched late. Into memory that is not pinned, the data also come at
only a few GB/s. And `non_blocking=True` to the host is only a promise: nothing but an event or a synchronisation tells
when the data are there.

Example
    scores = model(x)
    order = np.argsort(scores.cpu().numpy())
    kept = x[torch.from_numpy(order[:k]).to(device)]

Use instead
    scores = model(x)
    kept = x[scores.topk(k).indices]

How the saving is estimated
The recorded steps are replayed with the host continuing instead of waiting, and with copies at the rate of pinned
memory (see pageable-transfer). What the host computes from the data keeps its time. If other lines read from the device
too, removing one wait only lets the next line wait: all are removed together, and each line gets its part of that. A
wait during which the device has work saves nothing.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns import sum_per_step, times_a_step
from profkit.patterns.time.wait_causes import WaitCause, wait_causes
from profkit.patterns.transfers import faults
from profkit.patterns.transfers.copies import Transfers
from profkit.patterns.transfers.unawaited import unawaited_reads
from profkit.rules.base import (
    LOW_FROM,
    CannotLook,
    Facts,
    Kind,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    format_bytes,
    format_share,
    format_time,
    rule,
)
from profkit.savings import Edit, combine, unblock
from profkit.savings.cost_models.bus import host_link, pin
from profkit.savings.pricing import divide_saving
from profkit.savings.replay import replay
from profkit.trace import among, distinct

_READ_FIX = (
    "Compute on the device what the host now computes from it. Copy what the host must have into pinned memory "
    "with `non_blocking=True`, and record an event. Read it a step later, after `event.synchronize()`."
)
_RECORD_FIX = (
    "Record an event after the copy (`done = torch.cuda.Event(); done.record()`) and call `done.synchronize()` "
    "before the values are used. Or leave out `non_blocking=True`."
)
_MOST_LINES = 12
"""Each costs a replay, and further lines wait least."""
_READS = (WaitCause.NUMBER_FROM_DEVICE, WaitCause.DATA_FROM_DEVICE)


@rule(Kind.FAULT, Need.DEVICE)
def device_to_host_in_step(facts: Facts) -> Suspicions:
    """One finding for each line that reads."""
    if reason := faults.why_untold(facts, faults.TransferFault.FROM_DEVICE):
        raise CannotLook(reason)
    reads = faults.faulty_transfers(facts, faults.TransferFault.FROM_DEVICE)
    again = faults.lines_coming_again(facts, reads)
    lines = sorted(again, key=lambda line: -faults.waited_ns(facts, line))[:_MOST_LINES]
    if lines:
        link = host_link(facts, to_device=False)
        edits = [*(pin(facts, line, link) for line in lines), *_other_reads(facts)]
        joint = combine(edits)
        parts = divide_saving(facts, edits, joint, [1] * len(edits))
        for line, edit, part in zip(lines, edits, parts, strict=False):
            yield from _judge(facts, line, edit, joint, part, len(edits) - 1)
    yield from _unawaited(facts)


def _judge(facts: Facts, line: Transfers, edit: Edit, joint: Edit, part: float, others: int) -> Suspicions:
    saved = part * replay(facts, joint).fraction
    if saved < LOW_FROM:
        return
    places = distinct(line.place)
    waited, before = faults.waited_ns(facts, line), faults.waited_before_ns(facts, line)
    size = sum_per_step(facts, line.size_bytes)
    queued = f", {format_time(before)} of it for work queued before" if before else ""
    yield Suspicion(
        message=f"The host reads {format_bytes(size)} from the device {times_a_step(facts, places)} and waits "
        f"{format_time(waited)}{queued}. Meanwhile it launches nothing. Without that the step would be "
        f"{format_share(saved)} shorter.",
        fix=_READ_FIX,
        rows=places,
        edit=edit,
        joint=joint if others else None,
        part=part,
        confidence=0.9 if len(facts.steps) > 1 else 0.7,
        evidence={"bytes_per_step": size, "waited_ns_per_step": waited, "waited_for_earlier_work_ns_per_step": before},
    )


def _other_reads(facts: Facts) -> list[Edit]:
    """The reads of numbers and of what is logged: the host would wait there instead."""
    rows = facts.waits.rows[among(wait_causes(facts), np.array(_READS))]
    rows = rows[~faults.waits_told_of(facts)[rows]]
    return [unblock(rows)] if rows.size else []


def _unawaited(facts: Facts) -> Suspicions:
    for line in faults.lines_coming_again(facts, unawaited_reads(facts)):
        yield Suspicion(
            message="A tensor is copied to the host with `non_blocking=True`, and the program never waits for the "
            "device before the next copy. The host may compute with what that memory held before.",
            fix=_RECORD_FIX,
            rows=distinct(line.place),
            severity=Severity.MEDIUM,
            confidence=0.7,
        )
