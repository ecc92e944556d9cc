"""How long the devices exchange data, and how much of that is hidden behind computing.

The shares of the step exclude each other, and what is computed beside an exchange counts as computing there.
"""

from __future__ import annotations

from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.timeline.intervals import union


class Communicating(Struct, frozen=True):
    """Nanoseconds per step, and the share of them in which something is computed."""

    time_ns: int
    hidden: float

    @property
    def exposed_ns(self) -> float:
        """In which nothing is computed."""
        return self.time_ns * (1 - self.hidden)


def communicating(facts: Facts) -> Communicating | None:
    """What the devices exchange in the measured steps; None if that is nothing."""
    steps, device = facts.steps, facts.device
    whole = union(steps.begun_ns[steps.measured], steps.done_ns[steps.measured])
    exchanging = whole.minus(whole.minus(device.communicating))
    if not exchanging.total_ns:
        return None
    hidden_ns = exchanging.total_ns - exchanging.minus(device.computing).total_ns
    return Communicating(steps.per_step_ns(exchanging.total_ns), hidden_ns / exchanging.total_ns)
