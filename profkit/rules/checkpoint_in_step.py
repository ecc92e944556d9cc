"""Nearly every step waits while a checkpoint is written.

What it detects
`torch.save` in at least half of the steps, if the writing takes at least 3 % of the time. profkit marks the writing in
its own recordings; others do not show it. Writing once in a while is no fault.

Why is this bad?
A checkpoint copies every parameter and all state of the optimizer, first from the GPU if they are there, and writes
them to a file system, while nothing is computed. All but the last of those checkpoints are overwritten or never read.

Example
    for step, (x, y) in enumerate(loader):
        train_step(x, y)
        torch.save(model.state_dict(), "last.pt")

Use instead
    for step, (x, y) in enumerate(loader):
        train_step(x, y)
        if step % 1000 == 999:
            torch.save(model.state_dict(), "last.pt")

How the saving is estimated
Written every n-th step, a checkpoint costs the n-th part of its time. The proposed n, used for the estimate, makes that
1 % of the rest of the step. If what is saved are views that show at most half of the bytes written, with their whole
storages, the share stays that they show.
"""

from __future__ import annotations

import math

import numpy as np

from profkit.core.marks import SAVE_MARK
from profkit.patterns import busiest_site, call_site, frequent_lines, spent_ns, spent_per_step_ns, times_a_step
from profkit.patterns.whole_run.saved_views import OF_VIEWS, saved_views
from profkit.rules.base import (
    MEDIUM_FROM,
    CannotLook,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_share,
    format_time,
    rule,
)
from profkit.savings import remove, shrink
from profkit.savings.replay import replay
from profkit.trace import Category

_BUDGET = 0.01
"""The share of the time that checkpoints may cost: little against what a crash loses, n/2 steps on average."""
_LEAST_STEPS = 2
"""A program without steps that saves its model once, at its end, is fine."""
_UNCERTAINTY = 0.25
"""File systems take uneven time: pages are written to the disk later, or at once when there are many."""


@rule(Kind.FAULT, Need.WHOLE_STEP)
def checkpoint_in_step(facts: Facts) -> Suspicions:
    """Each line that saves is a finding."""
    if facts.run.torch is None:
        raise CannotLook("the writing of checkpoints shows only in recordings that profkit made")
    events = facts.trace.events
    saves = facts.trace.named(SAVE_MARK) & (events.category == Category.HOST_MARK)
    saves = facts.tree.outermost(saves & (events.lane == facts.steps.main_lane))
    for rows in frequent_lines(facts, facts.measured_rows(saves), _LEAST_STEPS):
        saving = spent_per_step_ns(facts, rows)
        rest = max(facts.steps.per_step_ns(replay(facts, remove(rows)).edited_ns), 1)
        interval = max(1, math.ceil(saving / (_BUDGET * rest)))
        site = call_site(facts, busiest_site(facts, rows))
        views = None if site is None else saved_views(facts, site)
        kept = 1 / interval if views is None else views.kept
        yield Suspicion(
            message=f"`torch.save` takes {format_time(saving)} and runs {times_a_step(facts, rows)}; nothing is "
            f"computed meanwhile.{'' if views is None else views.told}",
            fix=_seldom(interval) if views is None else OF_VIEWS,
            rows=rows,
            edit=shrink(rows, (spent_ns(facts, rows) * kept).astype(np.int64), _UNCERTAINTY),
            worth=MEDIUM_FROM,  # three times the budget: in between, the interval is a matter of taste
            confidence=0.95,
            evidence={"saving_ns_per_step": saving, "interval_steps": interval},
        )


def _seldom(interval: int) -> str:
    return (
        f"Save every {interval:,} steps, which costs {format_share(_BUDGET)}, or at the end of an epoch. Another "
        "thread can also write a copy of the state."
    )
