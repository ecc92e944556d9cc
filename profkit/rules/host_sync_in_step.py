"""In every step the host stops until the device has caught up, to read a number or for no reason.

What it detects
With a GPU: lines that make the host wait for the device in most steps. `.item()`, `float(x)`, `int(x)`, `print(x)`
and `if x > y:` on a tensor read a number from the device; `torch.cuda.synchronize()` and small blocking copies wait for
the whole queue. Without a GPU: lines that read a number out of a tensor in at least half of the steps. A read every
hundred steps is not reported, nor what PyTorch reads itself: in the DataLoader, in an optimizer's step, in GradScaler's
check for overflow. Boolean indexing, large copies and loops over elements have rules of their own.

Why is this bad?
The host usually runs ahead and fills a queue of kernels. A number exists only once everything queued before it has
run, so the host stops, the queue runs empty, and the device idles until the host has launched something again. On a CPU
there is no queue: the read costs a few microseconds, and the line starts to hurt when the program moves to a GPU.

Example
    for x, y in batches:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()

Use instead
    total = torch.zeros((), device=device)
    for x, y in batches:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    print(total.item())

How the saving is estimated
The recorded steps are replayed with the host going on instead of waiting. A wait during which the device had work to
do gives nothing back. Without a GPU the reads themselves are taken out, which is next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit.derive.facts import Facts
from profkit.findings import Kind
from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs, reason_for, rule
from profkit.rules.evidence import named_operators, per_step, share_of_steps, spent_ns
from profkit.savings.edits import remove, unblock
from profkit.savings.replay import replay
from profkit.trace.events import Bools, Category, Int32s, Int64s, Rows
from profkit.trace.values import distinct
from profkit.units import format_count, format_share, format_time

_READS = ("aten::item", "aten::is_nonzero", "aten::_local_scalar_dense")
_DATA_DEPENDENT = ("aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim",
                   "aten::unique_consecutive")  # fmt: skip
"""These wait to learn the size of their result; data-dependent-shape reports them."""
_SMALL_COPY_BYTES = 64 << 10
"""CUDA stages copies up to this size from pageable memory (CUDA Runtime API, "API synchronization behavior"): what a
small one waits for is the queue. Larger ones are real data, which pageable-transfer reports."""
_NUMBER_BYTES = 16
"""The largest element there is, a complex double: so small a copy reads one number. The rest is
device-to-host-in-step's."""
_ELEMENT_LOOP = 64
"""So many reads on one line in one step are a loop over a tensor's elements: tensor-element-loop reports it."""
_LOW = 0.005
"""The share of a step from which a finding is more than information; see `profkit.findings.severity_of`."""
_READ_FIX = (
    "Keep the value on the device (`total += loss.detach()`, `torch.where` instead of `if`) and read it once in a "
    "while, after the loop or every hundred steps."
)
_COPY_FIX = (
    "Create small tensors on the device (`device=`), once and outside the loop, or copy them from pinned memory with "
    "`non_blocking=True`."
)
_CALL_FIX = "Remove the call: a stream keeps the order of its work by itself; only a measurement of time needs to wait."


@rule(Kind.FAULT, Need.COMPUTE)
def host_sync_in_step(facts: Facts) -> Iterator[Suspicion]:
    """Group the waits, or without a GPU the reads, by line; where no line is known, by operator."""
    if facts.waits.rows.size and not facts.device.present:
        raise CannotLook("the program used a GPU, but the GPU's side was not recorded")
    calls = facts.device.present and facts.trace.rows(Category.RUNTIME).size
    if not calls and missing_needs(facts, (Need.OPERATORS,)):
        raise CannotLook(reason_for(facts, Need.OPERATORS))
    rows = _waits(facts) if facts.device.present else _reads(facts)
    judge = _judge_waits if facts.device.present else _judge_reads
    place, site = _places(facts, rows)
    names = facts.trace.events.name_code[place].astype(np.int64)
    groups = np.where(site >= 0, site, -1 - names)
    for group in distinct(groups):
        chosen = groups == group
        yield from judge(facts, rows[chosen], place[chosen], group >= 0)


def _judge_reads(facts: Facts, rows: Rows, place: Rows, _: bool) -> Iterator[Suspicion]:
    count = per_step(facts, rows)
    if not _in_most_steps(facts, rows) or count >= _ELEMENT_LOOP:
        return
    spent = int(spent_ns(facts, rows).sum()) // facts.steps.measured_count
    yield Suspicion(
        message=f"A number is read out of a tensor {_times(count)} a step. Here, on the CPU, that costs "
        f"{format_time(spent)}; on a GPU the host would stop each time until the device has run all that is queued.",
        fix=_READ_FIX,
        rows=place,
        edit=remove(rows),
        evidence={"reads_per_step": round(count, 2), "time_ns_per_step": spent},
    )


def _judge_waits(facts: Facts, rows: Rows, place: Rows, located: bool) -> Iterator[Suspicion]:
    steps, stops = facts.steps, distinct(place)
    count, most = per_step(facts, stops), _in_most_steps(facts, rows)
    reading = bool(facts.once(_reads_number)[stops].mean() > 0.5)
    if reading and count >= _ELEMENT_LOOP:
        return
    waited = int(spent_ns(facts, rows).sum()) // steps.measured_count
    edit = unblock(rows)
    saved = replay(facts, edit).fraction
    # A read in every step is a fault even where it costs nothing yet, if its line is known or the wait is long; other
    # waits only where they hold something up. In a recording of one step a single wait says nothing about every step.
    tells = located or waited >= _LOW * steps.median_ns
    repeats = most or (len(steps) == 1 and count >= 3)
    if not ((most and reading and tells) or (repeats and saved >= _LOW)):
        return
    worth = (
        f"the device runs dry meanwhile: without it the step would be {format_share(saved)} shorter"
        if saved >= _LOW
        else "the device has work meanwhile, or idles anyway: it costs next to nothing here"
    )
    name = facts.trace.names[int(np.bincount(facts.trace.events.name_code[place]).argmax())]
    calling = bool((facts.trace.events.category[stops] == Category.RUNTIME).all())
    yield Suspicion(
        message=f"The host waits for the device {_times(count)} a step in {name}, {format_time(waited)} in all; "
        f"{worth}.",
        fix=_READ_FIX if reading else _CALL_FIX if calling else _COPY_FIX,
        rows=stops,
        edit=edit,
        confidence=0.9 if most else 0.7,
        evidence={"waits_per_step": round(count, 2), "waited_ns_per_step": waited},
    )


def _times(count: float) -> str:
    return format_count(max(1, round(count)), "time")


def _in_most_steps(facts: Facts, rows: Rows) -> bool:
    """Whether at least half of the steps do it, where more than one step was recorded."""
    return len(facts.steps) > 1 and share_of_steps(facts, rows) >= 0.5


def _reads(facts: Facts) -> Rows:
    """The outermost reads of one number by the program's main thread."""
    scalar = facts.tree.holding(named_operators(facts, "aten::_local_scalar_dense"))
    reads = facts.tree.outermost(named_operators(facts, *_READS)) & scalar
    reads &= facts.trace.events.lane == facts.steps.main_lane
    return facts.measured_rows(reads & ~facts.lines.backward & ~_not_the_programs(facts))


def _waits(facts: Facts) -> Rows:
    """The waits of the measured steps that are the program's own and no other rule's business."""
    waits, lane = facts.waits, facts.trace.events.lane
    lanes = np.append(distinct(lane[facts.lines.backward]), facts.steps.main_lane)
    aside = facts.tree.under(named_operators(facts, *_DATA_DEPENDENT)) | _not_the_programs(facts)
    mine = np.isin(lane[waits.rows], lanes) & ~waits.own & ~aside[waits.rows] & facts.measured[waits.rows]
    real_data = (_copied(facts, "HtoD") > _SMALL_COPY_BYTES) | (_copied(facts, "DtoH") > _NUMBER_BYTES)
    chosen: Rows = waits.rows[mine & ~((waits.operator >= 0) & real_data[waits.operator])]
    return chosen


def _copied(facts: Facts, direction: str) -> Int64s:
    """Per operator the bytes that it copies in this direction."""
    events, launches = facts.trace.events, facts.launches
    copies = facts.trace.where_name(lambda name: direction in name)[launches.work] & (launches.operator >= 0)
    copies &= events.category[launches.work] == Category.MEMCPY
    size = np.zeros(len(events), dtype=np.int64)
    np.add.at(size, launches.operator[copies], events.size_bytes[launches.work[copies]])
    return size


def _reads_number(facts: Facts) -> Bools:
    """Events that read one number, by whatever spelling: `item`, `is_nonzero`, or the copy of one element."""
    number = named_operators(facts, *_READS) | (_copied(facts, "DtoH") > 0)
    return facts.tree.holding(number)


def _places(facts: Facts, rows: Rows) -> tuple[Rows, Int32s]:
    """For each row the outermost operator around it, itself where there is none, and the line.

    Operators have a name with a namespace; ranges of the program that old traces file under operators do not.
    """
    events = facts.trace.events
    operators = (events.category == Category.OPERATOR) & facts.trace.where_name(lambda name: "::" in name)
    around = facts.tree.nearest_ancestor(facts.tree.outermost(operators), include_self=True, of=rows)
    place = np.where(around >= 0, around, rows)
    return place, facts.lines.site[place]


def _not_the_programs(facts: Facts) -> Bools:
    """What happens inside a DataLoader, an optimizer's step or profkit's pauses, and PyTorch's own reads outside.

    A DataLoader and a sampler draw a seed, ``torch.empty(()).random_().item()``. GradScaler reads ``found_inf``, in a
    step with ``_amp_foreach_non_finite_check_and_unscale_``, just before the optimizer's step.
    """
    events = facts.trace.events
    inside = facts.updates.inside | facts.tree.under(facts.loading | (events.category == Category.PAUSE))
    calls = np.flatnonzero(facts.tree.outermost(events.category == Category.OPERATOR))
    calls = calls[events.lane[calls] == facts.steps.main_lane]
    reads = named_operators(facts, *_READS)[calls]
    seeds = named_operators(facts, "aten::random_")[np.append(calls[:1], calls[:-1])]
    step = facts.steps.index_of(events.start_ns)
    scaled = step[named_operators(facts, "aten::_amp_foreach_non_finite_check_and_unscale_")]
    checks = inside[np.append(calls[1:], calls[-1:])] & np.isin(step[calls], scaled)
    of_pytorch = facts.trace.mask_of(calls[reads & (seeds | checks)])
    return inside | facts.tree.under(of_pytorch)
