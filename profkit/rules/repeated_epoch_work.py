"""Between the epochs the program does the same work again and again, for a notable part of the run.

What it detects
Lines outside the loop that trains which run at least twice between the first step and the last, and take a tenth or
more of the run, without what it does before its first step: shuffling in Python, reading a file again, building
batches or encoding text anew. Evaluations,
checkpoints, logging and waits for data have phases of their own and are not counted. But a sampler's or a dataset's
own line counts that makes the first batch of an epoch late: it is mostly seen in steps much longer than the others.
profkit looks at the main thread during the whole run for this, since the recorded steps never include it. If the looks
show that a line beside the loop runs in usual steps as well, the finding says so: then the loop is only a part of the
step. Lines of the functions that it calls are named as well if most of the time passes there.

Why is this bad?
No step contains this time, so a profile of a few steps does not show it, and a GPU idles all the while. What depends on
nothing that training changes needs to be done only once.

Example
    for epoch in range(epochs):
        rows = [tokenize(line) for line in open("corpus.txt")]
        for batch in batches(rows):
            train_step(batch)

Use instead
    rows = [tokenize(line) for line in open("corpus.txt")]
    for epoch in range(epochs):
        for batch in batches(rows):
            train_step(batch)

How the saving is estimated
All of that time but one of the visits, unless there was one before the first step: what stays if the work is done once.
It is a bound, because some of the work may have to be done anew, such as a new order of the samples. So this is an
opportunity. Of a line that runs in each step all its time counts, and the severity is medium from a fifth of the run
on, else low.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from profkit.findings.values import WholeRun
from profkit.patterns import Places
from profkit.patterns.whole_run.phases import BETWEEN, DATA, Repeated, recurring_ns, repeated_between_steps, whole_run
from profkit.patterns.whole_run.timed_lines import TimedLine, TimedLines, timed_lines
from profkit.rules.base import (
    HIGH_FROM,
    CallSite,
    Facts,
    Kind,
    Location,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    When,
    format_count,
    format_share,
    format_time,
    rule,
)

_LEAST_SHARE = HIGH_FROM
"""Of the run without its start. Less is ordinary bookkeeping."""
_LEAST_NS = 100_000_000
"""In a run of seconds, less may be chance."""
_NOTABLY_MORE = 1.5
"""Times the share of the run: then that of the rest is worth a word."""
_UNCERTAINTY = 0.5
"""Part of the work may have to stay."""
_MOSTLY = 0.5
"""Of a line's time: work of an epoch's start or end is mostly seen in long steps, that of a step in all of them."""
_ONE = 0.5
"""Of a usual visit: so much before the first step is one."""
_MUCH = 0.2
"""Of the run, taken in each step: as of other time outside of PyTorch (`unattributed-time`)."""
_FIX = (
    "Do once, before the first epoch, what training does not change. Of the rest, such as an evaluation, let NumPy or "
    "PyTorch do what Python does element by element. Leave data that is made anew to a DataLoader's workers."
)


@rule(Kind.OPPORTUNITY, Need.WHOLE_RUN)
def repeated_epoch_work(facts: Facts) -> Suspicions:
    """Each line beside the training loop is a finding."""
    whole = whole_run(facts)
    if whole is None:
        return
    timed, least_ns = timed_lines(facts), max(_LEAST_SHARE * recurring_ns(whole), _LEAST_NS)
    if timed is not None:
        yield from _late_starts(timed, whole, least_ns)
    for found in repeated_between_steps(facts, BETWEEN):
        if found.time_ns < least_ns:
            continue
        if timed is not None and _is_in_usual_steps(timed, found):
            yield _suspect_in_steps(found, whole)
        else:
            yield _suspect_between(found, whole)


def _takes(time_ns: int, whole: WholeRun, lines: int = 1) -> str:
    """What one line or several take of the run and, if much of that is the program's start, of the rest."""
    share, of_rest = time_ns / whole.programs_ns, time_ns / recurring_ns(whole)
    rest = f", and {format_share(of_rest)} of what follows its start" if of_rest >= _NOTABLY_MORE * share else ""
    who = "This line takes" if lines == 1 else f"This line and {format_count(lines - 1, 'other')} take"
    return f"{who} {format_time(time_ns)}, {format_share(share)} of the run{rest}:"


def _suspect_between(found: Repeated, whole: WholeRun) -> Suspicion:
    return _suspect(
        f"{_takes(found.time_ns, whole)} it runs at least {found.visits} times between two runs of the loop that "
        f"trains.{_mostly_at(found)}",
        _FIX,
        [found.site, *found.inner],
        _spared_ns(found),
        {"between_ns_in_run": found.time_ns, "visits_seen": found.visits},
    )


def _spared_ns(found: Repeated) -> int:
    """One visit has to stay. If there was one before the first step, that is it."""
    one_ns = found.time_ns // found.visits
    return found.time_ns if found.before_ns >= _ONE * one_ns else found.time_ns - one_ns


def _mostly_at(found: Repeated) -> str:
    """Where it goes, if that is in functions that the line calls."""
    lines = " and ".join(Location.of(site).short for site in found.inner)
    return f" Most of that passes at {lines}." if found.inner else ""


def _suspect(
    message: str,
    fix: str,
    sites: Sequence[CallSite],
    spared_ns: int,
    evidence: Mapping[str, int],
    severity: Severity = Severity.MEDIUM,
) -> Suspicion:
    return Suspicion(
        message=message,
        fix=fix,
        places=Places.of([Location.of(site) for site in sites]),
        run_ns=spared_ns,
        run_uncertainty=_UNCERTAINTY,
        run_when=When.BETWEEN,
        severity=severity,
        count=1,
        confidence=0.7,
        evidence=dict(evidence),
    )


def _late_starts(timed: TimedLines, whole: WholeRun, least_ns: float) -> Suspicions:
    """A sampler or a dataset that prepares an epoch while its first batch is waited for: the lines of each function
    together, as its work may be spread over several."""
    functions: dict[tuple[str, str], list[TimedLine]] = {}
    for line in filter(_makes_starts_late, timed.long):
        functions.setdefault((line.site.file, line.site.function), []).append(line)
    for lines in functions.values():
        run_ns = sum(line.run_ns for line in lines)
        if run_ns >= least_ns:
            yield _suspect(
                f"{_takes(run_ns, whole, len(lines))} {format_count(timed.long_steps, 'step')} waited much longer for "
                f"a batch than the others, mostly while {'it' if len(lines) == 1 else 'they'} ran.",
                "Prepare once what is the same in each epoch, where the sampler or the dataset is made: groups, lists, "
                "files that are read. Only a new order of the samples has to be made anew.",
                [*(line.site for line in lines), *lines[0].callers[:1]],
                run_ns,
                {"between_ns_in_run": run_ns, "long_steps_seen": timed.long_steps},
            )


def _makes_starts_late(line: TimedLine) -> bool:
    """Whether the line makes batches, mostly in long steps, and does not belong to the function that trains."""
    return line.label == DATA and line.is_apart and line.excess_ns >= _MOSTLY * line.timed_ns > 0


def _is_in_usual_steps(timed: TimedLines, found: Repeated) -> bool:
    """Whether the line takes about as long in usual steps as in long ones, or all steps are alike."""
    seen = timed.at(found.site)
    return timed.knows_usual and seen is not None and seen.timed_ns > 0 and seen.excess_ns < _MOSTLY * seen.timed_ns


def _suspect_in_steps(found: Repeated, whole: WholeRun) -> Suspicion:
    """Work of each step, beside a loop within the step that trains."""
    share = found.time_ns / whole.programs_ns
    return _suspect(
        f"{_takes(found.time_ns, whole)} it runs in each step, beside the loop in it that trains.{_mostly_at(found)}",
        "Do once, before the training, what it does not change. What is made anew in each step, such as a copy "
        "of a model or an optimizer, can be made once and filled again.",
        [found.site, *found.inner],
        found.time_ns,
        {"between_ns_in_run": found.time_ns, "visits_seen": found.visits},
        Severity.MEDIUM if share >= _MUCH else Severity.LOW,
    )
