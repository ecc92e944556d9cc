"""The figures of the "PyTorch Profiler" tab's overview, for the median step."""

from __future__ import annotations

import statistics
from typing import Any

from profkit.core.units import format_count


def of_median_step(overview: dict[str, Any]) -> dict[str, Any]:
    """The plugin's overview of the mean step, scaled to the median step."""
    rows = overview.get("steps", {}).get("rows", [])
    steps_us = [sum(part for part in row[1:] if not isinstance(part, str)) for row in rows]
    mean_us = statistics.fmean(steps_us) if steps_us else 0.0
    if not mean_us:
        return overview
    scale = statistics.median(steps_us) / mean_us
    (whole,) = overview["performance"]
    parts = [{**part, "value": round(part["value"] * scale)} for part in whole["children"]]
    name, median_us = f"Median of {format_count(len(rows), 'step')}", round(mean_us * scale)
    return {**overview, "performance": [{**whole, "name": name, "value": median_us, "children": parts}]}
