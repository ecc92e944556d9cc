"""Many small tensors are sent to the device one after another.

What it detects
At least eight copies of at most 64 KiB to the device in a row, in most steps: no kernel is launched between two of
them, and the host does little else meanwhile. So all of them exist when the first is sent. Not reported: tensors that
arrive at different times, tensors that the device works on before the next one comes, and tensors that the host makes
up.

Why is this bad?
A small copy costs its call: PyTorch's operators, the memory for the result, the runtime's call and, from memory that is
not pinned, a wait for the device. That is 20 to 40 µs for each tensor, in which 64 KiB would cross the bus ten times,
and the device idles. One tensor that holds them all takes one call.

Example
    batch = {name: values.to(device) for name, values in features.items()}

Use instead
    packed = torch.cat([*features.values()], 1).pin_memory()  # in the DataLoader's collate_fn
    batch = dict(zip(features, packed.to(device, non_blocking=True).split(widths, 1)))

How the saving is estimated
The recorded steps are replayed with one call in place of each such row, for which the host does not wait, and one copy
of as many bytes at the rate of pinned memory (see pageable-transfer). Packing the tensors does not count: a
DataLoader's worker does it while the step before runs.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns import per_step, spent_per_step_ns, sum_per_step
from profkit.patterns.transfers import faults
from profkit.patterns.transfers.copies import Transfers, waits_below
from profkit.rules.base import (
    LOW_FROM,
    CannotLook,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_bytes,
    format_count,
    format_time,
    rule,
)
from profkit.savings import Edit, combine, shrink_spans, shrink_work, unblock
from profkit.savings.cost_models.bus import Link, host_link
from profkit.trace import Int64s, distinct

_FIX = (
    "Pack them where the batch is made: `torch.cat`, or one buffer with a slice for each, in `collate_fn`. Send "
    "that tensor from pinned memory with `non_blocking=True`. Take it apart on the device with `split` or "
    "slices, which are views."
)


@rule(Kind.FAULT, Need.DEVICE)
def many_small_transfers(facts: Facts) -> Suspicions:
    """One finding for each line at which such a row begins."""
    if reason := faults.why_untold(facts, faults.TransferFault.MANY_SMALL):
        raise CannotLook(reason)
    transfers = faults.faulty_transfers(facts, faults.TransferFault.MANY_SMALL)
    run = faults.runs_of_small(facts, transfers)
    first = np.unique(run, return_index=True)[1]
    leading = transfers.site[first][np.searchsorted(run[first], run)]
    for code in distinct(leading):
        yield from _judge(facts, transfers.at(leading == code), run[leading == code])


def _judge(facts: Facts, transfers: Transfers, run: Int64s) -> Suspicions:
    if not faults.comes_again(facts, transfers):
        return
    count, size = per_step(facts, transfers.work), sum_per_step(facts, transfers.size_bytes)
    places = distinct(transfers.place)
    spent = spent_per_step_ns(facts, places)
    yield Suspicion(
        message=f"{format_count(round(count), 'small tensor')} a step are sent to the device one by one, "
        f"{format_bytes(size)} in all. The calls take the host {format_time(spent)}, and one would do.",
        fix=_FIX,
        rows=places,
        edit=_packed(facts, transfers, run, host_link(facts, to_device=True)),
        worth=LOW_FROM,
        confidence=0.9 if len(facts.steps) > 1 else 0.7,
        spent_ns=spent,
        evidence={"transfers_per_step": round(count, 2), "bytes_per_step": size, "host_ns_per_step": spent},
    )


def _packed(facts: Facts, transfers: Transfers, run: Int64s, link: Link) -> Edit:
    """The first call of each run stays, without its wait, and one copy."""
    events, tree = facts.trace.events, facts.tree
    first = np.unique(run, return_index=True)[1]
    last = np.append(first[1:], len(run)) - 1
    size = np.add.reduceat(transfers.size_bytes, first)
    copied_ns = np.add.reduceat(events.duration_ns[transfers.work], first)
    kept = np.zeros(len(run), dtype=np.int64)
    kept[first] = np.minimum(link.copy_ns(size), copied_ns)
    start, end = tree.end_ns[transfers.place[first]], tree.end_ns[transfers.place[last]]
    return combine(
        [
            shrink_spans(start, end, 0, link.uncertainty),
            shrink_work(transfers.work, kept, link.uncertainty),
            unblock(waits_below(facts, transfers.place), link.uncertainty),
        ]
    )
