"""What the program itself called, forward and backward, on the host and on the device, and how long it took."""

from __future__ import annotations

import numpy as np

from profkit.derive.facts import Facts, derived_once
from profkit.derive.families import operators_of
from profkit.evidence.loops.located import in_located_step
from profkit.evidence.loops.traffic import Traffic, measure_traffic, tell_elementwise
from profkit.trace.events import Bools, Category, Int64s, Rows
from profkit.trace.values import distinct

ACCUMULATES = "torch::autograd::AccumulateGrad"
"""What stores one gradient, or adds it to what is there."""
COPIES_BACK = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
"""What DistributedDataParallel does for one parameter at the end of the backward pass, once a bucket is averaged."""


def named_operators(facts: Facts, *names: str) -> Bools:
    """Operators with one of these names."""
    mask: Bools = facts.trace.named(*names) & (facts.trace.events.category == Category.OPERATOR)
    return mask


def clearing_ranges(facts: Facts) -> Bools:
    """Calls of an optimizer's ``zero_grad``, as PyTorch marks them."""
    named = facts.trace.where_name(lambda name: name.startswith("Optimizer.zero_grad#"))
    ranges: Bools = named & (facts.trace.events.category == Category.ANNOTATION)
    return ranges


@derived_once
def run_for_the_program(facts: Facts) -> Bools:
    """What the backward pass, an optimizer's step, the DataLoader or DistributedDataParallel's reducer runs."""
    aside: Bools = facts.updates.inside | facts.tree.under(facts.loading) | facts.lines.backward | _gives_back(facts)
    return aside


def _gives_back(facts: Facts) -> Bools:
    """What runs in a thread from one gradient that is copied back to the next, with no node of the backward pass in
    between: the reducer's own loop over the parameters (``finalize_backward`` in ``reducer.cpp``), which runs below no
    event of its own. Where unused parameters are looked for, it reads a number for each."""
    events, copies = facts.trace.events, facts.trace.named(COPIES_BACK)
    inside = facts.tree.under(copies)
    nodes = np.sort(events.start_ns[facts.lines.backward]) if copies.any() else np.zeros(0, dtype=np.int64)
    for lane in distinct(events.lane[copies]) if nodes.size else ():
        rows = np.flatnonzero(events.lane == lane)
        begins = np.sort(events.start_ns[rows[copies[rows]]])
        passes = np.searchsorted(nodes, begins)
        last = np.searchsorted(begins, events.start_ns[rows], side="right") - 1
        of_one_pass = np.append(passes[1:] == passes[:-1], False)
        inside[rows] |= (last >= 0) & of_one_pass[last]
    return inside


def program_operators(facts: Facts, *families: frozenset[str]) -> Rows:
    """What the program itself called in the measured steps, in time order: the outermost operators of the main
    thread, without what is run for it. With ``families`` those with a name of theirs."""
    rows = _program_operators(facts)
    return rows[operators_of(facts.trace, *families)[rows]] if families else rows


@derived_once
def _program_operators(facts: Facts) -> Rows:
    rows = facts.operators.rows
    chosen: Rows = rows[facts.measured[rows] & ~run_for_the_program(facts)[rows]]
    return chosen


def located_operators(facts: Facts) -> Rows:
    """What the program itself called in the first located step, as `program_operators` in the measured ones."""
    rows = in_located_step(facts, facts.operators.rows)
    chosen: Rows = rows[~run_for_the_program(facts)[rows]]
    return chosen


def repeating_below(facts: Facts, marks: Bools) -> tuple[Rows, Rows]:
    """What of the measured steps' operators repeats, one for one, what ran below these marks, and the innermost of the
    marks around what it repeats."""
    rows = program_operators(facts)
    rows = rows[facts.repeats.exact[rows]]
    mark = facts.tree.nearest_ancestor(marks, of=facts.repeats.row[rows])
    return rows[mark >= 0], mark[mark >= 0]


@derived_once
def program_traffic(facts: Facts) -> Traffic:
    """The traffic of `program_operators`."""
    return measure_traffic(facts.trace, program_operators(facts))


@derived_once
def program_elementwise(facts: Facts) -> tuple[Bools, Bools]:
    """Which of `program_operators` work element by element, and which of the others move no data at all."""
    return tell_elementwise(facts, program_operators(facts))


def backward_of(facts: Facts, rows: Rows) -> Rows:
    """The nodes of the backward pass, on any thread, that belong to these forward operators or what runs in them."""
    wanted = facts.trace.mask_of(rows)
    forward = facts.lines.forward
    belongs = (forward >= 0) & facts.tree.under(wanted)[forward]
    return np.flatnonzero(belongs & facts.tree.outermost(facts.lines.backward))


def works_under(facts: Facts, host: Bools) -> Rows:
    """The device work launched by the given host events or anything below them."""
    inside, owner = facts.tree.under(host), facts.launches.owner
    work: Rows = facts.launches.work[(owner >= 0) & inside[owner.clip(min=0)]]
    return work


def launching(facts: Facts, rows: Rows, work: Bools) -> Bools:
    """Which of the operators ``rows`` launch something of ``work``, a mask of events."""
    owner = facts.launches.owner
    owner = owner[(owner >= 0) & work[facts.launches.work]]
    carrier = facts.tree.nearest_ancestor(facts.trace.mask_of(rows), include_self=True, of=owner)
    return facts.trace.mask_of(carrier[carrier >= 0])[rows]


def launches_anything(facts: Facts) -> Bools:
    """Host events under which something is put on the device."""
    launches = facts.launches
    launching = np.concatenate([launches.call[launches.call >= 0], launches.operator[launches.operator >= 0]])
    return facts.tree.holding(facts.trace.mask_of(launching))


def calling_operator(facts: Facts, rows: Rows) -> Rows:
    """For each of the host events the outermost operator around it, itself where there is none.

    Operators have a name with a namespace; ranges of the program that old traces file under operators do not.
    """
    around = _outermost_operators(facts)[rows]
    return np.where(around >= 0, around, rows)


@derived_once
def _outermost_operators(facts: Facts) -> Rows:
    operators = facts.trace.events.category == Category.OPERATOR
    operators &= facts.trace.where_name(lambda name: "::" in name)
    return facts.tree.nearest_ancestor(facts.tree.outermost(operators), include_self=True)


def spent_ns(facts: Facts, rows: Rows) -> Int64s:
    """How long each of the host events took, without what the recording added."""
    return length_ns(facts, facts.trace.events.start_ns[rows], facts.tree.end_ns[rows])


def length_ns(facts: Facts, start_ns: Int64s, end_ns: Int64s) -> Int64s:
    """How long stretches of the host's time are, without what the recording added."""
    length: Int64s = end_ns - start_ns - facts.overhead.covered_within(start_ns, end_ns)
    return length
