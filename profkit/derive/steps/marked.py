"""What marking lines added to the measured steps, where every recorded step has its lines marked.

Tracing slows Python, PyTorch's own included, by far more than operators: a loop over elements or an optimizer that
walks through parameters takes two to four times its share of the step, a product of large matrices a half of it. How
long steps are without it is known, and samples of the program's stacks in such steps tell how much of that each line
takes. So each line keeps what it takes there. Of few samples a line's share is uncertain: four further ones are shared
out like the step as it would be if tracing cost the same at each edge of an event, as Agresti and Coull add four to a
proportion. Without samples all of them are.

Within a line the rest is taken from the stretches between edges, in which the tracing lies, as evenly as it goes.
`tests/benchmarks/bench_marked.py` compares the prices with those of plain steps: half are within 1.4 times, and were
within 1.8 when all edges cost the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profkit.derive.steps.boundaries import Steps
from profkit.derive.steps.distortion import automatic_collections, beyond_plain_ns, host_rows
from profkit.derive.steps.edges import between_edges, water_level
from profkit.derive.timeline.intervals import NOTHING, Intervals, stretches, union
from profkit.derive.timeline.tree import Tree
from profkit.run.directory import CallSite, Run, StackSamples
from profkit.trace.events import NONE, Bools, Category, Float64s, Int64s, Rows, Trace
from profkit.trace.statistics import among, pace

_ADDED = 4
"""Samples (A. Agresti and B. A. Coull, Approximate is better than "exact" for interval estimation of binomial
proportions, 1998)."""
_MAIN = "main"
_NO_LINE = 0
"""The number of the time under no line's mark. The others begin at 1."""


def find_marked(
    trace: Trace,
    tree: Tree,
    steps: Steps,
    in_steps: Bools,
    run: Run,
    callsites: Sequence[CallSite],
    stacks: StackSamples,
) -> Intervals:
    """What is beyond plain steps in the measured ones, which all have their lines marked. ``in_steps`` are the events
    of these steps on the host threads that take turns."""
    events = trace.events
    rows, excess_ns = host_rows(trace, tree, in_steps), beyond_plain_ns(steps, run)
    if not rows.size or excess_ns <= 0:
        return NOTHING
    numbers, number_of = _number_lines(callsites)
    count = len(number_of) + 1
    recorded_ns = _recorded(trace, tree, steps, rows, numbers, count)
    collected = automatic_collections(trace, steps, in_steps)
    collected = collected if events.duration_ns[collected].sum() <= excess_ns else collected[:0]
    collected_ns = events.duration_ns[collected].astype(np.float64)
    excess_ns -= collected_ns.sum()
    recorded_ns -= np.bincount(_lines_of(trace, tree, collected, numbers), collected_ns, count)
    found = between_edges(trace, tree, rows, with_marked_python=True)
    line = _lines_of(trace, tree, found.inside, numbers)
    evenly_ns = np.minimum(found.room_ns, found.weight * water_level(found.room_ns, found.weight, excess_ns))
    left_ns = recorded_ns - np.bincount(line, evenly_ns, count)
    kept_ns = _kept(left_ns.clip(min=0), pace(run.reference_step_ns) * steps.measured_count, number_of, stacks)
    taken_ns = _take(found.room_ns, found.weight, line, (recorded_ns - kept_ns).clip(min=0))
    starts, ends = (events.start_ns[collected], found.end_ns - taken_ns), (events.ends_of(collected), found.end_ns)
    return union(np.concatenate(starts), np.concatenate(ends))


def _number_lines(callsites: Sequence[CallSite]) -> tuple[Int64s, dict[tuple[str, int], int]]:
    """The number of each site's line, and that of each line of a file; sites of one line have one."""
    number_of: dict[tuple[str, int], int] = {}
    numbers = [number_of.setdefault((site.file, site.line), len(number_of) + 1) for site in callsites]
    return np.array([*numbers, _NO_LINE], dtype=np.int64), number_of  # the last is that of no site, -1


def _lines_of(trace: Trace, tree: Tree, inside: Rows, numbers: Int64s) -> Int64s:
    """The number of the line whose mark is the innermost around or at each of these rows."""
    marks = trace.events.category == Category.LINE_MARK
    known = inside >= 0
    mark = np.full(len(inside), NONE, dtype=np.int64)
    mark[known] = tree.nearest_ancestor(marks, include_self=True, of=inside[known])
    site = np.where(mark >= 0, trace.events.site[mark], NONE)
    lines: Int64s = numbers[np.where(site < len(numbers) - 1, site, NONE)]
    return lines


def _recorded(trace: Trace, tree: Tree, steps: Steps, rows: Rows, numbers: Int64s, count: int) -> Float64s:
    """What each line took itself in the measured steps, and what passed under no mark."""
    marks = rows[trace.events.category[rows] == Category.LINE_MARK]
    own_ns = (tree.end_ns[marks] - trace.events.start_ns[marks]).astype(np.float64)
    around = tree.nearest_ancestor(trace.events.category == Category.LINE_MARK, of=marks)
    nested = among(around, marks)
    outermost_ns = own_ns[~nested].sum()
    np.subtract.at(own_ns, np.searchsorted(marks, around[nested]), own_ns[nested].copy())
    spent: Float64s = np.bincount(_lines_of(trace, tree, marks, numbers), own_ns, count).clip(min=0)
    whole_ns = (steps.end_ns - steps.start_ns - steps.pause_ns)[steps.measured].sum()
    spent[_NO_LINE] += max(0.0, float(whole_ns - outermost_ns))
    return spent


def _kept(left_ns: Float64s, plain_ns: float, number_of: dict[tuple[str, int], int], stacks: StackSamples) -> Float64s:
    """What each line takes of plain steps: its share of the samples, and of four that are shared out by ``left_ns``."""
    expected = left_ns / max(left_ns.sum(), 1.0)
    mine = {number for number, thread in enumerate(stacks.threads) if thread.kind == _MAIN and not stacks.were_recorded}
    total_ns = sum(stacks.threads[number].time_ns for number in mine)
    sampled_ns, samples = np.zeros(len(expected)), total_ns / max(stacks.period_ns, 1)
    for stack in stacks.stacks:
        last = stack.lines[-1] if stack.lines else NONE
        if stack.thread in mine and 0 <= last < len(stacks.sites):
            site = stacks.sites[last]
            sampled_ns[number_of.get((site.file, site.line), _NO_LINE)] += stack.time_ns
    sampled_ns[_NO_LINE] += max(0.0, total_ns - sampled_ns.sum())
    share = sampled_ns / max(sampled_ns.sum(), 1.0)
    kept: Float64s = (share * samples + expected * _ADDED) * (plain_ns / (samples + _ADDED))
    return kept


def _take(room_ns: Int64s, weight: Int64s, line: Int64s, wanted_ns: Float64s) -> Int64s:
    """How much of each stretch goes, so that it adds up to what each line is wanted to lose."""
    taken_ns = np.zeros(len(room_ns), dtype=np.int64)
    order = np.argsort(line, kind="stable")
    for part in stretches(np.flatnonzero(np.diff(line[order])) + 1, len(order)):
        mine = order[part]
        level = water_level(room_ns[mine], weight[mine], float(wanted_ns[line[mine[0]]]))
        taken_ns[mine] = np.minimum(room_ns[mine], weight[mine] * level).astype(np.int64)
    return taken_ns
