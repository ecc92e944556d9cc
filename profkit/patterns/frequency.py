"""How often per step, and in how many of the steps."""

from __future__ import annotations

from profkit.derive.facts import Facts
from profkit.trace.events import Int64s, Rows
from profkit.trace.statistics import distinct

_MOST_STEPS = 0.5
"""What is in fewer steps may be rare on purpose, as logging is, and a few recorded steps do not show its rate."""


def per_step(facts: Facts, rows: Rows) -> float:
    """The mean number of these rows in a measured step."""
    return len(rows) / facts.steps.measured_count


def times_per_step(facts: Facts, rows: Rows) -> int:
    """The same as a whole number for a message, at least 1."""
    return max(1, round(per_step(facts, rows))) if len(rows) else 1  # a snapshot alone has no steps


def sum_per_step(facts: Facts, values: Int64s) -> int:
    """The sum of these values, one for each event, in a measured step."""
    return int(values.sum()) // facts.steps.measured_count


def in_most_steps(facts: Facts, rows: Rows, least: int = 1) -> bool:
    """Whether at least half of the measured steps, and at least ``least``, hold one of the rows."""
    index = facts.step_of(rows)
    return are_most_steps(facts, int(facts.steps.measured[distinct(index[index >= 0])].sum()), least)


def are_most_steps(facts: Facts, steps: int, least: int = 1) -> bool:
    """Whether this many steps are at least half of the measured ones, and at least ``least``."""
    return steps >= max(least, _MOST_STEPS * facts.steps.measured_count)
