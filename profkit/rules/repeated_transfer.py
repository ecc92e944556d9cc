"""Each step sends a tensor to the device that the step before has sent too.

What it detects
Copies from the host to the device, in most steps, of a tensor that was seen to be the same in two steps, with nothing
written to it in between: a mask, a table or class weights that are moved inside `forward` or inside the loop. A batch
is another tensor in each step and is not reported, however much it looks like the last one. It takes a recording by
profkit: others do not say which tensor an operator is given.

Why is this bad?
The data cross the bus again, and from memory that is not pinned the host waits for them, as in pageable-transfer. Data
that is already on the device costs nothing.

Example
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = make_table()

        def forward(self, x):
            return x + self.table.to(x.device)

Use instead
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", make_table())

        def forward(self, x):
            return x + self.table

How the saving is estimated
The recorded steps are replayed without the calls, the copies and the waits for them.
"""

from __future__ import annotations

from profkit.patterns import each_step, spent_per_step_ns, sum_per_step, times_per_step, works_under
from profkit.patterns.transfers.copies import waits_below
from profkit.patterns.transfers.faults import TransferFault, faulty_transfers, lines_coming_again
from profkit.rules.base import (
    LOW_FROM,
    CannotLook,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    Watch,
    format_bytes,
    format_time,
    rule,
    why_not_watched,
)
from profkit.run.directory import why_unwatched
from profkit.savings import combine, remove, unblock
from profkit.trace import distinct

_FIX = (
    "Move it once. In a module call `self.register_buffer(name, tensor)`, so that `model.to(device)` takes it "
    "along; elsewhere call `.to(device)` before the loop."
)

_NOT_WATCHED = "which tensors are sent was not recorded (run a program with steps under profkit)"


@rule(Kind.FAULT, Need.DEVICE, Need.OPERATORS)
def repeated_transfer(facts: Facts) -> Suspicions:
    """One finding for each line that sends."""
    if (ended := why_unwatched(facts.run, Watch.CALLS)) or facts.run.recomputation is None:
        raise CannotLook(ended or why_not_watched(facts, Watch.CALLS, _NOT_WATCHED))
    for line in lines_coming_again(facts, faulty_transfers(facts, TransferFault.REPEATED)):
        places = distinct(line.place)
        gone = remove(places, works_under(facts, facts.trace.mask_of(places)))
        size, spent = sum_per_step(facts, line.size_bytes), spent_per_step_ns(facts, places)
        yield Suspicion(
            message=f"{each_step(times_per_step(facts, places), 'tensor', 'is', 'are')} sent to the device unchanged, "
            f"as in the step before: {format_bytes(size)}, and {format_time(spent)} of the host's time.",
            fix=_FIX,
            rows=places,
            edit=combine([gone, unblock(waits_below(facts, places), gone.uncertainty)]),
            worth=LOW_FROM,
            spent_ns=spent,
            evidence={"bytes_per_step": size, "host_ns_per_step": spent},
        )
