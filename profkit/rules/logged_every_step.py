"""Each step writes to a log what takes a notable part of it.

What it detects
Lines of the recorded steps that do nothing but write: to a logger, TensorBoard, a file, a plot or the screen, by such a
call or by a function of the program in which that is all that stays. What is prepared for it counts as well: histograms
of weights, numbers read from tensors, figures, texts. Together the lines of a function take 2 % of the step or more.
Lines below a condition that asks for every n-th step are not looked at, and no function that has one.

Why is this bad?
A log of every step is seldom read step by step. A histogram of all weights costs several passes over them, on one
thread of the host, and a number read from a GPU makes the host wait for it.

Example
    for name, weight in model.named_parameters():
        writer.add_histogram(name, weight, step)

Use instead
    if step % 100 == 0:
        for name, weight in model.named_parameters():
            writer.add_histogram(name, weight, step)

How the saving is estimated
Of the share of plain steps in which samples of the stacks meet these lines nine tenths go, as if every tenth step were
logged. Without samples the share is that of the recorded steps. What of the log is needed only its readers know, so
this is an opportunity. With a GPU that is the host's time, and there is no estimate.
"""

from __future__ import annotations

from profkit.patterns import Places
from profkit.patterns.time.seldom_needed import SeldomNeeded, seldom_needed
from profkit.rules.base import (
    LOW_FROM,
    CannotLook,
    Facts,
    Kind,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    format_share,
    rule,
)
from profkit.savings import without_share

_GOES = 0.9
"""Every tenth step is logged: a curve of a thousand steps still has a hundred points."""


@rule(Kind.OPPORTUNITY, Need.OPERATORS, Need.LINES, Need.WHOLE_STEP)
def logged_every_step(facts: Facts) -> Suspicions:
    """One finding for the lines of a function."""
    if facts.run.torch is None:
        raise CannotLook("what lines do was not read (run the program under profkit)")
    for found in seldom_needed(facts):
        if not found.used_at and found.price.low >= LOW_FROM:
            yield _suspect(facts, found)


def _suspect(facts: Facts, found: SeldomNeeded) -> Suspicion:
    price, has_edit, lines = found.price, not facts.device.present, len(found.sites)
    what = "This line only writes" if lines == 1 else f"These {lines} lines only write"
    takes = "takes" if lines == 1 else "take"
    return Suspicion(
        message=f"{what} to a log or a file, in each step, and {takes} {format_share(price.share)} of the host's time "
        "with what is prepared for it.",
        fix="Write at every n-th step only (`if step % 100 == 0:`), and prepare what is written below that condition. "
        "Numbers of the steps between can be added up in a tensor, without `.item()`.",
        edit=without_share(facts, _GOES * price.share, _GOES * price.low, price.high) if has_edit else None,
        worth=LOW_FROM if has_edit else 0.0,
        confidence=0.8,
        count=lines,
        places=Places.of_sites(found.sites),
        severity=None if has_edit else Severity.LOW,
        evidence={"share": round(price.share, 4), "lines": lines},
    )
