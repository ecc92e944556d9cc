"""Between the epochs the program does the same work again and again, for a notable part of the run.

What it detects
Lines outside the loop that trains which run at least twice between the first step and the last, and take a tenth of
the run or more: shuffling in Python, reading a file again, building batches or encoding text anew. Evaluations,
checkpoints, logging and waits for data have phases of their own and are not counted. profkit looks at the main thread
during the whole run for this, since the recorded steps never include it.

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
All of that time but the first of the visits: what stays if the work is done once. It is a bound, because some of the
work may have to be done anew, such as a new order of the samples. So this is an opportunity.
"""

from __future__ import annotations

from profkit.patterns import Places
from profkit.patterns.whole_run import BETWEEN, repeated_between_steps, whole_run
from profkit.rules.base import (
    HIGH_FROM,
    Facts,
    Kind,
    Location,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    format_share,
    format_time,
    rule,
)

_LEAST_SHARE = HIGH_FROM
"""Less is ordinary bookkeeping."""
_UNCERTAINTY = 0.5
"""Part of the work may have to stay."""


@rule(Kind.OPPORTUNITY, Need.WHOLE_RUN)
def repeated_epoch_work(facts: Facts) -> Suspicions:
    """Each line beside the training loop is a finding."""
    whole = whole_run(facts)
    if whole is None:
        return
    run_ns = whole.programs_ns
    for found in repeated_between_steps(facts, BETWEEN):
        if found.time_ns >= _LEAST_SHARE * run_ns:
            yield Suspicion(
                message=f"This line runs at least {found.visits} times between two runs of the loop that trains and "
                f"takes {format_time(found.time_ns)}, {format_share(found.time_ns / run_ns)} of the run.",
                fix="Do once before the first epoch what training does not change; leave what must be done anew to a "
                "DataLoader's workers.",
                places=Places.of([Location.of(found.site)]),
                run_ns=found.time_ns - found.time_ns // found.visits,
                run_uncertainty=_UNCERTAINTY,
                severity=Severity.MEDIUM,
                count=1,
                confidence=0.7,
                evidence={"between_ns_in_run": found.time_ns, "visits_seen": found.visits},
            )
