"""What several rules look for in the facts: lines, loops, transfers, waits, memory that is held.

Decisions, and why they were made:

- A fix names what the recorded PyTorch has (``releases.py``). If the release is unknown, the fix says which release an
  option needs.
- This file offers what nearly all rules need: which line, how often, of which operators. Patterns of one subject, such
  as transfers, stay in their own rooms. Files of this room never import from here.
"""

from __future__ import annotations

from profkit.patterns.attribution import (
    busiest_site,
    by_line,
    frequent_lines,
    group_by_place,
    order_sites,
    sites_by_time,
)
from profkit.patterns.calls import (
    Call,
    by_call,
    call_of,
    distinct_calls,
    each_step,
    spent_per_step_ns,
    times_a_step,
)
from profkit.patterns.frequency import are_most_steps, in_most_steps, per_step, sum_per_step, times_per_step
from profkit.patterns.named_lines import (
    Places,
    costliest_lines,
    loader_places,
    location_at,
    locations_of,
    name_lines,
    remarked,
)
from profkit.patterns.places.events import call_site, runs_inside_a_call
from profkit.patterns.program import (
    ACCUMULATES,
    backward_of,
    clearing_ranges,
    garbage_collections,
    length_ns,
    named_operators,
    program_elementwise,
    program_operators,
    program_traffic,
    spent_ns,
    works_under,
)
from profkit.patterns.shapes import Shapes, by_shapes, first_shape, shapes_of, with_shapes

__all__ = [
    "ACCUMULATES",
    "Call",
    "Places",
    "Shapes",
    "are_most_steps",
    "backward_of",
    "busiest_site",
    "by_call",
    "by_line",
    "by_shapes",
    "call_of",
    "call_site",
    "clearing_ranges",
    "costliest_lines",
    "distinct_calls",
    "each_step",
    "first_shape",
    "frequent_lines",
    "garbage_collections",
    "group_by_place",
    "in_most_steps",
    "length_ns",
    "loader_places",
    "location_at",
    "locations_of",
    "name_lines",
    "named_operators",
    "order_sites",
    "per_step",
    "program_elementwise",
    "program_operators",
    "program_traffic",
    "remarked",
    "runs_inside_a_call",
    "shapes_of",
    "sites_by_time",
    "spent_ns",
    "spent_per_step_ns",
    "sum_per_step",
    "times_a_step",
    "times_per_step",
    "with_shapes",
    "works_under",
]
