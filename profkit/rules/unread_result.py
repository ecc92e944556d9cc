"""A result is computed in each step, and nothing reads it.

What it detects
Calls of PyTorch's functions whose results no later call takes, and that are thrown away within the step, together with
the calls whose results go into these alone. The reconstruction of an autoencoder of which only the code is wanted
(`model(x)[1:]`) is the usual case; others are a metric that nobody prints, and a second head that the loss leaves out.
What nothing reads is known from the located step. Not reported: results that still exist when the step ends, calls that
write into what they are given or draw random numbers, and programs that do not train, as a benchmark may throw
everything away. Code that PyTorch does not see (TorchScript, DLPack, other libraries) may read a result: if operators
outside of all calls take a tensor of its shape, the rule is silent. A backward pass may read what exists when it
begins, and another thread anything. Nor are tensors on a device looked at, and steps with so many calls that only some
were seen.

Why is this bad?
The calls take their time in each step, and memory for what they make.

Example
    mean, log_variance = autoencoder(x)[1:]

Use instead
    mean, log_variance = autoencoder.encoder(x)

How the saving is estimated
The step is replayed without the calls, their backward nodes, and the time between them.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from profkit.patterns import Places, costliest_lines, in_most_steps, times_per_step
from profkit.patterns.loops.located import call_marks, lines_outwards
from profkit.patterns.program import located_operators, repeating_below
from profkit.patterns.shapes import by_operator
from profkit.rules.base import (
    LOW_FROM,
    CannotLook,
    Facts,
    Kind,
    Location,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    format_count,
    known_recomputation,
    pick_form,
    rule,
)
from profkit.run.directory import UnreadResult
from profkit.savings import leave_out
from profkit.savings.replay import replay
from profkit.trace import NONE, Rows

_UNCERTAINTY = 0.1
"""Only what the next operators find in the cache is not modelled."""
_MOST = 0.1
"""Of the step, from which on a price alone would be of high severity: another library may read the memory unseen."""
_NOT_LOOKED_AT = (
    "who reads results was not looked at: they lie on a device, another thread runs, or the step has too many calls to "
    "see all"
)


class _Unread(Struct, frozen=True):
    """The marks of the calls, the one line that makes them all, and the shape of the last one's result."""

    marks: Rows
    line: Location | None
    shape: tuple[int, ...]


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS)
def unread_result(facts: Facts) -> Suspicions:
    """One finding for each line that makes something for nobody."""
    known = known_recomputation(facts)
    if known.unread is None:
        raise CannotLook(_NOT_LOOKED_AT)
    if not (facts.updates.inside.any() or facts.lines.backward.any()):
        return
    by_line = dict[Location | None, list[_Unread]]()
    for unread in known.unread:
        found = _followed(facts, unread)
        if found is not None and not _is_read_elsewhere(facts, found):
            by_line.setdefault(found.line, []).append(found)
    for line, group in by_line.items():
        marks = np.unique(np.concatenate([one.marks for one in group]))
        rows, mark = repeating_below(facts, facts.trace.mask_of(marks))
        if rows.size and in_most_steps(facts, rows):
            yield _suspect(facts, line, rows, mark, max((one.shape for one in group), key=math.prod))


def _followed(facts: Facts, unread: UnreadResult) -> _Unread | None:
    """None if the recording lacks one of the calls' marks."""
    mark_of = call_marks(facts)
    if not unread.calls or max(unread.calls) >= len(mark_of) or min(unread.calls) < 0:
        return None
    marks = mark_of[list(unread.calls)]
    if (marks == NONE).any():
        return None
    around = (
        site
        for site, numbers, lines in lines_outwards(facts, marks)
        if len(numbers) == len(marks) and len(np.unique(lines)) == 1
    )
    site = next(around, NONE)
    return _Unread(marks, None if site == NONE else Location.of(facts.callsites[site]), unread.shape)


def _is_read_elsewhere(facts: Facts, found: _Unread) -> bool:
    """Whether later in the step an operator that no watched call made takes a tensor of the shape: code that PyTorch
    compiled is not watched."""
    every = located_operators(facts)
    later = every[facts.trace.events.start_ns[every] >= facts.tree.end_ns[found.marks].max()]
    marks = call_marks(facts)
    unseen = later[~facts.tree.under(facts.trace.mask_of(marks[marks >= 0]))[later]]
    return bool(by_operator(facts, unseen, lambda _, given: found.shape in given).any()) if unseen.size else False


def _suspect(facts: Facts, line: Location | None, rows: Rows, mark: Rows, shape: tuple[int, ...]) -> Suspicion:
    edit = leave_out(facts, rows, mark, 0.0, _UNCERTAINTY)
    count, size = times_per_step(facts, rows), " x ".join(f"{length:,}" for length in shape) or "1"
    return Suspicion(
        message=f"{format_count(count, 'operator')} a step {pick_form(count, 'makes', 'make')} a result that nothing "
        f"reads: a tensor of {size} elements is thrown away.",
        fix="Leave these calls out: call only the part whose result is used (`model.encoder(x)` instead of "
        "`model(x)[1:]`), or give the model a switch for the rest.",
        rows=rows,
        edit=edit,
        worth=LOW_FROM,
        confidence=0.85,
        severity=Severity.MEDIUM if replay(facts, edit).fraction >= _MOST else None,
        count=count,
        places=Places.of([*([line] if line else []), *costliest_lines(facts, rows).all()]),
        evidence={"operators_per_step": count, "elements": math.prod(shape)},
    )
