"""Gradients are averaged in many small messages, each of which costs its latency.

What it detects
All-reduces of gradients, as DistributedDataParallel starts them in the backward pass, if there are more than twice as
many a step as with its default buckets (25 MB, the first one 1 MB), and the step waits for them or for the host that
starts them: `bucket_cap_mb` is too small for the model. Messages hidden behind the backward pass are not reported.

Why is this bad?
Each message goes through all processes before it is done, whatever its size: some tens of microseconds between the GPUs
of a machine, a millisecond over a network. Below some hundred kilobytes that is most of the time it takes.

Example
    model = DistributedDataParallel(model, bucket_cap_mb=0.1)

Use instead
    model = DistributedDataParallel(model)

How the saving is estimated
A message takes latency plus bytes over bandwidth (Hockney, 1994), fitted to the recorded messages: to the time that
their last rank spends in them, if all ranks were recorded; else to the shortest ones, as longer ones may contain waits
for other ranks, and the saving may be far larger than said. If all are of one size, half of the time of a 262 kB
message is latency. The latency of the messages that default buckets save comes off the waits for them, and their calls
off the host's time. The first bucket then starts later, which is not priced but widens the range.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns import are_most_steps
from profkit.patterns.averaging.exchanged import (
    all_reduces,
    gradient_messages,
    on_trace_clock,
    own_table,
    sizes_by_order,
    waits_for,
)
from profkit.patterns.averaging.exposed import find_exposed, latency_ns
from profkit.patterns.averaging.gradients import are_too_many, default_buckets
from profkit.patterns.named_lines import busiest_call_lines
from profkit.patterns.ranks.exchanges import find_exchanges
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
from profkit.savings import Edit, combine, shrink, shrink_spans
from profkit.trace import Int64s, among, distinct, median

_UNCERTAINTY = 0.5


_MANY = 2
"""So many messages a step are as many as default buckets send of 26 MB: of more, somebody has to say what they are."""


@rule(Kind.FAULT, Need.OPERATORS, Need.WHOLE_STEP)
def small_collectives(facts: Facts) -> Suspicions:
    """Compare the number of messages of each step's gradients with that of default buckets."""
    rows, step = gradient_messages(facts)
    if not rows.size:
        return _tell_others(facts)
    taken = own_table(facts).collectives
    size = sizes_by_order(taken, rows, step)
    each_ns = latency_ns(facts, rows)
    if each_ns is None:
        raise CannotLook("the recording does not tell how large the messages are (record_shapes=True)")
    steps = [one for one in distinct(step) if facts.steps.measured[one] and are_too_many(size[step == one])]
    if not are_most_steps(facts, len(steps)):
        return
    count = round(float(np.isin(step, steps).sum() / len(steps)))
    whole = int(size[np.isin(step, steps)].sum() / len(steps))
    buckets = default_buckets(whole)
    at_least = "" if find_exposed(facts).is_whole else "at least "
    yield Suspicion(
        message=f"{format_bytes(whole)} of gradients a step is sent in {format_count(count, 'message')} of "
        f"{format_bytes(float(median(size[size >= 0])))}. Each takes {at_least}{format_time(each_ns)} whatever "
        f"its size; {format_count(buckets, 'default bucket')} would do.",
        fix="Leave `bucket_cap_mb` out, or raise it until the messages take longer than their latency.",
        edit=_in_default_buckets(facts, rows, step, size, each_ns),
        worth=LOW_FROM,
        count=count,
        places=busiest_call_lines(own_table(facts), rows),
        evidence={
            "messages_per_step": count,
            "default_buckets": buckets,
            "latency_ns": int(each_ns),
            "gradient_bytes": whole,
        },
    )


def _tell_others(facts: Facts) -> None:
    """Many all-reduces in a step with a backward pass, none of which the storing of a gradient starts, may still be of
    gradients: some libraries start them elsewhere."""
    if not (facts.lines.backward.any() and len(find_exchanges(facts))):
        return
    issued_ns = on_trace_clock(facts, own_table(facts).collectives.issue_ns[all_reduces(facts)])
    count = round(int(facts.steps.in_measured(issued_ns).sum()) / facts.steps.measured_count)
    if count > _MANY:
        raise CannotLook(
            f"of {count:,} all-reduces a step none is started by the storing of a gradient, and nothing else recorded "
            "tells which carry gradients"
        )


def _in_default_buckets(facts: Facts, rows: Int64s, step: Int64s, size: Int64s, each_ns: float) -> Edit:
    """The waits for a step's messages shrink by the saved latencies, the last ones first, as all come at the end of the
    backward pass. The calls shrink in proportion to their number."""
    taken = own_table(facts).collectives
    start_ns, end_ns = waits_for(facts, rows)
    length = end_ns - start_ns
    kept = length.copy()
    calls = np.flatnonzero(among(facts.trace.events.start_ns, on_trace_clock(facts, taken.issue_ns[rows])))
    calls = calls[facts.trace.named("c10d::allreduce_")[calls]]
    share = 1.0
    for one in distinct(step):
        mine = np.flatnonzero(step == one)
        buckets = default_buckets(int(size[mine].clip(min=0).sum()))
        share = min(share, buckets / max(len(mine), 1))
        saved_ns = max(0, len(mine) - buckets) * each_ns
        kept[mine] = (length[mine] * max(0.0, 1 - saved_ns / max(int(length[mine].sum()), 1))).astype(np.int64)
    called_ns = facts.tree.end_ns[calls] - facts.trace.events.start_ns[calls]
    held = length > 0
    return combine(
        [
            shrink_spans(start_ns[held], end_ns[held], kept[held], _UNCERTAINTY),
            shrink(calls, (called_ns * share).astype(np.int64), _UNCERTAINTY),
        ]
    )
