"""What the program itself called, forward and backward, on host and device, and how long it took."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from profkit.core.marks import GC_MARK
from profkit.derive.facts import Facts, derived_once
from profkit.derive.families import operators_of
from profkit.patterns.loops.located import in_located_step
from profkit.patterns.loops.traffic import Traffic, measure_traffic, tell_elementwise
from profkit.trace.events import Bools, Category, Float64s, Int32s, Int64s, Rows
from profkit.trace.statistics import distinct, distinct_rows

ACCUMULATES = "torch::autograd::AccumulateGrad"
"""Stores one gradient, or adds it to the one that is there."""
COPIES_BACK = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
"""What DistributedDataParallel does per parameter at the end of the backward pass, once a bucket is averaged."""


def named_operators(facts: Facts, *names: str) -> Bools:
    """The operators with one of these names."""
    mask: Bools = facts.trace.named(*names) & (facts.trace.events.category == Category.OPERATOR)
    return mask


def clearing_ranges(facts: Facts) -> Bools:
    """Calls of an optimizer's ``zero_grad``, as PyTorch marks them."""
    named = facts.trace.where_name(lambda name: name.startswith("Optimizer.zero_grad#"))
    ranges: Bools = named & (facts.trace.events.category == Category.ANNOTATION)
    return ranges


def garbage_collections(facts: Facts) -> Bools:
    """Python's garbage collections, as profkit marks them."""
    named = facts.trace.where_name(lambda name: name.startswith(GC_MARK))
    collections: Bools = named & (facts.trace.events.category == Category.HOST_MARK)
    return collections


@derived_once
def run_for_the_program(facts: Facts) -> Bools:
    """What runs in the backward pass, an optimizer's step, a DataLoader or DistributedDataParallel's reducer."""
    return facts.updates.inside | facts.tree.under(facts.loading) | facts.lines.backward | _gives_back(facts)


def _gives_back(facts: Facts) -> Bools:
    """What a thread runs between one gradient that is copied back and the next, if no backward node starts in between:
    the reducer's own loop over the parameters (``finalize_backward`` in ``reducer.cpp``), which is under no event of
    its own. If it looks for unused parameters, it reads a number for each."""
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
    """What the program itself called in the measured steps, in time order: the outermost operators of the main thread,
    except for `run_for_the_program`. With ``families``, only operators of these."""
    rows = _program_operators(facts)
    return rows[operators_of(facts.trace, *families)[rows]] if families else rows


@derived_once
def _program_operators(facts: Facts) -> Rows:
    rows = facts.operators.rows
    return rows[facts.measured[rows] & ~run_for_the_program(facts)[rows]]


def located_operators(facts: Facts) -> Rows:
    """Like `program_operators`, for the first located step."""
    rows = in_located_step(facts, facts.operators.rows)
    return rows[~run_for_the_program(facts)[rows]]


def repeating_below(facts: Facts, marks: Bools) -> tuple[Rows, Rows]:
    """The operators of the measured steps that repeat, one for one, what ran below these marks; and for each the
    innermost mark around what it repeats. Steps of a solver differ in the number of their rounds: of operators with the
    same name, and shapes if known, any number repeats what is marked if the located step has none that is not. Where
    no step but the located one could be afforded, its operators stand for themselves."""
    rows, located = program_operators(facts), located_operators(facts)
    name, shapes = facts.trace.events.name_code, facts.trace.events.dims_code
    others = located[facts.tree.nearest_ancestor(marks, of=located) < 0]
    both = np.concatenate([rows, others])
    _, kind = distinct_rows(name[both], shapes[both])
    is_other = np.isin(kind[: len(rows)], kind[len(rows) :])
    only_marked = ~np.where(shapes[rows] < 0, np.isin(name[rows], name[others]), is_other)
    is_own = np.isin(rows, located)
    repeated = np.where(is_own, rows, facts.repeats.row[rows])
    known = facts.repeats.exact[rows] | is_own | (only_marked & (repeated >= 0))
    rows, repeated = rows[known], repeated[known]
    mark = facts.tree.nearest_ancestor(marks, of=repeated)
    return rows[mark >= 0], mark[mark >= 0]


def shares_below(facts: Facts, share_of: Mapping[int, float]) -> tuple[Rows, Float64s]:
    """The same of marks that have a share each; and for each operator the share of its mark."""
    marks = np.array(sorted(share_of), dtype=np.int64)
    rows, mark = repeating_below(facts, facts.trace.mask_of(marks))
    shares = np.array([share_of[int(one)] for one in marks], dtype=np.float64)
    return rows, shares[np.searchsorted(marks, mark)]


@derived_once
def program_traffic(facts: Facts) -> Traffic:
    """The traffic of `program_operators`."""
    return measure_traffic(facts.trace, program_operators(facts))


@derived_once
def program_elementwise(facts: Facts) -> tuple[Bools, Bools]:
    """Which of `program_operators` work element by element, and which of the others move no data."""
    return tell_elementwise(facts, program_operators(facts))


def backward_of(facts: Facts, rows: Rows) -> Rows:
    """The backward nodes, on any thread, of these forward operators or of what runs in them."""
    wanted = facts.trace.mask_of(rows)
    forward = facts.lines.forward
    belongs = (forward >= 0) & facts.tree.under(wanted)[forward]
    return np.flatnonzero(belongs & facts.tree.outermost(facts.lines.backward))


def all_nodes(facts: Facts) -> Rows:
    """The backward nodes of the measured steps."""
    return facts.measured_rows(facts.tree.outermost(facts.lines.backward))


def works_under(facts: Facts, host: Bools) -> Rows:
    """The device work launched by these host events or by anything below them."""
    inside, owner = facts.tree.under(host), facts.launches.owner
    work: Rows = facts.launches.work[(owner >= 0) & inside[owner.clip(min=0)]]
    return work


def launching(facts: Facts, rows: Rows, work: Bools) -> Bools:
    """Which of the operators ``rows`` launch some of ``work``, a mask of events."""
    owner = facts.launches.owner
    owner = owner[(owner >= 0) & work[facts.launches.work]]
    carrier = facts.tree.nearest_ancestor(facts.trace.mask_of(rows), include_self=True, of=owner)
    return facts.trace.mask_of(carrier[carrier >= 0])[rows]


def copies_named(facts: Facts, *parts: str) -> Bools:
    """Which pieces of launched work are copies with one of these in their name, such as ``HtoD``."""
    named = facts.trace.where_name(lambda name: any(part in name for part in parts))
    copies: Bools = (named & (facts.trace.events.category == Category.MEMCPY))[facts.launches.work]
    return copies


def launches_anything(facts: Facts) -> Bools:
    """Host events that put something on the device."""
    launches = facts.launches
    launching = np.concatenate([launches.call[launches.call >= 0], launches.operator[launches.operator >= 0]])
    return facts.tree.holding(facts.trace.mask_of(launching))


def calling_operator(facts: Facts, rows: Rows) -> Rows:
    """For each of the host events the outermost operator around it, or itself without one.

    An operator's name has a namespace; old traces file ranges of the program under operators, and these have none.
    """
    around = _outermost_operators(facts)[rows]
    return np.where(around >= 0, around, rows)


@derived_once
def _outermost_operators(facts: Facts) -> Int32s:
    operators = facts.trace.events.category == Category.OPERATOR
    operators &= facts.trace.where_name(lambda name: "::" in name)
    return facts.tree.nearest_ancestor(facts.tree.outermost(operators), include_self=True).astype(np.int32)


def spent_ns(facts: Facts, rows: Rows) -> Int64s:
    """How long each of the host events took, without what disturbed it (`Facts.disturbance`)."""
    return length_ns(facts, facts.trace.events.start_ns[rows], facts.tree.end_ns[rows])


def length_ns(facts: Facts, start_ns: Int64s, end_ns: Int64s) -> Int64s:
    """How long these stretches of the host's time are, without what disturbed them."""
    return end_ns - start_ns - facts.disturbance.covered_within(start_ns, end_ns)
