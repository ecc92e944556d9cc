"""What the start costs: the first recorded step beside the later ones."""

from __future__ import annotations

from profkit.core.units import format_time
from profkit.derive.facts import Facts
from profkit.diagnosis.health.window import is_notable
from profkit.patterns.time.start_up import find_cold_start


def check_cold_start(facts: Facts) -> str | None:
    """A first step that was left out. The sum of what was recorded as loading tells less than its length, as libraries
    set themselves up inside other calls."""
    cold = find_cold_start(facts)
    if cold is None:
        return None
    rows = facts.first_calls[facts.step_of(facts.first_calls) == cold.step]
    outermost = rows[facts.tree.outermost(facts.trace.mask_of(rows))[rows]]
    loading_ns = min(int(facts.trace.events.duration_ns[outermost].sum()), cold.longer_ns)
    is_told = is_notable(loading_ns, cold.longer_ns)
    told = f" ({format_time(loading_ns)} of it in recorded first calls)" if is_told else ""
    longer = f"the first takes {format_time(cold.longer_ns)} longer than later ones{told}"
    return f"a cold start, left out of the measured steps: {longer}"
