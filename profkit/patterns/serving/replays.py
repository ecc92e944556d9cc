"""The replays of graphs, and what the host does from the end of one to the start of the next."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.timeline.intervals import NOTHING, Intervals, intersection, union
from profkit.patterns.serving.names import named_steps
from profkit.patterns.time.idling import UNRECORDED_WAIT, idle_parts, while_queued
from profkit.trace.events import NONE, Bools, Category, Int64s, Rows
from profkit.trace.statistics import distinct

GRAPH_LAUNCH = re.compile(r"(cuda|cu|hip)GraphLaunch")
_NOT_THE_HOSTS = ("waiting for data", "compiling or loading code", UNRECORDED_WAIT)
"""Reasons for idling that say that something else than the work between two replays keeps the device waiting."""
_MOSTLY = 0.9
"""Of a function's time: it lies between two replays, not around one."""
_MOST_KERNELS = 0.5
"""Of a step: what is left besides the graphs is the way from one to the next."""
_MOST_NAMED = 3
_LEAST_NAMED = 0.1
"""Of the time between replays: less is no reason for it."""


class Replays(Struct, frozen=True):
    """The replays of the measured steps in the order of their work: the rows of their calls, and when each one's work
    begins and ends. ``kernels`` is the share of the measured steps' kernels that are theirs."""

    calls: Rows
    begin_ns: Int64s
    end_ns: Int64s
    kernels: float


class Spent(Struct, frozen=True):
    """A Python function, an operator or a call with its ``share`` of some of the host's time."""

    name: str
    share: float
    is_frame: bool


class Between(Struct, frozen=True):
    """``idle`` is when the device idles between two replays, ``host`` when the host works between the end of a replay
    and the launch of the next, ``functions`` what takes most of that. ``inside`` is the share of the idle
    time between two replays of one engine's step, whose graphs hold a piece each."""

    idle: Intervals
    host: Intervals
    functions: tuple[Spent, ...] = ()
    inside: float = 0.0


@derived_once
def by_graphs(facts: Facts) -> Bools:
    """For each launch whether it is the replay of a graph."""
    calls = facts.launches.call
    is_replay: Bools = facts.trace.matching(GRAPH_LAUNCH)[calls.clip(min=0)] & (calls != NONE)
    return is_replay


@derived_once
def replays(facts: Facts) -> Replays:
    """All replays that have recorded work."""
    events, launches = facts.trace.events, facts.launches
    measured = facts.steps.in_measured(launches.launched_ns)
    chosen = measured & by_graphs(facts)
    calls = distinct(launches.call[chosen])
    at = np.searchsorted(calls, launches.call[chosen])
    begin_ns, end_ns = np.full(len(calls), np.iinfo(np.int64).max), np.zeros(len(calls), dtype=np.int64)
    np.minimum.at(begin_ns, at, events.start_ns[launches.work[chosen]])
    np.maximum.at(end_ns, at, events.ends_of(launches.work[chosen]))
    order = np.argsort(begin_ns, kind="stable")
    is_kernel = events.category[launches.work] == Category.KERNEL
    share = float((chosen & is_kernel).sum() / max((measured & is_kernel).sum(), 1))
    return Replays(calls[order], begin_ns[order], end_ns[order], share)


def is_replayed(facts: Facts) -> bool:
    """Whether graphs launch most kernels of the measured steps."""
    return replays(facts).kernels > _MOST_KERNELS


@derived_once
def between_replays(facts: Facts) -> Between:
    """What passes between the replays of the measured steps."""
    found = replays(facts)
    if len(found.calls) < 2:
        return Between(NOTHING, NOTHING)
    done_ns = np.maximum.accumulate(found.end_ns)[:-1]
    gaps = union(done_ns, found.begin_ns[1:])
    others = [spent for reason, spent in idle_parts(facts) if reason in _NOT_THE_HOSTS]
    window = facts.device.busy.gaps(int(found.begin_ns[0]), int(found.begin_ns[-1]))
    steps = facts.steps
    over = union(steps.begun_ns[steps.measured], steps.done_ns[steps.measured])
    idle = intersection(intersection(gaps, window), over).minus(while_queued(facts))
    of_host = union(steps.start_ns[steps.measured], steps.end_ns[steps.measured])
    host = intersection(_until_launched(facts, found, done_ns), of_host)  # no pause without requests
    for other in others:
        idle, host = idle.minus(other), host.minus(other)
    pieces = _of_one_step(facts, found)
    inside_ns = idle.covered_within(done_ns[pieces], np.maximum(done_ns, found.begin_ns[1:])[pieces]).sum()
    return Between(idle, host, host_functions(facts, host), float(inside_ns / max(idle.total_ns, 1)))


def _of_one_step(facts: Facts, found: Replays) -> Bools:
    """Which replays, from the second on, belong to the engine's step of the one before; none without an engine."""
    named, events = named_steps(facts), facts.trace.events
    if named is None:
        return np.zeros(len(found.calls) - 1, dtype=bool)
    step = np.searchsorted(events.start_ns[named.rows], events.start_ns[found.calls], side="right")
    same: Bools = step[1:] == step[:-1]
    return same


def _until_launched(facts: Facts, found: Replays, done_ns: Int64s) -> Intervals:
    """From the end of each replay to the call of the next one, without what the host waits for the device."""
    events, waits = facts.trace.events, facts.waits
    asleep = waits.rows[~waits.own & facts.serial_lanes[events.lane[waits.rows]]]
    until = union(done_ns, events.start_ns[found.calls[1:]])
    return until.minus(union(events.start_ns[asleep], facts.tree.end_ns[asleep]))


def host_functions(facts: Facts, spent: Intervals, only_frames: bool = False) -> tuple[Spent, ...]:
    """The Python functions of the main thread that take most of this time; without any, the ranges, operators and
    calls."""
    events, kinds = facts.trace.events, [Category.PYTHON]
    here = events.lane == facts.steps.main_lane
    if not only_frames and not (here & (events.category == Category.PYTHON)).any():
        kinds = [Category.ANNOTATION, Category.OPERATOR, Category.RUNTIME]
    rows = np.flatnonzero(here & facts.trace.in_categories(*kinds))
    covered_ns = spent.covered_within(events.start_ns[rows], facts.tree.end_ns[rows])
    lies: Bools = (covered_ns > 0) & (covered_ns >= _MOSTLY * (facts.tree.end_ns[rows] - events.start_ns[rows]))
    outer = lies & facts.tree.outermost(facts.trace.mask_of(rows[lies]))[rows]
    taken_ns = np.bincount(events.name_code[rows[outer]], covered_ns[outer], minlength=len(facts.trace.names))
    most = np.argsort(-taken_ns, kind="stable")[:_MOST_NAMED]
    share = taken_ns / max(spent.total_ns, 1)
    is_frame = kinds == [Category.PYTHON]
    return tuple(
        Spent(facts.trace.names[code], float(share[code]), is_frame)
        for code in most.tolist()
        if share[code] >= _LEAST_NAMED
    )
