"""The device idles between short kernels, because the host cannot launch them fast enough.

What it detects
At least a fifth of the step in which the device idles while the host is on its way to the next launch. The queue is
empty: most kernels start before the next one is launched, and most are shorter than the time between two launches. The
step is taken without the recording, which slows the host and hardly the device, and at its shortest. Not counted:
waiting for data, calls of the allocator, compiling, the gap after the host waited for the device, stretches of a
millisecond or more in which the host launches nothing because it computes something else, work inherited from before
the recording, and what lies between two waits for the size of a result: no graph can hold that.

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
from msgspec import Struct
from msgspec.structs import replace

from profkit.derive.timeline.intervals import Intervals, intersection, union
from profkit.patterns import locations_of, name_lines, order_sites, times_per_step
from profkit.patterns.time.idling import busy_otherwise
from profkit.patterns.time.wait_causes import WaitCause, wait_causes
from profkit.rules.base import (
    CannotLook,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    derived_once,
    format_count,
    format_share,
    format_time,
    rule,
)
from profkit.savings import combine, shrink_spans
from profkit.savings.pricing import closer_in_a_graph
from profkit.savings.replay import replay
from profkit.savings.step_time import step_time
from profkit.trace import Bools, Category, Rows, among, distinct, median

_IDLE_SHARE = 0.2
"""Of the shortest that the step can be. With less, the device hardly waits for the host."""
_OTHER_WORK_NS = 1_000_000
"""An operator takes the host 5 to 50 µs; with autograd, hooks and a profiler some 200. A millisecond without a launch
is not spent on launching."""
_MODEL_UNCERTAINTY = 0.3
_MOST_LINES = 3
_MIN_LAUNCHES = 20
"""Per step. With fewer, medians say nothing, and a graph could gather little."""


class _Kernels(Struct, frozen=True):
    """The kernels launched in the measured steps, the call that launched each, and the distinct calls by time."""

    work: Rows
    call_of: Rows
    calls: Rows


@rule(Kind.OPPORTUNITY, Need.DEVICE, Need.WHOLE_STEP)
def launch_bound(facts: Facts) -> Suspicions:
    """One finding for the whole step."""
    events, launches, kernels = facts.trace.events, facts.launches, _launched_kernels(facts)
    if len(kernels.calls) < max(_MIN_LAUNCHES * facts.steps.measured_count, 2):
        return
    interval_ns = median(np.diff(events.start_ns[kernels.calls]))
    kernel_ns = median(events.duration_ns[kernels.work])
    delay_ns = median(events.start_ns[kernels.work] - events.start_ns[kernels.call_of])
    if kernel_ns >= interval_ns or delay_ns >= interval_ns or _launches_block(facts, kernels):
        return
    launching = _launching_time(facts, kernels)
    idle_share = _idle_while_launching(facts, launching)
    if idle_share < _IDLE_SHARE:
        return
    together = shrink_spans(launching.start_ns, launching.end_ns, 0, _MODEL_UNCERTAINTY)
    edit = combine([together, closer_in_a_graph(facts, kernels.work, _MODEL_UNCERTAINTY)])
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
        edit=replace(edit, uncertainty=_uncertainty(facts, replay(facts, edit).fraction)),
        count=count,
        evidence={
            "idle_fraction": round(idle_share, 4),
            "launch_interval_ns": int(interval_ns),
            "kernel_ns": int(kernel_ns),
            "launch_delay_ns": int(delay_ns),
        },
    )


def _launched_kernels(facts: Facts) -> _Kernels:
    events, launches = facts.trace.events, facts.launches
    if not (launches.call >= 0).any():
        raise CannotLook("the recording does not say which call launched which kernel")
    chosen = (launches.call >= 0) & (events.category[launches.work] == Category.KERNEL) & facts.measured[launches.call]
    calls = distinct(launches.call[chosen])
    calls = calls[np.argsort(events.start_ns[calls], kind="stable")]
    return _Kernels(launches.work[chosen], launches.call[chosen], calls)


def _launches_block(facts: Facts, kernels: _Kernels) -> bool:
    """Whether most launch calls last until their kernel is over (CUDA_LAUNCH_BLOCKING): debug-mode-on reports that."""
    events = facts.trace.events
    ends_after = events.ends_of(kernels.call_of) >= events.ends_of(kernels.work)
    return bool(ends_after.mean() > 0.5)


def _launching_time(facts: Facts, kernels: _Kernels) -> Intervals:
    """When the host is between two launches that follow each other closely, or at the edge of a step."""
    events, steps = facts.trace.events, facts.steps
    launched_ns = events.start_ns[kernels.calls]
    edges = distinct(np.concatenate([launched_ns, steps.start_ns[steps.measured], steps.end_ns[steps.measured]]))
    close = np.diff(edges) < _OTHER_WORK_NS
    between = union(edges[:-1][close], edges[1:][close])
    pauses = events.category == Category.PAUSE
    away = np.flatnonzero((facts.loading | pauses) & (events.lane == steps.main_lane))
    away = np.concatenate([away, np.flatnonzero(busy_otherwise(facts)), facts.waits.rows[~facts.waits.own]])
    between = between.minus(union(events.start_ns[away], facts.tree.end_ns[away]))
    return intersection(between.minus(_between_sizes(facts)), _measured_time(facts))


def _between_sizes(facts: Facts) -> Intervals:
    """From one wait for the size of a result to the next in the same step, as in a loop over experts."""
    rows = np.sort(facts.waits.rows[wait_causes(facts) == WaitCause.SIZE_OF_RESULT])
    rows = rows[np.argsort(facts.trace.events.start_ns[rows], kind="stable")]
    step = facts.step_of(rows)
    same = (step[1:] == step[:-1]) & (step[1:] >= 0)
    return union(facts.trace.events.start_ns[rows[:-1][same]], facts.trace.events.start_ns[rows[1:][same]])


@derived_once
def _holding_up(facts: Facts) -> Bools:
    """The waits, other than the recording's own, in which the host waits for the device and launches nothing."""
    return ~facts.waits.own & ~among(facts.waits.rows, facts.launches.call)


def _idle_while_launching(facts: Facts, launching: Intervals) -> float:
    """The share of the step for which the device idles while the host launches, without gaps that begin while the host
    waits for the device. It is taken to be the same part of the idle time of the shortest step as of the recorded
    one."""
    time, waits = step_time(facts), facts.waits.rows[_holding_up(facts)]
    gaps = facts.device.occupied.gaps(*facts.steps.window_ns)
    waiting = union(facts.trace.events.start_ns[waits], facts.tree.end_ns[waits])
    drained = waiting.covered_within(gaps.start_ns, gaps.start_ns + 1) > 0
    idle = intersection(gaps, _measured_time(facts))
    launched = intersection(Intervals(gaps.start_ns[~drained], gaps.end_ns[~drained]), launching)
    if time.least_ns is None or time.device_ns is None or not idle.total_ns:
        return 0.0
    return (1 - time.device_ns / max(time.least_ns, 1)) * launched.total_ns / idle.total_ns


def _forbidding(facts: Facts) -> str:
    """A sentence about the lines at which the host waits for the device, because a graph ends there."""
    waits = facts.waits
    held = _holding_up(facts) & facts.measured[waits.rows]
    called = np.where(waits.operator >= 0, waits.operator, waits.rows)[held]
    lines = locations_of(facts, order_sites(facts.lines.site[called])[:_MOST_LINES])
    if not lines:
        return ""
    named = ", ".join(line.short for line in lines)
    return f" A graph ends where the host waits for the device: first move that out of the step ({named})."


def _uncertainty(facts: Facts, saved: float) -> float:
    """A larger batch or a graph leaves part of the launching, and the real step may be the shortest possible."""
    time = step_time(facts)
    shortest = (time.least_ns or time.ns) / max(time.ns, 1)
    at_least = max(0.0, 1 - (1 - saved) / max(shortest, 1e-9))
    return max(_MODEL_UNCERTAINTY, 1 - at_least / max(saved, 1e-9))


def _measured_time(facts: Facts) -> Intervals:
    steps = facts.steps
    return union(steps.start_ns[steps.measured], steps.end_ns[steps.measured])
