"""Where the steps of the program lie in a trace.

Steps come from the first of these that applies, and the report says which: the profiler's step annotations, the
optimizer's steps, the DataLoader's batches, ranges that the program itself numbers, ranges of one kind whose digits
change, a repeating pattern of the main thread, a range of the program that repeats, what the device shows if the host
was not recorded, the loop in which the recording ended as one step, else the whole window. A pattern of layers of one
pass is no pattern of steps, nor is what repeats before one backward pass.

With a device, the host runs ahead, so its marks say when a step was launched, not when it was done. A step is over when
the host has reached its end and the device is done with everything launched until then. Its time counts from the moment
when the step before was over.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from profkit.core.marks import STEP_MARK
from profkit.derive.device.communication import is_communication
from profkit.derive.device.completion import counts_inside, lost_work, sums_inside, when_done
from profkit.derive.device.driver_memory import allocating, freeing
from profkit.derive.device.launches import Launches
from profkit.derive.device.profiling import holding_up
from profkit.derive.device.starting import find_starting
from profkit.derive.device.waits import Waits
from profkit.derive.steps.backward import backward_nodes
from profkit.derive.steps.layers import are_layers
from profkit.derive.steps.on_device import REPEATED, find_on_device
from profkit.derive.steps.ongoing import find_ongoing
from profkit.derive.steps.renamed import engine_ranges, find_renamed
from profkit.derive.steps.repetition import find_period
from profkit.derive.timeline.intervals import stretches, union
from profkit.derive.timeline.outliving import COMPILING
from profkit.derive.timeline.tree import Tree
from profkit.trace.events import NONE, Bools, Category, Int64s, Rows, Trace
from profkit.trace.statistics import distinct, median

_OPTIMIZER = "Optimizer.step#"
_LOADER = "enumerate(DataLoader)#"
_NUMBERED = re.compile(r"(.{0,99}?(?:step|iter|iteration|batch))[\s_#:=.(\[-]{0,3}(\d{1,9})[)\]]?", re.IGNORECASE)
"""A range with the number of a step: ``step 3``, ``train_iter_12``, ``batch[7]``."""
_REGULAR_SHARE = 0.8
"""How regular a pattern has to be: that of epochs with five batches or more is."""
_COVERED_SHARE = 0.6
"""The share of the time that steps must cover, as with a pattern that repeats."""
_MOST_INSIDE = 0.5
"""The share of all operators that a loop must hold to stand for the recording."""
_LEAST_STEP_NS = 1_000_000
"""Training even a small network on a batch takes longer, with line marks three times as long."""
_MANY_ROUNDS = 64
_FEW_ROUNDS = 3
"""Of fewer windows, half without a backward pass may be an evaluation."""
STEP_MARKS = "the profiler's step marks"
WHOLE_RECORDING = "the whole recording, as one step"
ONGOING_LOOP = "the loop in which the recording ended, as one step"
UNDIVIDED = (WHOLE_RECORDING, ONGOING_LOOP)
"""Where nothing shows that the one step is a step of the program."""
RENAMED = "ranges of one kind whose digits change"
ONE_UPDATE = "the one step of the optimizer that was recorded"
_COLD_TIMES_MEDIAN = 1.5
"""A first step this much slower than the median paid for caches, lazy initialisation or compilation."""
_ALIKE_TIMES = 1.25
"""Steps that do the same differ by less on a quiet machine."""
_OFTEN = 1 / 3
"""The share of the later steps from which on long ones belong to the program. One of many is an accident."""
STARTING_SHARE = 0.5
"""A step of which more is start-up is no step of the program. Names tell some of it, so less proves little."""
_REMAINS_SHARE = 0.1
"""The share of the longest step below which a last step without work is no step of the loop."""
_BOUND_SHARE = 0.9
"""The share of the measured time from which on the device's work decides how long the steps take."""
_PREPARING_SHARE = 0.01
"""The share of the host's step. Less moves the median by nothing that anybody would see."""


class Steps(Struct, frozen=True):
    """Steps in order.

    ``start_ns`` and ``end_ns`` are the host's. Events of its threads belong to the step that they start in, device work
    to the step that launched it. ``begun_ns`` is when the step before was over on host and device, and ``done_ns`` when
    this one was; without a device they are the same as the host's. ``measured`` marks the steps that figures come from:
    neither located nor cold. ``worked_ns`` is how long the device works on what each launched, without communication,
    which may be a wait; None if unknown."""

    start_ns: Int64s
    end_ns: Int64s
    begun_ns: Int64s
    done_ns: Int64s
    located: Bools
    measured: Bools
    source: str
    main_lane: int
    pause_ns: Int64s
    worked_ns: Int64s | None = None

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def duration_ns(self) -> Int64s:
        """The time of each step on host and device together, without profkit's own pauses."""
        return (self.done_ns - self.begun_ns - self.pause_ns).clip(min=0)

    @property
    def host_ns(self) -> Int64s:
        """The host's time of each step, without profkit's own pauses. It may have run ahead of the device."""
        return self.end_ns - self.start_ns - self.pause_ns

    @property
    def median_ns(self) -> int:
        return int(median(self.duration_ns[self.measured]))

    @property
    def usual_ns(self) -> int:
        """How long a measured step takes: the median, which no accident moves. If the device bounds the steps and has
        more to do in one than in another, as with texts of any length, the mean: so long they take one after another.
        """
        return int(self.usual(self.duration_ns[self.measured]))

    def usual(self, of_measured: Int64s) -> float:
        """The usual one of these values, each of a measured step, by the same average."""
        return float(np.mean(of_measured)) if self._differ else median(of_measured)

    @property
    def _differ(self) -> bool:
        if self.worked_ns is None:
            return False
        worked_ns = self.worked_ns[self.measured]
        bound = worked_ns.sum() >= _BOUND_SHARE * self.duration_ns[self.measured].sum()
        return bool(bound and worked_ns.max() > _ALIKE_TIMES * worked_ns.min())

    @property
    def measured_are_marked(self) -> bool:
        """Whether the lines of all measured steps were marked, as no others were recorded."""
        return bool(self.located[self.measured].all())

    @property
    def unmarked(self) -> Rows:
        """The steps whose lines were not marked; all of them if each step's were."""
        return np.arange(len(self)) if self.located.all() else np.flatnonzero(~self.located)

    @property
    def measured_count(self) -> int:
        """At least one, as some step is always measured."""
        return int(self.measured.sum())

    @property
    def measured_ns(self) -> int:
        """The time of all measured steps together."""
        return max(int(self.duration_ns[self.measured].sum()), 1)

    def per_step_ns(self, total_ns: float) -> int:
        """The same share of a usual step as ``total_ns`` is of the measured time."""
        return int(total_ns / self.measured_ns * self.usual_ns)

    @property
    def window_ns(self) -> tuple[int, int]:
        """From the start of the first measured step to the end of the last, on the host."""
        return int(self.start_ns[self.measured].min()), int(self.end_ns[self.measured].max())

    def index_of(self, times_ns: Int64s) -> Int64s:
        """The step that each time lies in, -1 outside all steps."""
        index = np.searchsorted(self.start_ns, times_ns, side="right") - 1
        ends_ns = np.append(self.end_ns, np.iinfo(np.int64).min)  # the last one is for what begins before all steps
        index[times_ns >= ends_ns[index]] = NONE
        return index

    def in_measured(self, times_ns: Int64s) -> Bools:
        """Which times lie in a measured step."""
        inside: Bools = np.append(self.measured, False)[self.index_of(times_ns)]  # outside all steps it is the last
        return inside


def measured_numbers(trace: Trace, steps: Steps) -> tuple[int, int] | None:
    """The program's own numbers of the first and the last measured step; None if no profiler numbered them."""
    rows = _rows_starting_with(trace, STEP_MARK)
    rows = rows[steps.in_measured(trace.events.start_ns[rows])]
    numbers = [name.removeprefix(STEP_MARK) for name in map(trace.name_of, rows[[0, -1]])] if rows.size else []
    return (int(numbers[0]), int(numbers[1])) if numbers and all(map(str.isdecimal, numbers)) else None


def find_steps(
    trace: Trace, tree: Tree, launches: Launches, waits: Waits, first_calls: Rows, *, is_before_steps: bool = False
) -> Steps:
    """The steps of ``trace``; always at least one. If it ``is_before_steps`` of the program, which passed unrecorded,
    what repeats is set-up or a part of the first step."""
    lane = _main_lane(trace, tree)
    for find in (_annotated, _between_optimizer_steps, _between_batches):
        windows = find(trace, tree, lane)
        if windows is not None:
            return _finish(trace, launches, waits, first_calls, lane, windows)
    guesses = () if is_before_steps else (_numbered, _renamed, _repeating, _repeated, _on_device)
    for guess in guesses:
        windows = guess(trace, tree, launches, lane)
        if windows is not None and not _are_within_update(trace, windows):
            return _finish(trace, launches, waits, first_calls, lane, windows)
    if (windows := _only_update(trace, tree, lane)) is not None:
        return _finish(trace, launches, waits, first_calls, lane, windows)
    windows = _until_last_wait(trace, launches, waits)
    windows = _within_ongoing(trace, tree, lane, windows) or windows
    return _finish(trace, launches, waits, first_calls, lane, windows)


Windows = tuple[Int64s, Int64s, str]


def _main_lane(trace: Trace, tree: Tree) -> int:
    """The host thread that runs the program: the one with the profiler's steps, else the one that steps the optimizer
    or asks for batches, else the one with an engine's steps (another may wait for each result), else the one whose
    outermost operators, ranges and calls take longest. Python frames around these do not count, and neither do backward
    nodes: autograd runs those of a GPU on its own thread."""
    events = trace.events
    marks = (_rows_starting_with(trace, *prefixes) for prefixes in ((STEP_MARK,), (_OPTIMIZER, _LOADER)))
    for rows in (*marks, engine_ranges(trace)):
        if rows.size:
            return int(np.bincount(events.lane[rows]).argmax())
    called = (tree.depth >= 0) & (events.category != Category.PYTHON)
    for wanted in (tree.outermost(called) & ~backward_nodes(trace), called):
        taken_ns = np.bincount(events.lane[wanted], events.duration_ns[wanted]) if wanted.any() else np.zeros(1)
        if taken_ns.any():
            return int(taken_ns.argmax())
    return int(np.bincount(events.lane).argmax())


def _rows_starting_with(trace: Trace, *prefixes: str) -> Rows:
    """The ranges with one of these prefixes."""
    named = trace.where_name(lambda name: name.startswith(prefixes))
    return np.flatnonzero(named & (trace.events.category == Category.ANNOTATION))


def _annotated(trace: Trace, tree: Tree, lane: int) -> Windows | None:  # noqa: ARG001  # one signature for all sources
    rows = _rows_starting_with(trace, STEP_MARK)
    rows = rows[trace.events.lane[rows] == lane]
    if not rows.size:
        return None
    rows = rows[np.argsort(trace.events.start_ns[rows])]
    return trace.events.start_ns[rows], trace.events.ends_of(rows), STEP_MARKS


def _between_optimizer_steps(trace: Trace, tree: Tree, lane: int) -> Windows | None:
    """From the end of one optimizer step to the end of the next, by the optimizer that steps first."""
    rows = _rows_starting_with(trace, _OPTIMIZER)
    rows = rows[(trace.events.lane[rows] == lane) & tree.outermost(trace.mask_of(rows))[rows]]
    rows = rows[np.argsort(trace.events.start_ns[rows])]
    rows = rows[trace.events.name_code[rows] == trace.events.name_code[rows[:1]]]
    if rows.size < 2:
        return None
    ends = trace.events.ends_of(rows)
    return ends[:-1], ends[1:], "the optimizer's steps"


def _between_batches(trace: Trace, tree: Tree, lane: int) -> Windows | None:  # noqa: ARG001  # one signature for all
    rows = _rows_starting_with(trace, _LOADER)
    rows = rows[trace.events.lane[rows] == lane]
    if rows.size < 3:
        return None
    starts = np.sort(trace.events.start_ns[rows])
    return starts[:-1], starts[1:], "the DataLoader's batches"


def _numbered(trace: Trace, tree: Tree, launches: Launches, lane: int) -> Windows | None:  # noqa: ARG001  # as others
    """Ranges of one name that do not overlap and whose numbers rise, except where a new epoch begins. If there are
    several such names, the one with the most time counts."""
    events = trace.events
    rows = np.flatnonzero((events.category == Category.ANNOTATION) & (events.lane == lane))
    prefixes: dict[str, int] = {}
    prefix = np.full(len(trace.names), -1, dtype=np.int64)
    number = prefix.copy()
    for code in distinct(events.name_code[rows]).tolist():
        if match := _NUMBERED.fullmatch(trace.names[code]):
            prefix[code], number[code] = prefixes.setdefault(match[1], len(prefixes)), int(match[2])
    rows = rows[prefix[events.name_code[rows]] >= 0]
    rows = rows[np.argsort(prefix[events.name_code[rows]], kind="stable")]
    bounds = np.flatnonzero(np.diff(prefix[events.name_code[rows]])) + 1
    most_ns, best = 0, None
    for of_name in (rows[one] for one in stretches(bounds, len(rows), 2)):
        rises = (np.diff(number[events.name_code[of_name]]) > 0).mean() >= _REGULAR_SHARE
        apart = (events.ends_of(of_name[:-1]) <= events.start_ns[of_name[1:]]).all()
        taken_ns = int(events.duration_ns[of_name].sum())
        if rises and apart and taken_ns > most_ns:
            most_ns, best = taken_ns, (events.start_ns[of_name], events.ends_of(of_name))
    return (*best, "the program's numbered ranges") if best else None


def _renamed(trace: Trace, tree: Tree, launches: Launches, lane: int) -> Windows | None:
    found = find_renamed(trace, tree, launches, lane)
    return None if found is None else (*found, RENAMED)


def _repeating(trace: Trace, tree: Tree, launches: Launches, lane: int) -> Windows | None:
    """The period of the main thread's marked lines, or else of its outermost operators."""
    events = trace.events
    here = events.lane == lane
    marks = here & (events.category == Category.LINE_MARK)
    operators = here & trace.in_categories(Category.OPERATOR, Category.ANNOTATION, Category.COMPILED_CODE)
    span_ns = int(np.ptp(events.start_ns[marks | operators])) if (marks | operators).any() else 0
    for wanted in (marks, operators):
        rows = np.flatnonzero(tree.outermost(wanted))
        for _ in range(int(tree.depth.max(initial=0)) + 1):
            if not rows.size:
                break
            codes = events.site[rows] if wanted is marks else events.name_code[rows]
            starts = find_period(codes, events.start_ns[rows], span_ns)
            if starts is not None and not _is_inner_loop(starts):
                layers = are_layers(trace, tree, launches, lane, starts)
                return None if layers else (starts[:-1], starts[1:], "a pattern that repeats")
            rows = _inside_longest(trace, tree, wanted, rows)
    return None


def _repeated(trace: Trace, tree: Tree, launches: Launches, lane: int) -> Windows | None:
    """From one of the program's ranges to the next of that name, if they take most of the thread's time."""
    events = trace.events
    rows = np.flatnonzero(tree.outermost(events.category == Category.ANNOTATION) & (events.lane == lane))
    if rows.size < 3:
        return None
    taken_ns = np.bincount(events.name_code[rows], events.duration_ns[rows])
    of_name = rows[events.name_code[rows] == taken_ns.argmax()]
    starts = events.start_ns[of_name]
    if of_name.size < 3 or taken_ns.max() < _COVERED_SHARE * (events.ends_of(rows).max() - events.start_ns[rows].min()):
        return None
    return (
        None if are_layers(trace, tree, launches, lane, starts) else (starts[:-1], starts[1:], "a range that repeats")
    )


def _on_device(trace: Trace, tree: Tree, launches: Launches, lane: int) -> Windows | None:  # noqa: ARG001  # as others
    """Kernels alone cannot tell a short step from a layer of a stack of equal ones."""
    found = find_on_device(trace)
    return None if found and found[2] == REPEATED and median(found[1] - found[0]) < _LEAST_STEP_NS else found


def _are_within_update(trace: Trace, windows: Windows) -> bool:
    """Whether the windows are parts of a step: weights are updated in the recording, but in few of them. A policy plays
    for fifty moves, or a model sees fifty words, before one backward pass."""
    starts, ends, _ = windows
    backward = trace.events.start_ns[backward_nodes(trace)]
    if not backward.size or len(starts) < _FEW_ROUNDS:
        return False
    return 2 * int((counts_inside(starts, ends, backward) > 0).sum()) < len(starts)


def _only_update(trace: Trace, tree: Tree, lane: int) -> Windows | None:
    """The whole recording, if the optimizer steps once, after a backward pass: it is one update of the weights."""
    rows = _rows_starting_with(trace, _OPTIMIZER)
    rows = rows[(trace.events.lane[rows] == lane) & tree.outermost(trace.mask_of(rows))[rows]]
    backward = trace.events.start_ns[backward_nodes(trace)]
    if len(rows) != 1 or not backward.size or backward.min() > trace.events.start_ns[rows[0]]:
        return None
    start, end, _ = whole_window(trace)
    return start, end, ONE_UPDATE


def _within_ongoing(trace: Trace, tree: Tree, lane: int, whole: Windows) -> Windows | None:
    """The part of the ``whole`` recording in the loop in which it ended. None if there is no such loop, or if most
    operators ran before it. Its rounds are no steps: lines are marked in some of them and no longer in others."""
    starts = find_ongoing(trace, tree, lane)
    if starts is None:
        return None
    operators = trace.events.category == Category.OPERATOR
    inside = operators & (trace.events.start_ns >= starts[0])
    if not inside.any() or inside.sum() < _MOST_INSIDE * operators.sum():
        return None
    return starts[:1], _until_last_work(trace, lane, whole[1]).clip(min=starts[0] + 1), ONGOING_LOOP


def _until_last_work(trace: Trace, lane: int, end_ns: Int64s) -> Int64s:
    """Without what profkit does at the end of a recording, such as to collect garbage."""
    kinds = (Category.OPERATOR, Category.ANNOTATION, Category.RUNTIME, Category.COMPILED_CODE, Category.LINE_MARK)
    here = trace.in_categories(*kinds) & (trace.events.lane == lane)
    return end_ns.clip(max=int(trace.events.ends_of(here).max(initial=0)))


def _is_inner_loop(starts: Int64s) -> bool:
    """Whether the pattern is a loop over elements or samples: shorter than any step, and repeated many times.

    The loop around it does not show if the recording ended within that loop's first round.
    """
    return len(starts) > _MANY_ROUNDS and median(np.diff(starts)) < _LEAST_STEP_NS


def _inside_longest(trace: Trace, tree: Tree, wanted: Bools, rows: Rows) -> Rows:
    """The wanted events directly below the longest of ``rows``, if that one fills most of their time."""
    durations = trace.events.duration_ns[rows]
    longest = rows[durations.argmax()]
    if durations.max() < 0.5 * durations.sum():
        return rows[:0]
    return np.flatnonzero(wanted & (tree.nearest_ancestor(wanted) == longest))


def take_whole(trace: Trace) -> Steps:
    """The whole recording as one measured step, if finding the steps failed. The main thread is the one with the most
    time in events."""
    start, end, source = whole_window(trace)
    on_device = np.array([lane.on_device for lane in trace.lanes], dtype=bool)
    taken_ns = np.bincount(trace.events.lane, trace.events.duration_ns, minlength=len(trace.lanes))
    lane = int(np.where(on_device, -1, taken_ns).argmax())
    yes, no = np.ones(1, dtype=bool), np.zeros(1, dtype=bool)
    return Steps(
        start_ns=start,
        end_ns=end,
        begun_ns=start,
        done_ns=end,
        located=no,
        measured=yes,
        source=source,
        main_lane=lane,
        pause_ns=np.zeros(1, dtype=np.int64),
    )


def whole_window(trace: Trace) -> Windows:
    """From the first event to the last."""
    events = trace.events
    known = ~trace.in_categories(Category.OTHER, Category.PYTHON)  # Python frames were open before the start
    known = known if known.any() else np.ones(len(events), dtype=bool)
    start, end = events.start_ns[known].min(), events.ends_of(known).max()
    return np.array([start]), np.array([max(end, start + 1)]), WHOLE_RECORDING


def _until_last_wait(trace: Trace, launches: Launches, waits: Waits) -> Windows:
    """The whole recording without the recording's own waits at its end: they last as long as the device still works,
    which counts anyway. A host that stood in them would hide what less work gives back."""
    start, end, source = whole_window(trace)
    events, own = trace.events, waits.rows[waits.own]
    program = trace.in_categories(Category.OPERATOR, Category.ANNOTATION, Category.RUNTIME, Category.COMPILED_CODE)
    program[own] = False
    until_ns = events.end_ns[program].max(initial=start[0] + 1)
    last = events.start_ns[own][events.start_ns[own] >= until_ns]
    return start, end if not last.size or not launches.work.size else last[:1].clip(max=last.min()), source


def _finish(trace: Trace, launches: Launches, waits: Waits, first_calls: Rows, lane: int, windows: Windows) -> Steps:
    events, (start_ns, end_ns, source) = trace.events, windows
    marks = np.flatnonzero((events.category == Category.LINE_MARK) & (events.lane == lane))
    located = counts_inside(start_ns, end_ns, events.start_ns[marks]) > 0
    pauses = np.flatnonzero((events.category == Category.PAUSE) & (events.lane == lane))
    pause_ns = sums_inside(start_ns, end_ns, events.start_ns[pauses], events.duration_ns[pauses])
    compiled = counts_inside(start_ns, end_ns, events.start_ns[compiling(trace)]) > 0
    loads, grows = (
        taken_ns > _PREPARING_SHARE * (end_ns - start_ns)
        for taken_ns in _preparing_ns(trace, first_calls, start_ns, end_ns)
    )
    starting = find_starting(trace, lane)
    loads |= starting.capturing.covered_within(start_ns, end_ns) > _PREPARING_SHARE * (end_ns - start_ns)
    loads |= starting.any.covered_within(start_ns, end_ns) >= STARTING_SHARE * (end_ns - start_ns)
    asked = np.flatnonzero(holding_up(trace))
    held_ns = union(events.start_ns[asked], events.ends_of(asked)).covered_within(start_ns, end_ns)
    loads |= held_ns > _PREPARING_SHARE * (end_ns - start_ns)
    waited = events.lane[waits.rows] == lane
    waited_ns = sums_inside(start_ns, end_ns, events.start_ns[waits.rows[waited]], waits.duration_ns[waited])
    if source in UNDIVIDED or not launches.work.size:
        last_ns = events.ends_of(launches.work).max(initial=0)
        begun_ns, done_ns = start_ns, np.maximum(end_ns, last_ns)
    else:
        begun_ns, done_ns = when_done(trace, launches, start_ns, end_ns, waited_ns)
    whole = ~lost_work(trace, launches, start_ns, end_ns) & ~_is_begun_only(launches, start_ns, end_ns)
    measured = _measured(done_ns - begun_ns - pause_ns, located, loads, compiled | grows, whole)
    if (done_ns <= begun_ns)[measured].all():  # all of it ran while the device was still busy with earlier steps
        begun_ns, done_ns = start_ns, end_ns
    worked_ns = _worked_ns(trace, launches, start_ns, end_ns)
    return Steps(start_ns, end_ns, begun_ns, done_ns, located, measured, source, lane, pause_ns, worked_ns)


def _worked_ns(trace: Trace, launches: Launches, start_ns: Int64s, end_ns: Int64s) -> Int64s:
    """How long the device works on what each step launched, apart from communication."""
    exchanging = trace.where_name(is_communication)[launches.work]
    own_ns = np.where(exchanging, 0, trace.events.duration_ns[launches.work])
    return sums_inside(start_ns, end_ns, launches.launched_ns, own_ns)


def _is_begun_only(launches: Launches, start_ns: Int64s, end_ns: Int64s) -> Bools:
    """Whether the last step is what remains of the recording once the loop has ended: the profiler's mark of a next
    step, in which nothing is launched, unlike in the others, and which takes far less time."""
    empty = counts_inside(start_ns, end_ns, launches.launched_ns) == 0
    is_short = (end_ns - start_ns)[-1] < _REMAINS_SHARE * np.max((end_ns - start_ns)[:-1], initial=0)
    begun_only = np.zeros(len(start_ns), dtype=bool)
    begun_only[-1] = is_short and empty[-1] and not empty[:-1].any()
    return begun_only


def _preparing_ns(trace: Trace, first_calls: Rows, start_ns: Int64s, end_ns: Int64s) -> tuple[Int64s, Int64s]:
    """How long each step loads code, and how long it gets memory from the driver. A step that also gives some back does
    not grow: that may happen now and then for as long as the program runs."""
    events = trace.events
    gets = np.flatnonzero(allocating(trace))
    frees = counts_inside(start_ns, end_ns, events.start_ns[freeing(trace)]) > 0
    loading_ns = sums_inside(start_ns, end_ns, events.start_ns[first_calls], events.duration_ns[first_calls])
    growing_ns = sums_inside(start_ns, end_ns, events.start_ns[gets], events.duration_ns[gets])
    return loading_ns, np.where(frees, 0, growing_ns)


def compiling(trace: Trace) -> Bools:
    """The events in which PyTorch's compiler works."""
    return trace.where_name(lambda name: name.endswith(COMPILING))


def _is_cold(first_ns: int, later_ns: Int64s) -> bool:
    """Not if a third of the later steps are about as long: batches of two workers come in twos, one late, one ready."""
    if first_ns <= _COLD_TIMES_MEDIAN * median(later_ns):
        return False
    return float((_ALIKE_TIMES * later_ns >= first_ns).mean()) < _OFTEN


def _measured(duration_ns: Int64s, located: Bools, loads: Bools, prepares: Bools, whole: Bools) -> Bools:
    """The steps without line marks, if there are any. Of these are left out, while others remain: steps that lack
    device work, the rest after the last step, steps that load code or capture graphs, which happens once, and those in
    which the profiler gets a buffer. So are steps that compile or get memory if most do not, and a cold first step if
    at least three are left."""
    measured = ~located if not located.all() else np.ones(len(located), dtype=bool)
    if (measured & whole).any():
        measured &= whole
    if (measured & ~loads).any():
        measured &= ~loads
    if 2 * (measured & ~prepares).sum() > measured.sum():
        measured &= ~prepares
    chosen = np.flatnonzero(measured)
    if len(chosen) >= 3 and _is_cold(duration_ns[chosen[0]], duration_ns[chosen[1:]]):
        measured[chosen[0]] = False
    return measured
