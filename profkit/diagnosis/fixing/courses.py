"""Whether a program goes the same way after a change: its steps, its backward passes, and the random numbers it draws.

What trains without an optimizer of PyTorch, and prints little, shows itself here alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from profkit.core.units import format_count
from profkit.diagnosis.fixing.comparison import Comparison
from profkit.diagnosis.fixing.turns import Seen

_LOSS = 1e-3
"""Of the largest of the first losses: rounding has hardly added up by then. A loss around zero is rounding alone."""
_COUNTED: tuple[tuple[str, Callable[[Seen], int]], ...] = (
    ("step of an optimizer", lambda seen: len(seen.step_ns)),
    ("backward pass", lambda seen: 0 if seen.step_ns else seen.passes),
)
"""Where optimizers step, one may look for its step's length by as many passes as rounding decides, as LBFGS does."""


def compare_courses(before: Sequence[Seen], after: Sequence[Seen]) -> Comparison:
    """Compare how often the optimizers step, how many backward passes there are, and the losses of the first ones."""
    for what, count in _COUNTED:
        counts = {count(seen) for seen in before}
        other = next((count(seen) for seen in after if count(seen) not in counts), None)
        if len(counts) == 1 and other is not None:
            plural = what.replace("pass", "passes").replace("step ", "steps ")
            return Comparison(differs=f"it has {other:,} {plural if other != 1 else what} instead of {min(counts):,}")
    losses = before[0].losses
    if not all(_are_alike(losses, seen.losses) for seen in before):
        return Comparison()
    for seen in after:
        if not _are_alike(losses, seen.losses):
            return Comparison(differs="the losses of its first backward passes are others")
    known = sum(loss is not None for loss in losses)
    if not known:
        return Comparison()
    return Comparison(compared=(f"{format_count(known, 'loss', 'losses')} of the first backward passes",))


def _are_alike(one: Sequence[float | None], other: Sequence[float | None]) -> bool:
    """A loss without a number, or of few bits, is None: it must be so in both."""
    if [loss is None for loss in one] != [loss is None for loss in other]:
        return False
    largest = max((abs(loss) for loss in one if loss is not None), default=0.0)
    pairs = zip(one, other, strict=True)
    return all(abs(a - b) <= _LOSS * largest for a, b in pairs if a is not None and b is not None)


def compare_draws(before: Sequence[Seen], after: Sequence[Seen]) -> Comparison:
    """Of a program that trains, losses and parameters show what random numbers it drew. Of any other nothing is known
    if a generator that runs leave in one state ends in another after the change."""
    if any(seen.passes or seen.step_ns for seen in before):
        return Comparison()
    for name in before[0].drawn:
        states = {seen.random_states.get(name) for seen in before}
        if len(states) == 1 and any(seen.random_states.get(name) not in states for seen in after):
            return Comparison(unknown=f"it draws other random numbers of `{name}` than before")
    return Comparison()
