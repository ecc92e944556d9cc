"""The steps get longer and longer while the program runs.

What it detects
At least 64 steps of the run, or of those after the recording, in time order and in blocks, of which the fastest step
gets slower from block to block, by a quarter or more in all. The growth may also begin late in the run. The fastest
step of a block is what the program needs: other programs on the machine only make steps slower, and batches of
different sizes come in every block. A jump from one length to another, as when another program starts, is not reported,
unless looks show that some lines got longer and all else did not. If several start one after another, even the fastest
step of a block gets slower. So nothing is told if the main thread, within its own work in the run's steps, was without
the CPU for at least half as long as the steps got longer in all.

Why is this bad?
What grows with the number of steps makes the whole run quadratic: a step that is a tenth longer after 100 steps takes
twice as long after 1,000 and eleven times as long after 10,000. The few steps of a recording do not show it.

Example
    for step in range(steps):
        buffer.append(observe())
        batch = sample(np.stack(buffer))  # copies all that was ever seen

Use instead
    store = np.zeros((steps, *shape))
    for step in range(steps):
        store[step] = observe()
        batch = sample(store[: step + 1])

How the saving is estimated
Looks at the main thread tell what each line takes per step in the first quarter of these steps and in the last. Lines
that got longer by half of the growth or more, while all else grew by much less, are named; then a lack of CPU is no
doubt, as it makes all lines longer. The saving is what they take in these steps beyond their time in the program's
first, as a share of the run: what is gained if they do not grow. Growth is taken to be even, unless it is a jump. If
the lines are those of a hook which a function registers that is no constructor, that place leads: each step may
register it once more.

If the steps after the recording took twice as long as the recorded ones, profkit recorded again: then the steps between
both recordings are the first ones, whatever came later, and what the lines take in these beyond the program's first
step counts too. `profkit watch` records only when the steps take twice as long as at first: then its first steps are
the first ones. All steps of the run that were seen to end count, those long after a recording too. The saving is then
what the lines take beyond their time in the first quarter, or before the growth began. Then most blocks must add to the
growth. If the steps do not grow in the whole run, those near the recording may.

Without such lines there is no estimate. Some growth is meant, as that of a text that is written word by word. The
finding states by how much the steps got longer. Its severity is medium if they got longer by half, else low.

Source of the test: Kendall's rank correlation, M. G. Kendall, A new measure of rank correlation, Biometrika 1938.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np

from profkit.derive.steps.boundaries import measured_numbers
from profkit.patterns import Places
from profkit.patterns.retention.holding import growing_names
from profkit.patterns.whole_run.curves import early_ns
from profkit.patterns.whole_run.phases import STEPS, whole_run
from profkit.patterns.whole_run.timed_lines import TimedLine, TimedLines, lines_in_run, timed_lines
from profkit.rules.base import (
    CallSite,
    CannotLook,
    Facts,
    Kind,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    format_count,
    format_share,
    format_time,
    pick_form,
    rule,
)
from profkit.run.directory import unprofiled_steps
from profkit.run.whole_run import StepSpan
from profkit.savings.step_time import step_time
from profkit.source.remark_kinds import HOOK_REGISTERED
from profkit.trace import Float64s
from profkit.trace.statistics import BLOCKS, fastest_of_blocks, rank_order

_LEAST_STEPS = 64
"""Eight for each block: the fastest of them is seldom one that another process held up."""
_LEAST_ORDER = 0.75
"""Kendall's tau. A single jump in the middle of eight blocks gives 0.57."""
_LEAST_ORDER_OF_LINES = 0.4
"""The same if looks show that some lines got longer and the others did not: other programs make no such difference, so
a jump is the program's. One after six of the eight blocks gives 0.43."""
_LEAST_GROWTH, _MUCH_GROWTH = 0.25, 0.5
"""Processors that get warm, and caches that fill, slow a run by a few per cent within minutes."""

_EXPLAINS = 0.5
"""Of what the steps got longer by in all: a lack of CPU that long leaves less than half to the program."""
_UNCERTAINTY = 0.5
"""Some of the growth may have to stay, and what came before the timed steps and after them is not counted."""
_ADDS = 1 / 20
"""Of the growth: with even growth each of eight blocks adds a seventh."""
_CROWDED = (
    "the steps got longer, but in them the main thread was without the CPU for so long that other programs may be why"
)
_FIX = (
    "Look for what each step adds to and the next goes through again. It may be a list or buffer that is "
    "copied, searched or concatenated as a whole. Or hooks that each step registers and never removes, or a "
    "cache that never hits. Record a later step (`--at-step N`) and compare both recordings with `profkit "
    "compare`: it names the lines that got longer."
)
_HOOKED = " It belongs to a hook, which {file}:{line} registers: once more in each step, it seems."
_LEAST_HELD_BYTES = 4096
"""More in each step. A list of single numbers, such as losses that are kept for a curve, makes no step longer."""


@rule(Kind.OPPORTUNITY, Need.STEP_TIMES)
def growing_step_time(facts: Facts) -> Suspicions:
    """One finding for the whole run."""
    bound_by = step_time(facts).bound_by if facts.has_trace else None
    later_ns = np.array(unprofiled_steps(facts.run, bound_by)[1], dtype=np.float64)
    timed = timed_lines(facts)
    lines = timed.grown() if timed is not None else ()
    if facts.run.earlier_step_ns and timed is not None and lines:
        yield _since_an_earlier_recording(facts, timed)
        return
    if facts.account.steps:
        are_few = len(later_ns) < _LEAST_STEPS
        with nullcontext() if are_few else suppress(CannotLook):
            in_run = list(_in_run(facts))
            yield from in_run
            if in_run or are_few:
                return
    if len(later_ns) < _LEAST_STEPS:
        raise CannotLook(f"fewer than {_LEAST_STEPS} steps were timed after the recording, too few to tell growth")
    yield from _behind_the_recording(facts, later_ns, timed)


def _behind_the_recording(facts: Facts, later_ns: Float64s, timed: TimedLines | None) -> Suspicions:
    """Each of these steps was timed."""
    lines, fastest_ns = timed.grown() if timed is not None else (), fastest_of_blocks(later_ns)
    first_ns, last_ns = fastest_ns[:2].mean(), fastest_ns[-2:].mean()
    growth = float(last_ns / max(first_ns, 1.0)) - 1
    order = rank_order(fastest_ns)
    if growth < _LEAST_GROWTH or order < (_LEAST_ORDER_OF_LINES if lines else _LEAST_ORDER):
        return
    lacked_ns = 0 if lines else _without_cpu_ns(facts)
    if lacked_ns and lacked_ns >= _EXPLAINS * float((later_ns - first_ns).clip(0).sum()):
        raise CannotLook(_CROWDED)
    names = [name for name in growing_names(facts) if name.more_bytes >= _LEAST_HELD_BYTES]
    if lines:  # what only grows beside them makes no step longer
        names = [name for name in names if any(_last_part(name.path) in line.site.source for line in lines)]
    held, hold = " and ".join(f"`{name.path}`" for name in names[:2]), pick_form(len(names[:2]), "holds", "hold")
    yield Suspicion(
        message=f"Steps get {format_share(growth)} longer within {len(later_ns):,} steps after the recording: the "
        f"fastest went from {format_time(first_ns)} to {format_time(last_ns)}."
        + (_tell(facts, lines) if lines else "")
        + (f" Meanwhile {held} {hold} more and more." if held else ""),
        fix=_FIX,
        confidence=0.7,
        count=1,
        places=Places.of_sites(dict.fromkeys([*_lines_to_change(facts, lines), *(name.site for name in names)])),
        run_ns=_grown_ns(facts, timed, order >= _LEAST_ORDER),
        run_uncertainty=_UNCERTAINTY,
        severity=Severity.MEDIUM if growth >= _MUCH_GROWTH and order >= _LEAST_ORDER else Severity.LOW,
        evidence={
            "steps_after_the_recording": len(later_ns),
            "fastest_ns_at_first": int(first_ns),
            "fastest_ns_at_last": int(last_ns),
        },
    )


def _in_run(facts: Facts) -> Suspicions:
    """Of all steps whose ends were seen it is known how long they took, a few together."""
    every = facts.account.steps
    if sum(span.steps for span in every) < _LEAST_STEPS or len(every) < 2 * BLOCKS:
        raise CannotLook(f"fewer than {_LEAST_STEPS} steps were timed, or for less than two seconds")
    since = _growing_since(every)
    if since is None:
        return
    spans, timed = every[since:], lines_in_run(facts, since)
    fastest_ns = _fastest_of(spans)
    first_ns, last_ns, steps = fastest_ns[:2].mean(), fastest_ns[-2:].mean(), sum(span.steps for span in spans)
    growth, lines = float(last_ns / max(first_ns, 1.0)) - 1, timed.grown() if timed is not None else ()
    how = f"the fastest went from {format_time(first_ns)} to {format_time(last_ns)}."
    if timed is not None and lines:  # all figures are means then, like those of the lines
        growth = timed.last_ns / max(timed.first_ns, 1.0) - 1
        how = f"{_of_quarters(timed, since)}{_tell(facts, lines)}"
    grown_ns = sum(max(0.0, span.took_ns - first_ns * span.steps) for span in spans)
    if not lines and _without_cpu_ns(facts) >= _EXPLAINS * grown_ns:
        raise CannotLook(_CROWDED)
    yield Suspicion(
        message=f"Steps get {format_share(growth)} longer within {steps:,} steps of the run{_begun(facts, since)}: "
        f"{how}",
        fix=_FIX,
        confidence=0.7,
        count=1,
        places=Places.of_sites(_lines_to_change(facts, lines)),
        run_ns=int(sum(max(0.0, line.timed_ns - line.first_ns * steps) for line in lines)),
        run_uncertainty=_UNCERTAINTY,
        severity=Severity.MEDIUM if growth >= _MUCH_GROWTH else Severity.LOW,
        evidence={"steps_in_run": steps, "fastest_ns_at_first": int(first_ns), "fastest_ns_at_last": int(last_ns)},
    )


def _growing_since(spans: Sequence[StepSpan]) -> int | None:
    """The first span from which on the steps grow to the end; None if they do not. Eight beginnings are tried, and of
    what follows the first that grows, blocks before the growth are left out."""
    for since in range(0, len(spans), max(1, len(spans) // BLOCKS)):
        rest = spans[since:]
        if len(rest) < 2 * BLOCKS or sum(span.steps for span in rest) < _LEAST_STEPS:
            return None
        fastest_ns = _fastest_of(rest)
        growth = float(fastest_ns[-2:].mean() / max(fastest_ns[:2].mean(), 1.0)) - 1
        if growth >= _LEAST_GROWTH and rank_order(fastest_ns) >= _LEAST_ORDER and _goes_on(fastest_ns):
            flat = np.flatnonzero(fastest_ns <= fastest_ns[0] + _ADDS * np.ptp(fastest_ns)).max()
            return since + int(np.array_split(np.arange(len(rest)), BLOCKS)[flat][0])
    return None


def _begun(facts: Facts, since: int) -> str:
    """When it began, if the steps of before do not get longer."""
    account = facts.account
    at_ns = early_ns(account) + account.steps[since - 1].until_ns
    return f", from {format_time(at_ns)} after its start on" if since else ""


def _of_quarters(timed: TimedLines, since: int) -> str:
    first = "those before took" if since else "those of the first quarter took"
    return f"{first} {format_time(timed.first_ns)}, the last ones {format_time(timed.last_ns)}."


def _goes_on(fastest_ns: Float64s) -> bool:
    """Whether most blocks add to the growth. A run that goes through a few sizes, as of its images, has jumps."""
    added = np.diff(fastest_ns) >= _ADDS * (fastest_ns.max() - fastest_ns.min())
    return bool(added.sum() > len(added) / 2)


def _last_part(path: str) -> str:
    """``items`` of ``module.queue.items[0]``: by what name a line elsewhere may use it."""
    return path.rpartition(".")[2].partition("[")[0]


def _fastest_of(spans: Sequence[StepSpan]) -> Float64s:
    return fastest_of_blocks(np.array([span.fastest_ns for span in spans], dtype=np.float64))


def _since_an_earlier_recording(facts: Facts, timed: TimedLines) -> Suspicion:
    """The steps got so much longer that profkit recorded again: what they took before that and at last."""
    lines, growth = timed.grown(), timed.last_ns / max(timed.first_ns, 1.0) - 1
    timed_ns = np.array([*facts.run.earlier_step_ns, *facts.run.later_step_ns], dtype=np.float64)
    is_even = len(timed_ns) >= _LEAST_STEPS and rank_order(fastest_of_blocks(timed_ns)) >= _LEAST_ORDER
    return Suspicion(
        message=f"Steps got {format_share(growth)} longer: earlier ones took {format_time(timed.first_ns)}, the last "
        f"ones {format_time(timed.last_ns)}.{_tell(facts, lines)}",
        fix=_FIX,
        confidence=0.7,
        count=1,
        places=Places.of_sites(_lines_to_change(facts, lines)),
        run_ns=_grown_ns(facts, timed, is_even),
        run_uncertainty=_UNCERTAINTY,
        severity=Severity.MEDIUM if growth >= _MUCH_GROWTH else Severity.LOW,
        evidence={
            "steps_after_the_recording": timed.steps,
            "step_ns_at_first": int(timed.first_ns),
            "step_ns_at_last": int(timed.last_ns),
        },
    )


def _lines_to_change(facts: Facts, lines: Sequence[TimedLine]) -> list[CallSite]:
    return [*_hooks_around(facts, lines), *(line.site for line in lines)]


def _hooks_around(facts: Facts, lines: Sequence[TimedLine]) -> list[CallSite]:
    """Where the hook is registered that the first of the lines belongs to, if that is no constructor."""
    return [
        remark.site
        for remark in facts.run.remarks
        for line in lines[:1]
        if remark.kind == HOOK_REGISTERED
        and remark.site.file == line.site.file
        and remark.used_at <= line.site.line <= remark.until
    ]


def _grown_ns(facts: Facts, timed: TimedLines | None, is_even: bool) -> int:
    """What the lines take in the timed steps because they grew: with even growth since the program's first step, else
    since the first of these alone."""
    if timed is None:
        return 0
    if not is_even:
        return int(sum(max(0.0, line.timed_ns - line.first_ns * timed.steps) for line in timed.grown()))
    numbers, earlier = measured_numbers(facts.trace, facts.steps), len(facts.run.earlier_step_ns)
    recorded = numbers[1] + 1 if numbers is not None else 0  # the second recording counts anew, as the first did
    before, between = (recorded, recorded) if recorded <= earlier or not earlier else (0, recorded - earlier)
    return int(sum(line.grown_ns(timed.steps, before, earlier, between) for line in timed.grown()))


def _tell(facts: Facts, lines: Sequence[TimedLine]) -> str:
    """What the first of the lines takes in a step at first and at last, and what others do that got longer."""
    first, *others = lines
    also = f", and at {format_count(len(others), 'other line')}" if others else ""
    by = format_time(sum(line.growth_ns for line in lines))
    return (
        f" {by} of that is at this line{also}, as looks at the main thread show: it went from "
        f"{format_time(first.first_ns)} to {format_time(first.last_ns)} a step."
        + "".join(_HOOKED.format(file=Path(hook.file).name, line=hook.line) for hook in _hooks_around(facts, lines)[:1])
    )


def _without_cpu_ns(facts: Facts) -> int:
    """How long the main thread was without the CPU in the run's steps, apart from waiting for data. 0 if that is
    unknown, or if it may have waited for a device there."""
    has_device = facts.account.choice.was_initialised or (facts.has_trace and facts.device.present)
    whole = None if has_device else whole_run(facts)
    steps = next((phase for phase in whole.phases if phase.label == STEPS), None) if whole else None
    return max(0, steps.time_ns - steps.cpu_ns) if steps and steps.cpu_ns and steps.cpu_ns > 0 else 0
