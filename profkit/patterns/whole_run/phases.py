"""The phases of a run: which of the times that the main thread was seen at some lines belong together.

A stack that shows what library code does there belongs to that: a checkpoint, the network, a batch that is awaited. A
stack without any is told from the loop that trains: within that loop it is a step's own Python, outside it lies before
the first step, after the last, or between epochs. Where the text shows an evaluation, all below it is one. Other work
without gradients outside that loop is told as just that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import repeat, takewhile
from types import MappingProxyType

import numpy as np
from msgspec import Struct, structs

from profkit.derive.facts import Facts, derived_once
from profkit.findings.values import Location, Phase, PhaseLine, WholeRun
from profkit.patterns.loops.located import sites_of_located_step
from profkit.patterns.whole_run.curves import curves_of, early_ns, recorded_within, steps_in_run
from profkit.run.directory import CallSite
from profkit.run.whole_run import PHASE_OF, PROGRAM_PHASE, Place, RunAccount, StackActivity, StackTime
from profkit.trace.statistics import median

START = "starting Python"
IMPORTS = PHASE_OF[StackActivity.IMPORTING]
LOADING = PHASE_OF[StackActivity.LOADING]
BEFORE = "before the first step"
COMPILING = PHASE_OF[StackActivity.COMPILING]
STEPS = "steps"
DATA = PHASE_OF[StackActivity.DATA]
EVALUATION = PHASE_OF[StackActivity.EVALUATING]
UNGRADED = "work without gradients"
"""Such as a rollout: neither does the text call it an evaluation, nor is it within the loop that trains."""
BETWEEN = "between the epochs"
SAVING = PHASE_OF[StackActivity.SAVING]
NETWORK = PHASE_OF[StackActivity.NETWORK]
COPYING = PHASE_OF[StackActivity.COPYING]
CHILD = PHASE_OF[StackActivity.CHILD]
"""The program waits for a command that it started."""
ASKING = PHASE_OF[StackActivity.ASKING]
LOGGING = PHASE_OF[StackActivity.LOGGING]
COLLECTING = PHASE_OF[StackActivity.COLLECTING]
"""Python's own: one that the program asks for is work of its line."""
AFTER = "after the last step"
PROFKIT = PHASE_OF[StackActivity.PROFKIT]
PROGRAM = PROGRAM_PHASE
"""Where no step was seen, all that shows nothing else."""
PHASES = (
    *(START, IMPORTS, LOADING, BEFORE, COMPILING, STEPS, DATA, EVALUATION, UNGRADED, BETWEEN),
    *(SAVING, NETWORK, COPYING, CHILD, ASKING, LOGGING, COLLECTING, AFTER, PROGRAM, PROFKIT),
)
"""In the order in which a run has them."""
_ONCE = (START, IMPORTS, BEFORE)
OUTSIDE_STEPS = (EVALUATION, UNGRADED, BETWEEN, SAVING, COPYING, CHILD, ASKING, LOGGING)
"""The phases of a run that come again and again between its steps."""
_OF_ACTIVITY: Mapping[str, str] = MappingProxyType({activity.value: phase for activity, phase in PHASE_OF.items()})
_TRAINING = (StackActivity.UPDATE.value, StackActivity.BACKWARD.value)
_PLAIN = (StackActivity.OTHER.value, StackActivity.FORWARD.value)
_WAITS = (StackActivity.NETWORK.value, StackActivity.CHILD.value, StackActivity.ASKING.value)
_MOST_LINES = 5
_MOSTLY = 0.9
"""Of the time at a line: then each visit of the line is a visit of what it mostly does."""
MOST_COLUMNS = 1200
"""Twice as many as a watch makes: a file from anybody may claim any number."""
_LOOP_SHARE = 0.5
"""The loop that trains has at least this share of the time of backward passes and updates. A program with two such
loops, a teacher's and a student's, has at most one of them."""

_INNER_SHARE = 0.25
"""Of the time of a line that calls others: less is no place to begin."""
_MOST_INNER = 2
"""More lines tell no better where to begin."""
_INNER_MOST = 0.5
"""Of that time: lines that together have less do not tell where it goes."""

_ALIKE = 1.25
"""Times the operators of a measured step. An evaluation that is worth a word has more of its own."""

_Loop = tuple[str, str, int]
"""File, function, first line."""


@derived_once
def whole_run(facts: Facts) -> WholeRun | None:
    """The account of the run; None if it was not watched."""
    if not facts.account.stacks:
        return None
    whole = account_for(facts.account, phase_labels(facts))
    phases = tuple(replace(phase, in_steps=_is_in_steps(facts, phase)) for phase in whole.phases)
    return replace(whole, phases=phases, recorded_ns=recorded_within(facts), steps=steps_in_run(facts))


def recurring_ns(whole: WholeRun) -> int:
    """The program's time without what comes once, before its first step: of a run of seconds that tries a program out
    it takes most, of one of hours nothing."""
    return whole.programs_ns - sum(phase.time_ns for phase in whole.phases if phase.label in _ONCE)


def _is_in_steps(facts: Facts, phase: Phase) -> bool:
    """Whether the line that takes most of the phase ran in the located step, and the measured steps have about as many
    operators: what comes once in an epoch may have fallen into the located step by chance."""
    if phase.label not in (EVALUATION, UNGRADED) or not phase.lines or facts.is_part or not facts.has_trace:
        return False
    steps, rows = facts.steps, facts.operators.rows
    if not steps.located.any() or steps.located.all():
        return False
    index = facts.step_of(rows)
    count = np.bincount(index[index >= 0], minlength=len(steps))
    located, measured = (median(count[which]) for which in (steps.located, steps.measured))
    ran = {(site.file, site.line) for site in sites_of_located_step(facts)}
    at = phase.lines[0].location
    return (at.file, at.line) in ran and located <= _ALIKE * measured


@derived_once
def phase_labels(facts: Facts) -> list[str]:
    """The phase of each stack of the account."""
    return label_stacks(facts.account)


def account_for(account: RunAccount, labels: list[str]) -> WholeRun:
    """The phases of a run that was watched, given that of each stack. They add up to the time from the start of the
    process to the last look."""
    before_ns = early_ns(account)
    seen_ns = Counter[str]()
    for stack, label in zip(account.stacks, labels, strict=True):
        seen_ns[label] += stack.time_ns
    whole = WholeRun(max(before_ns + seen_ns.total(), 1), (), seen_ns[PROFKIT], account.is_over, account.column_ns)
    phases = [Phase(START, before_ns, before_ns / whole.programs_ns)]  # of no length if only a part was watched
    for label in PHASES[1:]:
        if time_ns := seen_ns[label]:
            stacks = [stack for stack, found in zip(account.stacks, labels, strict=True) if found == label]
            share = time_ns / (whole.time_ns if label == PROFKIT else whole.programs_ns)
            cpu_ns = sum(stack.cpu_ns for stack in stacks)
            phases.append(Phase(label, time_ns, share, cpu_ns, _lines(account, stacks, label)))
    band = tuple(_band(account, phases, labels))
    return replace(whole, phases=tuple(phases), band=band, curves=curves_of(account))


class Repeated(Struct, frozen=True):
    """What one line of the program took while the training waited for it: the time, and how often at least. ``inner``
    are the few lines below it, of the functions that it calls, at which most of that time passes. ``before_ns`` and
    ``after_ns`` are what it took before the first step and after the last."""

    site: CallSite
    time_ns: int
    visits: int
    inner: tuple[CallSite, ...] = ()
    before_ns: int = 0
    after_ns: int = 0


def repeated_between_steps(facts: Facts, label: str) -> list[Repeated]:
    """The lines of a phase that the training waited for at least twice, the longest first. What came before the first
    step or after the last does not count."""
    account, labels = facts.account, phase_labels(facts)
    trained = [stack for stack, found in zip(account.stacks, labels, strict=True) if found == STEPS]
    if not trained or account.column_ns <= 0:
        return []
    first = min(stack.first_ns for stack in trained) // account.column_ns
    last = max(stack.last_ns for stack in trained) // account.column_ns
    ways = [stack.places for stack in trained]
    stacks_of: dict[int, set[int]] = {}
    for number, (stack, found) in enumerate(zip(account.stacks, labels, strict=True)):
        line = _line_between(account, stack, label, ways)
        if found == label and line is not None:
            stacks_of.setdefault(line, set()).add(number)
    repeated = [_repeated(account, line, numbers, (first, last)) for line, numbers in stacks_of.items()]
    return sorted((line for line in repeated if line.visits > 1), key=lambda line: -line.time_ns)


def _repeated(account: RunAccount, line: int, numbers: set[int], within: tuple[int, int]) -> Repeated:
    """The time and the visits of these stacks in the columns from one to another. Columns in a row are one visit,
    unless a single stack was seen to be left and entered again more often, or the line was and does little else: a
    column of a long run may hold several epochs."""
    every = [sum(time for at, time in column if at in numbers) for column in account.columns]
    times = every[within[0] : within[1] + 1]
    runs = sum(1 for before, now in zip([0, *times], times, strict=False) if now and not before)
    alone = account.stacks[next(iter(numbers))].visits if len(numbers) == 1 and runs else 0
    at_line = sum(stack.time_ns for stack in account.stacks if line in stack.places)
    own = sum(account.stacks[number].time_ns for number in numbers)
    entries = account.places[line].entries if runs and own >= _MOSTLY * at_line else 0
    visits = max(runs, alone - 1, entries - 1)
    before_ns, after_ns = sum(every[: within[0]]), sum(every[within[1] + 1 :])
    return Repeated(account.places[line].site, sum(times), visits, _inner(account, line, numbers), before_ns, after_ns)


def _inner(account: RunAccount, line: int, numbers: Iterable[int]) -> tuple[CallSite, ...]:
    """The innermost lines below this one with a notable part of the time of these stacks, the longest first; none if
    most of it passes elsewhere."""
    times = Counter[int]()
    for number in numbers:
        times[_known(account, account.stacks[number])[-1]] += account.stacks[number].time_ns
    least_ns = _INNER_SHARE * times.total()
    chosen = [(at, time) for at, time in times.most_common() if at != line and time >= least_ns][:_MOST_INNER]
    is_most = sum(time for _, time in chosen) >= _INNER_MOST * times.total()
    return tuple(account.places[at].site for at, _ in chosen) if is_most else ()


def _line_between(account: RunAccount, stack: StackTime, label: str, ways: Iterable[tuple[int, ...]]) -> int | None:
    """The line that stands for the stack. Work between the epochs is told where it leaves the ways to the training:
    at the line beside the training that calls it. What a library does is told at the program's innermost line."""
    if label != BETWEEN:
        return _line_of(account, stack, label)
    shared = max(_shared(stack.places, way) for way in ways)
    known = _known(account, stack)
    return known[min(shared, len(known) - 1)] if known else None


def _shared(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """How many places both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def label_stacks(account: RunAccount) -> list[str]:
    """A phase for each stack of the account."""
    account = structs.replace(account, stacks=_with_waits(tuple(_without_requests(account))))
    evaluating = [any(place.evaluates for place in places_of(account, stack)) for stack in account.stacks]
    ungraded = [known or _is_ungraded(account, stack) for stack, known in zip(account.stacks, evaluating, strict=True)]
    training = _training_stacks(account, ungraded)
    if not training and any(ungraded):  # a program that only evaluates: its evaluation is what it steps through
        training = [stack for stack, is_part in zip(account.stacks, ungraded, strict=True) if is_part]
        evaluating = [False] * len(evaluating)
        training = _of_their_loop(account, training)
    if not training:
        return [
            _OF_ACTIVITY.get(stack.activity) or (EVALUATION if evaluates else PROGRAM)
            for stack, evaluates in zip(account.stacks, evaluating, strict=True)
        ]
    loops = _training_loops(account, training)
    same = frozenset(stack.places for stack in training if stack.places and not loops)
    first_ns = min(stack.first_ns for stack in training)
    last_ns = max(stack.last_ns for stack in training)
    return [
        STEPS
        if stack.activity in _PLAIN and stack.places in same  # a library's own loop, between its passes
        else _label(account, stack, evaluates, loops, (first_ns, last_ns))
        for stack, evaluates in zip(account.stacks, evaluating, strict=True)
    ]


def _without_requests(account: RunAccount) -> Iterator[StackTime]:
    """A collection that a line asks for is that line's work, as all that it does."""
    for stack in account.stacks:
        source = account.places[known[-1]].site.source if (known := _known(account, stack)) else ""
        is_asked = stack.activity == StackActivity.COLLECTING.value and ".collect(" in source
        yield structs.replace(stack, activity=StackActivity.OTHER.value) if is_asked else stack


def _with_waits(stacks: tuple[StackTime, ...]) -> tuple[StackTime, ...]:
    """A line that was mostly seen to wait for a socket, another program or the terminal does that in its other looks,
    too: while the kernel copies what it sends, it does not sleep."""
    times = Counter[tuple[tuple[int, ...], str]]()
    for stack in stacks:
        times[stack.places, stack.activity] += stack.time_ns
    other = StackActivity.OTHER.value
    mostly = {
        places: activity
        for (places, activity), time_ns in times.items()
        if activity in _WAITS and time_ns > times[places, other]
    }
    return tuple(
        structs.replace(stack, activity=mostly[stack.places])
        if stack.activity == other and stack.places in mostly
        else stack
        for stack in stacks
    )


def _training_stacks(account: RunAccount, ungraded: Iterable[bool]) -> list[StackTime]:
    """Those of backward passes and updates, and of lines around a call of ``backward``; if there are none, those of the
    model outside of evaluations and other work without gradients."""
    training, calling = list[StackTime](), list[StackTime]()
    for stack, is_ungraded in zip(account.stacks, ungraded, strict=True):
        if is_ungraded:
            continue
        if stack.activity in _TRAINING or (stack.activity in _PLAIN and _trains(account, stack)):
            training.append(stack)
        elif stack.activity == StackActivity.FORWARD.value:
            calling.append(stack)
    return training or calling


def _is_ungraded(account: RunAccount, stack: StackTime) -> bool:
    return any(place.without_gradients for place in places_of(account, stack))


def is_training(account: RunAccount, stack: StackTime) -> bool:
    """Whether a backward pass or an update was seen there, or a line of the loop around one."""
    return stack.activity in _TRAINING or _trains(account, stack)


def _trains(account: RunAccount, stack: StackTime) -> bool:
    return any(place.trains for place in places_of(account, stack))


def _known(account: RunAccount, stack: StackTime) -> list[int]:
    """The numbers of the stack's places. The file may come from anybody: it may name places that it lacks."""
    return [at for at in stack.places if 0 <= at < len(account.places)]


def places_of(account: RunAccount, stack: StackTime) -> list[Place]:
    """The known places of the stack, the caller first."""
    return [account.places[at] for at in _known(account, stack)]


def _label(
    account: RunAccount, stack: StackTime, evaluates: bool, loops: frozenset[_Loop], between_ns: tuple[int, int]
) -> str:
    is_evaluation = evaluates and stack.last_ns > between_ns[0] and stack.activity != StackActivity.PROFKIT.value
    if known := EVALUATION if is_evaluation else _OF_ACTIVITY.get(stack.activity):
        return known
    if stack.activity in _TRAINING or _trains(account, stack) or not loops.isdisjoint(_loops_of(account, stack)):
        return STEPS
    if _is_ungraded(account, stack) and between_ns[0] < stack.last_ns and stack.first_ns < between_ns[1]:
        return UNGRADED
    if stack.activity == StackActivity.FORWARD.value and stack.last_ns > between_ns[0]:
        return STEPS
    return BEFORE if stack.last_ns <= between_ns[0] else AFTER if stack.first_ns >= between_ns[1] else BETWEEN


def _training_loops(account: RunAccount, training: list[StackTime]) -> frozenset[_Loop]:
    """The innermost loop in which most of the training is seen; empty if that is in no loop."""
    times, depths = Counter[_Loop](), dict[_Loop, int]()
    for stack in training:
        for depth, loop in enumerate(_loops_of(account, stack)):
            times[loop] += stack.time_ns
            depths[loop] = max(depths.get(loop, 0), depth)
    whole_ns = sum(stack.time_ns for stack in training)
    likely = [loop for loop, time_ns in times.items() if time_ns >= _LOOP_SHARE * whole_ns]
    return frozenset([max(likely, key=lambda loop: (depths[loop], times[loop]))] if likely else ())


def _of_their_loop(account: RunAccount, stepping: list[StackTime]) -> list[StackTime]:
    """Those in the loop with most of them: a function that evaluates also reads the model before it. All, if that is
    in no loop."""
    loops = _training_loops(account, stepping)
    return [stack for stack in stepping if not loops.isdisjoint(_loops_of(account, stack))] or stepping


def _loops_of(account: RunAccount, stack: StackTime) -> list[_Loop]:
    """The innermost loop of each function on the stack, the caller's first."""
    return [(place.site.file, place.site.function, place.loop) for place in places_of(account, stack) if place.loop]


def _lines(account: RunAccount, stacks: Iterable[StackTime], label: str) -> tuple[PhaseLine, ...]:
    """The lines with most of a phase's time: where the program makes the call that the phase consists of. An evaluation
    is called by the last line before its text begins; the others are their innermost line."""
    times = Counter[int]()
    for stack in stacks:
        if (line := _line_of(account, stack, label)) is not None:
            times[line] += stack.time_ns
    return tuple(
        PhaseLine(Location.of(account.places[at].site), time_ns) for at, time_ns in times.most_common(_MOST_LINES)
    )


def _line_of(account: RunAccount, stack: StackTime, label: str) -> int | None:
    """The place that stands for the stack in this phase; None if it has none."""
    known = _known(account, stack)
    inner = [depth for depth, at in enumerate(known) if account.places[at].evaluates]
    if label == EVALUATION and inner:
        return known[max(0, inner[0] - 1)]
    return known[-1] if known else None


def _band(account: RunAccount, phases: list[Phase], labels: list[str]) -> Iterator[int]:
    """The number of the phase with most of each column; of the one before where nothing was seen."""
    if account.column_ns <= 0:
        return
    number_of = {phase.label: number for number, phase in enumerate(phases)}
    yield from repeat(0, min(round(phases[0].time_ns / account.column_ns), MOST_COLUMNS))
    last = 0
    for column in account.columns[:MOST_COLUMNS]:
        times = Counter[int]()
        for at, time_ns in column:
            if 0 <= at < len(labels) and labels[at] in number_of:
                times[number_of[labels[at]]] += time_ns
        last = times.most_common(1)[0][0] if times else last
        yield last
