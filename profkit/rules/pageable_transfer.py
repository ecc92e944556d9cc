"""Each step sends its data to the device from memory that is not pinned, and the host waits for it.

What it detects
Copies of more than 64 KiB from pageable memory to the device, in most steps, with or without `non_blocking=True`, if
the step would be shorter with pinned memory. Smaller ones of the same batch are reported with them: they cost little,
but the host would wait at them instead. Copies from pinned memory are not reported, nor copies hidden behind the
device's other work. Tensors that the host makes up, constants, and many small tensors in a row have rules of their own.

Why is this bad?
The device can only read the host's memory by itself if the system may not move it: if it is pinned. From anywhere else
the driver copies the data piece by piece through a pinned buffer of its own, on one thread, at a few GB/s; PCI Express
carries 12 to 55. Meanwhile the host can launch nothing, and `non_blocking=True` does not change that.

Example
    loader = DataLoader(dataset, batch_size=256, num_workers=8)
    for x, y in loader:
        x, y = x.to(device), y.to(device)

Use instead
    loader = DataLoader(dataset, batch_size=256, num_workers=8, pin_memory=True)
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)

How the saving is estimated
The recorded steps are replayed with the host going on instead of waiting, and with copies at the rate of pinned memory:
that of the recording's own pinned copies, else 85 per cent of what the PCI Express link of the GPU's data sheet carries
(30 per cent uncertain, 50 if the GPU is not known). Putting the data into pinned memory takes the host a copy, which
does not count: a DataLoader does it on another thread. Copied on another stream during the step before, the data would
only cost the link's time; if that saves more, the message says how much.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns import costliest_lines, spent_ns, sum_per_step, times_per_step
from profkit.patterns.time.wait_causes import STAGED_BYTES
from profkit.patterns.transfers import faults
from profkit.patterns.transfers.copies import Transfers, program_transfers, waits_below
from profkit.rules.base import (
    LOW_FROM,
    MEDIUM_FROM,
    CannotLook,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_bytes,
    format_share,
    format_time,
    rule,
)
from profkit.savings import Edit, combine, shrink_work, unblock
from profkit.savings.cost_models.bus import Link, host_link, pin
from profkit.savings.outliers import LEAST_STEPS, MOST_TIMES_MEDIAN
from profkit.savings.replay import replay
from profkit.trace import among, distinct, median

_FIX = (
    "Have the batch in pinned memory before the step needs it, and copy with `non_blocking=True`: the host then "
    "goes on while the data travels. Use `pin_memory=True` in the DataLoader, or refill a buffer made with "
    "`pin_memory=True`. `x.pin_memory()` on the spot is one more copy, for which the host waits as well."
)
_MOSTLY = 0.5
"""Of the host's wait."""


@rule(Kind.FAULT, Need.DEVICE)
def pageable_transfer(facts: Facts) -> Suspicions:
    """One finding for all lines: the change is where the batch is made."""
    if reason := faults.why_untold(facts, faults.TransferFault.PAGEABLE) or _why_unknown(facts):
        raise CannotLook(reason)
    transfers = faults.coming_again(facts, faults.faulty_transfers(facts, faults.TransferFault.PAGEABLE))
    large = transfers.size_bytes > STAGED_BYTES
    link = host_link(facts, to_device=True)
    usual = _without_stops(facts, transfers)
    edit = pin(facts, usual, link)
    saved = replay(facts, edit).fraction if large.any() else 0.0
    if saved < LOW_FROM:
        return
    scale = facts.steps.measured_count / len(distinct(facts.step_of(usual.place)))
    waited, before = (int(scale * ns) for ns in (faults.waited_ns(facts, usual), faults.waited_before_ns(facts, usual)))
    yield Suspicion(
        message=_message(facts, transfers.at(large), link, waited, before) + _ahead(facts, edit, saved),
        fix=_FIX,
        rows=distinct(transfers.place[large]),
        edit=edit,
        places=costliest_lines(facts, transfers.place[large]),
        count=times_per_step(facts, distinct(transfers.place[large])),
        spent_ns=waited,
        confidence=0.9 if len(facts.steps) > 1 else 0.7,
        evidence={
            "bytes_per_step": sum_per_step(facts, transfers.size_bytes),
            "waited_ns_per_step": waited,
            "waited_for_earlier_work_ns_per_step": before,
            "pinned_bytes_per_second": round(link.bytes_per_ns * 1e9),
        },
    )


def _without_stops(facts: Facts, transfers: Transfers) -> Transfers:
    """Without the steps in which the host takes many times as long for them as in the others: something stopped it,
    such as another program, or memory that it touches for the first time. Pinned memory does not help against that."""
    steps, waits = distinct(facts.step_of(transfers.place)), waits_below(facts, transfers.place)
    if len(steps) < LEAST_STEPS:
        return transfers
    waits = waits[among(facts.step_of(waits), steps)]
    waited = np.bincount(np.searchsorted(steps, facts.step_of(waits)), spent_ns(facts, waits), len(steps))
    stopped = steps[waited > MOST_TIMES_MEDIAN * median(waited)]
    return transfers.at(~among(facts.step_of(transfers.place), stopped))


def _why_unknown(facts: Facts) -> str:
    """AMD's profiler does not name the kind of memory."""
    sent = program_transfers(facts)
    large = sent.to_device & (sent.size_bytes > STAGED_BYTES)
    is_known = (sent.is_pageable | sent.is_pinned)[large]
    return (
        "" if is_known.any() or not large.any() else "the recording does not say which of the host's memory is pinned"
    )


def _message(facts: Facts, large: Transfers, link: Link, waited: int, before: int) -> str:
    took_ns = int(facts.trace.events.duration_ns[large.work].sum())
    size = int(large.size_bytes.sum())
    rate = format_bytes(round(size / max(took_ns, 1) * 1e9))
    whose = "here" if link.is_measured else "on such a link"
    queued = f", {format_time(before)} of it for work queued before," if (before >= _MOSTLY * waited) else ""
    # Without `non_blocking=True` the host also waits outside the copying call itself.
    waits = waits_below(facts, large.place)
    others = facts.trace.mask_of(waits[~among(waits, large.call)])
    is_asynchronous = not facts.tree.holding(others)[large.place].any()
    vain = "; `non_blocking=True` does not help without pinned memory" if is_asynchronous else ""
    return (
        f"{format_bytes(size // facts.steps.measured_count)} a step is copied to the device from memory that is "
        f"not pinned, at {rate}/s. The host waits {format_time(waited)}{queued} and launches nothing{vain}. "
        f"Pinned memory reaches {format_bytes(round(link.bytes_per_ns * 1e9))}/s {whose}."
    )


def _ahead(facts: Facts, edit: Edit, saved: float) -> str:
    """The gain of sending the data on another stream during the step before: the step still takes the link's time."""
    gone = shrink_work(edit.work, np.zeros(len(edit.work), dtype=np.int64), edit.uncertainty)
    hidden = replay(facts, combine([unblock(edit.waits), gone]))
    least_ns = int(edit.work_kept_ns.sum())
    ahead = min(hidden.fraction, 1 - least_ns / max(hidden.recorded_ns, 1))
    if ahead - saved < MEDIUM_FROM:
        return ""
    return f" Sent on its own stream while the step before computes, it would save {format_share(ahead)}."
