"""A CPU draws a random number for each class to pick one of them.

What it detects
`torch.multinomial` on the CPU where PyTorch takes its way through exponentials: it draws a random number for each
class and keeps the class whose probability divided by its number is the largest. It does so for a single draw, with or
without replacement, and for all draws without replacement. `torch.distributions.Categorical` draws singly, too.

Why is this bad?
A CPU draws random numbers one after the other, on one thread, 20 ns each. Of 5,000 words in a batch of 32 that is 3 ms
for 32 words. Several draws with replacement go through the cumulative sum of the probabilities instead, which takes a
nanosecond for each class, and one random number for each draw.

Example
    word = torch.multinomial(probabilities, 1)

Use instead
    word = torch.multinomial(probabilities, 2, replacement=True)[..., :1]

How the saving is estimated
The call keeps a twelfth of its time, and no less than two calls take. On one thread of a CPU, with 1,000 to a million
classes, it took 0.04 to 0.06 times as long, with 100 in 32 rows 0.2 times.
"""

from __future__ import annotations

import math

import numpy as np

from profkit.patterns import call_of, each_step, frequent_lines, named_operators, spent_ns, times_per_step
from profkit.rules.base import LOW_FROM, Facts, Kind, Need, Suspicion, Suspicions, rule
from profkit.savings import take_less
from profkit.savings.pricing import CALL_NS
from profkit.trace import Category, Rows, distinct_rows

_KEPT, _CALLS = 1 / 12, 2
_UNCERTAINTY = 0.1
"""Few classes keep more; what the cumulative sum takes depends on the rows' length."""


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES)
def random_number_per_class(facts: Facts) -> Suspicions:
    """One finding for each line that draws."""
    draws = _draws(facts)
    for rows in frequent_lines(facts, draws[facts.measured[draws]]):
        yield _suspect(facts, rows)


def _draws(facts: Facts) -> Rows:
    """Draws through exponentials that no device makes."""
    numbers = np.flatnonzero(named_operators(facts, "aten::exponential_"))
    draws = facts.tree.parent[numbers]
    launches = facts.tree.holding(facts.trace.events.category == Category.RUNTIME)
    is_draw = (draws >= 0) & named_operators(facts, "aten::multinomial")[draws] & ~launches[numbers]
    return draws[is_draw].astype(np.int64)


def _suspect(facts: Facts, rows: Rows) -> Suspicion:
    first, _ = distinct_rows(facts.trace.events.dims_code[rows])
    shapes = [tuple(shape) for row in rows[first].tolist() for shape in call_of(facts, row).shapes[:1] if shape]
    classes, numbers = max((shape[-1] for shape in shapes), default=0), max(map(math.prod, shapes), default=0)
    is_single = bool(facts.tree.holding(named_operators(facts, "aten::argmax"))[rows].all())
    kept = np.maximum(_KEPT, _CALLS * CALL_NS / np.maximum(spent_ns(facts, rows), 1)).clip(max=1)
    count, how = times_per_step(facts, rows), "a single one" if is_single else "several without replacement"
    single = (
        "Draw two with replacement and drop one: `torch.multinomial(p, 2, replacement=True)[..., :1]`. In place of "
        "`Categorical.sample()`, give it the distribution's `probs`."
    )
    several = "Draw with `replacement=True` if the same class may come twice, as negative samples may."
    return Suspicion(
        message=f"{each_step(count, 'call', 'draws', 'draw')} a random number for each of {classes:,} classes, to pick "
        f"{how}: {numbers:,} numbers at most.",
        fix=f"{single if is_single else several} PyTorch then adds up the probabilities and takes a random number for "
        "each draw. The results are as likely as before, but other ones.",
        rows=rows,
        edit=take_less(facts, rows, kept, _UNCERTAINTY),
        worth=LOW_FROM,
        confidence=0.9 if is_single else 0.6,
        count=count,
        evidence={"classes": classes, "numbers": numbers},
    )
