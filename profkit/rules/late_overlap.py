"""Gradients are averaged over the processes only after the backward pass, while nothing is computed.

What it detects
All-reduces between the last gradient of a step and the optimizer that carry most of the bytes of the step's gradients
and that the program waits for, with none while gradients are stored: a loop over `model.parameters()` after
`backward()`, or one flattened tensor. Metrics, losses and norms are too small to count.

Why is this bad?
The gradients of the last layers are ready long before those of the first ones. Sent while the rest of the backward pass
computes, they cost nothing as long as there is something to compute. Sent afterwards, the whole transfer is added to
the step. One message for each parameter also pays a latency for each.

Example
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world_size
    optimizer.step()

Use instead
    model = DistributedDataParallel(model)
    ...
    loss.backward()
    optimizer.step()

How the saving is estimated
The gradients go in DistributedDataParallel's buckets (25 MB, the first one 1 MB), which saves the latency of the other
messages. A message takes latency plus bytes over bandwidth (Hockney, 1994), fitted to the messages that waited for no
slower process: those that come right after another one, or all of them if all ranks were recorded. The transfer is
hidden behind the time from the first gradient to the last, except for the last bucket, which has nothing left to hide
behind. If the first all-reduce takes longer than any other of the step, the excess is a wait for a slower process and
stays.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns import are_most_steps
from profkit.patterns.averaging.exchanged import own_table, waits_for
from profkit.patterns.averaging.exposed import latency_ns
from profkit.patterns.averaging.gradients import default_buckets
from profkit.patterns.averaging.late import LateAverages, find_late_averages, is_averaged_within
from profkit.patterns.named_lines import busiest_call_lines
from profkit.rules.base import (
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_bytes,
    format_count,
    format_time,
    pick_form,
    rule,
)
from profkit.savings import Edit, shrink_spans
from profkit.trace import Bools, Int64s, distinct

_UNCERTAINTY = 0.4
"""Transfers and the compute that they overlap slow each other down."""


@rule(Kind.FAULT, Need.OPERATORS, Need.SHAPES, Need.WHOLE_STEP)
def late_overlap(facts: Facts) -> Suspicions:
    """Look for all-reduces of gradients between the backward pass and the optimizer."""
    late = find_late_averages(facts)
    known = facts.steps.measured[late.step] & ~is_averaged_within(facts)[late.step]
    if not are_most_steps(facts, int(known.sum())):
        return
    taken = own_table(facts).collectives
    mine = known[late.of] & taken.waited[late.rows]
    waited_ns = int((taken.wait_end_ns - taken.wait_start_ns)[late.rows[mine]].sum() / known.sum())
    if not waited_ns:
        return
    count, size = round(known[late.of].sum() / known.sum()), int(late.size_bytes[known].mean())
    yield Suspicion(
        message=f"After the backward pass {format_count(count, 'all-reduce')} of {format_bytes(size)} of gradients "
        f"{pick_form(count, 'keeps', 'keep')} the program waiting for {format_time(waited_ns)} a step; nothing is "
        "computed meanwhile.",
        fix="Wrap the model in DistributedDataParallel, which sends gradients in buckets while others are still "
        "computed. If that is not possible, start them with `async_op=True` in hooks "
        "(`Tensor.register_post_accumulate_grad_hook`) and wait before the optimizer's step.",
        edit=_overlap(facts, late, mine),
        count=count,
        places=busiest_call_lines(own_table(facts), late.rows[mine]),
        evidence={"all_reduces_per_step": count, "waited_ns_per_step": waited_ns, "gradient_bytes": size},
    )


def _overlap(facts: Facts, late: LateAverages, mine: Bools) -> Edit:
    """Each wait keeps its part of what has nothing to hide behind."""
    taken = own_table(facts).collectives
    rows, of = late.rows[mine], late.of[mine]
    start_ns, end_ns = waits_for(facts, rows)
    each_ns = int(latency_ns(facts, late.rows) or (taken.end_ns - taken.start_ns)[late.rows].min())
    kept = np.zeros(len(rows), dtype=np.int64)
    for one in distinct(of):
        buckets = default_buckets(int(late.size_bytes[one]))
        computing_ns = int(late.end_ns[one] - late.begin_ns[one])
        kept[of == one] = _left_of((end_ns - start_ns)[of == one], computing_ns, buckets, each_ns)
    return shrink_spans(start_ns, end_ns, kept, _UNCERTAINTY)


def _left_of(length_ns: Int64s, computing_ns: int, buckets: int, each_ns: int) -> Int64s:
    """What is left of a step's waits. The excess of the first wait over all others is a wait for a slower process and
    stays. The rest goes in a few buckets without the latency of each message; of these, what does not fit behind the
    backward pass stays, and at least the last bucket."""
    waiting = np.zeros(len(length_ns), dtype=np.int64)
    if len(length_ns) > 1:
        waiting[0] = max(0, int(length_ns[0]) - int(length_ns[1:].max()))
    transfer = length_ns - waiting
    whole = int(transfer.sum())
    bucketed = max(whole - max(0, len(length_ns) - buckets) * each_ns, each_ns)
    left = max(bucketed - computing_ns, bucketed // buckets)
    return waiting + (transfer * min(1.0, left / max(whole, 1))).astype(np.int64)
