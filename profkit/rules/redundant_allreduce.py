"""Gradients are averaged over all processes several times for each step of the optimizer, where once is enough.

What it detects
Under `DistributedDataParallel`: several backward passes between two steps of an optimizer that each all-reduce the
gradients, and of which the later ones add to the gradients of the earlier. Several models that step together, or
several losses in one backward pass, are no accumulation and are not reported.

Why is this bad?
The all-reduce of every pass but the last is thrown away: its average is added to, and averaged again. With small
batches, for which gradients are accumulated in the first place, sending all gradients takes as long as computing them
or longer, and each time all processes wait for the slowest.

Example
    for x, y in micro_batches:
        loss = criterion(model(x), y) / len(micro_batches)
        loss.backward()
    optimizer.step()

Use instead
    for i, (x, y) in enumerate(micro_batches):
        is_last = i == len(micro_batches) - 1
        with contextlib.nullcontext() if is_last else model.no_sync():
            loss = criterion(model(x), y) / len(micro_batches)
            loss.backward()
    optimizer.step()

How the saving is estimated
In all passes but the last before each step of the optimizer what DistributedDataParallel does vanishes: filling the
buckets, the all-reduces on the host and on the device, the wait for them after the backward pass, and copying the
averages back. Adding up the gradients stays.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.evidence.attribution import busiest_site
from profkit.evidence.frequency import in_most_steps, times_per_step
from profkit.evidence.program import ACCUMULATES, spent_ns, works_under
from profkit.findings import Kind
from profkit.rules.base import CannotLook, Need, Suspicion, rule
from profkit.ruling.places import Places, locations_of
from profkit.savings.edits import Edit, combine, remove, shrink, shrink_spans
from profkit.trace.events import Bools, Category, Int64s, Rows
from profkit.trace.values import among, distinct
from profkit.units import format_count

_FORWARD = "DistributedDataParallel.forward"
"""The range that PyTorch records around the model's forward (``torch/nn/parallel/distributed.py``)."""
_ALL_REDUCES = ("c10d::allreduce_", "nccl:all_reduce", "gloo:all_reduce", "mpi:all_reduce", "ucc:all_reduce")
"""The operator, and the range that the backend records in or after it (``torch/csrc/distributed/c10d``)."""
_COPIES_BACK = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
_MOST = 0.5
"""Parameters without a gradient yet, such as those of a branch that is taken now and then, are assigned, not added."""
_UNCERTAINTY = 0.3
"""Part of a wait is for the slowest process; where processes drift apart, the pass that still waits waits longer."""


class _Passes(Struct, frozen=True):
    """Backward passes that all-reduce gradients. Columns over them: ``start_ns`` of the forward pass before, and
    ``end_ns``, when the next forward pass or the optimizer's step begins; ``window`` counts the optimizers' steps
    before; ``redundant`` says that a later pass before that step adds to its gradients."""

    start_ns: Int64s
    end_ns: Int64s
    window: Int64s
    redundant: Bools


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.WHOLE_STEP)
def redundant_allreduce(facts: Facts) -> Iterator[Suspicion]:
    """Compare the backward passes between two steps of an optimizer."""
    forwards = _starts(facts, facts.trace.named(_FORWARD))
    reduces = _all_reduces(facts)
    if not forwards.size or not reduces.size:
        return
    if not facts.optimizing.any():
        raise CannotLook("the recording holds no step of an optimizer")
    passes = _find_passes(facts, reduces, forwards)
    of_pass = _pass_of(facts, passes, reduces)
    if not (of_pass >= 0).any():  # the recording begins amid the only backward pass
        return
    mine = (of_pass >= 0) & facts.measured[reduces]
    again = reduces[mine & passes.redundant[of_pass]]
    if not in_most_steps(facts, again):
        return
    windows = distinct(passes.window[of_pass[mine]])
    rounds = len(distinct(of_pass[mine])) / len(windows)
    yield Suspicion(
        message=f"The gradients are averaged over all processes {format_count(round(rounds), 'time')} for each step of "
        "the optimizer, after each backward pass that adds to them; once, after the last, is enough.",
        fix="Run all micro-batches but the last, forward and backward, under `with model.no_sync():`.",
        rows=again,
        edit=_reduce_once(facts, passes),
        count=times_per_step(facts, again),
        places=_places(facts, again),
        evidence={"all_reduces_per_optimizer_step": round(int(mine.sum()) / len(windows), 2),
                  "backward_passes_per_optimizer_step": round(rounds, 2)},
    )  # fmt: skip


def _starts(facts: Facts, wanted: Bools) -> Int64s:
    """When the wanted ranges of the main thread begin, in order."""
    mine = wanted & (facts.trace.events.category == Category.ANNOTATION)
    return np.sort(facts.trace.events.start_ns[mine & (facts.trace.events.lane == facts.steps.main_lane)])


def _storing(facts: Facts) -> Bools:
    """What stores one gradient, with the hooks that run after it: there DistributedDataParallel sits."""
    storing = facts.trace.where_name(lambda name: name.endswith(ACCUMULATES))
    return facts.tree.outermost(storing & (facts.trace.events.category == Category.OPERATOR))


def _all_reduces(facts: Facts) -> Rows:
    """The all-reduces that the storing of gradients calls: not those of metrics, nor of synchronised batch norm."""
    named = facts.trace.named(*_ALL_REDUCES) & facts.tree.under(_storing(facts))
    return np.flatnonzero(facts.tree.outermost(named))


def _find_passes(facts: Facts, reduces: Rows, forwards: Int64s) -> _Passes:
    """The passes of all all-reduces, and which of them are redundant.

    A later pass before the same step of an optimizer makes one redundant that stores as many gradients, if it adds
    them to what is there. Models that step together have gradients of their own, which are assigned.
    """
    start_ns, updates = facts.trace.events.start_ns, facts.updates
    steps = np.sort(updates.start_ns[facts.trace.events.lane[updates.rows] == facts.steps.main_lane])
    bounds = np.sort(np.concatenate([forwards, steps]))
    at = distinct(np.searchsorted(bounds, start_ns[reduces], side="right"))
    at = at[(at > 0) & among(bounds[at - 1], forwards)]
    begin, end = bounds[at - 1], np.append(bounds, np.iinfo(np.int64).max)[at]
    window = np.searchsorted(steps, begin, side="right")
    storing = np.flatnonzero(_storing(facts))
    adding = facts.tree.holding(facts.trace.named("aten::add_"))[storing]
    of_pass = _within(begin, end, start_ns[storing])
    stored = np.bincount(of_pass[of_pass >= 0], minlength=len(begin))
    added = np.bincount(of_pass[(of_pass >= 0) & adding], minlength=len(begin))
    redundant = np.zeros(len(begin), dtype=bool)
    for code in distinct(window):
        mine = np.flatnonzero(window == code)
        adds = mine[added[mine] >= _MOST * stored[mine]]
        redundant[mine] = [bool((stored[adds[adds > one]] == stored[one]).any()) for one in mine]
    return _Passes(begin, end, window, redundant)


def _within(begin: Int64s, end: Int64s, times_ns: Int64s) -> Int64s:
    """For each time the range that it lies in, -1 outside all."""
    index = np.searchsorted(begin, times_ns, side="right") - 1
    inside = times_ns < np.append(end, np.iinfo(np.int64).min)[index]  # the last one is for what begins before all
    return np.where(inside, index, -1)


def _pass_of(facts: Facts, passes: _Passes, rows: Rows) -> Int64s:
    return _within(passes.start_ns, passes.end_ns, facts.trace.events.start_ns[rows])


def _reduce_once(facts: Facts, passes: _Passes) -> Edit:
    """Without DistributedDataParallel's part in the redundant passes."""
    storing = _of_redundant(facts, passes, _storing(facts))
    inner = np.flatnonzero(facts.trace.named(ACCUMULATES))
    owner = facts.tree.nearest_ancestor(facts.trace.mask_of(storing), include_self=True, of=inner)
    kept = np.bincount(owner[owner >= 0], spent_ns(facts, inner[owner >= 0]), len(facts.trace.events))[storing]
    copies = _of_redundant(facts, passes, facts.trace.named(_COPIES_BACK))
    adding = works_under(facts, facts.trace.mask_of(inner[owner >= 0]))
    work = np.setdiff1d(works_under(facts, facts.trace.mask_of(np.concatenate([storing, copies]))), adding)
    edits = [shrink(storing, kept.astype(np.int64), _UNCERTAINTY), remove(copies, work, _UNCERTAINTY)]
    return combine(edits if facts.device.present else [*edits, _waits(facts, passes, copies)])


def _of_redundant(facts: Facts, passes: _Passes, wanted: Bools) -> Rows:
    rows = facts.measured_rows(wanted)
    of_pass = _pass_of(facts, passes, rows)
    chosen: Rows = rows[(of_pass >= 0) & passes.redundant[of_pass]]
    return chosen


def _waits(facts: Facts, passes: _Passes, copies: Rows) -> Edit:
    """On a CPU the backward pass returns when all buckets have been averaged and copied back: from its last node on it
    waits until the last all-reduce, which a thread of the backend runs, or the last copy has ended."""
    events, lane = facts.trace.events, facts.trace.events.lane
    nodes = _of_redundant(facts, passes, facts.lines.backward & (lane == facts.steps.main_lane))
    running = _of_redundant(facts, passes, facts.trace.named(*_ALL_REDUCES) | facts.trace.mask_of(copies))
    last = np.zeros((2, len(passes.start_ns)), dtype=np.int64)
    for line, rows in zip(last, (nodes, running), strict=True):
        np.maximum.at(line, _pass_of(facts, passes, rows), events.ends_of(rows))
    begin, end = last[0], np.minimum(last[1], passes.end_ns)
    waiting = passes.redundant & (begin > 0) & (end > begin)
    return shrink_spans(begin[waiting], end[waiting], 0, _UNCERTAINTY)


def _places(facts: Facts, reduces: Rows) -> Places:
    """The line of the backward pass. Where a thread of its own ran it, that of the forward pass, which `no_sync` has
    to enclose as well."""
    forwards = facts.measured_rows(facts.trace.named(_FORWARD))
    return Places.of(locations_of(facts, [busiest_site(facts, reduces), busiest_site(facts, forwards)])[:1])
