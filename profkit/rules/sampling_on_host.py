"""Scores are copied from the device, and the next token is drawn on the host.

What it detects
Steps that generate, an engine's or those of a loop of one's own: a kilobyte or more of scores for each sequence is
copied to the host, and operators that sort, scale or draw (`topk`, `sort`, `softmax`, `multinomial`, `argmax`, ...)
then run on the host. In most of these steps, and with a part in the step's time. Not reported: copying the chosen
tokens alone, a few bytes for each sequence, and operators on the device.

Why is this bad?
The scores of a batch are megabytes, and the device has nothing to do while they are copied, sorted by a few threads,
and the token is sent back. On the device the same takes some microseconds.

Example
    scores = model(tokens)[:, -1].float().cpu()
    best, at = scores.topk(50)
    token = at.gather(1, torch.multinomial(best.softmax(-1), 1)).cuda()

Use instead
    scores = model(tokens)[:, -1].float()
    best, at = scores.topk(50)
    token = at.gather(1, torch.multinomial(best.softmax(-1), 1))

How the saving is estimated
The steps are replayed without these operators on the host and without the copies of the scores. What the same operators
take on the device is not counted: some microseconds for each.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.families import operators_of
from profkit.patterns import costliest_lines, in_most_steps, spent_per_step_ns, times_a_step
from profkit.patterns.serving.decoding import generating_time
from profkit.rules.base import (
    LOW_FROM,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_bytes,
    format_time,
    rule,
)
from profkit.savings import combine, remove
from profkit.trace import Category, Rows, among, distinct

_SAMPLING = frozenset(
    (
        *("topk", "sort", "argsort", "softmax", "_softmax", "log_softmax", "multinomial", "argmax", "max"),
        *("exponential", "cumsum", "gumbel_softmax", "div", "masked_fill", "scatter", "gather", "logsumexp"),
    )
)
_DRAWING = frozenset(("topk", "sort", "argsort", "multinomial", "argmax", "max", "exponential"))
"""At least one of them: the others alone are no draw."""
_LEAST_BYTES = 1024
"""For each sequence. A token has 8 bytes, its probabilities for the caller a few more; a vocabulary has thousands of
scores."""
_UNCERTAINTY = 0.3
"""The host has to wait for the chosen token all the same, and the device takes part of the work."""


class _Sampling(Struct, frozen=True):
    """The operators on the host, and the copies of scores."""

    operators: Rows
    copies: Rows


@rule(Kind.FAULT, Need.DEVICE, Need.OPERATORS, Need.WHOLE_STEP)
def sampling_on_host(facts: Facts) -> Suspicions:
    """One finding for all lines: they share the copy."""
    found = _find(facts)
    if found is None or not in_most_steps(facts, found.operators):
        return
    size = int(facts.trace.events.size_bytes[found.copies].sum() / facts.steps.measured_count)
    spent = spent_per_step_ns(facts, found.operators)
    yield Suspicion(
        message=f"The next token is drawn on the host: {format_bytes(size)} of scores a step are copied there. "
        f"Operators that sort and draw run there {times_a_step(facts, found.operators)}, for {format_time(spent)}.",
        fix="Draw on the device, and copy the chosen tokens only: leave out `.cpu()` before `topk`, `softmax` and "
        "`multinomial`. In an engine use its own sampling parameters instead of a logits processor in Python.",
        rows=found.operators,
        places=costliest_lines(facts, found.operators),
        edit=combine([remove(found.operators, uncertainty=_UNCERTAINTY), remove(found.copies[:0], found.copies)]),
        worth=LOW_FROM,
        confidence=0.8,
        evidence={"score_bytes_per_step": size, "host_ns_per_step": spent},
    )


def _find(facts: Facts) -> _Sampling | None:
    generating = generating_time(facts)
    if generating is None:
        return None
    events, launches = facts.trace.events, facts.launches
    copied = (events.category[launches.work] == Category.MEMCPY) & facts.steps.in_measured(launches.launched_ns)
    copied &= facts.trace.where_name(lambda name: "DtoH" in name)[launches.work]
    copied &= events.size_bytes[launches.work] >= _LEAST_BYTES * max(1.0, generating.sequences)
    copies = np.sort(launches.work[copied])
    on_host = np.flatnonzero(facts.tree.outermost(operators_of(facts.trace, _SAMPLING)))
    working = facts.tree.holding(facts.trace.mask_of(launches.call[launches.call >= 0]))
    on_host = on_host[~working[on_host] & facts.measured[on_host] & ~among(on_host, launches.operator)]
    inside = generating.time.covered_within(events.start_ns[on_host], events.start_ns[on_host] + 1) > 0
    on_host = on_host[inside]
    steps = _in_steps(facts, copies, on_host)
    on_host = on_host[among(facts.step_of(on_host), steps)]
    if not on_host.size or not operators_of(facts.trace, _DRAWING)[on_host].any():
        return None
    return _Sampling(on_host, copies)


def _in_steps(facts: Facts, copies: Rows, operators: Rows) -> Rows:
    """The steps in which such an operator runs after such a copy."""
    events, launches = facts.trace.events, facts.launches
    if not copies.size or not operators.size:
        return np.zeros(0, dtype=np.int64)
    called_ns = launches.launched_ns[among(launches.work, copies)]
    of_copy, of_operator = facts.steps.index_of(called_ns), facts.step_of(operators)
    first = np.full(len(facts.steps), np.iinfo(np.int64).max)
    np.minimum.at(first, of_copy[of_copy >= 0], called_ns[of_copy >= 0])
    after = events.start_ns[operators] > first[of_operator]
    return distinct(of_operator[after & (of_operator >= 0)])
