"""What a run does before its first step and after its last: which function or import takes how long there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.patterns.whole_run.phases import (
    AFTER,
    ASKING,
    BEFORE,
    CHILD,
    COMPILING,
    COPYING,
    DATA,
    IMPORTS,
    LOADING,
    NETWORK,
    STEPS,
    is_training,
    phase_labels,
)
from profkit.run.directory import CallSite
from profkit.run.whole_run import RunAccount, StackTime

_OF_START = (IMPORTS, LOADING, BEFORE, NETWORK, COPYING, CHILD, DATA)
_OF_TAIL = (AFTER, NETWORK, COPYING, CHILD, ASKING)
"""Checkpoints and evaluations after the last step are what a training is for."""
_ANYWHERE = "<module>"
"""A module's own lines have nothing in common."""


class RunPart(Struct, frozen=True):
    """A function or a line, what it does there, and its time on the wall and on the CPU. ``site`` is its line with most
    of that time."""

    label: str
    site: CallSite
    time_ns: int
    cpu_ns: int


class Outside(Struct, frozen=True):
    """The parts before the first step and after the last, the longest first. ``trains`` says that the steps have
    backward passes or updates."""

    start: tuple[RunPart, ...]
    tail: tuple[RunPart, ...]
    trains: bool


def steps_within(facts: Facts) -> tuple[int, int] | None:
    """The first and the last look at a step, in nanoseconds since the beginning of the watch; None if there is none."""
    steps = _steps(facts)
    return (min(stack.first_ns for stack in steps), max(stack.last_ns for stack in steps)) if steps else None


def _steps(facts: Facts) -> list[StackTime]:
    pairs = zip(facts.account.stacks, phase_labels(facts), strict=True)
    return [stack for stack, label in pairs if label == STEPS]


@derived_once
def outside_steps(facts: Facts) -> Outside | None:
    """None if no steps were seen."""
    account, labels, within = facts.account, phase_labels(facts), steps_within(facts)
    if within is None or account.column_ns <= 0:
        return None
    first, last = within
    start, tail = list[tuple[int, int]](), list[tuple[int, int]]()
    for number, (stack, label) in enumerate(zip(account.stacks, labels, strict=True)):
        if label in _OF_START:
            start.append((number, _time_within(account, number, stack, until_ns=first)))
        if label == COMPILING:
            start.append((number, stack.time_ns))
        if label in _OF_TAIL:
            tail.append((number, _time_within(account, number, stack, from_ns=last)))
    trains = any(is_training(account, stack) for stack in _steps(facts))
    return Outside(tuple(_parts(account, labels, start)), tuple(_parts(account, labels, tail)), trains)


def _time_within(
    account: RunAccount, number: int, stack: StackTime, from_ns: int = -1, until_ns: int | None = None
) -> int:
    """The stack's time from one look to another, or to the end: all of it, or that of the columns which lie between
    them whole."""
    if from_ns <= stack.first_ns and (until_ns is None or stack.last_ns <= until_ns):
        return stack.time_ns
    until_at = None if until_ns is None else max(0, until_ns // account.column_ns)
    columns = account.columns[max(0, from_ns // account.column_ns + 1) : until_at]
    return sum(time_ns for column in columns for at, time_ns in column if at == number)


def _parts(account: RunAccount, labels: list[str], times: Iterable[tuple[int, int]]) -> list[RunPart]:
    whole_ns, cpu_ns = Counter[tuple[str, str, str]](), Counter[tuple[str, str, str]]()
    lines: dict[tuple[str, str, str], Counter[int]] = {}
    for number, time_ns in times:
        stack = account.stacks[number]
        known = [at for at in stack.places if 0 <= at < len(account.places)]
        if not known or time_ns <= 0:
            continue
        site = account.places[known[-1]].site
        inner = str(site.line) if site.function == _ANYWHERE or labels[number] != BEFORE else site.function
        key = labels[number], site.file, inner
        whole_ns[key] += time_ns
        cpu_ns[key] += stack.cpu_ns * time_ns // max(stack.time_ns, 1)
        lines.setdefault(key, Counter())[known[-1]] += time_ns
    return [
        RunPart(key[0], account.places[lines[key].most_common(1)[0][0]].site, time_ns, cpu_ns[key])
        for key, time_ns in whole_ns.most_common()
    ]
