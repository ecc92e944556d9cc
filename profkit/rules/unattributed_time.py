"""Much of the step passes outside everything that PyTorch records: in Python, in other libraries, or waiting.

What it detects
Stretches of the main thread of a fifth of a millisecond or more in which no operator, no call of the GPU's runtime, no
request for a batch, no optimizer's step and no garbage collection runs, and the device is idle too, where they make up
a fifth of the steps' time. The line is the one under which most of such time passes in the step whose lines profkit
marked; recordings made elsewhere do not show it.

Why is this bad?
It need not be: a simulator, a tokenizer or an evaluation in NumPy may be what the program is for. But PyTorch waits for
it, a GPU idles meanwhile, and no other rule can say anything about that time, so that it is easily overlooked.

Example
    for batch in batches:
        targets = [lookup(word) for word in batch.words]  # Python, word by word
        loss = criterion(model(batch.ids), torch.tensor(targets))

Use instead
    targets = [encode(batch) for batch in batches]  # once, before the training
    for batch, target in zip(batches, targets):
        loss = criterion(model(batch.ids), target)

How the saving is estimated
Not at all: what the program does in that time, and whether it has to, cannot be told from the recording. Its share of
the step is stated, without what the recording itself added; the severity is low whatever it is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit.derive.facts import Facts
from profkit.derive.timeline.intervals import Intervals, union
from profkit.evidence.hottest import lines_by_time
from profkit.evidence.program import length_ns, named_operators
from profkit.findings import Kind, Location, Severity
from profkit.rules.base import CannotLook, Need, Suspicion, rule
from profkit.ruling.places import Places, locations_of
from profkit.trace.events import Bools, Category
from profkit.trace.values import among
from profkit.units import format_share, format_time

_LEAST_STRETCH_NS = 200_000
"""Python takes microseconds from one operator to the next, hundreds of lines of it; that is what launch-bound and
tensor-element-loop are about. A longer stretch is work, or a wait, of its own."""
_LEAST_SHARE = 0.2
"""Less is what logging, progress bars and the bookkeeping of a training loop may take in a program that is in order."""
_NOTABLE_SHARE = 0.2
"""Of the located step's time outside: a line with less is no place to begin."""
_MOST_LINES = 3


@rule(Kind.OPPORTUNITY, Need.OPERATORS, Need.WHOLE_STEP)
def unattributed_time(facts: Facts) -> Iterator[Suspicion]:
    """One finding for all of that time, at the line with most of it."""
    if facts.run.torch is None:
        raise CannotLook("time in Python can be told from gaps in the recording only where profkit made it")
    steps = facts.steps
    spent = _unexplained(facts, steps.measured)
    total_ns = int(length_ns(facts, steps.start_ns[steps.measured], steps.end_ns[steps.measured]).sum())
    total_ns -= int(steps.pause_ns[steps.measured].sum())
    outside_ns = int(length_ns(facts, spent.start_ns, spent.end_ns).sum())
    if outside_ns < _LEAST_SHARE * total_ns:
        return
    share, per_step_ns = outside_ns / total_ns, steps.per_step_ns(outside_ns)
    yield Suspicion(
        message=f"{format_share(share)} of the step, {format_time(per_step_ns)}, pass outside all of PyTorch's "
        "operators: in Python, in another library, or waiting for something.",
        fix="See what this line does: prepare once before the loop what is the same in every step, let NumPy or "
        "PyTorch do what Python does element by element, move reading and parsing into a DataLoader's workers.",
        confidence=0.6,
        count=max(1, round(len(spent.start_ns) / steps.measured_count)),
        places=Places.of(_places(facts)),
        severity=Severity.LOW,
        evidence={"unattributed_ns_per_step": per_step_ns, "unattributed_share": round(share, 4)},
    )


def _unexplained(facts: Facts, wanted: Bools) -> Intervals:
    """The long stretches of these steps in which nothing runs that was recorded."""
    steps = facts.steps
    known = facts.once(_explained)
    in_steps = union(steps.start_ns[wanted], steps.end_ns[wanted])
    free = in_steps.minus(known)
    long = (length_ns(facts, free.start_ns, free.end_ns) >= _LEAST_STRETCH_NS) & ~_fills_a_tensor(facts, free)
    return Intervals(free.start_ns[long], free.end_ns[long])


def _explained(facts: Facts) -> Intervals:
    """When the host's threads that take turns, or a device, did something that was recorded."""
    events, tree = facts.trace.events, facts.tree
    kinds = (Category.OPERATOR, Category.COMPILED_CODE, Category.RUNTIME, Category.HOST_MARK, Category.PAUSE)
    rows = np.flatnonzero(facts.serial_lanes[events.lane] & (facts.trace.in_categories(*kinds) | facts.loading))
    others = (facts.device.any_busy, facts.updates.on(facts.serial_lanes[events.lane]))
    return union(
        np.concatenate([events.start_ns[rows], *(other.start_ns for other in others)]),
        np.concatenate([tree.end_ns[rows], *(other.end_ns for other in others)]),
    )


def _fills_a_tensor(facts: Facts, free: Intervals) -> Bools:
    """Stretches between making an empty tensor and its `to`: PyTorch reads a Python list, which is the matter of
    slow-tensor-construction."""
    made = facts.tree.end_ns[named_operators(facts, "aten::empty")]
    handed_over = facts.trace.events.start_ns[named_operators(facts, "aten::to")]
    filling: Bools = among(free.start_ns, made) & among(free.end_ns, handed_over)
    return filling


def _places(facts: Facts) -> tuple[Location, ...]:
    """The lines of the first located step under which most of such time passes."""
    located = np.flatnonzero(facts.steps.located)
    if not located.size:
        return ()
    wanted = np.arange(len(facts.steps)) == located[0]
    spent = _unexplained(facts, wanted)
    if not spent.total_ns:
        return ()
    lines = lines_by_time(facts, spent)[:_MOST_LINES]
    return locations_of(facts, (line.site for line in lines if line.fraction >= _NOTABLE_SHARE))
