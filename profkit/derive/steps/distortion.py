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
pages the recorded steps got was counted, and the time of one was measured. That part is shared out first, by the bytes
that each outermost operator allocates. And while lines are marked, profkit keeps objects for each call, so Python
collects garbage sooner by itself. That took 0.2 s where the program had 280,000 objects.

In a recording from elsewhere, no steps were timed without the profiler. If it has a device, which is hardly slowed, the
host's loss is estimated from the number of its events and taken from all that it did in proportion, because besides the
profiler's own work there are cold caches, and Python that is traced call by call.
"""

from __future__ import annotations

import numpy as np

from profkit.core.marks import GC_AUTOMATIC
from profkit.derive.device.driver_memory import allocating
from profkit.derive.device.waits import Waits
from profkit.derive.steps.boundaries import Steps
from profkit.derive.timeline.intervals import NOTHING, Intervals, union
from profkit.derive.timeline.thinned import UNTOUCHED, Thinned
from profkit.derive.timeline.tree import Tree
from profkit.run.directory import Run
from profkit.trace.events import Bools, Category, Events, Int64s, Rows, Trace
from profkit.trace.statistics import distinct, median

_EVENT_NS = {Category.OPERATOR: 2_000, Category.PYTHON: 2_000, Category.RUNTIME: 4_000}
"""What recording an event costs the host, including allocations and ranges within it: operators with shapes, Python
frames (``with_stack=True``) and calls of the runtime, by CUPTI (H100, PyTorch 2.11, Python 3.12). With these, seven of
17 recorded programs that the host bounds come within a tenth of their step without the profiler. Most others come out
too long, by a third to twice, and some of less than a millisecond three times (`python -m tests.h100`)."""
_WITHOUT_SHAPES = 0.7
"""The share of an operator's cost that is left if the file says that it holds no shapes: 0.30 µs instead of 0.41, and
0.47 with memory (AMD EPYC, torch 2.13, an addition of four elements)."""
_BUILTIN_NS = 1_500
"""The same for a function that is not written in Python."""
FRAMES_FACTOR = 2.0
"""With recorded Python frames, the host's part may be this many times shorter than the estimate. Two of those programs
that take a millisecond or more are off by a tenth more."""
_LEAST_EVENTS = 1_000
"""The average cost of an event says little about fewer events in the measured steps."""
_LEAST_WITH_FRAMES = 100
"""The same with recorded Python frames: the recording then always takes most of the host's time."""
_MOST_SHARE = 0.75
"""The largest share of the time between two events. Of these programs, only two that take less than a millisecond were
slowed by more."""
_MOST_STRETCH_NS = 65_000
"""The longest part of a stretch between two edges of events that counts as work slowed by the recording. The rest is
work that no event shows."""
_OTHER_WORK_NS = 1_000_000
"""The same for a host that may keep up with its device: no launch takes a millisecond."""
_BUSY_SHARE = 0.9
"""The share of a step. If the device works longer, a slower host costs hardly anything."""
_MOST_EDGE_NS = 5_000
"""In steps with 50,000 starts and ends and more, each took 0.1 to 0.4 µs (AMD EPYC, torch 2.13)."""


def find_overhead(trace: Trace, tree: Tree, steps: Steps, in_steps: Bools, run: Run) -> Intervals:
    """What the recording added to the measured steps, if some step was timed without it.

    ``in_steps`` are the events of these steps on the host threads that take turns.
    """
    events = trace.events
    rows = np.flatnonzero((tree.depth >= 0) & (events.category != Category.PAUSE) & in_steps)
    if not rows.size:
        return NOTHING
    excess_ns = (median(steps.host_ns[steps.measured]) - median(run.reference_step_ns)) * steps.measured_count
    collections = _collections(trace, steps, in_steps)
    collections = collections if collections.total_ns <= excess_ns else NOTHING
    excess_ns -= collections.total_ns
    pages = _new_pages(trace, tree, in_steps, min(excess_ns, _page_faults_ns(run) * steps.measured_count))
    start_ns, end_ns, weight = _stretches(events, tree, rows)
    each_ns = min(_MOST_EDGE_NS, _water_level(end_ns - start_ns, weight, excess_ns - pages.total_ns))
    taken_ns = np.minimum(end_ns - start_ns, (weight * each_ns).astype(np.int64))
    starts, ends = (collections.start_ns, pages.start_ns, end_ns - taken_ns), (collections.end_ns, pages.end_ns, end_ns)
    return union(np.concatenate(starts), np.concatenate(ends))


def may_hide_overhead(steps: Steps, run: Run, worked_ns: int) -> bool:
    """Whether the device, which worked for ``worked_ns`` in the measured steps, bounds the steps without the profiler.
    A slower host then waits less for it, and steps take no longer."""
    return worked_ns >= _BUSY_SHARE * median(run.reference_step_ns) * steps.measured_count


def estimate_overhead(trace: Trace, tree: Tree, steps: Steps, in_steps: Bools, waits: Waits, device_ns: int) -> Thinned:
    """The likely time that the recording added to the host's in the measured steps, if no step was timed without it.

    ``in_steps`` are the events of these steps on the host threads that take turns. Waits for the device, and for
    batches that other processes make, are not the host's work, and the driver's calls for memory take as long without
    the recording.

    If the host could be as fast as the device without the recording, it is assumed to be: the recording then does not
    show that the host bounds the steps. The device works for ``device_ns`` in them.
    """
    events = trace.events
    rows = np.flatnonzero((tree.depth >= 0) & (events.category != Category.PAUSE) & in_steps)
    frames = bool((events.category[rows] == Category.PYTHON).any())
    if len(rows) < (_LEAST_WITH_FRAMES if frames else _LEAST_EVENTS):
        return UNTOUCHED
    wanted_ns, host_ns = _cost_of(trace, rows), float(steps.host_ns[steps.measured].sum())
    left_ns = max(host_ns - wanted_ns, (1 - _MOST_SHARE) * host_ns)
    may_keep_up = frames and left_ns / FRAMES_FACTOR <= device_ns
    if may_keep_up:
        wanted_ns = max(wanted_ns, host_ns - device_ns)
    waited = waits.rows[in_steps[waits.rows]]
    batches = np.flatnonzero(in_steps & trace.where_name(lambda name: "MultiProcessing" in name))
    away = np.concatenate([waited, batches, np.flatnonzero(in_steps & allocating(trace))])
    longest_ns = _OTHER_WORK_NS if may_keep_up else _MOST_STRETCH_NS
    working = _at_work(events, tree, rows, longest_ns).minus(union(events.start_ns[away], tree.end_ns[away]))
    return Thinned(working, min(_MOST_SHARE, wanted_ns / max(working.total_ns, 1)))


def _at_work(events: Events, tree: Tree, rows: Rows, longest_ns: int) -> Intervals:
    """When any of the threads worked. A stretch in which no event begins or ends counts for at most ``longest_ns``, at
    its end."""
    starts, ends = [], []
    for lane in distinct(events.lane[rows]).tolist():
        mine = rows[events.lane[rows] == lane]
        edges = np.concatenate([events.start_ns[mine], tree.end_ns[mine]])
        edges.sort()
        long = np.flatnonzero(np.diff(edges) > longest_ns)
        starts.append(np.append(edges[:1], edges[long + 1] - longest_ns))
        ends.append(np.append(edges[long], edges[-1:]))
    return union(np.concatenate(starts), np.concatenate(ends))


def _cost_of(trace: Trace, rows: Rows) -> float:
    """The host's time for recording these events."""
    category = trace.events.category[rows]
    each_ns = np.zeros(max(Category) + 1, dtype=np.float64)
    each_ns[list(_EVENT_NS)] = list(_EVENT_NS.values())
    python = rows[category == Category.PYTHON]
    builtin = np.count_nonzero(trace.where_name(lambda name: name.startswith("<built-in"))[python])
    counts = np.bincount(category, minlength=len(each_ns))
    if trace.recording.has_shapes is False:
        each_ns[Category.OPERATOR] *= _WITHOUT_SHAPES
    return float(counts @ each_ns) - float(builtin * (_EVENT_NS[Category.PYTHON] - _BUILTIN_NS))


def _page_faults_ns(run: Run) -> float:
    """The time of the pages that a measured step gets beyond those of a step without the profiler."""
    if not (run.page_fault_ns and run.reference_step_faults and run.measured_step_faults):
        return 0.0
    more = float(np.mean(run.measured_step_faults)) - median(run.reference_step_faults)
    return max(0.0, more) * run.page_fault_ns


def _collections(trace: Trace, steps: Steps, in_steps: Bools) -> Intervals:
    """The garbage collections that Python began by itself in located steps."""
    events = trace.events
    rows = np.flatnonzero(in_steps & trace.where_name(lambda name: name.endswith(GC_AUTOMATIC)))
    rows = rows[steps.located[steps.index_of(events.start_ns[rows])]]
    return union(events.start_ns[rows], events.ends_of(rows))


def _new_pages(trace: Trace, tree: Tree, wanted: Bools, total_ns: float) -> Intervals:
    """The end of each outermost operator that allocates memory, in proportion to its bytes: ``total_ns`` together."""
    events = trace.events
    rows = np.flatnonzero(wanted & (events.category == Category.MEMORY) & (events.size_bytes > 0))
    outermost = tree.outermost(trace.in_categories(Category.OPERATOR, Category.COMPILED_CODE))
    owner = tree.nearest_ancestor(outermost, of=rows)
    rows, owner = rows[owner >= 0], owner[owner >= 0]
    owners, index = np.unique(owner, return_inverse=True)
    size = np.bincount(index, events.size_bytes[rows], len(owners))
    first_ns = tree.end_ns[owners]
    np.minimum.at(first_ns, index, events.start_ns[rows])
    end_ns = tree.end_ns[owners]
    room_ns = end_ns - first_ns
    taken_ns = np.minimum(room_ns, (size * _water_level(room_ns, size, total_ns)).astype(np.int64))
    return union(end_ns - taken_ns, end_ns)


def _stretches(events: Events, tree: Tree, rows: Rows) -> tuple[Int64s, Int64s, Int64s]:
    """Starts and ends of the stretches between neighbouring edges of a lane's events, and how many of the two edges
    have the profiler's work on that side: an end before the stretch, a start after it."""
    count, lane = len(rows), events.lane[rows].astype(np.int64)
    times, lanes = np.concatenate([events.start_ns[rows], tree.end_ns[rows]]), np.concatenate([lane, lane])
    is_start = np.arange(2 * count) < count
    order = np.lexsort((is_start, times, lanes))
    times, lanes, is_start = times[order], lanes[order], is_start[order]
    weight = is_start[1:].astype(np.int64) + ~is_start[:-1]
    between = (lanes[1:] == lanes[:-1]) & (weight > 0) & (times[1:] > times[:-1])
    return times[:-1][between], times[1:][between], weight[between]


def _water_level(room_ns: Int64s, weight: np.ndarray, wanted_ns: float) -> float:
    """The level at which ``minimum(room, weight * level)`` adds up to what is wanted; the highest if there is too
    little room."""
    if wanted_ns <= 0 or not len(room_ns):
        return 0.0
    order = np.argsort(room_ns / weight)
    room, weight = room_ns[order], weight[order]
    full_at = room / weight
    filled_before = np.cumsum(room) - room
    open_weight = np.cumsum(weight[::-1])[::-1]
    at = int(np.searchsorted(filled_before + full_at * open_weight, wanted_ns))
    if at == len(room):
        return float(full_at[-1])
    return (wanted_ns - float(filled_before[at])) / float(open_weight[at])
