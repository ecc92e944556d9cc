"""Whether repeats are the layers of one pass through a model instead of steps."""

from __future__ import annotations

import numpy as np

from profkit.derive.families import MATRIX, operators_of
from profkit.derive.timeline.tree import Tree
from profkit.trace.events import Bools, Category, Int64s, Rows, Trace
from profkit.trace.statistics import distinct, distinct_rows, median

MODULE_CALL = "nn.Module: "
"""The prefix of frames in which a module is called (``torch/csrc/autograd/profiler_python.cpp``)."""
_ENDS = MATRIX | {"embedding"}
"""A model begins and ends with one: it brings the input to the width of the layers, and their result back."""
_MOST_REPEATS_BEFORE_END = 2
"""How far, in repeats, an end may be from the layers: masks, positions and norms are computed in between."""
_ALIKE_SHARE = 0.8
"""The share of the repeats between the ends that must be alike for them to be a pattern."""


def are_layers(trace: Trace, tree: Tree, lane: int, starts_ns: Int64s) -> bool:
    """Whether the repeats that begin at ``starts_ns`` on a thread are parts of one pass.

    Python frames show it: most repeats share the call of the outermost module around them. If no calls of modules were
    recorded, the ends of the pass show it: a product or an embedding lookup unlike those of the repeats is near the
    first repeat, and another near the last.
    """
    here = trace.events.lane == lane
    calls = tree.outermost(trace.where_name(lambda name: name.startswith(MODULE_CALL)) & here)
    calls &= trace.events.category == Category.PYTHON
    if calls.any():
        return _share_calls(trace, tree, np.flatnonzero(calls), starts_ns)
    return _have_ends(trace, here, starts_ns)


def _share_calls(trace: Trace, tree: Tree, calls: Rows, starts_ns: Int64s) -> bool:
    calls = calls[np.argsort(trace.events.start_ns[calls], kind="stable")]
    at = np.searchsorted(trace.events.start_ns[calls], starts_ns, side="right") - 1
    inside = (at >= 0) & (tree.end_ns[calls[at]] > starts_ns)
    return len(starts_ns) - int(inside.sum()) + len(distinct(at[inside])) <= len(starts_ns) / 2


def _have_ends(trace: Trace, here: Bools, starts_ns: Int64s) -> bool:
    """Repeats that all differ, as with a cache that grows with each token, show nothing."""
    events, last = trace.events, len(starts_ns) - 1
    rows = np.flatnonzero(operators_of(trace, _ENDS) & here)
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    repeat = np.searchsorted(starts_ns, events.start_ns[rows], side="right") - 1
    _, kind = distinct_rows(events.name_code[rows], events.dims_code[rows])
    seen = distinct(kind * (last + 2) + repeat + 1)
    usual = np.bincount(seen // (last + 2), minlength=1) > len(starts_ns) / 2
    distance_ns = _MOST_REPEATS_BEFORE_END * median(np.diff(starts_ns))
    near = _are_near(events.start_ns[rows], events.ends_of(rows), usual[kind], distance_ns)
    unlike = repeat[~usual[kind] & near]
    between = distinct(unlike[(unlike > 0) & (unlike < last)])
    return bool((unlike <= 0).any() and (unlike == last).any() and len(between) <= (1 - _ALIKE_SHARE) * last)


def _are_near(start_ns: Int64s, end_ns: Int64s, usual: Bools, distance_ns: float) -> Bools:
    """Which events, sorted by start, are within this distance of a usual one."""
    if not usual.any():
        return usual
    begins_ns, ends_ns = start_ns[usual], end_ns[usual]
    behind = np.searchsorted(begins_ns, start_ns)
    since_ns = np.abs(start_ns - ends_ns[(behind - 1).clip(min=0)])
    until_ns = np.abs(begins_ns[behind.clip(max=len(begins_ns) - 1)] - end_ns)
    near: Bools = np.minimum(since_ns, until_ns) <= distance_ns
    return near
