"""How often per step, and in how many of the steps."""

from __future__ import annotations

from profkit.derive.facts import Facts
from profkit.trace.events import Rows
from profkit.trace.values import distinct


def per_step(facts: Facts, rows: Rows) -> float:
    """How many of the rows a measured step holds on average."""
    return len(rows) / max(facts.steps.measured_count, 1)


def share_of_steps(facts: Facts, rows: Rows) -> float:
    """In which share of the measured steps at least one of the rows lies."""
    index = facts.steps.index_of(facts.trace.events.start_ns[rows])
    hit = distinct(index[index >= 0])
    return float(facts.steps.measured[hit].sum() / max(facts.steps.measured_count, 1))
