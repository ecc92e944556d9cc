"""A mode that is meant for finding errors is on, and every step pays for it.

What it detects
Autograd's anomaly mode, by its setting and by the checks for NaN that follow the nodes of the backward pass;
`CUDA_LAUNCH_BLOCKING`, if the launches of a recording with a GPU did wait for their kernels;
`torch.cuda.set_sync_debug_mode`; and the filling of new memory that comes with deterministic algorithms. These
algorithms may be intended and are not reported themselves. The settings are known in profkit's own recordings; the
checks, and memory filled right after its allocation, show in any recording.

Why is this bad?
In anomaly mode each operator of the forward pass formats Python's whole stack as text, in case its backward fails, and
each gradient is searched for NaN, for which the host waits for a GPU. With `CUDA_LAUNCH_BLOCKING=1` the host waits for
each kernel, so host and device never work at the same time. With deterministic algorithms each new tensor is filled
with NaN before anything is written to it, to expose reads of unwritten memory. Such a mode is switched on for one bug,
and stays.

Example
    torch.autograd.set_detect_anomaly(True)
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()

Use instead
    torch.autograd.set_detect_anomaly(args.debug)
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()

How the saving is estimated
The step is replayed without the checks. An operator that records a node formats the stack before the first thing that
happens in it: that time shrinks to what operators which record none take there, and anything beyond twice the usual
time counts as computing. If nothing shows inside an operator, the median of that time is taken, provided the operator
lasted at least half of it. The formatting also leaves the processor's caches cold, which is not counted. A blocking
launch keeps the time until its kernel began. The filling of new memory vanishes on a GPU. On a CPU the first write to
memory also maps its pages, so only the time for writing the bytes vanishes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

import numpy as np

from profkit.patterns import (
    Places,
    each_step,
    in_most_steps,
    locations_of,
    named_operators,
    remarked,
    spent_ns,
    times_per_step,
    works_under,
)
from profkit.rules.base import Facts, Kind, Suspicion, Suspicions, format_count, format_time, rule
from profkit.savings import (
    Edit,
    combine,
    computing_ns,
    drop_operators,
    memory_bytes_per_ns,
    remove,
    shrink,
    shrink_spans,
)
from profkit.source.changes import Argument, ChangedCall
from profkit.source.remark_kinds import ANOMALY_MODE_SET, DETERMINISM_SET
from profkit.source.settings import anomaly_mode_setters, sync_debug_setters
from profkit.source.syntax import parse_line
from profkit.trace import Bools, Category, Rows, distinct, median

_ENGINE, _NODE = "autograd::engine::evaluate_function", re.compile(r"Backward\d*$")
_CHECKS = ("aten::isnan", "aten::any", "aten::_is_any_true", "aten::item", "aten::is_nonzero")
"""The engine calls these for each gradient, under a node's range (``Engine::evaluate_function`` in ``engine.cpp``)."""
_MOST_NODES = 0.5
"""The engine checks every node that returns a gradient. A hook of the program checks only the few it was put on."""
_UNUSUAL = 2.0
"""Formatting the stack takes about as long each time. Longer times before the first event are something else."""
_ALLOCATING = ("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::resize_")
"""These fill what they return if that is on (``fill_empty_deterministic_`` in ``EmptyTensor.cpp`` and its callers), and
nothing else makes them do so."""
_UNCERTAINTY_OF_PAGES = 0.5
_UNCERTAINTY = 0.3
"""The program's runner makes the stack deeper, and the later cost of cold caches is unknown."""

_SWITCH_OFF = ChangedCall("set_detect_anomaly", (Argument("mode", "False", (True,), position=0),))
_DO_NOT_REPORT_WAITS = ChangedCall(
    "set_sync_debug_mode", (Argument("debug_mode", '"default"', (1, 2, "warn", "error"), position=0),)
)


@rule(Kind.FAULT)
def debug_mode_on(facts: Facts) -> Suspicions:
    """One finding for each mode that is on."""
    checks = _nan_checks(facts)
    if facts.run.flags.get("anomaly_mode") is True or checks.size:
        yield _anomaly_mode(facts, checks)
    if _is_set(facts, "env:CUDA_LAUNCH_BLOCKING"):
        yield from _launch_blocking(facts)
    if _is_set(facts, "sync_debug_mode"):
        yield Suspicion(
            message="`torch.cuda.set_sync_debug_mode` is on: each call that waits for the GPU is checked.",
            fix="Switch it off once the waits are found: `torch.cuda.set_sync_debug_mode('default')`.",
            places=Places.of(locations_of(facts, _lines_with(facts, sync_debug_setters))[:1]),
            count=1,
            rewrite=_DO_NOT_REPORT_WAITS,
        )
    yield from _filling(facts)


def _is_set(facts: Facts, flag: str) -> bool:
    return facts.run.flags.get(flag) not in (None, False, 0, "", "0")


def _lines_with(facts: Facts, setters: Callable[[ast.AST], list[int]]) -> list[int]:
    parsed = [(index, parse_line(site.source)) for index, site in enumerate(facts.callsites)]
    return [index for index, line in parsed if line is not None and setters(line)]


def _nan_checks(facts: Facts) -> Rows:
    """The engine's searches for NaN in the measured steps; none if they follow only a few of the nodes."""
    tree, searches = facts.tree, named_operators(facts, "aten::isnan")
    if not searches.any():
        return np.zeros(0, dtype=np.int64)
    ranges = facts.trace.where_name(lambda name: name.startswith(_ENGINE) and not name.endswith("AccumulateGrad"))
    nodes = ranges & facts.measured
    # A hook on a gradient runs before the node's own range, the check after it.
    inside = (tree.parent >= 0) & nodes[tree.parent]
    is_node = facts.trace.where_name(lambda name: _NODE.search(name) is not None and not name.startswith(_ENGINE))
    own = np.flatnonzero(inside & is_node)
    after = np.full(len(nodes), np.iinfo(np.int64).max)
    np.minimum.at(after, tree.parent[own], own)
    behind: Bools = inside & (np.arange(len(nodes)) > after[tree.parent])
    checked = distinct(tree.parent[behind & searches])
    if not checked.size or len(checked) < _MOST_NODES * nodes.sum():
        return own[:0]
    return np.flatnonzero(behind & np.isin(tree.parent, checked) & named_operators(facts, *_CHECKS))


def _anomaly_mode(facts: Facts, checks: Rows) -> Suspicion:
    """At the line that switches it on: one that profkit saw run, or else one in the source."""
    steps, formatting = facts.steps.measured_count, _stack_formatting(facts)
    searched = round(int(named_operators(facts, "aten::isnan")[checks].sum()) / steps)
    places = locations_of(facts, _lines_with(facts, anomaly_mode_setters)) or remarked(facts, ANOMALY_MODE_SET)
    what = f", and each step searches {format_count(searched, 'gradient')} for NaN" if searched else ""
    works = works_under(facts, facts.trace.mask_of(checks))
    return Suspicion(
        message=f"Autograd's anomaly mode is on: each operator of the forward pass formats Python's stack{what}.",
        fix="Switch it off: `torch.autograd.set_detect_anomaly(False)`. Switch it on only for a run that has to "
        "find a NaN or a failing backward pass.",
        edit=combine([remove(checks, works, _UNCERTAINTY), formatting]),
        confidence=0.95,
        count=max(1, searched),
        rewrite=_SWITCH_OFF,
        places=Places.of(places),
        evidence={
            "gradients_searched_per_step": searched,
            "operators_with_stack_per_step": round(len(formatting.span_start_ns) / steps),
        },
    )


def _stack_formatting(facts: Facts) -> Edit:
    """The time before the first event in operators that record a node, beyond what other operators take there: they
    format Python's stack."""
    events, tree = facts.trace.events, facts.tree
    called = np.flatnonzero((events.category == Category.OPERATOR) & facts.measured & ~facts.lines.backward)
    called = called[events.lane[called] == facts.steps.main_lane]
    rows = called[tree.stop[called] > called + 1]
    lead_ns = events.start_ns[rows + 1] - events.start_ns[rows]
    recording = _records_a_node(facts)
    usual_ns = int(median(lead_ns[~recording[rows]])) if (~recording[rows]).any() else 0
    formatting = recording[rows] & (lead_ns > _UNUSUAL * usual_ns)
    if not formatting.any():
        return remove(rows[:0], uncertainty=_UNCERTAINTY)
    rows, lead_ns = rows[formatting], lead_ns[formatting]
    median_ns = int(median(lead_ns))
    silent = called[(tree.stop[called] == called + 1) & recording[called]]
    silent = silent[events.duration_ns[silent] >= max(median_ns // 2, usual_ns)]
    taken_ns = np.concatenate([np.minimum(lead_ns, int(_UNUSUAL * median_ns)), np.full(len(silent), median_ns)])
    both = np.concatenate([rows, silent])
    start_ns = events.start_ns[both]
    end_ns = np.minimum(start_ns + taken_ns, np.maximum(tree.end_ns[both], start_ns))
    return shrink_spans(start_ns, end_ns, usual_ns, _UNCERTAINTY)


def _records_a_node(facts: Facts) -> Bools:
    """Operators that record a node: they carry the number of the next one, and contain no operator with the same
    number. A composite operator carries the number of its first part and records none itself."""
    events, tree = facts.trace.events, facts.tree
    numbered = (events.category == Category.OPERATOR) & (events.sequence >= 0)
    above = tree.nearest_ancestor(numbered)
    inner = np.flatnonzero(numbered & (above >= 0))
    inner = inner[events.sequence[inner] == events.sequence[above[inner]]]
    records: Bools = numbered & ~facts.trace.mask_of(above[inner])
    return records


def _launch_blocking(facts: Facts) -> Suspicions:
    """If there are launches that returned only when their kernel had ended."""
    launches, events = facts.launches, facts.trace.events
    ended = (launches.call >= 0) & (events.ends_of(launches.call) >= events.ends_of(launches.work))
    ended &= facts.measured[launches.call]
    work, call = launches.work[ended], launches.call[ended]
    if not len(call):
        return
    count = times_per_step(facts, call)
    yield Suspicion(
        message=(
            f"The host waits for {format_count(count, 'kernel')} a step, one by one, because "
            "CUDA_LAUNCH_BLOCKING is set."
        ),
        fix="Unset CUDA_LAUNCH_BLOCKING; set it only to find the operator whose kernel fails.",
        edit=shrink(call, (events.start_ns[work] - events.start_ns[call]).clip(min=0), _UNCERTAINTY),
        confidence=0.95,
        count=count,
    )


def _filling(facts: Facts) -> Suspicions:
    """If allocating operators fill their own results."""
    fills, parent = named_operators(facts, "aten::fill_"), facts.tree.parent
    filled = facts.measured_rows(fills & (parent >= 0) & named_operators(facts, *_ALLOCATING)[parent])
    if not in_most_steps(facts, filled):
        return
    count = times_per_step(facts, filled)
    spent = facts.steps.per_step_ns(int(computing_ns(facts, filled).sum()))
    if works_under(facts, facts.trace.mask_of(filled)).size:
        edit = drop_operators(facts, filled, _UNCERTAINTY)
    else:
        writing = facts.operators.input_bytes[filled] / memory_bytes_per_ns(facts)
        kept = (spent_ns(facts, filled) - writing).clip(min=0)
        edit = shrink(filled, kept.astype(np.int64), _UNCERTAINTY_OF_PAGES)
    yield Suspicion(
        message=f"{each_step(count, 'new tensor', 'is', 'are')} filled with NaN before anything is written there, the "
        f"default of deterministic algorithms: {format_time(spent)}.",
        fix="Set `torch.utils.deterministic.fill_uninitialized_memory = False`. The algorithms stay deterministic, "
        "but reads of unwritten memory no longer show.",
        places=Places.of(remarked(facts, DETERMINISM_SET)),
        edit=edit,
        count=count,
        evidence={"filled_per_step": count, "filling_ns_per_step": spent},
    )
