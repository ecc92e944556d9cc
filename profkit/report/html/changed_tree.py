"""The icicle of a comparison: both sides' time by line, operator and kernel, coloured by what became of it."""

from __future__ import annotations

from typing import Any

from profkit.core.units import format_share, format_time
from profkit.diagnosis.compare.comparison import MovedBranch, MovedTree
from profkit.report.html.drawing import Leaf, Levels, explain_levels
from profkit.report.wording import printable

_CHANGED, _MUCH = 1.1, 1.5
"""How many times as long. Single operators vary by some per cent from run to run."""
_LEAST_CHANGE = 0.005
"""Of the step, at which a finding counts."""
_LEAST_LABEL = 0.09
"""Of the width. A narrower part has no room for a name."""
_ALIKE = f"within {format_share(_CHANGED - 1)}, or by less than {format_share(_LEAST_CHANGE)} of the step"
_HOW_TO_READ = f"Each part is as wide as the longer of its two times. Alike: {_ALIKE}; much: by half or more."
_NOTHING_CHANGED = f"All of these take as long as before ({_ALIKE}): the difference lies elsewhere."
_HUES = (
    ("much-shorter", "much shorter"),
    ("shorter", "shorter"),
    ("alike", "alike"),
    ("longer", "longer"),
    ("much-longer", "much longer"),
)


def draw_tree(tree: MovedTree | None, step_ns: int) -> dict[str, Any]:
    """What the template shows of it; nothing without one. ``step_ns`` is the longer step of both sides."""
    if tree is None or not tree.branches:
        return {"levels": None, "leaves": ()}
    levels, leaves = explain_levels(tree.levels, tree.of_device), [_leaf(one, step_ns) for one in tree.branches]
    title, alike = f"{levels.title}, before and after", all(one.hue == "alike" for one in leaves)
    if alike:
        return {"levels": Levels(title, f"{levels.explained} {_NOTHING_CHANGED}"), "leaves": ()}
    return {
        "levels": Levels(title, f"{levels.explained} {_HOW_TO_READ}"),
        "leaf_hues": _HUES,
        "depths": 1 + max(one.depth for one in tree.branches),
        "leaves": leaves,
    }


def _leaf(one: MovedBranch, step_ns: int) -> Leaf:
    name = printable(one.name)
    times = " and ".join(f"{_time(ns)} {when}" for ns, when in ((one.before_ns, "before"), (one.after_ns, "after")))
    return Leaf(
        round(100 * one.begin, 3),
        round(100 * one.width, 3),
        max(one.depth, 0),
        _hue(one, step_ns),
        name,
        name if one.width >= _LEAST_LABEL else "",
        f"{name}: {times}, of a recorded step",
    )


def _time(time_ns: int) -> str:
    """What takes too little of a side's time to be drawn is not known to take none."""
    return format_time(time_ns) if time_ns else "next to nothing"


def _hue(one: MovedBranch, step_ns: int) -> str:
    low, high = sorted((one.before_ns, one.after_ns))
    if high - low < _LEAST_CHANGE * step_ns or high < _CHANGED * low:
        return "alike"
    much = "much-" if high >= _MUCH * low else ""
    return f"{much}{'longer' if one.after_ns > one.before_ns else 'shorter'}"
