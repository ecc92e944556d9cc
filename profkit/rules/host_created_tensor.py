"""A tensor is filled with zeros, ones or random numbers on the host and then copied to the device.

What it detects
A factory on the host (`rand`, `randn`, `randint`, `zeros`, `ones`, `full`, `arange`, or `empty` and an in-place fill)
directly followed, apart from a change of shape, by the copy of as many elements of the same type to the device, in most
steps. Copying real data is no fault: it has to reach the device once.

Why is this bad?
One host thread fills the memory, the bus carries it, and because the memory is not pinned the host waits for both. The
device fills its own memory a hundred times faster, and nothing waits.

Example
    noise = torch.randn(batch, channels).to(device)

Use instead
    noise = torch.randn(batch, channels, device=device)

How the saving is estimated
The recorded steps are replayed without the host's factory, the call that copies, the copy and the wait for it. Filling
the tensor on the device instead runs at the device's memory bandwidth and is not counted.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns import each_step, frequent_lines, named_operators, sum_per_step, times_per_step
from profkit.patterns.transfers.created import FACTORIES, FILLS, created_tensors
from profkit.rules.base import Facts, Kind, Need, Suspicion, Suspicions, format_bytes, format_time, rule
from profkit.savings import remove
from profkit.source.changes import MadeOnDevice
from profkit.trace import Rows


@rule(Kind.FAULT, Need.DEVICE, Need.OPERATORS)
def host_created_tensor(facts: Facts) -> Suspicions:
    """One finding for each line that copies."""
    created = {tensor.copy: tensor for tensor in created_tensors(facts)}
    copies = np.array(sorted(created), dtype=np.int64)
    for rows in frequent_lines(facts, copies):
        yield _suspect(facts, rows, np.concatenate([created[int(row)].chain for row in rows]))


def _suspect(facts: Facts, rows: Rows, chain: Rows) -> Suspicion:
    events, launches = facts.trace.events, facts.launches
    inside = facts.tree.under(facts.trace.mask_of(rows))
    work = launches.work[(launches.call >= 0) & inside[launches.call]]
    host_ns = facts.steps.per_step_ns((facts.tree.end_ns[chain] - events.start_ns[chain]).sum())
    size = sum_per_step(facts, events.size_bytes[work].clip(min=0))
    first = chain[np.isin(chain, np.flatnonzero(named_operators(facts, *FACTORIES, *FILLS)))]
    name = facts.trace.name_of(int(first[0])).removeprefix("aten::")
    # A fill has no device of its own, its `empty` has.
    made = f"empty(..., device=device).{name}(...)" if name.endswith("_") else f"{name}(..., device=device)"
    moved = f", {format_bytes(size)} over the bus" if size else ""
    return Suspicion(
        message=f"{each_step(times_per_step(facts, rows), 'tensor', 'is', 'are')} filled on the host by {name}, then "
        f"copied to the device. That takes {format_time(host_ns)} of the host's time{moved}.",
        fix=f"Create it on the device: `torch.{made}`; once, outside the loop, if it never changes.",
        rows=rows,
        edit=remove(chain, work),
        spent_ns=host_ns,
        rewrite=MadeOnDevice(),
        evidence={"host_ns_per_step": host_ns, "bytes_per_step": size},
    )
