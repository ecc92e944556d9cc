"""A few steps take several times as long as the others.

What it detects
Steps of at least twice the median that lie more than 3.5 deviations above it, if there are two or more and they take at
least a twentieth of all the time. The rule looks at the steps that ran without the profiler, except the first ones and
those beside the recording, and at the measured steps, each against the median of its kind. Steps at equal intervals
are those that hold more than a step: mostly the end of an epoch, with all that passes until the next one begins.

Why is this bad?
The median does not show them, nor does a recording of four steps, but the program's running time does. In a training on
many devices all wait for the one that has its slow step.

Example
    for step, (x, y) in enumerate(loader):
        train_step(x, y)
        if step % 10 == 0:
            validate(model)

Use instead
    for step, (x, y) in enumerate(loader):
        train_step(x, y)
        if step % 1000 == 0:
            validate(model)

How the saving is estimated
If the steps after the recording hold slow ones, looks at the main thread tell which lines make them slow. Such lines
are mostly seen there, and together take half of what the slow steps take beyond the usual. Their part of the run, by
its own clock, is the most that can be gained. So the finding is then an opportunity, of medium severity if they take
half of the run, else low. `repeated-epoch-work` prices work between two epochs and at the start of one.

If no few lines explain them, but phases of the run do, such as checkpoints, evaluations, garbage collections or waits
for data, the finding names these instead, each with its line, without a price.

If the slow step was recorded alone, the line that takes most of the run beside the training is named in the same way.
The severity is then low: all rules judge what was recorded of it.

Otherwise there is no price: the program may need what the slow steps do. The finding states their share of the time
beyond the median, and what differs in those that were recorded: garbage collections, checkpoints, batches waited for,
compilations, calls of the GPU's allocator or, even without a recording, new memory from the system. The severity is low
if one of these is the cause, the slow steps come at regular intervals, or they take most of the time to the last while
no looks tell that all lines share in it. Otherwise it is for information: another program on the machine has the same
effect.

Source of the deviations: the modified z-score over the median absolute deviation, Iglewicz and Hoaglin, How to detect
and handle outliers, 1993.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from profkit.core.marks import SAVE_MARK
from profkit.derive.steps.boundaries import compiling
from profkit.findings.values import SHARE_OF_TIME, WholeRun
from profkit.patterns import Places, garbage_collections
from profkit.patterns.whole_run.phases import (
    BETWEEN,
    DATA,
    EVALUATION,
    LOGGING,
    SAVING,
    UNGRADED,
    recurring_ns,
    whole_run,
)
from profkit.patterns.whole_run.timed_lines import TimedLines, TimedPhase, line_beside_steps, timed_lines
from profkit.rules.base import (
    HIGH_FROM,
    CannotLook,
    Facts,
    Kind,
    Location,
    Severity,
    Suspicion,
    Suspicions,
    format_count,
    format_share,
    format_time,
    rule,
)
from profkit.savings.plain_steps import BESIDE_RECORDING, plain_steps_ns, regular_interval
from profkit.trace import Bools, Category, Float64s, Rows, median

_LEAST_STEPS = 10
"""With fewer, the deviation is that of a handful."""
_LEAST_SCORE = 3.5
_TO_DEVIATION = 0.6745
"""The median absolute deviation of normal noise, in standard deviations."""
_LEAST_RATIO = 2.0
"""A busy machine stretches single steps by less, unless another program takes the CPU completely."""
_LEAST_SLOW = 2
_LEAST_SHARE = 0.05
_EXPLAINS = 0.5
"""A cause that takes less than half of a step's excess did not make it slow."""
_ALLOCATOR = ("cudaMalloc", "cudaFree", "hipMalloc", "hipFree")


_AT_RANDOM = (
    "Do less often, or outside the loop, what only these steps do. If it is not the program, look for what else runs "
    "on the machine."
)
_AT_INTERVALS = (
    "Do less often, or once before the loop, what only these steps do. If they end an epoch, look at what runs from "
    "its last step to the first of the next. That may read and shuffle data, build batches, evaluate, or save. "
    "With a DataLoader, `--steps-from epoch` makes a step of each epoch: the report then names the lines."
)
_ALIKE = 1 / 2
"""Of the usual excess: what ends an epoch takes about as long each time, and other slow steps are accidents."""
_MOST_OF_TIME, _LATE = 0.5, 0.3
"""Of the run, too: lines of slow steps that take so much are where to begin, whatever they are for. Slow steps that
take most of the time, so large a share of them in the second half, are no warm-up."""


_UNCERTAINTY = 0.5
"""Part of the work may have to stay."""
_PRICED_ELSEWHERE = (BETWEEN, DATA)
"""`repeated-epoch-work` and `input-bound` price these."""
_PRICED = (EVALUATION, UNGRADED, SAVING, LOGGING)
_WORDED = (*_PRICED, *_PRICED_ELSEWHERE)
_AGAIN = (
    "Look for what this line computes again with the same result, such as a part of the model without dropout "
    "on the same inputs. That needs to be computed once. Larger batches, or doing it less often, shorten it as "
    "well."
)
_OF_LABEL = {
    UNGRADED: _AGAIN,
    EVALUATION: f"Evaluate less often, or on a part of the data, if the training does not need it so often. {_AGAIN}",
    SAVING: "Save less often, or on another thread.",
    LOGGING: "Log less often, and not in the training's own thread.",
}
"""What helps, by the phase of the run. Else what ends an epoch is meant."""


class _Slow(Struct, frozen=True):
    """Slow steps: their places among the unprofiled and among the recorded steps, how many medians each takes, and the
    share of the time that they take beyond the median. ``timed`` counts the unprofiled steps."""

    unprofiled: Rows
    recorded: Rows
    ratios: Float64s
    share: float
    timed: int


@rule(Kind.FAULT)
def step_time_outliers(facts: Facts) -> Suspicions:
    """One finding for all slow steps."""
    if facts.run.one_in > 1:
        yield from _suspect_recorded_alone(facts)
        return
    slow = _find_slow(facts)
    if slow is None:
        return
    period, timed, whole = _period(slow), timed_lines(facts), whole_run(facts)
    if timed is not None and whole is not None and timed.explaining():
        yield _suspect_lines(slow, period, timed, whole)
        return
    cause, rows = _cause(facts, slow)
    happened = timed.happening() if timed is not None and not cause else ()
    if timed is not None and happened:
        yield _suspect_phases(slow, period, timed, happened)
        return
    what = f"What differs in them: {cause}." if cause else _what_is_known(facts, slow)
    yield Suspicion(
        message=f"{_describe(slow, period)} {what}",
        fix=_AT_INTERVALS if period else _AT_RANDOM,
        rows=rows,
        confidence=0.8 if cause or period else 0.4,
        count=len(slow.ratios),
        # New memory from the system has no line in the program that could be changed.
        severity=Severity.LOW
        if rows.size or period or (_take_most(slow) and (timed is None or not timed.knows_usual))
        else Severity.INFO,
        evidence=_evidence(slow, period),
    )


def _describe(slow: _Slow, period: int) -> str:
    often = f", one in {period}" if period else ""
    times = " to ".join(dict.fromkeys(f"{ratio:.1f}" for ratio in (slow.ratios.min(), slow.ratios.max())))
    return (
        f"{format_count(len(slow.ratios), 'step')} took {times} times the median{often}: the excess is "
        f"{format_share(slow.share)} of the time."
    )


def _evidence(slow: _Slow, period: int) -> dict[str, float | int | str]:
    return {
        "slow_steps": len(slow.ratios),
        "slowest_times_median": round(float(slow.ratios.max()), 2),
        SHARE_OF_TIME: round(slow.share, 4),
        **({"every_steps": period} if period else {}),
    }


def _suspect_lines(slow: _Slow, period: int, timed: TimedLines, whole: WholeRun) -> Suspicion:
    """The first of these lines, with what all of them take of the run. Work between epochs has a rule of its own."""
    lines = timed.explaining()
    label = lines[0].label
    run_ns = sum(line.run_ns for line in lines)
    share, excess = run_ns / whole.programs_ns, sum(line.excess_ns for line in lines)
    where = "this line" if len(lines) == 1 else f"this line and {format_count(len(lines) - 1, 'other')}"
    what = f", in {label}" if label in _WORDED else ""
    is_priced = label not in _PRICED_ELSEWHERE and run_ns > 0
    places = [line.site for line in lines] + list(lines[0].callers[:1])
    return Suspicion(
        message=f"{_describe(slow, period)} {format_share(min(excess / timed.excess_ns, 1.0))} of that passes at "
        f"{where}{what}: {format_time(excess / timed.long_steps)} in each slow step, {format_share(share)} of the run.",
        fix=_OF_LABEL.get(label, _AT_INTERVALS),
        kind=Kind.OPPORTUNITY,
        run_ns=run_ns if is_priced else 0,
        run_uncertainty=_UNCERTAINTY,
        confidence=0.7,
        count=len(slow.ratios),
        places=Places.of([Location.of(site) for site in dict.fromkeys(places)]),
        severity=_weigh(share, is_priced, run_ns / max(recurring_ns(whole), 1)),
        evidence={**_evidence(slow, period), "lines_ns_in_run": run_ns},
    )


def _suspect_recorded_alone(facts: Facts) -> Suspicions:
    """The long step is the one that was recorded, and all figures are of it: what it does beside the training."""
    whole, line = whole_run(facts), line_beside_steps(facts, _PRICED)
    share = line.time_ns / whole.programs_ns if whole is not None and line is not None else 0.0
    if line is None or share < HIGH_FROM:
        return
    yield Suspicion(
        message=f"One step in {facts.run.one_in} takes {format_share(facts.run.share_of_time)} of the time, and was "
        f"recorded alone. This line takes {format_share(share)} of the run, in {line.label}.",
        fix=_OF_LABEL[line.label],
        kind=Kind.OPPORTUNITY,
        run_ns=line.time_ns,
        run_uncertainty=_UNCERTAINTY,
        confidence=0.7,
        count=1,
        places=Places.of_sites(dict.fromkeys([line.site, line.caller])),
        severity=Severity.LOW,  # all other rules judge what was recorded of it
        evidence={
            "every_steps": facts.run.one_in,
            SHARE_OF_TIME: facts.run.share_of_time,
            "lines_ns_in_run": line.time_ns,
        },
    )


def _suspect_phases(slow: _Slow, period: int, timed: TimedLines, phases: Sequence[TimedPhase]) -> Suspicion:
    """What happened in the slow steps, at more lines than can be named."""
    told = [
        f"{format_share(min(phase.excess_ns / timed.excess_ns, 1.0))} {phase.label}"
        + (f" (such as {Location.of(phase.site).short})" if phase.site is not None else "")
        for phase in phases
    ]
    return Suspicion(
        message=f"{_describe(slow, period)} By looks at the main thread that is: {', '.join(told)}.",
        fix=_OF_LABEL.get(phases[0].label, _AT_INTERVALS if period else _AT_RANDOM),
        confidence=0.7,
        count=len(slow.ratios),
        places=Places.of_sites(dict.fromkeys(phase.site for phase in phases)),
        severity=Severity.LOW,
        evidence=_evidence(slow, period),
    )


def _weigh(share: float, is_priced: bool, of_rest: float) -> Severity:
    """By the share of the run, and by that of what follows its start."""
    if is_priced:
        return Severity.MEDIUM if share >= _MOST_OF_TIME else Severity.LOW
    return Severity.INFO if of_rest >= HIGH_FROM else Severity.LOW  # the other rule reports it from there on


def _find_slow(facts: Facts) -> _Slow | None:
    """None if no step stands out; raises `CannotLook` if too few steps were timed."""
    steps = facts.steps
    without = plain_steps_ns(facts)
    chosen = np.flatnonzero(steps.measured)[0 if len(without) else 1 :]
    recorded = steps.duration_ns[chosen].astype(np.float64)
    if len(without) + len(recorded) < _LEAST_STEPS:
        raise CannotLook(f"fewer than {_LEAST_STEPS} steps were timed, too few to tell a slow one")
    ratios = np.concatenate([_in_medians(without), _in_medians(recorded)])
    deviation = max(median(np.abs(ratios - 1)), 1e-3)
    slow = (_TO_DEVIATION * (ratios - 1) / deviation > _LEAST_SCORE) & (ratios >= _LEAST_RATIO)
    share = float((ratios[slow] - 1).sum() / ratios.sum())
    if slow.sum() < _LEAST_SLOW or share < _LEAST_SHARE:
        return None
    at = np.flatnonzero(slow)
    return _Slow(
        at[at < len(without)], chosen[at[at >= len(without)] - len(without)], ratios[slow], share, len(without)
    )


def _in_medians(durations: Float64s) -> Float64s:
    return durations / max(median(durations), 1.0) if len(durations) else durations


def _period(slow: _Slow) -> int:
    """The interval between the slowest steps; 0 if it varies."""
    excess = slow.ratios[: len(slow.unprofiled)] - 1
    if len(excess) <= _LEAST_SLOW:
        return 0
    usual = median(excess[excess >= median(excess)])  # neither many small accidents nor one large is a measure
    alike = slow.unprofiled[excess >= _ALIKE * usual]
    return regular_interval(alike) if len(alike) > _LEAST_SLOW else 0


def _take_most(slow: _Slow) -> bool:
    """Whether the slow steps take most of the time, and not only while the program warms up."""
    is_late = slow.unprofiled >= slow.timed // 2
    return slow.share >= _MOST_OF_TIME and is_late.sum() >= max(_LEAST_SLOW, _LATE * is_late.size)


def _cause(facts: Facts, slow: _Slow) -> tuple[str, Rows]:
    """What takes most of the excess of the slow recorded steps, and its events. For unprofiled ones only page faults
    can tell."""
    excess_ns = facts.steps.duration_ns - facts.steps.median_ns
    for name, wanted in _candidates(facts) if slow.recorded.size else ():
        taken_ns, rows = _per_step(facts, wanted)
        usual_ns = median(taken_ns[facts.steps.measured])
        if (taken_ns[slow.recorded] - usual_ns).sum() >= _EXPLAINS * excess_ns[slow.recorded].sum():
            step = facts.step_of(rows)
            return name, rows[np.isin(step, slow.recorded)]
    return _page_faults(facts, slow.unprofiled), np.zeros(0, dtype=np.int64)


def _what_is_known(facts: Facts, slow: _Slow) -> str:
    """If nothing explains the slow steps: whether they were recorded at all, and how much of the excess is in
    operators."""
    if not slow.recorded.size:
        return "They ran while nothing was recorded: no more is known of them."
    steps = facts.steps
    taken_ns, _ = _per_step(facts, facts.trace.in_categories(Category.OPERATOR, Category.COMPILED_CODE))
    excess_ns = (steps.duration_ns - steps.median_ns)[slow.recorded].sum()
    in_operators = (taken_ns[slow.recorded] - median(taken_ns[steps.measured])).sum() / max(excess_ns, 1)
    share = format_share(min(max(float(in_operators), 0.0), 1.0))
    return f"Of that time in the recorded ones, {share} passes in PyTorch's operators, the rest outside."


def _candidates(facts: Facts) -> Sequence[tuple[str, Bools]]:
    trace = facts.trace
    return (
        ("Python's garbage collections", garbage_collections(facts)),
        ("checkpoints are written", trace.named(SAVE_MARK) & (trace.events.category == Category.HOST_MARK)),
        ("the next batch is waited for", facts.loading),
        ("something is compiled", compiling(trace)),
        ("the GPU's memory is allocated or freed", trace.named(*_ALLOCATOR)),
    )


def _per_step(facts: Facts, wanted: Bools) -> tuple[Float64s, Rows]:
    """The time of the outermost of these events on the main thread, by step; and their rows."""
    events, steps = facts.trace.events, facts.steps
    rows = np.flatnonzero(facts.tree.outermost(wanted) & (events.lane == steps.main_lane))
    step = facts.step_of(rows)
    rows, step = rows[step >= 0], step[step >= 0]
    taken_ns = np.bincount(step, events.duration_ns[rows], len(steps)).astype(np.float64)
    return taken_ns, rows.astype(np.int64)


def _page_faults(facts: Facts, at: Rows) -> str:
    """Empty if new memory does not explain the slow steps."""
    run = facts.run
    faults = np.asarray(run.reference_step_faults[BESIDE_RECORDING:], dtype=np.float64)
    took_ns = plain_steps_ns(facts)
    if not at.size or not run.page_fault_ns or len(faults) != len(took_ns):
        return ""
    more_ns = (faults[at] - median(faults)).sum() * run.page_fault_ns
    explained = more_ns >= _EXPLAINS * (took_ns[at] - median(took_ns)).sum()
    return "the system gives them new memory, page by page" if explained else ""
