"""`DataParallel` copies the model to every GPU in each step and runs the copies in threads of one process.

What it detects
Forward passes of `torch.nn.DataParallel` that work on two GPUs or more: PyTorch records a range around each, with the
broadcast of the parameters and the gathering of the outputs inside. On one GPU, and without any, the wrapper calls the
model itself and costs nothing: that is not reported, nor is DistributedDataParallel.

Why is this bad?
Each forward pass sends all parameters to all GPUs again, builds a module for each, and starts a thread for each. The
threads share Python's lock, so that they launch their work by turns while most of the GPUs wait; with every GPU more,
the launching takes longer. The outputs come back to the first GPU, which alone computes the loss and takes the
optimizer's step. With a process for each GPU the parameters stay where they are, and only gradients are sent, while
the backward pass still runs.

Example
    model = torch.nn.DataParallel(Net().cuda())
    for x, y in loader:
        loss = criterion(model(x), y.cuda())
        loss.backward()
        optimizer.step()

Use instead
    # torchrun --nproc_per_node=gpu train.py
    torch.distributed.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = DistributedDataParallel(Net().cuda())
    for x, y in loader:  # with a DistributedSampler
        loss = criterion(model(x), y.cuda())
        loss.backward()
        optimizer.step()

How the saving is estimated
The recorded steps are replayed without the replication of the model and without the gathering, forward and backward, on
the host and on the GPUs. Summing up the replicas' gradients stays: it stands for the all-reduce. The threads' time
lies between that of one thread, where Python's lock lets only one of them work at a time, and what it is: the middle is
taken, and the range reaches to both ends. Loss and optimizer, which each process computes for its own part, stay as
they are.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.evidence.attribution import busiest_site
from profkit.evidence.frequency import in_most_steps, times_per_step
from profkit.evidence.program import length_ns, works_under
from profkit.findings import LOW_FROM, Kind
from profkit.rules.base import Need, Suspicion, rule
from profkit.ruling.places import name_lines
from profkit.savings.edits import Edit, combine, remove, shrink_spans
from profkit.savings.replay import replay
from profkit.trace.events import Bools, Category, Int64s, Rows
from profkit.trace.values import distinct
from profkit.units import format_count, format_time

_FORWARD = "DataParallel.forward"
"""The range that PyTorch records around the wrapper's forward (``torch/nn/parallel/data_parallel.py``)."""
_SCATTER, _BROADCAST, _GATHER = "Scatter", "Broadcast", "Gather"
"""The functions of ``torch/nn/parallel/_functions.py``, which autograd records under their classes' names. Only
`Scatter` runs on one device too; without gradients there is no `Broadcast`."""
_UNGATHERS = "autograd::engine::evaluate_function: GatherBackward"
_UNCERTAINTY = 0.2


class _Passes(Struct, frozen=True):
    """Forward passes, by row, and when each of their parts begins on the main thread: replicating the model, running
    the replicas in threads, gathering the outputs; ``end_ns`` ends it."""

    rows: Rows
    replicate_ns: Int64s
    apply_ns: Int64s
    gather_ns: Int64s
    end_ns: Int64s


@rule(Kind.FAULT, Need.DEVICE, Need.OPERATORS)
def data_parallel(facts: Facts) -> Iterator[Suspicion]:
    """All forward passes of the wrapper together: it is the model's form that has to change."""
    rows = _replicated(facts)
    if not rows.size or not in_most_steps(facts, rows):
        return
    devices = _devices(facts, rows)
    if devices == 1:
        return
    passes = _take_apart(facts, rows)
    edit = _without(facts, passes, devices)
    if replay(facts, edit).fraction < LOW_FROM:
        return
    copying_ns = _per_step_ns(facts, passes.replicate_ns, passes.apply_ns)
    applying_ns = _per_step_ns(facts, passes.apply_ns, passes.gather_ns)
    yield Suspicion(
        message=f"DataParallel replicates the model on {devices} GPUs "
        f"{format_count(times_per_step(facts, rows), 'time')} a step, {format_time(copying_ns)} of the host's time, "
        f"and runs the replicas in threads that share Python's lock, {format_time(applying_ns)}.",
        fix=f"Start a process for each GPU (`torchrun --nproc_per_node={devices}`) and wrap the model in "
        "`DistributedDataParallel`: each keeps its copy, loads its part of the batch, and sends only gradients.",
        rows=rows,
        edit=edit,
        places=name_lines(facts, [busiest_site(facts, rows)]),
        evidence={"devices": devices, "replicating_ns_per_step": copying_ns, "threads_ns_per_step": applying_ns},
    )


def _per_step_ns(facts: Facts, start_ns: Int64s, end_ns: Int64s) -> int:
    return facts.steps.per_step_ns(int(length_ns(facts, start_ns, end_ns).sum()))


def _replicated(facts: Facts) -> Rows:
    """The measured forward passes that send parameters or fetch outputs."""
    main = facts.trace.events.lane == facts.steps.main_lane
    copies = facts.trace.named(_BROADCAST, _GATHER) & (facts.trace.events.category == Category.OPERATOR)
    forwards = facts.trace.named(_FORWARD) & (facts.trace.events.category == Category.ANNOTATION) & main
    return facts.measured_rows(forwards & facts.tree.holding(copies))


def _devices(facts: Facts, rows: Rows) -> int:
    """On how many devices the work runs that is launched in these ranges, by whichever thread."""
    launches = facts.launches
    work = launches.work[_inside(facts, rows, launches.launched_ns)]
    return len({facts.trace.lanes[lane].process for lane in distinct(facts.trace.events.lane[work]).tolist()})


def _inside(facts: Facts, rows: Rows, times_ns: Int64s) -> Bools:
    """Which of the times lie in one of these events, which come one after another."""
    start, end = facts.trace.events.start_ns[rows], facts.trace.events.ends_of(rows)
    order = np.argsort(start)
    index = np.searchsorted(start[order], times_ns, side="right") - 1
    inside: Bools = (index >= 0) & (times_ns < end[order][index.clip(min=0)])
    return inside


def _take_apart(facts: Facts, rows: Rows) -> _Passes:
    """The replicas' threads begin with the first work that they launch; what lies between the inputs' copies and that
    is replication. Where no launch of theirs was recorded, it ends with the broadcast."""
    events, calls = facts.trace.events, facts.launches.call[facts.launches.call >= 0]
    start, end = events.start_ns[rows], events.ends_of(rows)
    main = events.lane == facts.steps.main_lane
    of_threads = calls[~facts.serial_lanes[events.lane[calls]]]
    named = {name: np.flatnonzero(facts.trace.named(name) & main) for name in (_SCATTER, _BROADCAST, _GATHER)}
    gather = _first_between(np.sort(events.start_ns[named[_GATHER]]), start, end, end)
    scattered = _last_between(np.sort(events.ends_of(named[_SCATTER])), start, gather, start)
    broadcast = _last_between(np.sort(events.ends_of(named[_BROADCAST])), scattered, gather, scattered)
    first = _first_between(np.sort(events.start_ns[of_threads]), scattered, gather, gather)
    return _Passes(rows, scattered, np.where(first < gather, first, broadcast), gather, end)


def _first_between(times_ns: Int64s, start: Int64s, end: Int64s, otherwise: Int64s) -> Int64s:
    """The first of the times from each start on and before its end."""
    found = np.append(times_ns, np.iinfo(np.int64).max)[np.searchsorted(times_ns, start)]
    return np.where(found < end, found, otherwise)


def _last_between(times_ns: Int64s, start: Int64s, end: Int64s, otherwise: Int64s) -> Int64s:
    """The last of the times behind each start and up to its end."""
    found = np.append(times_ns, np.iinfo(np.int64).min)[np.searchsorted(times_ns, end, side="right") - 1]
    return np.where(found > start, found, otherwise)


def _without(facts: Facts, passes: _Passes, devices: int) -> Edit:
    """Without replicating and gathering, the threads at the middle of what they may take."""
    gathers = facts.trace.named(_GATHER) & facts.tree.under(facts.trace.mask_of(passes.rows))
    ungathers = facts.trace.named(_UNGATHERS)
    copies = facts.measured_rows(facts.tree.outermost(gathers | ungathers))
    work = np.union1d(_copied(facts, passes), works_under(facts, facts.trace.mask_of(copies)))
    threads_ns = passes.gather_ns - passes.apply_ns
    kept_ns = threads_ns * (devices + 1) // (2 * devices)
    gained_ns = int((threads_ns - kept_ns).sum())
    certain_ns = int((passes.apply_ns - passes.replicate_ns).sum() + facts.trace.events.duration_ns[copies].sum())
    uncertainty = max(_UNCERTAINTY, gained_ns / max(gained_ns + certain_ns, 1))
    return combine([
        remove(copies, work, uncertainty),
        shrink_spans(passes.replicate_ns, passes.apply_ns, 0, uncertainty),
        shrink_spans(passes.apply_ns, passes.gather_ns, kept_ns, uncertainty),
    ])  # fmt: skip


def _copied(facts: Facts, passes: _Passes) -> Rows:
    """What the main thread launches while it replicates the model."""
    launches, events = facts.launches, facts.trace.events
    index = np.searchsorted(passes.replicate_ns, launches.launched_ns, side="right") - 1
    mine = (launches.owner >= 0) & (events.lane[launches.owner.clip(min=0)] == facts.steps.main_lane)
    copied: Rows = launches.work[mine & (index >= 0) & (launches.launched_ns < passes.apply_ns[index.clip(min=0)])]
    return copied
