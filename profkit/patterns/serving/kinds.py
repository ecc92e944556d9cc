"""The steps of an engine that serves a language model, by kind."""

from __future__ import annotations

from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.timeline.intervals import union
from profkit.patterns.serving.replays import host_functions
from profkit.patterns.serving.steps import EngineWork, engine_work
from profkit.trace.events import Int64s, Rows
from profkit.trace.statistics import median

_ENOUGH = 3
"""Steps that make a rate. A single one may begin with work from before the recording."""
_MOSTLY = 0.5
"""Of a step's time: a device that works so long sets the rate."""


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


def engine_steps(facts: Facts) -> tuple[StepsOfKind, ...]:
    """The kinds of steps, the one with most time first; none if no engine's ranges were recorded."""
    work = engine_work(facts)
    if work is None:
        return ()
    found = [_of_kind(facts, work, kind, mine) for kind in sorted({*work.kinds}) if (mine := work.of_kind(kind)).size]
    return tuple(sorted(found, key=lambda one: -one.step_ns * one.steps))


def _of_kind(facts: Facts, work: EngineWork, kind: str, mine: Rows) -> StepsOfKind:
    steps = [work.named.steps[number] for number in mine.tolist()]
    step_ns, busy_ns = _median(work.length_ns[mine]), _median(work.busy_ns[mine])
    generating = sum(step.generating for step in steps) / len(steps)
    has_rate = step_ns > 0 and (len(steps) >= _ENOUGH or busy_ns >= _MOSTLY * step_ns)
    followed = mine[work.in_turn[mine]]
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
    )


def _median(values: Int64s) -> float:
    return float(median(values)) if values.size else 0.0


def _functions(facts: Facts, work: EngineWork, mine: Rows) -> tuple[str, ...]:
    """The Python functions that take most of the time in which the device idles before these steps."""
    idling = mine[work.idle_ns[mine] > 0]
    before = union(work.begin_ns[idling] - work.idle_ns[idling], work.begin_ns[idling])
    return tuple(one.name for one in host_functions(facts, before, only_frames=True))
