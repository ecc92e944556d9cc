"""Training stops while checkpoints are written, for a notable part of the run.

What it detects
The files that `torch.save`, safetensors or a distributed checkpoint write between the first step and the last, at least
twice, if the training waits for them for more than 3 % of the run. profkit looks at the main thread during the whole
run for this. Checkpoints in nearly every step are `checkpoint-in-step`. Where a file was written while steps were
recorded, and at most half of its bytes are shown by the tensors that were to be saved, the finding says so.

Why is this bad?
A checkpoint copies every parameter and all state of the optimizer and writes them to a file system, while nothing is
computed. In a study of 400 jobs with little use of their GPUs, 16 % of the causes were checkpoints that stopped the
training (Gao et al., An Empirical Study on Low GPU Utilization of Deep Learning Jobs, ICSE 2024).

Example
    for epoch in range(epochs):
        train(model, loader)
        torch.save(model.state_dict(), f"epoch{epoch}.pt")

Use instead
    for epoch in range(epochs):
        train(model, loader)
        if epoch % 10 == 9:
            torch.save(model.state_dict(), f"epoch{epoch}.pt")

How the saving is estimated
Written at every n-th of these moments, checkpoints cost the n-th part of their time. The proposed n, used for the
estimate, makes that 1 % of the rest of the run. Where fewer were seen, no n is named. Of files of views, the share of
the bytes stays that the tensors show.
"""

from __future__ import annotations

import math

from profkit.core.marks import SAVE_MARK
from profkit.patterns import Places, in_most_steps
from profkit.patterns.whole_run.phases import SAVING, repeated_between_steps, whole_run
from profkit.patterns.whole_run.saved_views import OF_VIEWS, saved_views
from profkit.rules.base import (
    MEDIUM_FROM,
    Facts,
    Kind,
    Location,
    Need,
    Suspicion,
    Suspicions,
    When,
    format_share,
    format_time,
    rule,
)

_BUDGET = 0.01
"""The share of the run that checkpoints may cost: little against what a crash loses."""
_UNCERTAINTY = 0.25
"""File systems take uneven time: pages are written to the disk later, or at once when there are many."""


@rule(Kind.FAULT, Need.WHOLE_RUN)
def checkpoint_stops_training(facts: Facts) -> Suspicions:
    """Each line that saves is a finding."""
    whole = whole_run(facts)
    if whole is None or _saves_in_most_steps(facts):
        return
    run_ns = whole.programs_ns
    for found in repeated_between_steps(facts, SAVING):
        if found.time_ns < MEDIUM_FROM * run_ns:
            continue
        rest_ns = max(run_ns - found.time_ns, 1)
        every = max(2, math.ceil(found.time_ns / (_BUDGET * rest_ns)))
        views = saved_views(facts, found.site)
        kept = 1 / every if views is None else views.kept
        yield Suspicion(
            message=f"{format_time(found.time_ns)} of the run's {format_time(run_ns)} passes while checkpoints are "
            f"written: training stops for them at least {found.visits} times.{'' if views is None else views.told}",
            fix=_fix(every, found.visits) if views is None else OF_VIEWS,
            places=Places.of([Location.of(found.site)]),
            run_ns=found.time_ns - int(found.time_ns * kept),
            run_uncertainty=_UNCERTAINTY,
            run_when=When.BETWEEN,
            count=1,
            evidence={"saving_ns_in_run": found.time_ns, "checkpoints_seen": found.visits, "interval": every},
        )


def _fix(every: int, visits: int) -> str:
    """One in more than there are would be none."""
    fewer = (
        f"Write one in {every} of them, which costs about {format_share(_BUDGET)}."
        if every <= visits
        else "Write the last one alone, or one now and then by the clock, such as each half hour."
    )
    return f"{fewer} Or let another thread write a copy of the state."


def _saves_in_most_steps(facts: Facts) -> bool:
    """Then it is a matter of the step, which `checkpoint-in-step` judges."""
    return facts.has_trace and in_most_steps(facts, facts.measured_rows(facts.trace.named(SAVE_MARK)), least=2)
