"""Edits that several rules hand to the replay: operators that take a share of their time, with or without their
backward nodes, and the experiment that finds the share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import structs

from profkit.derive.facts import Facts
from profkit.derive.families import ELEMENTWISE, FUNCTIONS, operators_of
from profkit.patterns.program import backward_of, length_ns, spent_ns
from profkit.patterns.time.freeing import frees
from profkit.run.experiment import Experiment
from profkit.savings.cases import cases_of
from profkit.savings.cost_models.devices import rates_of
from profkit.savings.edits import Edit, combine, shrink, shrink_spans, shrink_work
from profkit.savings.replay import replay
from profkit.savings.streams import GAP_NS
from profkit.savings.trial import Trial
from profkit.trace.events import Category, Float64s, Int64s, Rows
from profkit.trace.statistics import among, quantile

_ROUGH = 0.1
"""How far a sampled share of the step may be off besides chance: the step itself varies."""
_CHEAPEST = 0.05
"""The quantile of all operators' times that stands for the cost of a call."""

PRODUCTS = frozenset(("addmm", "mm"))
"""The products of a linear layer or a recurrent cell, and of their backward."""
CALL_NS = 5_000
"""The time of `addmm` on tiny matrices on a CPU while it is recorded. Anything beyond is arithmetic."""
_MAX_DISPATCH_NS = 15_000
"""A product of tiny matrices, the most expensive operator to start, takes 5 µs on a CPU and up to 15 µs while recorded
with its shapes and the operators inside it. Anything beyond is arithmetic, even if all products are of one size."""
BANDWIDTH = 9.6e9
"""Bytes copied per second if the machine's rate was not measured: half of a channel of DDR4-2400, which both reads and
writes them (JEDEC JESD79-4)."""
_CACHE_TIMES_MEMORY = 3
"""How much faster a core's caches move bytes than its memory: products of 65,000 numbers moved 85 GB/s, of 4 million
23 to 33 (one thread, AMD EPYC, torch 2.13). A call took 1.2 µs, so beyond ten thousand numbers most is work."""
_FUNCTION_NS = 0.5
"""For one element: `exp` took 0.85 ns there."""
_MOST_PRICED = 24
_GAP_IN_GRAPH_NS = 300
"""Between two kernels of one graph: 0.2 µs on an H100 (a graph of 144 kernels of 577 µs took 607)."""
PYTHON_NS = 10_000
"""Python takes microseconds to bind names and read arguments between two operators, and autograd to go on to the next
node. Anything beyond is work."""


_SHORT_GAP = 0.25
"""The quantile of gaps that stands for those in which only a library's Python runs."""


def memory_bytes_per_ns(facts: Facts) -> float:
    """The rate at which the device, or else the host, reads its memory."""
    rates = rates_of(facts)
    return (rates.bandwidth if rates else BANDWIDTH) / 1e9


def elementwise_ns(facts: Facts, rows: Rows) -> Float64s:
    """How long the host computes at least in operators that work element by element; 0 for all others."""
    if facts.device.present:
        return np.zeros(len(rows))
    moved = facts.operators.input_bytes[rows] + facts.allocated_bytes[rows]
    moving = moved / (_CACHE_TIMES_MEMORY * memory_bytes_per_ns(facts))
    computing = operators_of(facts.trace, FUNCTIONS)[rows] * _FUNCTION_NS * facts.operators.elements[rows]
    least: Float64s = np.where(operators_of(facts.trace, ELEMENTWISE)[rows], np.maximum(moving, computing), 0.0)
    return least


def closer_in_a_graph(facts: Facts, work: Rows, uncertainty: float) -> Edit:
    """Kernels launched by a graph follow each other sooner. Here each kernel takes that much less time, but at least
    half, because a trace does not distinguish a longer gap from a longer kernel."""
    duration = facts.trace.events.duration_ns[work]
    return shrink_work(work, np.maximum(duration - (GAP_NS - _GAP_IN_GRAPH_NS), duration // 2), uncertainty)


def call_ns(facts: Facts) -> float:
    """What calling an operator costs, whatever it does: the time of the program's cheapest ones."""
    called = facts.operators.rows[facts.measured[facts.operators.rows]]
    return quantile(spent_ns(facts, called), _CHEAPEST) if called.size else 0.0


def dispatch_ns(facts: Facts, rows: Rows, like: Rows) -> Int64s:
    """What calling each of the operators costs, whatever its size: the time of the cheapest one of its name among
    ``like``, and at most what the most expensive operator takes."""
    names = facts.trace.events.name_code
    cheapest = np.full(len(facts.trace.names), _MAX_DISPATCH_NS, dtype=np.int64)
    np.minimum.at(cheapest, names[like], spent_ns(facts, like))
    return cheapest[names[rows]]


def arithmetic_ns(facts: Facts, rows: Rows) -> Int64s:
    """The time of the products inside each of the operators, without the cost of their calls."""
    products = operators_of(facts.trace, PRODUCTS)
    spent = spent_ns(facts, np.arange(len(facts.trace.events)))
    return facts.tree.total_under(np.where(products, (spent - CALL_NS).clip(min=0), 0))[rows]


def share_with_backward(facts: Facts, rows: Rows) -> float:
    """The share of the step that these operators and their backward nodes take."""
    return replay(facts, scale_with_backward(facts, rows, 0.0, 0.0)).fraction if rows.size else 0.0


def divide_saving(facts: Facts, edits: Sequence[Edit], together: Edit, waited_ns: Sequence[int]) -> list[float]:
    """Each edit's part of what all of them save ``together``.

    Half of the part is what the edit saves alone, half what the others lack without it, as the next wait often takes
    the place of one that is gone. If all of that is nothing, the parts follow ``waited_ns``. Only the longest waits are
    priced, as each takes two replays.
    """
    if len(edits) < 2:
        return [1.0] * len(edits)
    waited, weight = np.array(waited_ns, dtype=np.float64), np.zeros(len(edits))
    for number in np.argsort(-waited)[:_MOST_PRICED].tolist():
        rest = replay(facts, combine([*edits[:number], *edits[number + 1 :]])).fraction
        lacking = max(0.0, replay(facts, together).fraction - rest)
        weight[number] = replay(facts, edits[number]).fraction + lacking
    known = next((values for values in (weight, waited) if values.any()), np.ones(len(edits)))
    parts: list[float] = (known / known.sum()).tolist()
    return parts


def run_in_both(
    facts: Facts, rows: Rows, kind: str, uncertainty: float, of_type: str = "", to: str = ""
) -> Trial | None:
    """Run the costliest of the operators both ways, with their backward pass if it was recorded. The operators and
    their backward nodes then take the measured share. None if they cannot be run again."""
    cases = cases_of(facts, rows, of_type) if of_type else cases_of(facts, rows)
    if not cases:
        return None
    return Trial(
        Experiment(kind, cases, to=to, backward=backward_of(facts, rows).size > 0),
        lambda factor: scale_with_backward(facts, rows, factor, uncertainty),
    )


def scale_with_backward(
    facts: Facts, rows: Rows, kept: Float64s | float, uncertainty: float, launch_kept: float = 1.0
) -> Edit:
    """The operators ``rows`` and their backward nodes take the share ``kept`` of their time, one value each or one for
    all."""
    forward = scale_operators(facts, rows, kept, uncertainty, launch_kept)
    return combine([forward, scale_backward(facts, rows, kept, uncertainty, launch_kept)])


def scale_backward(
    facts: Facts, rows: Rows, kept: Float64s | float, uncertainty: float, launch_kept: float = 1.0
) -> Edit:
    """The backward nodes of the operators ``rows`` take the share ``kept`` of their time, one value for each operator
    or one for all."""
    share, nodes = np.ones(len(facts.trace.events)), backward_of(facts, rows)
    share[rows] = kept
    owner = facts.tree.nearest_ancestor(facts.trace.mask_of(rows), include_self=True, of=facts.lines.forward[nodes])
    return scale_operators(facts, nodes, share[owner], uncertainty, launch_kept)


def drop_operators(facts: Facts, rows: Rows, uncertainty: float) -> Edit:
    """The operators ``rows`` vanish from the host and the device, with their results."""
    return take_less(facts, rows, 0.0, uncertainty, launch_kept=0.0)


def take_less(
    facts: Facts, rows: Rows, kept: Float64s | float, uncertainty: float, launch_kept: Float64s | float = 1.0
) -> Edit:
    """`scale_operators` where they are given and return the share ``kept`` of the data: giving the memory of their
    results back to the system takes that share of its time, too."""
    giving_back = give_back_less(facts, rows, kept, uncertainty)
    return combine([scale_operators(facts, rows, kept, uncertainty, launch_kept), giving_back])


def take_less_with_backward(facts: Facts, rows: Rows, kept: Float64s | float, uncertainty: float) -> Edit:
    """`take_less`, and the backward nodes of these operators take the share ``kept``, too."""
    return combine([take_less(facts, rows, kept, uncertainty), scale_backward(facts, rows, kept, uncertainty)])


def shrink_runs(facts: Facts, runs: list[Rows], kept_ns: Int64s, uncertainty: float) -> Edit:
    """From the first operator of each run to its last only so much is left, Python's time between included. Giving
    back what they allocate goes, whenever that is."""
    start, end = facts.trace.events.start_ns[[run[0] for run in runs]], facts.tree.end_ns[[run[-1] for run in runs]]
    spans = shrink_spans(start, end, kept_ns, uncertainty)
    return combine([spans, give_back_less(facts, np.concatenate(runs), 0.0, uncertainty)])


def give_back_less(facts: Facts, rows: Rows, kept: Float64s | float, uncertainty: float) -> Edit:
    """Giving back to the system what these operators allocate, whenever that is, takes the share ``kept`` of its
    time."""
    share, freed = np.ones(len(facts.trace.events)), frees(facts)
    share[rows] = kept
    owner = facts.tree.nearest_ancestor(facts.trace.mask_of(rows), of=freed.allocated_by)
    mine, start_ns, end_ns = owner >= 0, freed.start_ns, freed.end_ns
    kept_ns = (share[owner] * length_ns(facts, start_ns, end_ns)).astype(np.int64)
    return shrink_spans(start_ns[mine], end_ns[mine], kept_ns[mine], uncertainty)


def scale_operators(
    facts: Facts, rows: Rows, kept: Float64s | float, uncertainty: float, launch_kept: Float64s | float = 1.0
) -> Edit:
    """The operators ``rows`` (none inside another) take the share ``kept`` of their time, one value each or one for
    all.

    If an operator computes on the device, its work takes that share, and its time on the host ``launch_kept``.
    """
    share = np.ones(len(facts.trace.events))
    share[rows] = kept
    work, carrier = _work_of(facts, rows)
    on_host = np.where(facts.trace.mask_of(carrier)[rows], launch_kept, kept) * spent_ns(facts, rows)
    on_stream = (share[carrier] * facts.trace.events.duration_ns[work]).astype(np.int64)
    return combine([shrink(rows, on_host.astype(np.int64), uncertainty), shrink_work(work, on_stream, uncertainty)])


def scale_beside_spans(facts: Facts, rows: Rows, kept: float, uncertainty: float) -> Edit:
    """The share ``kept`` of what lies outside the host's stretch around the operators ``rows``: their backward nodes
    and what autograd does after each of these, and on a device their work."""
    nodes = backward_of(facts, rows)
    scaled = [rows, nodes] if facts.device.present else [nodes]
    edits = [scale_operators(facts, one, kept, uncertainty, launch_kept=kept) for one in scaled]
    return combine([*edits, _scale_after_nodes(facts, nodes, kept, uncertainty)])


def _scale_after_nodes(facts: Facts, nodes: Rows, kept: float, uncertainty: float) -> Edit:
    """What autograd does after each of these backward nodes, before the next one, takes the share ``kept`` of its
    time."""
    every = np.flatnonzero(facts.tree.outermost(facts.lines.backward))  # in order of time on each thread
    lane = facts.trace.events.lane[every]
    here = np.flatnonzero(among(every[:-1], nodes) & (lane[:-1] == lane[1:]))
    start, end = facts.tree.end_ns[every[here]], facts.trace.events.start_ns[every[here + 1]]
    near = end - start <= PYTHON_NS
    left_ns = (kept * length_ns(facts, start, end)).astype(np.int64)
    return shrink_spans(start[near], end[near], left_ns[near], uncertainty)


def leave_out(
    facts: Facts, rows: Rows, group: Rows, kept: float, uncertainty: float, prepared_ns: int = PYTHON_NS
) -> Edit:
    """The operators ``rows``, their backward nodes and their launches take the share ``kept`` of their time. So does
    the time before each of them, in which Python prepares its call: between two consecutive operators of one ``group``
    all of it, else at most ``prepared_ns`` (nothing if another call takes their place); what autograd does after each
    of the nodes; and giving the memory of their results back."""
    starts, ends, every = facts.trace.events.start_ns, facts.tree.end_ns, _called_in_order(facts)
    place = np.searchsorted(starts[every], starts[rows])
    before = every[(place - 1).clip(min=0)] if every.size else rows
    prepared = (place > 0) & (facts.step_of(before) == facts.step_of(rows))
    start, end = ends[before[prepared]], starts[rows[prepared]]
    follows = np.zeros(len(rows), dtype=bool)
    follows[1:] = (np.diff(place) == 1) & (np.diff(group) == 0)
    between_ns = length_ns(facts, start, end).clip(min=0)
    goes_ns = np.where(follows[prepared], between_ns, between_ns.clip(max=prepared_ns))
    left_ns = (between_ns - (1 - kept) * goes_ns).astype(np.int64)
    forward = take_less(facts, rows, kept, uncertainty, launch_kept=kept)
    backward = scale_backward(facts, rows, kept, uncertainty, launch_kept=kept)
    after = _scale_after_nodes(facts, backward_of(facts, rows), kept, uncertainty)
    return combine([shrink_spans(start, end, left_ns, uncertainty), forward, backward, after])


def leave_out_around(facts: Facts, rows: Rows, most_ns: int, uncertainty: float) -> Edit:
    """The Python that a library runs for each of the operators ``rows``, before and after it, goes: at most ``most_ns``
    for each, and not what preparing the next operator takes then. It is the same for all of them, so a short gap around
    one (the quartile) tells it; in longer ones the program does other things as well."""
    starts, ends, every = facts.trace.events.start_ns, facts.tree.end_ns, _called_in_order(facts)
    place = np.searchsorted(starts[every], starts[rows])
    inside = (place > 0) & (place + 1 < len(every))
    rows, place = rows[inside], place[inside]
    before, after, step = every[place - 1], every[place + 1], facts.step_of(rows)
    inside = (facts.step_of(before) == step) & (facts.step_of(after) == step)
    rows, before, after = rows[inside], before[inside], after[inside]
    before_ns = length_ns(facts, ends[before], starts[rows]).clip(min=0)
    after_ns = length_ns(facts, ends[rows], starts[after]).clip(min=0)
    short_ns = quantile(before_ns + after_ns, _SHORT_GAP) if rows.size else 0.0
    goes_ns = min(max(short_ns - PYTHON_NS, 0.0), most_ns)
    first_ns = np.minimum(before_ns, goes_ns)
    kept_before_ns, kept_after_ns = before_ns - first_ns, (after_ns - (goes_ns - first_ns)).clip(min=0)
    return combine(
        [
            shrink_spans(ends[before], starts[rows], kept_before_ns.astype(np.int64), uncertainty),
            shrink_spans(ends[rows], starts[after], kept_after_ns.astype(np.int64), uncertainty),
        ]
    )


def _called_in_order(facts: Facts) -> Rows:
    """The operators that the program calls in measured steps, none inside another, in order of time."""
    events = facts.trace.events
    called = facts.tree.outermost(events.category == Category.OPERATOR) & (events.lane == facts.steps.main_lane)
    every = facts.measured_rows(called)
    in_order: Rows = every[np.argsort(events.start_ns[every], kind="stable")]
    return in_order


def one_round_ns(facts: Facts, run: Rows, rounds: int) -> int:
    """How long a loop takes the host if its rounds become one call: the calls of one round, what the operators of all
    rounds, ``run``, compute element by element, and Python's work between them."""
    between = length_ns(facts, facts.tree.end_ns[run[:-1]], facts.trace.events.start_ns[run[1:]])
    spent = spent_ns(facts, run)
    works = np.minimum(elementwise_ns(facts, run), spent)
    return int((between - PYTHON_NS).clip(min=0).sum() + works.sum() + (spent - works).sum() // rounds)


def computing_ns(facts: Facts, rows: Rows) -> Int64s:
    """How long each of the operators (none inside another) computed: on the device if it has work there, else on the
    host."""
    work, carrier = _work_of(facts, rows)
    on_device = np.bincount(carrier, facts.trace.events.duration_ns[work], len(facts.trace.events))[rows]
    return np.where(facts.trace.mask_of(carrier)[rows], on_device, spent_ns(facts, rows)).astype(np.int64)


def _work_of(facts: Facts, rows: Rows) -> tuple[Rows, Rows]:
    """The device work launched in these operators, and the operator of each piece."""
    launches, mine = facts.launches, facts.trace.mask_of(rows)
    known = np.flatnonzero(launches.owner >= 0)
    carrier = facts.tree.nearest_ancestor(mine, include_self=True, of=launches.owner[known])
    return launches.work[known[carrier >= 0]], carrier[carrier >= 0]


def without_share(facts: Facts, share: float, low: float, high: float) -> Edit:
    """Each measured step without a share of it, which lies between ``low`` and ``high``. A step that a profiler watches
    has another one, so what the recording added is left out first."""
    steps = facts.steps
    start_ns, end_ns = steps.start_ns[steps.measured], steps.end_ns[steps.measured]
    undisturbed = replay(facts, Edit()).recorded_ns / max(int((end_ns - start_ns).sum()), 1)
    kept_ns = ((1 - share) * min(undisturbed, 1.0) * (end_ns - start_ns)).astype(np.int64)
    off = (high - low) / 2 / max(share, 1e-9) + _ROUGH
    return structs.replace(shrink_spans(start_ns, end_ns, kept_ns, min(off, 1.0)), of_plain_steps=True)
