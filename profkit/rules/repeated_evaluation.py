"""An evaluation runs in each step, and its results are used at every n-th step alone.

What it detects
A call or a block of the recorded steps that evaluates without autograd, whose results the source uses in one place:
under a condition that holds at every n-th step, such as `if epoch % 20 == 0: print(...)`. The text and the recording
prove this together: the names are used nowhere else; the evaluation writes to nothing, logs nothing and saves nothing;
and if the text does not say how many steps lie between two uses, the located step did not use it. Early stopping, the
choice of the best model, a scheduler or a list of all results use an evaluation in each step.

Why is this bad?
An evaluation of the whole data takes as long as a step, and often longer. Nobody sees what it found in the other steps.

Example
    for epoch in range(200):
        train(model, data)
        accuracy = evaluate(model, data)
        if epoch % 20 == 0:
            print(epoch, accuracy)

Use instead
    for epoch in range(200):
        train(model, data)
        if epoch % 20 == 0:
            accuracy = evaluate(model, data)
            print(epoch, accuracy)

How the saving is estimated
The evaluation's operators, and the time between them, take an n-th of their time, because 1 in n steps runs them. If
the text leaves n open, it is taken to be ten.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns import Places, in_most_steps, times_per_step
from profkit.patterns.loops.located import located_marks
from profkit.patterns.program import repeating_below
from profkit.rules.base import LOW_FROM, CannotLook, Facts, Kind, Location, Need, Suspicion, Suspicions, rule
from profkit.run.directory import Remark
from profkit.savings import leave_out
from profkit.source.remark_kinds import RARELY_USED
from profkit.trace import Bools

_USUAL = 10
"""Steps between two uses if the text does not say: programs seldom report progress more often, and more adds little."""
_UNCERTAINTY = 0.1
"""Only what the next operators find in the cache is not modelled."""
_UNCERTAINTY_OF_USUAL = 0.4
"""From every second step to never, relative to nine in ten: 0.5 / 0.9 to 1 / 0.9."""


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS)
def repeated_evaluation(facts: Facts) -> Suspicions:
    """Look at each evaluation that the source says is rarely used."""
    remarks = [remark for remark in facts.run.remarks if remark.kind == RARELY_USED]
    if not remarks and facts.run.torch is None:
        raise CannotLook("what is done with results was not read (run the program under profkit)")
    for remark in remarks:
        marks = _marks_of(facts, remark, remark.site.line, max(remark.until, remark.site.line))
        was_used = _marks_of(facts, remark, remark.used_at, remark.used_at).any()
        rows, mark = repeating_below(facts, facts.tree.outermost(marks))
        if not in_most_steps(facts, rows) or (was_used and remark.every < 2):
            continue
        if (facts.tree.under(marks) & (facts.lines.backward | facts.optimizing)).any():
            continue
        kept, uncertainty = (1 / remark.every, _UNCERTAINTY) if remark.every else (1 / _USUAL, _UNCERTAINTY_OF_USUAL)
        often = f"once in {remark.every} steps" if remark.every > 1 else "in some steps"
        yield Suspicion(
            message=f"This evaluation runs in each step, but its results are only used {often}, from line "
            f"{remark.used_at} on.",
            fix="Move it to where its results are used, under the same condition. If it puts the model into "
            "evaluation mode, `model.train()` must come before the next training step, as it must now.",
            rows=rows,
            places=Places(Location.of(remark.site)),
            edit=leave_out(facts, rows, mark, kept, uncertainty),
            worth=LOW_FROM,
            confidence=0.9 if remark.every else 0.8,
            count=1,
            evidence={"operators_per_step": times_per_step(facts, rows)},
        )


def _marks_of(facts: Facts, remark: Remark, first: int, last: int) -> Bools:
    """The located step's marks of these lines of the remark's function."""
    around = remark.site.file, remark.site.function
    codes = [
        code
        for code, site in enumerate(facts.callsites)
        if (site.file, site.function) == around and first <= site.line <= last
    ]
    rows = located_marks(facts)
    return facts.trace.mask_of(rows[np.isin(facts.trace.events.site[rows], codes)])
