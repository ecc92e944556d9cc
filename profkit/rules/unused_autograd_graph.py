"""The forward pass records an autograd graph that no backward pass ever uses.

What it detects
Operators that make backward nodes (their sequence numbers rise) which no backward pass of the recording runs. Either
there is no backward pass and no optimizer at all, as in an evaluation; or the backward pass that follows in the step
skips whole stretches of operators that make a third of all nodes, such as a teacher network or a validation between two
training steps; or one line makes several such stretches a step, and they take a tenth of the memory peak, such as a
loss after each inner step of which the last is used. Single operators that a loss does not use are not reported, nor is
a forward pass whose backward comes after the recording. Only the source can show an evaluation that comes after the
recorded steps: the model is put into evaluation mode and called in a loop, with no `no_grad` around the call or its
callers, and nothing is differentiated. That is reported as low.

Why is this bad?
Each operator keeps its inputs for a backward pass that never comes, so all activations stay in memory until the output
is dropped. `model.eval()` only changes dropout and batch normalisation. Without a graph each activation is freed as
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
Memory: everything live at the step's peak that this pass made, or that the last pass left for this one to free, less
what a pass without a graph needs at XX"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.timeline.intervals import stretches
from profkit.patterns import Places, locations_of, order_sites, remarked, times_per_step
from profkit.patterns.loops.located import marks_around
from profkit.patterns.program import run_for_the_program
from profkit.patterns.retention.growing_graphs import LEAST_PASS, carried_graph, growing_graphs, growth_bytes
from profkit.patterns.retention.lifetimes import lifetimes
from profkit.rules.base import (
    HIGH_FROM,
    LOW_FROM,
    CannotLook,
    Facts,
    Kind,
    Location,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    format_bytes,
    format_count,
    format_share,
    pick_form,
    rule,
)
from profkit.savings import remove
from profkit.savings.replay import replay
from profkit.source.remark_kinds import EVALUATION_WITH_GRAD
from profkit.trace import NONE, Category, Int64s, Rows, among, distinct

_MIN_SHARE = 1 / 3
"""In training: a pass of a model makes this share of all nodes per optimizer step. A metric, or an output that the loss
happens not to use, makes fewer."""
_ONLY_SOME = " If only some of these results are used, such as the last, compute only those."
_FEW_NODES = 3
_MIN_PEAK_SHARE = 0.1
"""A teacher of a few layers makes fewer nodes: it counts if its graph is a tenth of the memory peak, from which on a
lower peak is more than information."""


class _Unused(Struct, frozen=True):
    """Operators whose nodes nobody runs, the ``last`` of each such pass, when it begins and ends, and whether it has
    enough nodes to be a model's."""

    makers: Rows
    last: Rows
    start_ns: Int64s
    end_ns: Int64s
    is_long: bool = True


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.WHOLE_STEP)
def unused_autograd_graph(facts: Facts) -> Suspicions:
    """At most one finding from the recording, at the line that makes most of the nodes, and one for each evaluation
    that only the source shows."""
    recorded = list(_recorded(facts))
    yield from recorded
    known = {place for found in recorded for place in found.places.all()}
    for location in remarked(facts, EVALUATION_WITH_GRAD):
        if location not in known:
            yield Suspicion(
                message="The source calls the model in evaluation mode with autograd on: each call keeps its results "
                "for a backward pass that never comes. The recorded steps do not include it.",
                fix="Run the evaluation under `with torch.inference_mode():`.",
                places=Places(location),
                severity=Severity.LOW,
                confidence=0.6,
                count=1,
            )


def _recorded(facts: Facts) -> Suspicions:
    calls = _calls(facts)
    rises = np.diff(facts.trace.events.sequence[calls]) > 0  # the number that the next node would get
    makers = calls[:-1][rises]
    trained = bool(facts.lines.backward.any() or facts.optimizing.any())
    if makers.size and not trained and (reason := _why_untrained(facts)):
        raise CannotLook(reason)
    carried = carried_graph(facts)
    if not makers.size or (carried is None and growing_graphs(facts)):  # what is kept may be meant for a backward pass
        return
    unused = _passed_over(facts, makers) if trained else _whole_steps(facts, makers)
    measured = facts.measured[unused.makers]
    repeats = len(unused.start_ns) >= 2 * facts.steps.measured_count
    is_much = _is_much(facts, makers, unused.makers[measured])
    is_pass = measured.sum() >= LEAST_PASS * facts.steps.measured_count
    if not measured.any() or not (is_much or (repeats and is_pass)):
        return
    size, peak = _needless_bytes(facts, calls, unused)
    if not (unused.is_long and is_much) and size < _MIN_PEAK_SHARE * max(peak, 1):
        return
    places = _lines_of(facts, unused, trained and repeats)
    count = times_per_step(facts, unused.makers[measured])
    keeps = pick_form(count, "keeps", "keep")
    memory = f" and {keeps} {format_bytes(size)} alive that nobody needs" if size else ""
    if carried is not None:
        size = growth_bytes(facts, carried)
        memory = f"; `{carried.path}` carries it on from step to step, and memory grows by {format_bytes(size)} a step"
    spent = replay(facts, remove(unused.makers[measured])).fraction if trained and repeats else 0.0
    yield Suspicion(
        message=f"{format_count(count, 'operator')} a step "
        f"{pick_form(count, 'records', 'record')} an autograd graph that no backward pass uses{memory}."
        f"{_in_vain(spent)}",
        fix="Run it under `with torch.inference_mode():` (or `torch.no_grad()` where the result takes part in a later "
        "backward pass)." + _ONLY_SOME * (trained and repeats),
        # If no located step shows it, lines carried over from other steps would name the wrong call.
        rows=unused.makers[measured] if not facts.lines.known else unused.makers[:0],
        places=Places.of(places[:4]),
        size_bytes=size,
        peak_fraction=size / peak if peak else 0.0,
        grows=carried is not None,
        severity=Severity.MEDIUM if spent >= HIGH_FROM and carried is None else None,  # as half of the peak
        confidence=0.9 if len(facts.steps) > 1 else 0.6,
        count=count,
        evidence={"nodes_made_per_step": count},
    )


def _in_vain(spent: float) -> str:
    """A recording does not tell whether the program reads the results: this is no saving, but what is at stake."""
    if spent < LOW_FROM:
        return ""
    return f" If nobody reads their results either, they are {format_share(spent)} of the step for nothing."


def _why_untrained(facts: Facts) -> str:
    """Why a recording without a backward pass may be one of training all the same; empty if nothing hints at it."""
    if len(facts.steps) == 1 and facts.run.torch is None:
        return "the recording is one window without a backward pass, and one may have followed it"
    if facts.run.step_signal == "optimizer" or facts.run.was_outdone:
        return "the program trains, and the recording ends before a backward pass"
    if len(facts.steps) == 1 and facts.run.exit_status:
        return "the program failed in its only recorded step, perhaps before a backward pass"
    return ""


def _lines_of(facts: Facts, unused: _Unused, end_at_one_line: bool) -> tuple[Location, ...]:
    """The line at which short passes end, and those that call the model."""
    ending = unused.last[facts.measured[unused.last] & end_at_one_line]
    sites = [*order_sites(facts.lines.site[ending]), *_calling_sites(facts, unused.makers)]
    return locations_of(facts, dict.fromkeys(sites))


def _is_much(facts: Facts, makers: Rows, unused: Rows) -> bool:
    """Whether these make a third of all nodes. An evaluation may come with every tenth step only: compare with the
    nodes of its own steps."""
    beside = among(facts.step_of(makers), facts.step_of(unused))
    return bool(len(unused) >= _MIN_SHARE * beside.sum() / facts.run.signals_per_step)


def _calls(facts: Facts) -> Rows:
    """What the program calls in the forward direction, in order: outermost operators of the main thread."""
    rows = facts.operators.nodes
    own = (facts.step_of(rows) >= 0) & ~run_for_the_program(facts)[rows]
    return rows[own & (facts.trace.events.sequence[rows] >= 0)]


def _whole_steps(facts: Facts, makers: Rows) -> _Unused:
    index = distinct(facts.step_of(makers))
    index = index[facts.steps.measured[index]]
    return _Unused(makers, makers[-1:], facts.steps.start_ns[index], facts.steps.end_ns[index])


def _passed_over(facts: Facts, makers: Rows) -> _Unused:
    """In each step the runs of nodes that no backward pass runs, though one follows in that step: those of the line
    with most of such nodes, as a pass may be repeated between others that are used."""
    events = facts.trace.events
    backward = np.flatnonzero(facts.lines.backward & (events.sequence >= 0))
    skipped = ~among(events.sequence[makers], events.sequence[backward])
    step = facts.step_of(makers)
    # A forward pass at the end of a step may have its backward in one that was not recorded: look at what follows.
    last_backward = np.full(len(facts.steps), NONE, dtype=np.int64)
    backward_step = facts.step_of(backward)
    known = backward_step >= 0
    np.maximum.at(last_backward, backward_step[known], events.start_ns[backward[known]])
    runs = []
    for number in distinct(step):
        at = np.flatnonzero(step == number)
        parts = stretches(np.flatnonzero(np.diff(skipped[at])) + 1, len(at))
        ended = [makers[at[part]] for part in parts if skipped[at[part.start]] and part.stop - part.start >= _FEW_NODES]
        runs += _of_one_line(facts, [run for run in ended if events.start_ns[run[-1]] < last_backward[number]])
    long = [run for run in runs if len(run) >= LEAST_PASS]
    runs = long or runs
    measured = [run for run in runs if facts.measured[run[0]]]
    return _Unused(
        np.concatenate(runs) if runs else makers[:0],
        np.array([run[-1] for run in runs], dtype=np.int64),
        np.array([events.start_ns[run[0]] for run in measured], dtype=np.int64),
        np.array([facts.tree.end_ns[run[-1]] for run in measured], dtype=np.int64),
        is_long=bool(long),
    )


def _of_one_line(facts: Facts, runs: list[Rows]) -> list[Rows]:
    """Those of the runs that end at the line with most nodes. Without a line each run is one by itself."""
    lines: dict[tuple[int, int], list[Rows]] = {}
    for number, run in enumerate(runs):
        site = int(facts.lines.site[run[-1]])
        lines.setdefault((site, NONE if site >= 0 else number), []).append(run)
    return max(lines.values(), key=lambda of_line: sum(map(len, of_line)), default=[])


def _calling_sites(facts: Facts, makers: Rows) -> list[int]:
    """The lines that call the model, as the located steps show them; the line whose call makes most nodes leads.

    A line in a module's ``forward`` belongs to the model: the line to change is outside the outermost ``forward``. The
    same goes for ``__call__``, which layers may have that are no modules, unless it calls a module itself: then it uses
    a model.
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
    time_ns, live_bytes = _live_curve(facts)
    size, peak = 0, facts.memory.peak_bytes
    index = facts.steps.index_of(unused.start_ns)
    for start_ns, end_ns, step in zip(unused.start_ns, unused.end_ns, index, strict=True):
        step_end_ns = int(facts.steps.end_ns[step])
        first, last = np.searchsorted(time_ns, [facts.steps.start_ns[step], step_end_ns])
        if first == last:
            continue
        peak_ns = int(time_ns[first + live_bytes[first:last].argmax()])
        held = _held_at(facts, unused, peak_ns, int(start_ns), step_end_ns)
        inside = calls[(facts.trace.events.start_ns[calls] >= start_ns) & (facts.trace.events.start_ns[calls] < end_ns)]
        size = max(size, held - _needed_at_once(facts, time_ns, live_bytes, inside))
        peak = max(peak, held)
    return size, peak


def _live_curve(facts: Facts) -> tuple[Int64s, Int64s]:
    """The times of the allocator's events, and the live bytes after each, relative to the first."""
    events = facts.trace.events
    types = distinct(events.device_type[facts.memory.rows])
    rows = np.flatnonzero((events.category == Category.MEMORY) & np.isin(events.device_type, types))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    return events.start_ns[rows], np.cumsum(events.size_bytes[rows])


def _held_at(facts: Facts, unused: _Unused, peak_ns: int, start_ns: int, step_end_ns: int) -> int:
    """Bytes live at the peak that this pass made, or an earlier one whose memory is freed later in this step (the graph
    of the last output). Memory of earlier passes that nobody frees is kept on purpose."""
    made_ns, freed_ns = lifetimes(facts)
    passes = np.searchsorted(unused.start_ns, made_ns, side="right") - 1
    in_pass = (passes >= 0) & (made_ns < unused.end_ns[passes.clip(min=0)])
    ends = (made_ns >= start_ns) | (freed_ns <= step_end_ns)
    return int(facts.memory.size_bytes[in_pass & ends & (made_ns <= peak_ns) & (freed_ns > peak_ns)].sum())


def _needed_at_once(facts: Facts, time_ns: Int64s, live_bytes: Int64s, calls: Rows) -> int:
    """What a pass without a graph needs: one operator's memory, and its input, which the operator before it made."""
    live = np.concatenate([[0], live_bytes])
    first = np.searchsorted(time_ns, facts.trace.events.start_ns[calls])
    last = np.searchsorted(time_ns, facts.tree.end_ns[calls])
    most = np.array([live[a : b + 1].max() - live[a] for a, b in zip(first, last, strict=True)], dtype=np.int64)
    outputs = np.concatenate([[0], (live[last] - live[first]).clip(min=0)])
    return int((most + outputs[:-1]).max(initial=0))
