"""The steps of what serves a language model, by kind: an engine's, or the passes of a loop of the program's own."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.device.kernel_families import Family, family_of_kernel
from profkit.derive.facts import Facts
from profkit.derive.timeline.intervals import union
from profkit.patterns.serving.replays import by_graphs, host_functions
from profkit.patterns.serving.steps import EngineWork, engine_work
from profkit.patterns.serving.token_passes import TokenPasses, token_passes
from profkit.trace.events import Category, Int64s, Rows
from profkit.trace.statistics import distinct, median

_ENOUGH = 3
"""Steps that make a rate. A single one may begin with work from before the recording."""
_MOSTLY = 0.5
"""Of a step's time: a device that works so long sets the rate."""
_MOST_FAMILIES = 3
_LEAST_OF_A_FAMILY = 0.05
"""Of the kernels' time: less is no part of what a step is about."""


class StepsOfKind(Struct, frozen=True):
    """All steps of one kind: see `profkit.findings.serving.EngineSteps`, whose names these are."""

    engine: str
    kind: str
    steps: int
    sequences: float
    tokens: float
    context_tokens: float
    step_ns: float
    device_ns: float
    replayed: float
    idle_ns: float
    idle_in: tuple[str, ...]
    tokens_per_s: float
    families: tuple[tuple[Family, float], ...] = ()


def engine_steps(facts: Facts) -> tuple[StepsOfKind, ...]:
    """The kinds of steps, the one with most time first. Without an engine's ranges, the passes of the program's own
    loop; none if it has none."""
    work = engine_work(facts)
    if work is None:
        passes = token_passes(facts)
        return () if passes is None else (_of_loop(facts, passes),)
    found = [_of_kind(facts, work, kind, mine) for kind in sorted({*work.kinds}) if (mine := work.of_kind(kind)).size]
    return tuple(sorted(found, key=lambda one: -one.step_ns * one.steps))


def _of_kind(facts: Facts, work: EngineWork, kind: str, mine: Rows) -> StepsOfKind:
    steps = [work.named.steps[number] for number in mine.tolist()]
    step_ns, busy_ns = _median(work.length_ns[mine]), _median(work.busy_ns[mine])
    generating = sum(step.generating for step in steps) / len(steps)
    has_rate = step_ns > 0 and (len(steps) >= _ENOUGH or busy_ns >= _MOSTLY * step_ns)
    followed = mine[work.in_turn[mine] & facts.device.present]
    return StepsOfKind(
        work.named.engine,
        kind,
        len(steps),
        sum(step.prefilled + step.generating for step in steps) / len(steps),
        sum(step.tokens for step in steps) / len(steps),
        sum(step.context_tokens for step in steps) / len(steps),
        step_ns,
        busy_ns,
        float(work.replayed[mine].sum() / max(work.kernels[mine].sum(), 1)),
        _median(work.idle_ns[followed]),
        _functions(facts, work, followed),
        generating / step_ns * 1e9 if has_rate else 0.0,
        _families(facts, work.work[np.isin(work.step_of, mine)]),
    )


def _of_loop(facts: Facts, passes: TokenPasses) -> StepsOfKind:
    """What a pass holds and how long it takes until the next one begins."""
    events, launches = facts.trace.events, facts.launches
    start_ns = events.start_ns[passes.rows]
    pass_ns, length = _median(passes.end_ns - start_ns), float(passes.length.mean())
    windows = union(start_ns, passes.end_ns)
    mine = windows.covered_within(launches.launched_ns, launches.launched_ns + 1) > 0
    kernels = mine & (events.category[launches.work] == Category.KERNEL)
    count = len(passes) if facts.device.present else 1
    return StepsOfKind(
        "",
        "decode",
        len(passes),
        passes.sequences,
        passes.sequences * length,
        0.0,
        pass_ns,
        float(union(events.start_ns[launches.work[mine]], events.ends_of(launches.work[mine])).total_ns) / count,
        float((kernels & by_graphs(facts)).sum() / max(kernels.sum(), 1)),
        0.0,
        (),
        passes.sequences / pass_ns * 1e9 if pass_ns else 0.0,
        _families(facts, launches.work[mine]),
    )


def _families(facts: Facts, work: Rows) -> tuple[tuple[Family, float], ...]:
    """The families of kernels that take most of this work's time, with their share of it."""
    events = facts.trace.events
    rows = work[events.category[work] == Category.KERNEL]
    taken_ns = np.bincount(events.name_code[rows], events.duration_ns[rows], minlength=len(facts.trace.names))
    totals: dict[Family, float] = {}
    for code in distinct(events.name_code[rows]).tolist():
        family = family_of_kernel(facts.trace.names[code])
        totals[family] = totals.get(family, 0.0) + float(taken_ns[code])
    total_ns = max(sum(totals.values()), 1.0)
    most = sorted(totals.items(), key=lambda item: -item[1])[:_MOST_FAMILIES]
    return tuple((family, ns / total_ns) for family, ns in most if ns >= _LEAST_OF_A_FAMILY * total_ns)


def _median(values: Int64s) -> float:
    return float(median(values)) if values.size else 0.0


def _functions(facts: Facts, work: EngineWork, mine: Rows) -> tuple[str, ...]:
    """The Python functions that take most of the time in which the device idles before these steps."""
    idling = mine[work.idle_ns[mine] > 0]
    before = union(work.begin_ns[idling] - work.idle_ns[idling], work.begin_ns[idling])
    return tuple(one.name for one in host_functions(facts, before, only_frames=True))
