"""The device idles between short kernels, because the host cannot launch them fast enough.

What it detects
At least a fifth of the step in which the device idles while the host is on its way to the next launch. The queue is
empty: most kernels start before the next one is launched, and most are shorter than the time between two launches. The
step is taken without the recording, which slows the host and hardly the device, and at its shortest. Not counted:
waiting for data, calls of the allocator, compiling, the gap after the host waited for the device, stretches of a
millisecond or more in which the host launches nothing because it computes something else, work inherited from before
the recording, and what lies between two waits for the size of a result: no graph can hold that. Not reported: steps
most of whose kernels a graph launches already (see `host-between-replays`), and those of a server or of a loop that
generate a token for each sequence (see `eager-decode`).

Why is this bad?
Each operator costs the host 5 to 50 µs whatever its size. If its kernel takes less, the device finishes early and
waits, and a faster device changes nothing. It does no harm while the queue is deep.

Example
    for x in small_batches:
        y = model(x)

Use instead
    compiled = torch.compile(model, mode="reduce-overhead")
    for x in larger_batches:
        y = compiled(x)

A graph cannot be recorded across a line at which the host reads a value of the device: the fix names those lines.

How the saving is estimated
The recorded steps are replayed without the host's time between launches, as one CUDA graph would launch them: kernels
run back to back, with the gaps of a graph, which are shorter than those between launches. Waits for the device and for
data stay. A larger batch gains less per step, but does more work in it.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns import locations_of, name_lines, order_sites, times_per_step
from profkit.patterns.serving.decoding import eager_decoding
from profkit.patterns.serving.replays import is_replayed
from profkit.rules.base import (
    CannotLook,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_count,
    format_share,
    format_time,
    rule,
)
from profkit.savings.launching import (
    LaunchedKernels,
    as_one_graph,
    holding_up_launches,
    idle_while_launching,
    launched_kernels,
    launching_time,
)
from profkit.trace import among, median

_IDLE_SHARE = 0.2
"""Of the shortest that the step can be. With less, the device hardly waits for the host."""
_MOST_LINES = 3
_MIN_LAUNCHES = 20
"""Per step. With fewer, medians say nothing, and a graph could gather little."""


@rule(Kind.OPPORTUNITY, Need.DEVICE, Need.WHOLE_STEP)
def launch_bound(facts: Facts) -> Suspicions:
    """One finding for the whole step."""
    events, launches, kernels = facts.trace.events, facts.launches, launched_kernels(facts)
    if not (launches.call >= 0).any():
        raise CannotLook("the recording does not say which call launched which kernel")
    if is_replayed(facts) or eager_decoding(facts) is not None:
        return
    if len(kernels.calls) < max(_MIN_LAUNCHES * facts.steps.measured_count, 2):
        return
    interval_ns = median(np.diff(events.start_ns[kernels.calls]))
    kernel_ns = median(events.duration_ns[kernels.work])
    delay_ns = median(events.start_ns[kernels.work] - events.start_ns[kernels.call_of])
    if kernel_ns >= interval_ns or delay_ns >= interval_ns or _launches_block(facts, kernels):
        return
    launching = launching_time(facts, kernels)
    idle_share = idle_while_launching(facts, launching)
    if idle_share < _IDLE_SHARE:
        return
    operators = launches.operator[among(launches.work, kernels.work) & (launches.operator >= 0)]
    count = times_per_step(facts, kernels.calls)
    yield Suspicion(
        message=f"The device idles at least {format_share(idle_share)} of the step while the host launches. There are "
        f"{format_count(count, 'kernel')} a step, one every {format_time(interval_ns)}, and half of them take "
        f"less than {format_time(kernel_ns)}.",
        fix="Give each launch more to do: a larger batch, or operators fused by torch.compile. Or launch the step "
        'as one CUDA graph: torch.compile(mode="reduce-overhead") or torch.cuda.make_graphed_callables.'
        + _forbidding(facts),
        places=name_lines(facts, order_sites(facts.lines.forward_site[operators])[:1]),
        rows=kernels.calls,
        edit=as_one_graph(facts, launching, kernels.work),
        count=count,
        evidence={
            "idle_fraction": round(idle_share, 4),
            "launch_interval_ns": int(interval_ns),
            "kernel_ns": int(kernel_ns),
            "launch_delay_ns": int(delay_ns),
        },
    )


def _launches_block(facts: Facts, kernels: LaunchedKernels) -> bool:
    """Whether most launch calls last until their kernel is over (CUDA_LAUNCH_BLOCKING): debug-mode-on reports that."""
    events = facts.trace.events
    ends_after = events.ends_of(kernels.call_of) >= events.ends_of(kernels.work)
    return bool(ends_after.mean() > 0.5)


def _forbidding(facts: Facts) -> str:
    """A sentence about the lines at which the host waits for the device, because a graph ends there."""
    waits = facts.waits
    held = holding_up_launches(facts) & facts.measured[waits.rows]
    called = np.where(waits.operator >= 0, waits.operator, waits.rows)[held]
    lines = locations_of(facts, order_sites(facts.lines.site[called])[:_MOST_LINES])
    if not lines:
        return ""
    named = ", ".join(line.short for line in lines)
    return f" A graph ends where the host waits for the device: first move that out of the step ({named})."
