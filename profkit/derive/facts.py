"""Everything derived from one recording, each fact computed at its first use and kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from profkit.derive import shares
from profkit.derive.carrying import Repeats, allocated_bytes, carry_shapes, match_located
from profkit.derive.device import Device, describe_device
from profkit.derive.distortion import estimate_overhead, find_overhead
from profkit.derive.intervals import NOTHING, Intervals
from profkit.derive.launches import Launches, link_launches
from profkit.derive.lines import Lines, find_lines
from profkit.derive.memory import Memory, follow_memory
from profkit.derive.nesting import BATCH
from profkit.derive.operators import Operators, describe_operators
from profkit.derive.steps import Steps, find_steps
from profkit.derive.tree import Tree, build_tree
from profkit.derive.updates import Updates, find_updates
from profkit.derive.waits import Waits, find_waits
from profkit.run import CallSite, LiveSample, LoadSample, Run
from profkit.trace.events import Bools, Category, Int32s, Int64s, Rows, Trace
from profkit.trace.values import distinct
from profkit.trace.workers import Workers

Derived = TypeVar("Derived")


class Facts:
    """The facts about one recording. ``run`` and the rest are empty for a trace that profkit did not record."""

    def __init__(
        self,
        trace: Trace,
        run: Run | None = None,
        callsites: tuple[CallSite, ...] = (),
        live: tuple[LiveSample, ...] = (),
        samples: tuple[LoadSample, ...] = (),
        workers: Workers | None = None,
    ) -> None:
        self._recorded = trace
        self.run = run or Run()
        self.callsites = callsites
        self.live = live
        self.samples = samples
        self.workers = workers or Workers()
        self._kept: dict[Callable[[Facts], Any], Any] = {}

    def once(self, derive: Callable[[Facts], Derived]) -> Derived:
        """What a function derives from these facts, computed when it is first asked for. Nobody may change it."""
        if derive not in self._kept:
            self._kept[derive] = derive(self)
        found: Derived = self._kept[derive]
        return found

    @cached_property
    def tree(self) -> Tree:
        return build_tree(self._recorded)

    @cached_property
    def steps(self) -> Steps:
        return find_steps(self._recorded, self.tree, self.launches, self.waits)

    @cached_property
    def repeats(self) -> Repeats:
        return match_located(self._recorded, self.tree, self.steps)

    @cached_property
    def trace(self) -> Trace:
        """The recording, with the shapes of the located step where the measured ones were recorded without."""
        if not self.repeats.exact.any():
            return self._recorded
        return carry_shapes(self._recorded, self.repeats, self.allocated_bytes)

    @cached_property
    def allocated_bytes(self) -> Int64s:
        """Column over all events: what is allocated in each, and in those inside of it."""
        return allocated_bytes(self._recorded, self.tree)

    @cached_property
    def lines(self) -> Lines:
        return find_lines(self.trace, self.tree, self.steps, self.repeats)

    @cached_property
    def calling(self) -> Int32s:
        """Column over all events: the row of the innermost operator around each, or `NONE`."""
        return self.tree.climb(self._recorded.events.category == Category.OPERATOR)

    @cached_property
    def launches(self) -> Launches:
        return link_launches(self._recorded, self.calling)

    @cached_property
    def device(self) -> Device:
        return describe_device(self.trace, self.launches)

    @cached_property
    def waits(self) -> Waits:
        return find_waits(self._recorded, self.tree, self.launches, self.calling)

    @cached_property
    def memory(self) -> Memory:
        return follow_memory(self.trace, self.steps)

    @cached_property
    def operators(self) -> Operators:
        return describe_operators(self.trace, self.tree, self.steps, self.lines)

    @cached_property
    def shares(self) -> tuple[shares.Share, ...]:
        return shares.share_out(self)

    @cached_property
    def serial_lanes(self) -> Bools:
        """By lane code: the host threads that take turns, which are the main one and those of the backward pass."""
        lanes = np.zeros(len(self.trace.lanes), dtype=bool)
        lanes[distinct(self.trace.events.lane[self.lines.backward])] = True
        lanes[self.steps.main_lane] = True
        return lanes

    @cached_property
    def overhead(self) -> Intervals:
        """What the recording itself added to the host's time in the measured steps: by steps that were timed without
        it, else, with a device, estimated; nothing where neither tells."""
        in_steps = self.serial_lanes[self.trace.events.lane] & self.measured
        if self.run.reference_step_ns:
            return find_overhead(self.trace, self.tree, self.steps, in_steps, self.run)
        if self.device.present and not self.trace.recording.kind:
            return estimate_overhead(self.trace, self.tree, in_steps, self.waits)
        return NOTHING

    @cached_property
    def loading(self) -> Bools:
        """Events in which a thread asks a DataLoader for its next batch."""
        return shares.loading(self.trace)

    @cached_property
    def optimizing(self) -> Bools:
        """Events that are an optimizer's step."""
        return shares.optimizing(self.trace)

    @cached_property
    def updates(self) -> Updates:
        """What of the optimizers' steps is their own work, and not that of a closure."""
        return find_updates(self.trace, self.tree, self.optimizing, self.lines.backward)

    @cached_property
    def measured(self) -> Bools:
        """Events that start in a measured step."""
        starts_ns = self.trace.events.start_ns
        mask = np.empty(len(starts_ns), dtype=bool)
        for first in range(0, len(mask), BATCH):  # so that what is computed on the way stays in the processor's caches
            part = slice(first, first + BATCH)
            mask[part] = self.steps.in_measured(starts_ns[part])
        return mask

    def measured_rows(self, wanted: Bools) -> Rows:
        """Rows of the wanted events that start in a measured step."""
        return np.flatnonzero(wanted & self.measured)
