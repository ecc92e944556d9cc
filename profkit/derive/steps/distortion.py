"""The time that the recording itself added to the host's, and where.

PyTorch's profiler works on an event before it takes the event's start and after it takes its end (``onFunctionEnter``
and ``onFunctionExit`` in ``torch/csrc/autograd/profiler_kineto.cpp``), so this work shows as time between the starts
and ends of events. Its total is known if steps were also timed without a profiler. It is shared out evenly: each start
and each end took up to the same time from the stretch beside it, so that all adds up to the difference. A step of a
thousand small operators is thus corrected by more than one of ten large ones. That time is limited: steps that took
even longer were recorded while the machine was busy with something else, and the proportions within them stay as they
are.

Part of the difference has another cause. The profiler's own data lies between the program's tensors, so the C library
gives large results new memory instead of that of the last ones, and the system fills it page by page. How many more
pages the recorded steps got was counted, and the time of one was measured. That part is shared out first: to the
outermost operators that make the step hold more than it did before, then by the bytes that each allocates. Memory that
the step has freed is used again, as in a backward pass. No operator gets more than its bytes have pages: the profiler's
own data takes the rest, and lies where events start and end. And while lines are marked, profkit keeps objects for each
call, so Python collects garbage sooner by itself. That took 0.2 s where the program had 280,000 objects.

In a recording from elsewhere, no steps were timed without the profiler. If it has a device, which is hardly slowed, the
host's loss is estimated: of the time between two edges of events a share is the recording's. Costs per event tell less:
where the machine was slow, the events' cost grew like the work between them, two- to threefold between programs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from profkit.core.marks import GC_AUTOMATIC
from profkit.derive.device.driver_memory import allocating
from profkit.derive.device.waits import Waits
from profkit.derive.steps.boundaries import Steps
from profkit.derive.steps.edges import between_edges, water_level
from profkit.derive.timeline.intervals import NOTHING, Intervals, intersection, stretches, union, unite
from profkit.derive.timeline.nesting import BATCH
from profkit.derive.timeline.thinned import UNTOUCHED, Thinned
from profkit.derive.timeline.tree import Tree
from profkit.run.directory import Run
from profkit.trace.events import Bools, Category, Events, Float64s, Int64s, Rows, Trace
from profkit.trace.statistics import distinct, median, pace

_KEPT = 0.45
"""The share of the time between two edges of events that is left without the recording. It fits 36 recordings of the
host's work best (H100, PyTorch 2.11, with and without shapes, memory and stacks, which make no difference that shows):
28 of them come within 1.3 times their step. Without a GPU, whose launches CUPTI slows, it is 0.55 to 0.63 (torch
2.13)."""
_KEPT_OF_PYTHON = 0.15
"""The same if a Python frame begins or ends there (``with_stack=True``) and no call of the runtime: what takes a
microsecond with the callbacks takes a tenth without. On that H100 0.10 to 0.15 fit; functions that only call each other
give 0.15 (torch 2.13, no GPU)."""
_RECORDED = (Category.OPERATOR, Category.PYTHON, Category.RUNTIME)
_MOST_EVENT_NS = 4_000
"""What recording an operator, a frame or a call of the runtime costs at most, with the ranges and allocations in it. It
limits the share where stretches are long because something is computed in them or the machine is slow. Steps of a
millisecond and more needed 0.4 to 3.6 µs an event of plain traces there. Of profkit's own traces without frames seven
needed 1.9 to 3.7, three 4.3 to 5.2, and three that something else held up more."""
SURE_WITHIN, SURE_WITH_FRAMES = 1.5, 1.7
"""The host's part may be this many times shorter or longer than estimated, without and with recorded Python frames. If
each program's is estimated with the shares that fit the other programs best, all 36 recordings lie within."""
ATTACHED = 1.4
"""How many times longer the host's part of plain steps may have taken because CUPTI stood by, which slows each launch.
Of 16 recordings that the host bounds 13 took 1.03 to 1.45 times as long and one 1.49; the other two take less than a
millisecond (H100)."""
_LEAST_EVENTS = 1_000
"""The average stretch says little about fewer events in the measured steps."""
_LEAST_WITH_FRAMES = 100
"""The same with recorded Python frames: the recording then always takes most of the host's time."""
_MOST_STRETCH_NS = 40_000
"""The longest part of a stretch between two edges of events that counts as work slowed by the recording. The rest is
work that no event shows. 30 to 70 µs fit as well."""
_MOST_MARKED_STRETCH_NS = 250_000
"""The same where lines are marked, which takes so long between two operators (H200)."""
_MOST_OF_MARKED = 0.98
"""The most that marking lines adds to the host's work between events: steps of 0.1 ms took 45 times as long (H200)."""
_BUSY_SHARE = 0.9
"""The share of a step. If the device works longer, a slower host costs hardly anything."""
_PAGE_BYTES = 4096
_MOST_EDGE_NS = 5_000
"""In steps with 50,000 starts and ends and more, each took 0.1 to 0.4 µs (AMD EPYC, torch 2.13)."""


def find_overhead(trace: Trace, tree: Tree, steps: Steps, in_steps: Bools, run: Run, crowded_ns: int) -> Intervals:
    """What the recording added to the measured steps, if some step was timed without it.

    ``in_steps`` are the events of these steps on the host threads that take turns. ``crowded_ns`` of their time are
    waits for a CPU, which are not the recording's.
    """
    events = trace.events
    rows = host_rows(trace, tree, in_steps)
    if not rows.size:
        return NOTHING
    excess_ns = beyond_plain_ns(steps, run) - crowded_ns
    rows_of_gc = automatic_collections(trace, steps, in_steps)
    collections = union(events.start_ns[rows_of_gc], events.ends_of(rows_of_gc))
    collections = collections if collections.total_ns <= excess_ns else NOTHING
    excess_ns -= collections.total_ns
    pages = _new_pages(trace, tree, steps, in_steps, run, excess_ns)
    stretches = between_edges(trace, tree, rows)
    end_ns, room_ns, weight = stretches.end_ns, stretches.room_ns, stretches.weight
    each_ns = min(_MOST_EDGE_NS, water_level(room_ns, weight, excess_ns - pages.total_ns))
    taken_ns = np.minimum(room_ns, (weight * each_ns).astype(np.int64))
    starts, ends = (collections.start_ns, pages.start_ns, end_ns - taken_ns), (collections.end_ns, pages.end_ns, end_ns)
    return union(np.concatenate(starts), np.concatenate(ends))


def beyond_plain_ns(steps: Steps, run: Run) -> float:
    """How much longer the host took for the measured steps than for as many that were timed without the recording."""
    return (median(steps.host_ns[steps.measured]) - pace(run.reference_step_ns)) * steps.measured_count


def may_hide_overhead(steps: Steps, run: Run, worked_ns: int) -> bool:
    """Whether the device, which worked for ``worked_ns`` in the measured steps, bounds the steps without the profiler.
    A slower host then waits less for it, and steps take no longer."""
    return worked_ns >= _BUSY_SHARE * pace(run.reference_step_ns) * steps.measured_count


def timed_while_attached(run: Run) -> bool:
    """Whether plain steps were timed on the host while CUPTI stood by. Since profkit reads the device's clock, it
    detaches CUPTI."""
    return bool(run.reference_step_ns) and not any(run.reference_step_device_ns)


def estimate_overhead(trace: Trace, tree: Tree, in_steps: Bools, waits: Waits) -> Thinned:
    """The likely time that the recording added to the host's in the measured steps, if no step was timed without it.

    ``in_steps`` are the events of these steps on the host threads that take turns. Waits for the device, and for
    batches that other processes make, are not the host's work, and the driver's calls for memory take as long without
    the recording. A step whose lines were marked is slowed by far more, so nothing is estimated.
    """
    events, rows = trace.events, host_rows(trace, tree, in_steps)
    category = events.category[rows]
    frames = bool((category == Category.PYTHON).any())
    marked = (events.category[in_steps] == Category.LINE_MARK).any()
    if marked or len(rows) < (_LEAST_WITH_FRAMES if frames else _LEAST_EVENTS):
        return UNTOUCHED
    elsewhere, parts = _not_the_hosts(trace, tree, in_steps, waits), list[Intervals]()
    worked_ns = {True: 0, False: 0}  # whether Python's
    for start_ns, end_ns, of_python in _worked(events, tree, rows, _MOST_STRETCH_NS):
        for is_python, mine in ((True, of_python), (False, ~of_python)):
            part = union(start_ns[mine], end_ns[mine])
            worked_ns[is_python] += part.total_ns - intersection(part, elsewhere).total_ns
            parts.append(part)
    added_ns = (1 - _KEPT_OF_PYTHON) * worked_ns[True] + (1 - _KEPT) * worked_ns[False]
    most_ns = float(_MOST_EVENT_NS * np.isin(category, _RECORDED).sum())
    share = min(added_ns, most_ns) / max(sum(worked_ns.values()), 1)
    return Thinned(unite(*parts).minus(elsewhere), share)


def marks_overhead(trace: Trace, tree: Tree, steps: Steps, in_steps: Bools, waits: Waits, run: Run) -> Thinned:
    """What line marks added to the measured steps beside a device, if no other steps were recorded.

    Watching each line slows the host up to 45 times and the device not at all: a host that waits for the device in each
    plain step comes late in a marked one and need not wait. So the host's work is shrunk to what a plain step takes.
    """
    rows = host_rows(trace, tree, in_steps)
    if not rows.size or not steps.measured_are_marked:
        return UNTOUCHED
    excess_ns = beyond_plain_ns(steps, run)
    if excess_ns <= 0:
        return UNTOUCHED
    elsewhere = _not_the_hosts(trace, tree, in_steps, waits)
    for most_ns in (_MOST_MARKED_STRETCH_NS, np.iinfo(np.int64).max):
        worked = (union(start_ns, end_ns) for start_ns, end_ns, _ in _worked(trace.events, tree, rows, most_ns))
        where = unite(*worked).minus(elsewhere)
        if excess_ns <= _MOST_OF_MARKED * where.total_ns:
            break
    return Thinned(where, _MOST_OF_MARKED).at_most(int(excess_ns))


def host_rows(trace: Trace, tree: Tree, in_steps: Bools) -> Rows:
    """The host's events in these steps."""
    return np.flatnonzero((tree.depth >= 0) & (trace.events.category != Category.PAUSE) & in_steps)


def _not_the_hosts(trace: Trace, tree: Tree, in_steps: Bools, waits: Waits) -> Intervals:
    """When the host waits for the device or for batches that other processes make, or for the driver's memory."""
    waited = waits.rows[in_steps[waits.rows]]
    batches = np.flatnonzero(in_steps & trace.where_name(lambda name: "MultiProcessing" in name))
    away = np.concatenate([waited, batches, np.flatnonzero(in_steps & allocating(trace))])
    return union(trace.events.start_ns[away], tree.end_ns[away])


def _worked(events: Events, tree: Tree, rows: Rows, most_ns: int) -> Iterator[tuple[Int64s, Int64s, Bools]]:
    """The stretches between neighbouring edges of a lane's events, batch by batch, and which are Python's: they have a
    Python frame's edge and none of a call of the runtime. A longer one counts for its last ``most_ns``."""
    for lane in stretches(np.flatnonzero(np.diff(events.lane[rows])) + 1, len(rows)):
        for times, category in _edges(events, tree, rows[lane]):
            python, calls = category == Category.PYTHON, category == Category.RUNTIME
            of_python = (python[:-1] | python[1:]) & ~(calls[:-1] | calls[1:])
            between = times[1:] > times[:-1]
            start_ns, end_ns = times[:-1][between], times[1:][between]
            yield end_ns - np.minimum(end_ns - start_ns, most_ns), end_ns, of_python[between]


def _edges(events: Events, tree: Tree, rows: Rows) -> Iterator[tuple[Int64s, NDArray[np.uint8]]]:
    """The starts and ends of the events of one lane in order of time, and the category of each: in batches, as all of
    them at once would be most of the memory of a diagnosis. Each batch begins with the last edge before it."""
    starts, running = events.start_ns[rows], rows[:0]
    before_ns, before = starts[:0], events.category[rows[:0]]
    for batch in stretches(distinct(np.searchsorted(starts, starts[BATCH::BATCH])), len(rows)):
        until_ns = starts[batch.stop] if batch.stop < len(rows) else np.iinfo(np.int64).max
        running = np.concatenate([running, rows[batch]])
        over = tree.end_ns[running] < until_ns
        times = np.concatenate([starts[batch], tree.end_ns[running[over]]])
        order = np.argsort(times, kind="stable")  # at the same time, starts come first
        category = events.category[np.concatenate([rows[batch], running[over]])][order]
        yield np.concatenate([before_ns, times[order]]), np.concatenate([before, category])
        running, before_ns, before = running[~over], times[order[-1:]], category[-1:]


def _page_faults_ns(run: Run) -> float:
    """The time of the pages that a measured step gets beyond those of a step without the profiler."""
    if not (run.page_fault_ns and run.reference_step_faults and run.measured_step_faults):
        return 0.0
    more = float(np.mean(run.measured_step_faults)) - median(run.reference_step_faults)
    return max(0.0, more) * run.page_fault_ns


def automatic_collections(trace: Trace, steps: Steps, in_steps: Bools) -> Rows:
    """The garbage collections that Python began by itself in located steps."""
    rows = np.flatnonzero(in_steps & trace.where_name(lambda name: name.endswith(GC_AUTOMATIC)))
    return rows[steps.located[steps.index_of(trace.events.start_ns[rows])]]


def _new_pages(trace: Trace, tree: Tree, steps: Steps, wanted: Bools, run: Run, most_ns: float) -> Intervals:
    """The end of each outermost operator that allocates memory, as long as its new pages took: all of them together
    what was counted, and ``most_ns`` at most."""
    events, total_ns = trace.events, min(most_ns, _page_faults_ns(run) * steps.measured_count)
    every = np.flatnonzero(wanted & (events.category == Category.MEMORY))
    every = every[np.argsort(events.start_ns[every], kind="stable")]
    more_bytes = _beyond_peak(events.size_bytes[every], steps.index_of(events.start_ns[every]))
    outermost = tree.outermost(trace.in_categories(Category.OPERATOR, Category.COMPILED_CODE))
    owner = tree.nearest_ancestor(outermost, of=every)
    chosen = (events.size_bytes[every] > 0) & (owner >= 0)
    rows, owner, more_bytes = every[chosen], owner[chosen], more_bytes[chosen]
    owners, index = np.unique(owner, return_inverse=True)
    first_ns = tree.end_ns[owners]
    np.minimum.at(first_ns, index, events.start_ns[rows])
    end_ns, room_ns = tree.end_ns[owners], tree.end_ns[owners] - first_ns
    taken_ns = np.zeros(len(owners), dtype=np.int64)
    for size in (more_bytes, events.size_bytes[rows]):
        weight = np.bincount(index, size, len(owners))
        paged_ns = (weight / _PAGE_BYTES * (run.page_fault_ns or 0.0)).astype(np.int64)
        left_ns = np.minimum(room_ns, paged_ns) - taken_ns
        level = water_level(left_ns, weight.clip(min=1), total_ns - float(taken_ns.sum()))
        taken_ns += np.minimum(left_ns, (weight * level).astype(np.int64)).clip(min=0)
    return union(end_ns - taken_ns, end_ns)


def _beyond_peak(size_bytes: Int64s, step: Int64s) -> Float64s:
    """By how much each of these changes in memory, in order of time, lifts what its step holds above the most that the
    step has held before."""
    size, begins = size_bytes.astype(np.float64), np.diff(step, prepend=-2) != 0
    held, apart = np.cumsum(size), 2 * np.abs(size).sum() + 1
    number = np.cumsum(begins) - 1
    held += number * apart - (held - size)[begins][number]  # each step lies above all that the others hold
    peak = np.maximum.accumulate(np.maximum(held, number * apart))
    more: Float64s = np.diff(peak, prepend=0.0)
    more[begins] = size[begins].clip(min=0)
    return more
