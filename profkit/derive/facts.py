"""Everything derived from one recording. Each fact is computed when first used, and kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, wraps
from traceback import clear_frames
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from profkit.core.failures import attempt
from profkit.derive.device.accelerator import Accelerator, find_accelerator
from profkit.derive.device.busy import Device, describe_device
from profkit.derive.device.first_calls import find_first_calls
from profkit.derive.device.launches import Launches, link_launches
from profkit.derive.device.starting import Starting, find_starting
from profkit.derive.device.waits import Waits, find_waits
from profkit.derive.launch.launch import Launch
from profkit.derive.memory.allocator import Allocator, describe_allocator
from profkit.derive.operators.operators import Operators, describe_operators
from profkit.derive.operators.source_lines import Lines, find_lines
from profkit.derive.operators.updates import Updates, find_updates
from profkit.derive.steps.allocations import Memory, follow_memory
from profkit.derive.steps.boundaries import ONE_UPDATE, UNDIVIDED, Steps, find_steps, take_whole
from profkit.derive.steps.crowding import find_crowding, part_of_workers, split
from profkit.derive.steps.distortion import (
    ATTACHED,
    estimate_overhead,
    find_overhead,
    marks_overhead,
    may_hide_overhead,
    timed_while_attached,
)
from profkit.derive.steps.marked import find_marked
from profkit.derive.steps.matching import Repeats, allocated_bytes, copy_shapes, match_located, no_repeats
from profkit.derive.timeline.intervals import NOTHING, Intervals, union, unite
from profkit.derive.timeline.nesting import BATCH
from profkit.derive.timeline.thinned import UNTOUCHED, Thinned
from profkit.derive.timeline.tree import Tree, build_tree
from profkit.run.directory import CallSite, DeviceMemorySample, LiveSample, LoadSample, Run, Sources, StackSamples
from profkit.run.whole_run import RunAccount
from profkit.trace.events import Bools, Category, Int32s, Int64s, Rows, Trace
from profkit.trace.snapshot.columns import Snapshot
from profkit.trace.statistics import distinct, median
from profkit.trace.worker_records import Workers

Derived = TypeVar("Derived")
_COPYING = "copying the shapes of one step to the others"
_MANY_TIMES = 10
"""A step whose lines are marked takes up to several times as long as others; the beginning of a program that imports a
compiler took twenty times."""


def derived_once(derive: Callable[[Facts], Derived]) -> Callable[[Facts], Derived]:
    """A function of the facts whose result they keep (`Facts.once`)."""

    @wraps(derive)
    def derive_once(facts: Facts) -> Derived:
        return facts.once(derive)

    return derive_once


def _fact(derive: Callable[[Facts], Derived]) -> cached_property[Derived]:
    """A property that is derived when first used, and kept. If that fails, it fails the same way every time."""
    return cached_property(derived_once(derive))


class Facts:
    """The facts about one recording. ``run`` and the rest are empty for a trace that profkit did not record. For a
    memory snapshot alone, the trace is `no_trace()`. ``launch`` is what this rank and others did together, None if only
    one was recorded. ``interlude`` are the facts about what passes between the steps, if that was recorded too."""

    def __init__(  # noqa: PLR0913, PLR0917  # a run directory holds as many files, each by its name
        self,
        trace: Trace,
        run: Run | None = None,
        callsites: tuple[CallSite, ...] = (),
        live: tuple[LiveSample, ...] = (),
        samples: tuple[LoadSample, ...] = (),
        workers: Workers | None = None,
        sources: Sources | None = None,
        snapshot: Snapshot | None = None,
        device_memory: tuple[DeviceMemorySample, ...] = (),
        launch: Launch | None = None,
        account: RunAccount | None = None,
        stacks: StackSamples | None = None,
        interlude: Facts | None = None,
    ) -> None:
        self._recorded = trace
        self.run = run or Run()
        self.callsites = callsites
        self.live = live
        self.samples = samples
        self.workers = workers or Workers()
        self.sources = sources or {}
        self.snapshot = snapshot
        self.device_memory = device_memory
        self.launch = launch
        self.account = account or RunAccount()
        self.stacks = stacks or StackSamples()
        self.interlude = interlude
        self._kept: dict[Callable[[Facts], Any], Any] = {}
        self._failed: dict[Callable[[Facts], Any], tuple[Exception, TracebackType | None]] = {}

    def once(self, derive: Callable[[Facts], Derived]) -> Derived:
        """What a function derives from these facts, computed when first asked for. Callers must not change it.

        If it raises, all callers get the same error: forty rules may ask, and it may fail after a minute.
        """
        if derive in self._failed:
            error, trace = self._failed[derive]
            raise error.with_traceback(trace)
        if derive not in self._kept:
            try:
                self._kept[derive] = derive(self)
            except Exception as error:
                clear_frames(error.__traceback__)  # their arrays would be kept with it
                self._failed[derive] = error, error.__traceback__
                raise
        found: Derived = self._kept[derive]
        return found

    @_fact
    def accelerator(self) -> Accelerator | None:
        """The device that the program computed on besides the processor, recorded or not."""
        return find_accelerator(self._recorded)

    @property
    def has_trace(self) -> bool:
        return len(self._recorded.events) > 0

    @_fact
    def allocator(self) -> Allocator | None:
        """The memory snapshot's account; None if no snapshot was recorded."""
        return None if self.snapshot is None else describe_allocator(self.snapshot)

    @_fact
    def tree(self) -> Tree:
        return build_tree(self._recorded)

    @property
    def steps(self) -> Steps:
        return self._steps[0]

    @_fact
    def _steps(self) -> tuple[Steps, tuple[str, ...]]:
        found, failure = attempt(
            "finding the steps",
            lambda: find_steps(
                self._recorded,
                self.tree,
                self.launches,
                self.waits,
                self.first_calls,
                is_before_steps=self._is_before_steps,
            ),
            None,
        )
        return take_whole(self._recorded) if found is None else found, failure

    @property
    def is_beginning(self) -> bool:
        """Whether steps of the program passed, but only what ran before the end of the first was recorded: imports, the
        making of models and data, and maybe a part of that step. With its update it is that step, unless it lasts many
        times as long as those that passed: making an optimizer imports the compiler, for seconds."""
        if not self._is_before_steps:
            return False
        is_update = self.steps.source == ONE_UPDATE
        is_longer = is_update and self.steps.usual_ns > _MANY_TIMES * median(self.run.reference_step_ns)
        return is_longer or self.steps.source in UNDIVIDED

    @property
    def _is_before_steps(self) -> bool:
        return self.run.step_signal is None and bool(self.run.reference_step_ns)

    @property
    def is_part(self) -> bool:
        """Whether no whole step was recorded: the only one was cut off, or it was the program's beginning."""
        return self.run.is_part or self.is_beginning

    @_fact
    def repeats(self) -> Repeats:
        return self._matched[0]

    @_fact
    def _matched(self) -> tuple[Repeats, tuple[str, ...]]:
        nothing = no_repeats(len(self._recorded.events))
        return attempt(_COPYING, lambda: match_located(self._recorded, self.tree, self.steps), nothing)

    @property
    def trace(self) -> Trace:
        """The recording. Measured steps, recorded without shapes, have those of the located step."""
        return self._trace[0]

    @_fact
    def _trace(self) -> tuple[Trace, tuple[str, ...]]:
        return attempt(_COPYING, self._copy_shapes, self._recorded)

    def _copy_shapes(self) -> Trace:
        if not self.repeats.exact.any():
            return self._recorded
        return copy_shapes(self._recorded, self.repeats, self.allocated_bytes)

    @property
    def failures(self) -> tuple[str, ...]:
        """A line for each basic part that failed and was replaced by something simpler."""
        return (*self._steps[1], *self._matched[1], *self._trace[1])

    @_fact
    def allocated_bytes(self) -> Int64s:
        """Column over all events: the bytes allocated in each and in those inside it."""
        return allocated_bytes(self._recorded, self.tree)

    @_fact
    def lines(self) -> Lines:
        return find_lines(self.trace, self.tree, self.steps, self.repeats)

    @_fact
    def calling(self) -> Int32s:
        """Column over all events: the row of the innermost operator around each, or `NONE`."""
        return self.tree.climb(self._recorded.events.category == Category.OPERATOR)

    @_fact
    def launches(self) -> Launches:
        return link_launches(self._recorded, self.calling)

    @_fact
    def first_calls(self) -> Rows:
        """Where code was loaded and libraries set themselves up, which happens once in a run."""
        return find_first_calls(self._recorded, self.tree, self.launches)

    @_fact
    def starting(self) -> Starting:
        """What the main thread does once, before the steps."""
        return find_starting(self._recorded, self.steps.main_lane)

    @_fact
    def device(self) -> Device:
        return describe_device(self.trace, self.launches)

    @_fact
    def waits(self) -> Waits:
        return find_waits(self._recorded, self.tree, self.launches, self.calling)

    @_fact
    def memory(self) -> Memory:
        return follow_memory(self.trace, self.steps)

    @_fact
    def operators(self) -> Operators:
        return describe_operators(self.trace, self.tree, self.steps, self.lines)

    @_fact
    def serial_lanes(self) -> Bools:
        """By lane code: the host threads that take turns, which are the main one and those of the backward pass."""
        lanes = np.zeros(len(self.trace.lanes), dtype=bool)
        lanes[distinct(self.trace.events.lane[self.lines.backward])] = True
        lanes[self.steps.main_lane] = True
        return lanes

    @_fact
    def overhead(self) -> Thinned:
        """What the recording itself added to the host's time in the measured steps. It is known from steps that were
        timed without it, or else estimated if there is a device; nothing if neither is possible."""
        if not self.run.reference_step_ns:
            return self.estimated_overhead
        if self.marks_by_line.total_ns:
            return Thinned(self.marks_by_line, 1.0)
        in_steps = self.serial_lanes[self.trace.events.lane] & self.measured
        crowded_ns = self.crowding.total_ns
        known = Thinned(find_overhead(self.trace, self.tree, self.steps, in_steps, self.run, crowded_ns), 1.0)
        known = max(known, self.marks_added, key=lambda one: one.total_ns)
        most_ns = known.total_ns + self._slowed_ns(known)
        if may_hide_overhead(self.steps, self.run, self._worked_ns):
            most_ns += int(self.waits.duration_ns[in_steps[self.waits.rows] & ~self.waits.own].sum())
        if most_ns == known.total_ns:
            return known
        return max(known, self.estimated_overhead.at_most(most_ns), key=lambda one: one.total_ns)

    @_fact
    def crowding(self) -> Intervals:
        """When the recorded thread waited for a CPU that another program had, in the measured steps. Nothing beside a
        device, which hides that, and beside other ranks, for which a rank waits longer and shorter."""
        return self._crowding[1]

    @_fact
    def crowding_by_workers(self) -> Intervals:
        """The same for CPUs that the workers of the program's own DataLoaders had."""
        return self._crowding[0]

    @_fact
    def _crowding(self) -> tuple[Intervals, Intervals]:
        if self.device.present or self.run.identity is not None:
            return NOTHING, NOTHING
        found = find_crowding(self.trace, self.tree, self.steps, self.run, self.loading)
        return split(found, part_of_workers(self.workers, self.samples))

    @_fact
    def disturbance(self) -> Thinned:
        """What is not the program's own of the host's time in the measured steps: what the recording added, and waits
        for a CPU."""
        added, crowding = self.overhead, self.crowding
        if not crowding.total_ns or added.share < 1:
            return added
        return Thinned(unite(added.where, crowding), 1.0)

    @_fact
    def marks_by_line(self) -> Intervals:
        """What line marks added to the measured steps without a device, if all have them and plain steps were timed;
        else nothing."""
        if self.device.present or not self.steps.measured_are_marked or not self.run.reference_step_ns:
            return NOTHING
        in_steps = self.serial_lanes[self.trace.events.lane] & self.measured
        return find_marked(self.trace, self.tree, self.steps, in_steps, self.run, self.callsites, self.stacks)

    @_fact
    def marks_added(self) -> Thinned:
        """What line marks added to the measured steps beside a device, if all have them and plain steps were timed by
        the device's clock; else nothing."""
        run = self.run
        if not (self.device.present and run.reference_step_ns and any(run.reference_step_device_ns)):
            return UNTOUCHED
        in_steps = self.serial_lanes[self.trace.events.lane] & self.measured
        return marks_overhead(self.trace, self.tree, self.steps, in_steps, self.waits, run)

    @_fact
    def estimated_overhead(self) -> Thinned:
        """What the recording alone tells of what it added in the measured steps; nothing without a device."""
        if not self.device.present or self.trace.recording.kind:
            return UNTOUCHED
        in_steps = self.serial_lanes[self.trace.events.lane] & self.measured
        return estimate_overhead(self.trace, self.tree, in_steps, self.waits)

    def _slowed_ns(self, known: Thinned) -> int:
        """How much of the host's work in the plain steps may be launches that CUPTI slowed."""
        if not timed_while_attached(self.run):
            return 0
        return int((1 - 1 / ATTACHED) * max(0, self.estimated_overhead.where.total_ns - known.total_ns))

    @property
    def _worked_ns(self) -> int:
        """How long the device worked on the measured steps."""
        events, launches = self.trace.events, self.launches
        work = launches.work[self.steps.in_measured(launches.launched_ns)]
        return union(events.start_ns[work], events.ends_of(work)).total_ns

    @_fact
    def loading(self) -> Bools:
        """PyTorch's ranges in which a thread asks a DataLoader for its next batch."""
        return self._ranges("enumerate(DataLoader)#")

    @_fact
    def optimizing(self) -> Bools:
        """PyTorch's ranges around an optimizer's step."""
        return self._ranges("Optimizer.step#")

    def _ranges(self, prefix: str) -> Bools:
        named = self.trace.where_name(lambda name: name.startswith(prefix))
        ranges: Bools = named & (self.trace.events.category == Category.ANNOTATION)
        return ranges

    @_fact
    def updates(self) -> Updates:
        """The part of the optimizers' steps that is their own work, without a closure's."""
        return find_updates(self.trace, self.tree, self.optimizing, self.lines.backward)

    @_fact
    def measured(self) -> Bools:
        """Events that start in a measured step."""
        starts_ns = self.trace.events.start_ns
        mask = np.empty(len(starts_ns), dtype=bool)
        for first in range(0, len(mask), BATCH):  # so that intermediate results stay in the processor's caches
            part = slice(first, first + BATCH)
            mask[part] = self.steps.in_measured(starts_ns[part])
        return mask

    def step_of(self, rows: Rows) -> Int64s:
        """The step that each of these events begins in, -1 outside all steps."""
        return self.steps.index_of(self.trace.events.start_ns[rows])

    def measured_rows(self, wanted: Bools) -> Rows:
        """Rows of the wanted events that start in a measured step."""
        return np.flatnonzero(wanted & self.measured)
