"""What each step of an engine took, on the device and before it."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.steps.renamed import in_turn
from profkit.derive.timeline.intervals import Intervals, intersection
from profkit.patterns.serving.names import NamedSteps, named_steps
from profkit.patterns.serving.replays import by_graphs
from profkit.patterns.time.idling import LONG_PAUSE_NS, while_queued
from profkit.trace.events import NONE, Bools, Category, Int64s, Rows


class EngineWork(Struct, frozen=True):
    """The steps of an engine as columns, in order.

    ``length_ns`` is the time from the start of a step's work to that of the next one's; of the last, how long it takes
    the device or the host, whichever is longer. Time in which the device waits for what was not recorded is no part of
    it. ``begin_ns`` and ``end_ns`` span the step's work on the device (its range, if there is none), ``busy_ns`` is how
    long the device works meanwhile. ``kernels`` are the step's kernels, ``replayed`` those that graphs launch.
    ``idle_ns`` is how long the device idles before the step, -1 for the first. ``in_turn`` says whether it follows the
    step before at once: after a pause, the engine was without requests. ``work`` is all work of the device, in
    ``step_of`` the step of each."""

    named: NamedSteps
    begin_ns: Int64s
    end_ns: Int64s
    length_ns: Int64s
    busy_ns: Int64s
    kernels: Int64s
    replayed: Int64s
    idle_ns: Int64s
    in_turn: Bools
    work: Rows
    step_of: Rows

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(step.kind for step in self.named.steps)

    def of_kind(self, kind: str) -> Rows:
        """The numbers of the steps of one kind with sequences in them."""
        steps = self.named.steps
        return np.array(
            [at for at, step in enumerate(steps) if step.kind == kind and step.prefilled + step.generating],
            dtype=np.int64,
        )


@derived_once
def engine_work(facts: Facts) -> EngineWork | None:
    """The steps of the engine; None if no ranges of one were recorded."""
    named = named_steps(facts)
    return None if named is None else _work_of(facts, named)


def _work_of(facts: Facts, named: NamedSteps) -> EngineWork:
    events, launches, rows, count = facts.trace.events, facts.launches, named.rows, len(named.rows)
    starts_ns = events.start_ns[rows]
    number = np.searchsorted(starts_ns, launches.launched_ns, side="right") - 1
    inside = number >= 0
    work, of = launches.work[inside], number[inside]
    begin_ns, end_ns = np.full(count, np.iinfo(np.int64).max), np.zeros(count, dtype=np.int64)
    np.minimum.at(begin_ns, of, events.start_ns[work])
    np.maximum.at(end_ns, of, events.ends_of(work))
    has = np.bincount(of, minlength=count) > 0
    begin_ns, end_ns = np.where(has, begin_ns, starts_ns), np.where(has, end_ns, events.ends_of(rows))
    missing = _unrecorded(facts, int(begin_ns.min()), int(end_ns.max()))
    length_ns = np.diff(begin_ns, append=0)
    length_ns[-1] = end_ns[-1] - begin_ns[-1]
    length_ns -= missing.covered_within(begin_ns, begin_ns + length_ns)
    own_ns = events.duration_ns[rows[-1]] - missing.covered_within(starts_ns[-1:], events.ends_of(rows[-1:]))[0]
    length_ns[-1] = max(length_ns[-1], own_ns)
    kernels = events.category[work] == Category.KERNEL
    return EngineWork(
        named,
        begin_ns,
        end_ns,
        length_ns.clip(min=0),
        facts.device.busy.covered_within(begin_ns, end_ns),
        np.bincount(of[kernels], minlength=count),
        np.bincount(of[kernels & by_graphs(facts)[inside]], minlength=count),
        np.concatenate([[NONE], (begin_ns[1:] - end_ns[:-1]).clip(min=0)]),
        np.concatenate([[False], in_turn(starts_ns, np.maximum(events.ends_of(rows), end_ns))]),
        work,
        of,
    )


def _unrecorded(facts: Facts, start_ns: int, end_ns: int) -> Intervals:
    """When the device idles long though work is queued: it waits for what the recording lacks."""
    gaps = facts.device.busy.gaps(start_ns, max(start_ns, end_ns))
    long = gaps.end_ns - gaps.start_ns >= LONG_PAUSE_NS
    return intersection(Intervals(gaps.start_ns[long], gaps.end_ns[long]), while_queued(facts))
