"""A recorded file becomes columns: one reader for each format, one ``Trace`` for all of them.

Decisions, and why they were made:

- Rules ask an index for events by name, and the tree for ancestors of the events they want. A column that a trace lacks
  has size 0.
- What ``torch.compile`` records around its code is no operator (``Category.COMPILED_CODE``). The operators are what the
  generated code calls, so every rule sees into compiled regions without special treatment.
- The located step's device events have no time (``left_out.py``). Kineto writes zeros for them, and no figure uses that
  step's times, so profkit stays silent. In a measured step it is a loss, and is reported.
- This file offers rules the columns they work on and what they ask of one: the rows' types, the categories, medians.
  Files of this room never import from here.
"""

from __future__ import annotations

from profkit.trace.events import NONE, Bools, Category, Float64s, Int64s, Rows
from profkit.trace.statistics import among, distinct, distinct_rows, median

__all__ = [
    "NONE",
    "Bools",
    "Category",
    "Float64s",
    "Int64s",
    "Rows",
    "among",
    "distinct",
    "distinct_rows",
    "median",
]
