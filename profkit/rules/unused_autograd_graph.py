"""The forward pass records an autograd graph that no backward pass ever uses.

What it detects
Operators that make backward nodes (their sequence numbers rise) which no backward pass of the recording runs: either
there is no backward pass and no optimizer at all, as in an evaluation, or the backward pass that follows in the step
passes over whole stretches of operators that make a third of all nodes, as for a teacher network or a validation
between two training steps. Single operators that a loss does not use, and a forward pass whose backward comes after
the recording, are no fault. An evaluation that comes after the recorded steps shows in the source alone: the model is
put into evaluation mode and called in a loop, with no `no_grad` around the call or its callers and nothing
differentiated. That is reported as low.

Why is this bad?
Each operator keeps its inputs for a backward pass that never comes, so all activations stay in memory until the output
is dropped. `model.eval()` changes dropout and batch normalisation alone. Without a graph each activation is freed as
soon as the next layer has read it.

Example
    model.eval()
    for x in batches:
        scores = model(x)

Use instead
    model.eval()
    with torch.inference_mode():
        for x in batches:
            scores = model(x)

How the saving is estimated
Memory: what the pass made, or the last pass left to be freed in this one, and is live at the step's peak, less what is
needed at once without a graph: the most that an operator allocates together with the output of the one before it. Time
is not claimed: reused memory is often faster than fresh memory, but by how much a recording does not tell.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.evidence.attribution import order_sites
from profkit.evidence.frequency import times_per_step
from profkit.evidence.loops.located import marks_around
from profkit.evidence.program import run_for_the_program
from profkit.evidence.retention.growing_graphs import LEAST_PASS, carried_graph, growing_graphs, growth_bytes
from profkit.evidence.retention.lifetimes import lifetimes
from profkit.findings import Kind, Severity
from profkit.rules.base import CannotLook, Need, Suspicion, rule
from profkit.ruling.places import Places, locations_of, remarked
from profkit.source.remark_kinds import EVALUATION_WITH_GRAD
from profkit.trace.events import NONE, Bools, Category, Int64s, Rows
from profkit.trace.values import among, distinct
from profkit.units import format_bytes, format_count, pick_form

_MIN_SHARE = 1 / 3
"""In training: so large a share of all nodes that are made for one step of the optimizer are a pass of a model and not
a metric or an output that the loss happens not to use."""
_FEW_NODES = 3
_MIN_PEAK_SHARE = 0.1
"""A teacher of a few layers makes fewer nodes than that: it counts where its graph is a tenth of the memory peak, from
which on a lower peak is more than information."""


class _Unused(Struct, frozen=True):
    """Operators whose nodes nobody runs, from when to when that pass lasts in each step that has one, and whether it is
    a model's by the number of its nodes."""

    makers: Rows
    start_ns: Int64s
    end_ns: Int64s
    is_long: bool = True


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.WHOLE_STEP)
def unused_autograd_graph(facts: Facts) -> Iterator[Suspicion]:
    """At most one finding of what was recorded, at the line that makes most of the nodes; and the evaluations that only
    the source shows."""
    recorded = list(_recorded(facts))
    yield from recorded
    known = {place for found in recorded for place in found.places.all()}
    for location in remarked(facts, EVALUATION_WITH_GRAD):
        if location not in known:
            yield Suspicion(
                message="The source puts the model into evaluation mode and calls it with autograd on: each "
                "call then keeps its results for a backward pass that does not come. The recorded steps have none "
                "of it.",
                fix="Run the evaluation under `with torch.inference_mode():`.",
                places=Places(location),
                severity=Severity.LOW,
                confidence=0.6,
                count=1,
            )


def _recorded(facts: Facts) -> Iterator[Suspicion]:
    calls = _calls(facts)
    makers = calls[_makes_nodes(facts, calls)]
    trained = bool(facts.lines.backward.any() or facts.optimizing.any())
    if makers.size and not trained and len(facts.steps) == 1 and facts.run.torch is None:
        raise CannotLook("the recording is one window without a backward pass, and one may have followed it")
    if makers.size and not trained and (facts.run.step_signal == "optimizer" or facts.run.was_outdone):
        raise CannotLook("the program trains, and the recording ends before a backward pass")
    carried = carried_graph(facts)
    if not makers.size or (carried is None and growing_graphs(facts)):  # what is kept may be meant for a backward pass
        return
    unused = _passed_over(facts, makers) if trained else _whole_steps(facts, makers)
    measured = facts.measured[unused.makers]
    beside = _in_the_same_steps(facts, makers, unused.makers[measured])
    if not measured.any() or measured.sum() < _MIN_SHARE * beside.sum() / facts.run.signals_per_step:
        return
    size, peak = _needless_bytes(facts, calls, unused)
    if not unused.is_long and size < _MIN_PEAK_SHARE * max(peak, 1):
        return
    places = locations_of(facts, _calling_sites(facts, unused.makers))
    count = times_per_step(facts, unused.makers[measured])
    keeps = pick_form(count, "keeps", "keep")
    memory = f" and {keeps} {format_bytes(size)} alive that nobody needs" if size else ""
    if carried is not None:
        size = growth_bytes(facts, carried)
        memory = f"; `{carried.path}` carries it on from step to step, and memory grows by {format_bytes(size)} a step"
    yield Suspicion(
        message=f"{format_count(count, 'operator')} a step "
        f"{pick_form(count, 'records', 'record')} an autograd graph that no backward pass uses{memory}.",
        fix="Run it under `with torch.inference_mode():` (or `torch.no_grad()` where the result takes part in a later "
        "backward pass).",
        # Without a located step that shows it, lines carried over from other steps would name the wrong call.
        rows=unused.makers[measured] if not facts.lines.known else unused.makers[:0],
        places=Places.of(places[:4]),
        size_bytes=size,
        peak_fraction=size / peak if peak else 0.0,
        grows=carried is not None,
        confidence=0.9 if len(facts.steps) > 1 else 0.6,
        count=count,
        evidence={"nodes_made_per_step": count},
    )


def _in_the_same_steps(facts: Facts, rows: Rows, others: Rows) -> Bools:
    """Which rows lie in a step that holds one of the others: an evaluation may come with every tenth step."""
    start_ns, index_of = facts.trace.events.start_ns, facts.steps.index_of
    return among(index_of(start_ns[rows]), index_of(start_ns[others]))


def _calls(facts: Facts) -> Rows:
    """What the program calls in the forward direction, in order: outermost operators of the main thread."""
    rows = facts.operators.nodes
    own = (facts.step_of(rows) >= 0) & ~run_for_the_program(facts)[rows]
    chosen: Rows = rows[own & (facts.trace.events.sequence[rows] >= 0)]
    return chosen


def _makes_nodes(facts: Facts, calls: Rows) -> Bools:
    """Which calls make a node: the number that the next call would use has risen."""
    sequence = facts.trace.events.sequence[calls]
    makes: Bools = np.append(sequence[1:] > sequence[:-1], False)[: len(calls)]
    return makes


def _whole_steps(facts: Facts, makers: Rows) -> _Unused:
    index = distinct(facts.step_of(makers))
    index = index[facts.steps.measured[index]]
    return _Unused(makers, facts.steps.start_ns[index], facts.steps.end_ns[index])


def _passed_over(facts: Facts, makers: Rows) -> _Unused:
    """In each step the longest run of nodes that no backward pass runs, though one follows in that step."""
    events = facts.trace.events
    backward = np.flatnonzero(facts.lines.backward & (events.sequence >= 0))
    run_by_backward = among(events.sequence[makers], events.sequence[backward])
    step = facts.step_of(makers)
    # A forward pass at the end of a step may have its backward in one that was not recorded: look at what follows.
    last_backward = np.full(len(facts.steps), NONE, dtype=np.int64)
    backward_step = facts.step_of(backward)
    known = backward_step >= 0
    np.maximum.at(last_backward, backward_step[known], events.start_ns[backward[known]])
    runs = [
        run
        for number in distinct(step)
        for run in [_longest_run(makers[step == number], ~run_by_backward[step == number])]
        if len(run) >= _FEW_NODES and events.start_ns[run[-1]] < last_backward[number]
    ]
    long = [run for run in runs if len(run) >= LEAST_PASS]
    runs = long or runs
    measured = [run for run in runs if facts.measured[run[0]]]
    return _Unused(
        np.concatenate(runs) if runs else makers[:0],
        np.array([events.start_ns[run[0]] for run in measured], dtype=np.int64),
        np.array([facts.tree.end_ns[run[-1]] for run in measured], dtype=np.int64),
        is_long=bool(long),
    )


def _longest_run(rows: Rows, wanted: Bools) -> Rows:
    """The longest stretch of consecutive rows that are all wanted."""
    bounds = np.flatnonzero(np.diff(np.concatenate([[False], wanted, [False]]).astype(np.int8)))
    starts, ends = bounds[::2], bounds[1::2]
    if not len(starts):
        return rows[:0]
    longest = int((ends - starts).argmax())
    return rows[starts[longest] : ends[longest]]


def _calling_sites(facts: Facts, makers: Rows) -> list[int]:
    """The lines that call the model, the one that makes most nodes first, as the located steps show them.

    A line in a module's ``forward`` belongs to the model: the line to change is the one outside the outermost such. So
    does one in a ``__call__``, of layers that are no modules, unless that calls a module itself: then it uses a model.
    """
    events, above = facts.trace.events, marks_around(facts)
    inner = above[makers]
    inner = inner[inner >= 0]
    names = [site.function.rpartition(".")[2] for site in facts.callsites]
    in_module = np.array([name == "forward" for name in names], dtype=bool)
    in_call = np.array([name == "__call__" for name in names], dtype=bool)
    found, current = inner.copy(), inner.copy()
    calls_module = np.zeros(len(inner), dtype=bool)
    while (current >= 0).any():
        site = events.site[current]
        known = (current >= 0) & (site >= 0) & (site < len(names)) & (above[current] >= 0)
        outside = known.copy()
        outside[known] = in_module[site[known]] | (in_call[site[known]] & ~calls_module[known])
        calls_module[known] |= in_module[site[known]]
        found = np.where(outside, above[current], found)
        current = np.where(current >= 0, above[current], NONE)
    return order_sites(events.site[found])


def _needless_bytes(facts: Facts, calls: Rows, unused: _Unused) -> tuple[int, int]:
    """By how much the peak would fall, and the peak itself, in the step with the most to gain."""
    if not facts.memory.present:
        return 0, 0
    curve = _live_curve(facts)
    size, peak = 0, facts.memory.peak_bytes
    index = facts.steps.index_of(unused.start_ns)
    for start_ns, end_ns, step in zip(unused.start_ns, unused.end_ns, index, strict=True):
        step_end_ns = int(facts.steps.end_ns[step])
        first, last = np.searchsorted(curve.time_ns, [facts.steps.start_ns[step], step_end_ns])
        if first == last:
            continue
        peak_ns = int(curve.time_ns[first + curve.live_bytes[first:last].argmax()])
        held = _held_at(facts, unused, peak_ns, int(start_ns), step_end_ns)
        inside = calls[(facts.trace.events.start_ns[calls] >= start_ns) & (facts.trace.events.start_ns[calls] < end_ns)]
        size = max(size, held - _needed_at_once(facts, curve, inside))
        peak = max(peak, held)
    return size, peak


class _LiveCurve(Struct, frozen=True):
    """Live bytes after each event of the allocator, relative to the first."""

    time_ns: Int64s
    live_bytes: Int64s


def _live_curve(facts: Facts) -> _LiveCurve:
    events = facts.trace.events
    types = distinct(events.device_type[facts.memory.rows])
    rows = np.flatnonzero((events.category == Category.MEMORY) & np.isin(events.device_type, types))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    return _LiveCurve(events.start_ns[rows], np.cumsum(events.size_bytes[rows]))


def _held_at(facts: Facts, unused: _Unused, peak_ns: int, start_ns: int, step_end_ns: int) -> int:
    """Bytes live at the peak that this pass made, or an earlier one whose memory is freed later in this step: the graph
    of the last output. What earlier passes made and nobody frees is kept on purpose."""
    made_ns, freed_ns = lifetimes(facts)
    passes = np.searchsorted(unused.start_ns, made_ns, side="right") - 1
    in_pass = (passes >= 0) & (made_ns < unused.end_ns[passes.clip(min=0)])
    ends = (made_ns >= start_ns) | (freed_ns <= step_end_ns)
    return int(facts.memory.size_bytes[in_pass & ends & (made_ns <= peak_ns) & (freed_ns > peak_ns)].sum())


def _needed_at_once(facts: Facts, curve: _LiveCurve, calls: Rows) -> int:
    """What a pass without a graph needs: one operator's memory and its input, which the one before it made."""
    live = np.concatenate([[0], curve.live_bytes])
    first = np.searchsorted(curve.time_ns, facts.trace.events.start_ns[calls])
    last = np.searchsorted(curve.time_ns, facts.tree.end_ns[calls])
    most = np.array([live[a : b + 1].max() - live[a] for a, b in zip(first, last, strict=True)], dtype=np.int64)
    outputs = np.concatenate([[0], (live[last] - live[first]).clip(min=0)])
    return int((most + outputs[:-1]).max(initial=0))
