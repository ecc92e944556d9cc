"""When the recorded thread was ready to run, and other threads had the CPUs.

The system counts how long, and profkit notes it of each measured step. Where in the step it was nobody tells. But the
same stretch of the host's time, from the start or end of one operator to that of the next on the same shapes, takes
about as long in each step and at each place. Whatever one took far beyond the usual is taken for such a wait. So a wait
of 30 ms that fell into a small copy is not a copy of 30 ms.

Only what repeats can be compared, though, and waits come as often in the rest. So what repeats gets no more of them
than its part of the step's time, and what chance may add; the others are shared out among the long stretches. Without
that a loop lost all that was counted, and matrix products beside it nothing: of six programs beside four others, loops
that take 44 to 87 % of the step were said to take 4 to 17, and 33 to 73 now.

The recorded thread also waits for the others that share its operators, which had to wait as well and were not counted:
no more is taken than was counted, times the threads. A loop that decodes beside other work took 103 to 186 ms a step,
of which 68 to 130 were counted; 15 to 18 remain, and 18.6 are what a quiet machine takes.

A DataLoader's workers belong to the program, and their part of the waits to its step: it is there in each run.
"""

from __future__ import annotations

import numpy as np

from profkit.derive.steps.boundaries import Steps
from profkit.derive.timeline.intervals import NOTHING, Intervals, union
from profkit.derive.timeline.tree import Tree
from profkit.run.directory import LoadSample, Run
from profkit.trace.events import Bools, Category, Float64s, Int64s, Rows, Trace
from profkit.trace.statistics import distinct_rows, median
from profkit.trace.worker_records import Workers

_LEAST_SHARE = 0.05
"""Of a step: steps of one program differ by as much without any cause."""
_LEAST_ALIKE = 4
"""Stretches of a kind: of fewer, what is usual is a guess."""
_USUAL = 4
"""The shortest quarter tells what is usual: waits only lengthen, and where a step waits for half of its time they reach
more than half of the long stretches."""
_LEAST_WAIT_NS = 1_000_000
"""Linux gives a thread that takes another's place 0.75 ms and more (`sched_min_granularity_ns`, `base_slice_ns`), so a
stretch with a wait in it is hardly shorter."""
_MOST_OF_STRETCH = 0.95
"""Something of it was computed."""
_SURELY = 2.0
"""Standard deviations."""
_FEW_CPUS = 0.25
"""The background load of an idle machine varies by about that much: workers that use less are not what takes CPUs."""
_TIMES_USUAL = 3.0
"""Inputs of other lengths seldom change an operator by more (as in `profkit.savings.outliers`)."""


def find_crowding(trace: Trace, tree: Tree, steps: Steps, run: Run, loading: Bools) -> Intervals:
    """When the recorded thread waited for a CPU in the measured steps, as far as that shows; nothing if the system did
    not count it. What runs in ``loading`` stays as it is: batches differ, and workers hand over several at a time."""
    counted_ns, host = crowding_by_step(steps, run), run.host
    if counted_ns is None or (host is not None and host.torch_threads > host.cpus):
        return NOTHING  # with more threads than CPUs the program waits for itself
    is_much = steps.measured & (counted_ns >= _LEAST_SHARE * (steps.end_ns - steps.start_ns))
    if not is_much.any():
        return NOTHING
    counted_ns = np.where(is_much, counted_ns, 0.0)
    in_step = np.isin(steps.index_of(trace.events.start_ns), np.flatnonzero(is_much))
    on_main = (trace.events.lane == steps.main_lane) & (tree.depth >= 0)
    rows = np.flatnonzero(in_step & on_main & (trace.events.category != Category.PAUSE))
    if not rows.size:
        return NOTHING
    start_ns, end_ns, kind = _stretches(trace, tree, rows)
    step = steps.index_of(start_ns)
    rows = np.flatnonzero(loading)
    loads_ns = union(trace.events.start_ns[rows], tree.end_ns[rows]).covered_within(start_ns, end_ns)
    looked_at = (step >= 0) & (step == steps.index_of(end_ns - 1)) & (loads_ns == 0)
    threads = max(1, host.torch_threads) if host is not None else 1
    step, length_ns = step[looked_at], (end_ns - start_ns)[looked_at]
    usual_ns = _usual(end_ns - start_ns, kind)[looked_at]
    taken_ns = _waits_in(length_ns, usual_ns, step, counted_ns, threads * counted_ns).astype(np.int64)
    return union(end_ns[looked_at] - taken_ns, end_ns[looked_at])


def part_of_workers(workers: Workers, samples: tuple[LoadSample, ...]) -> float:
    """The share of a DataLoader's workers in what other processes than the main one keep busy; 0 if unknown."""
    others = [sample.others_cpus for sample in samples if sample.others_cpus is not None]
    ends = [(record.workers, record.sums[0], record.sums[-1]) for record in workers.records if len(record.sums) > 1]
    busy = [
        count * (last.cpu_ns - first.cpu_ns) / (last.elapsed_ns - first.elapsed_ns)
        for count, first, last in ends
        if last.elapsed_ns > first.elapsed_ns
    ]
    if not others or not busy:
        return 0.0
    taken = max(0.0, sum(busy) / len(busy))
    return taken / max(taken, median(others), _FEW_CPUS)


def split(found: Intervals, part: float) -> tuple[Intervals, Intervals]:
    """The first ``part`` of each interval, and the rest of each."""
    between_ns = found.start_ns + np.rint(part * (found.end_ns - found.start_ns)).astype(np.int64)
    return union(found.start_ns, between_ns), union(between_ns, found.end_ns)


def _waits_in(length_ns: Int64s, usual_ns: Float64s, step: Rows, least_ns: Float64s, most_ns: Float64s) -> Float64s:
    """How much of each stretch of a ``step`` is waits, which are between ``least_ns`` and ``most_ns`` long in each
    step."""

    def in_step(values: Float64s | Int64s | Bools) -> Float64s:
        return np.bincount(step, values, len(least_ns)).astype(np.float64)

    beyond_ns = np.where(length_ns > _TIMES_USUAL * usual_ns, length_ns - usual_ns, 0.0)
    found_ns = in_step(beyond_ns)
    waited_ns = found_ns.clip(least_ns, most_ns)
    part = in_step(length_ns * np.isfinite(usual_ns)) / in_step(length_ns).clip(min=1)
    each_ns = found_ns / in_step(beyond_ns > 0).clip(min=1)
    likely_ns = (
        waited_ns * part + _SURELY * np.sqrt(waited_ns * each_ns * part * (1 - part)) + each_ns
    )  # waits are whole
    there_ns = np.minimum(np.minimum(likely_ns, waited_ns), found_ns)
    elsewhere_ns = length_ns * ((beyond_ns == 0) & (length_ns >= _LEAST_WAIT_NS))
    kept = there_ns / found_ns.clip(min=1)
    even = np.minimum((waited_ns - there_ns) / in_step(elsewhere_ns).clip(min=1), _MOST_OF_STRETCH)
    waits_ns: Float64s = kept[step] * beyond_ns + even[step] * elsewhere_ns
    return waits_ns


def crowding_by_step(steps: Steps, run: Run) -> Float64s | None:
    """How long the recorded thread waited for a CPU in each step, 0 in one whose lines were marked; None if that was
    not counted."""
    counted = np.array(run.measured_step_crowded_ns, dtype=np.float64)
    if not len(counted) or len(counted) != len(steps.unmarked):
        return None
    found = np.zeros(len(steps))
    found[steps.unmarked] = counted.clip(min=0)
    return found


def _stretches(trace: Trace, tree: Tree, rows: Rows) -> tuple[Int64s, Int64s, Int64s]:
    """Starts and ends of the stretches between neighbouring edges of the events, and the number of their kind: the
    events at both edges, by name and shapes, and whether they begin or end there."""
    events, count = trace.events, len(rows)
    times = np.concatenate([events.start_ns[rows], tree.end_ns[rows]])
    _, event_kind = distinct_rows(events.name_code[rows], events.dims_code[rows])
    is_start = np.arange(2 * count) < count
    edge = 2 * np.concatenate([event_kind, event_kind]).astype(np.int64) + is_start
    order = np.lexsort((is_start, times))
    times, edge = times[order], edge[order]
    _, kind = distinct_rows(edge[:-1], edge[1:])
    return times[:-1], times[1:], kind.astype(np.int64)


def _usual(length_ns: Int64s, kind: Int64s) -> Float64s:
    """How long stretches of each one's kind usually are; infinite where few are of its kind."""
    order = np.lexsort((length_ns, kind))
    count = np.bincount(kind)
    first = np.cumsum(count) - count
    usual_ns = length_ns[order][first + (count - 1) // _USUAL].astype(np.float64)
    return np.where(count >= _LEAST_ALIKE, usual_ns, np.inf)[kind]
