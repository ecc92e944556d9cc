"""A result is computed in each step, and read under a condition that seldom holds.

What it detects
A line of the recorded steps that calls something, whose result the source reads in one place: below an `if`. The
condition asks for every n-th step, or it is another one that did not hold in the step whose lines were marked, such as
`if loss < best`. The text proves that the names are used nowhere else, that the call leaves nothing behind, and, unless
the condition asks for every n-th step, that nothing happens between the two. Evaluations are `repeated-evaluation`.
A step that updates nothing and is nearly all that line is a benchmark's: the line is what the program is for.

Why is this bad?
A copy of all weights, a table of errors or a text takes as long in the steps that drop it as in the one that uses it.
Nothing shows that but the line's place in the text.

Example
    state = copy.deepcopy(model.state_dict())
    if loss < best:
        best, kept = loss, state

Use instead
    if loss < best:
        best, kept = loss, copy.deepcopy(model.state_dict())

How the saving is estimated
The share of plain steps in which samples of the stacks meet the line takes an n-th of its time. If the text leaves n
open, it is taken to be ten. Without samples the share is that of the recorded steps. With a GPU that is the host's
time, and there is no estimate.
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

_USUAL = 10
"""Steps between two uses if the text does not say, as for `repeated-evaluation`."""
_FEWEST = 2
"""The condition might hold in every second step."""


@rule(Kind.FAULT, Need.OPERATORS, Need.LINES, Need.WHOLE_STEP)
def rarely_read_result(facts: Facts) -> Suspicions:
    """One finding for each such line."""
    if facts.run.torch is None:
        raise CannotLook("what is done with results was not read (run the program under profkit)")
    for found in seldom_needed(facts):
        if found.used_at and found.price.low >= LOW_FROM:
            yield _suspect(facts, found)


def _suspect(facts: Facts, found: SeldomNeeded) -> Suspicion:
    price, has_edit = found.price, not facts.device.present
    goes, least = (1 - 1 / (found.every or steps) for steps in (_USUAL, _FEWEST))
    when = f"once in {found.every} steps" if found.every else "if a condition holds, as in the marked step it did not"
    return Suspicion(
        message=f"This line runs in each step and takes {format_share(price.share)} of the host's time, but its result "
        f"is only used {when}: from line {found.used_at} on.",
        fix="Compute it below the same condition. If the step changes what it reads, put the condition around both.",
        edit=without_share(facts, goes * price.share, least * price.low, price.high) if has_edit else None,
        worth=LOW_FROM if has_edit else 0.0,
        confidence=0.85 if found.every else 0.75,
        count=1,
        places=Places.of_sites(found.sites),
        severity=None if has_edit else Severity.LOW,
        evidence={"share": round(price.share, 4), "every": found.every},
    )
