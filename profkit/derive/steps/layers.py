"""Whether repeats are the layers of one pass through a model instead of steps."""

from __future__ import annotations

import numpy as np

from profkit.derive.device.launches import Launches
from profkit.derive.families import MATRIX, operators_of
from profkit.derive.timeline.tree import Tree
from profkit.trace.events import NONE, Bools, Category, Events, Int32s, Int64s, Rows, Trace
from profkit.trace.statistics import distinct, distinct_rows, median

MODULE_CALL = "nn.Module: "
"""The prefix of frames in which a module is called (``torch/csrc/autograd/profiler_python.cpp``)."""
_ENDS = MATRIX | {"embedding"}
"""A model begins and ends with one: it brings the input to the width of the layers, and their result back."""
_MOST_REPEATS_BEFORE_END = 2
"""How far, in repeats, an end may be from the layers: masks, positions and norms are computed in between."""
_ALIKE_SHARE = 0.8
"""The share of the repeats between the ends that must be alike for them to be a pattern."""


def are_layers(trace: Trace, tree: Tree, launches: Launches, lane: int, starts_ns: Int64s) -> bool:
    """Whether the repeats that begin at ``starts_ns`` on a thread are parts of one pass.

    Python frames show it: most repeats share the call of the outermost module around them. If no calls of modules were
    recorded, the ends of the pass show it: a product or an embedding lookup unlike those of the repeats is near the
    first repeat, and another near the last. They differ by their shapes; where these show nothing,
    by their kernels.
    """
    here = trace.events.lane == lane
    calls = tree.outermost(trace.where_name(lambda name: name.startswith(MODULE_CALL)) & here)
    calls &= trace.events.category == Category.PYTHON
    if calls.any():
        return _share_calls(trace, tree, np.flatnonzero(calls), starts_ns)
    return _have_ends(trace, launches, here, starts_ns)


def _share_calls(trace: Trace, tree: Tree, calls: Rows, starts_ns: Int64s) -> bool:
    calls = calls[np.argsort(trace.events.start_ns[calls], kind="stable")]
    at = np.searchsorted(trace.events.start_ns[calls], starts_ns, side="right") - 1
    inside = (at >= 0) & (tree.end_ns[calls[at]] > starts_ns)
    return len(starts_ns) - int(inside.sum()) + len(distinct(at[inside])) <= len(starts_ns) / 2


def _have_ends(trace: Trace, launches: Launches, here: Bools, starts_ns: Int64s) -> bool:
    """Repeats that all differ, as with a cache that grows with each token, show nothing."""
    events = trace.events
    rows = np.flatnonzero(operators_of(trace, _ENDS) & here)
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    usual = _are_usual(events, rows, events.dims_code[rows], starts_ns)
    if not usual.any() or (events.dims_code[rows] < 0).all():
        usual = _are_usual(events, rows, _first_kernels(trace, launches, rows), starts_ns)
    last, distance_ns = len(starts_ns) - 1, _MOST_REPEATS_BEFORE_END * median(np.diff(starts_ns))
    near = _are_near(events.start_ns[rows], events.ends_of(rows), usual, distance_ns)
    unlike = _repeat_of(events, rows, starts_ns)[~usual & near]
    between = distinct(unlike[(unlike > 0) & (unlike < last)])
    return bool((unlike <= 0).any() and (unlike == last).any() and len(between) <= (1 - _ALIKE_SHARE) * last)


def _repeat_of(events: Events, rows: Rows, starts_ns: Int64s) -> Int64s:
    """The repeat that each row begins in, -1 before the first."""
    repeat: Int64s = np.searchsorted(starts_ns, events.start_ns[rows], side="right") - 1
    return repeat


def _are_usual(events: Events, rows: Rows, codes: Int32s, starts_ns: Int64s) -> Bools:
    """Which rows are of a kind, by their name and this code, that most repeats have."""
    _, kind = distinct_rows(events.name_code[rows], codes)
    repeats = len(starts_ns) + 1
    seen = distinct(kind * repeats + _repeat_of(events, rows, starts_ns) + 1)
    usual: Bools = (np.bincount(seen // repeats, minlength=1) > len(starts_ns) / 2)[kind]
    return usual


def _first_kernels(trace: Trace, launches: Launches, rows: Rows) -> Int32s:
    """The code of the name of the first kernel that each operator launches on its own thread, -1 without one."""
    events = trace.events
    called = launches.call >= 0
    calls, work = launches.call[called], launches.work[called]
    calls, work = calls[here := np.isin(events.lane[calls], events.lane[rows])], work[here]
    order = np.argsort(events.start_ns[calls], kind="stable")
    begun_ns, work = events.start_ns[calls[order]], work[order]
    at = np.searchsorted(begun_ns, events.start_ns[rows])
    inside = at < np.searchsorted(begun_ns, events.ends_of(rows))
    codes: Int32s = np.full(len(rows), NONE, dtype=np.int32)
    codes[inside] = events.name_code[work[at[inside]]]
    return codes


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
