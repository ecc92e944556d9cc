"""Gradients are averaged over all processes several times for each step of the optimizer, where once is enough.

What it detects
Under `DistributedDataParallel`: several backward passes between two steps of an optimizer that each all-reduce the
gradients, if the later ones add to the gradients of the earlier. Several models that step together, or several losses
in one backward pass, do not accumulate gradients and are not reported. And all-reduces that the program calls itself
between the backward pass and the optimizer, which go to the same processes and carry exactly as many bytes as the
gradients that the backward pass has averaged.

Why is this bad?
The all-reduce of every pass but the last is thrown away: its average is added to, and averaged again. With small
batches, for which gradients are accumulated in the first place, sending all gradients takes as long as computing them
or longer, and each time all processes wait for the slowest. Averaging what is the same on all processes changes nothing
at all, and nothing is computed meanwhile.

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
In all passes but the last before each step of the optimizer, DistributedDataParallel's part vanishes: filling the
buckets, the all-reduces on the host and on the device, the wait for them after the backward pass, and copying the
averages back. Adding up the gradients stays. Of the program's own averaging, the calls vanish, their work on the
device, and the waits for them; the division stays.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns import ACCUMULATES, in_most_steps, spent_ns, times_per_step, works_under
from profkit.patterns.averaging.exchanged import waits_for
from profkit.patterns.averaging.gradients import ALL_REDUCES, gradient_all_reduces, storing_gradients
from profkit.patterns.averaging.passes import find_passes, find_redundant
from profkit.patterns.averaging.twice import SecondAverages, find_second_averages
from profkit.patterns.named_lines import parallel_pass_line
from profkit.patterns.program import COPIES_BACK
from profkit.patterns.ranks.exchanges import find_exchanges
from profkit.rules.base import CannotLook, Facts, Kind, Need, Suspicion, Suspicions, format_bytes, format_count, rule
from profkit.savings import Edit, combine, remove, shrink, shrink_spans
from profkit.trace import Bools, Int64s, Rows, distinct

_UNCERTAINTY = 0.3
"""Part of a wait is for the slowest process; if processes drift apart, the pass that still waits waits longer."""


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.WHOLE_STEP)
def redundant_allreduce(facts: Facts) -> Suspicions:
    """Compare the backward passes between two steps of an optimizer, and what the program all-reduces after them."""
    if not len(find_passes(facts)):
        return
    if not facts.optimizing.any():
        raise CannotLook("the recording holds no step of an optimizer")
    found = [*_in_each_pass(facts), *_by_the_program(facts)]
    yield from found
    untold = find_second_averages(facts).untold
    if not found and untold:
        raise CannotLook(untold)


def _in_each_pass(facts: Facts) -> Suspicions:
    passes, reduces = find_passes(facts), gradient_all_reduces(facts)
    of_pass = _pass_of(facts, reduces)
    redundant = find_redundant(facts)
    mine = (of_pass >= 0) & facts.measured[reduces]
    again = reduces[mine & redundant[of_pass]]
    if not in_most_steps(facts, again):
        return
    windows = distinct(passes.window[of_pass[mine]])
    rounds = len(distinct(of_pass[mine])) / len(windows)
    yield Suspicion(
        message=f"The gradients are averaged over all processes {format_count(round(rounds), 'time')} for each step "
        "of the optimizer, after each backward pass that adds to them. Once, after the last one, is enough.",
        fix="Run all micro-batches but the last, forward and backward, under `with model.no_sync():`.",
        rows=again,
        edit=_reduce_once(facts, redundant),
        count=times_per_step(facts, again),
        places=parallel_pass_line(facts, again),  # `no_sync` has to enclose the forward pass as well
        evidence={
            "all_reduces_per_optimizer_step": round(int(mine.sum()) / len(windows), 2),
            "backward_passes_per_optimizer_step": round(rounds, 2),
        },
    )


def _by_the_program(facts: Facts) -> Suspicions:
    second = find_second_averages(facts)
    calls = find_exchanges(facts).call[second.rows]
    if not in_most_steps(facts, calls[facts.measured[calls]]):
        return
    size_bytes = int(second.size_bytes.sum() / len(distinct(second.of)))
    count = times_per_step(facts, calls[facts.measured[calls]])
    yield Suspicion(
        message=f"{format_bytes(size_bytes)} is averaged again after the backward pass, in "
        f"{format_count(count, 'all-reduce')}. DistributedDataParallel has already averaged as many bytes of "
        "gradients.",
        fix="Leave the program's own averaging out, and the division by the number of processes. If it adds up "
        "without dividing, gradients become smaller by that factor: raise the learning rate by as much.",
        rows=calls,
        edit=_without_second(facts, second),
        count=count,
        confidence=0.8,  # as many bytes may be something else than the gradients
        evidence={"all_reduces_per_step": count, "gradient_bytes": size_bytes},
    )


def _pass_of(facts: Facts, rows: Rows) -> Int64s:
    return find_passes(facts).of(facts.trace.events.start_ns[rows])


def _without_second(facts: Facts, second: SecondAverages) -> Edit:
    """Without the calls, their work on the device and, on a CPU, the waits for them."""
    calls = find_exchanges(facts).call[second.rows]
    edit = remove(calls, works_under(facts, facts.trace.mask_of(calls)), _UNCERTAINTY)
    if facts.device.present:
        return edit
    begin, end = waits_for(facts, second.rows)
    waits = end > begin
    return combine([edit, shrink_spans(begin[waits], end[waits], 0, _UNCERTAINTY)])


def _reduce_once(facts: Facts, redundant: Bools) -> Edit:
    """Without DistributedDataParallel's part in the redundant passes."""
    storing = _of_redundant(facts, redundant, storing_gradients(facts))
    inner = np.flatnonzero(facts.trace.named(ACCUMULATES))
    owner = facts.tree.nearest_ancestor(facts.trace.mask_of(storing), include_self=True, of=inner)
    kept = np.bincount(owner[owner >= 0], spent_ns(facts, inner[owner >= 0]), len(facts.trace.events))[storing]
    copies = _of_redundant(facts, redundant, facts.trace.named(COPIES_BACK))
    adding = works_under(facts, facts.trace.mask_of(inner[owner >= 0]))
    work = np.setdiff1d(works_under(facts, facts.trace.mask_of(np.concatenate([storing, copies]))), adding)
    edits = [shrink(storing, kept.astype(np.int64), _UNCERTAINTY), remove(copies, work, _UNCERTAINTY)]
    return combine(edits if facts.device.present else [*edits, _waits(facts, redundant, copies)])


def _of_redundant(facts: Facts, redundant: Bools, wanted: Bools) -> Rows:
    rows = facts.measured_rows(wanted)
    of_pass = _pass_of(facts, rows)
    return rows[(of_pass >= 0) & redundant[of_pass]]


def _waits(facts: Facts, redundant: Bools, copies: Rows) -> Edit:
    """On a CPU the backward pass returns when all buckets have been averaged and copied back. From its last node on it
    waits until the last all-reduce, which a thread of the backend runs, or the last copy has ended."""
    events, lane = facts.trace.events, facts.trace.events.lane
    nodes = _of_redundant(facts, redundant, facts.lines.backward & (lane == facts.steps.main_lane))
    running = _of_redundant(facts, redundant, facts.trace.named(*ALL_REDUCES) | facts.trace.mask_of(copies))
    last = np.zeros((2, len(redundant)), dtype=np.int64)
    for line, rows in zip(last, (nodes, running), strict=True):
        np.maximum.at(line, _pass_of(facts, rows), events.ends_of(rows))
    begin, end = last[0], np.minimum(last[1], find_passes(facts).end_ns)
    waiting = redundant & (begin > 0) & (end > begin)
    return shrink_spans(begin[waiting], end[waiting], 0, _UNCERTAINTY)
