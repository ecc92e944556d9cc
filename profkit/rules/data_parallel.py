"""`DataParallel` copies the model to every GPU in each step and runs the copies in threads of one process.

What it detects
Forward passes of `torch.nn.DataParallel` that work on two GPUs or more: PyTorch records a range around each, with the
broadcast of the parameters and the gathering of the outputs inside. With one GPU or none, the wrapper calls the model
itself and costs nothing. That is not reported, nor is DistributedDataParallel.

Why is this bad?
Each forward pass sends all parameters to all GPUs again, builds a module for each, and starts a thread for each. The
threads share Python's lock, so they launch their work by turns while most of the GPUs wait, and every further GPU makes
that longer. The outputs come back to the first GPU, which alone computes the loss and takes the optimizer's step. With
a process per GPU, the parameters stay where they are, and only gradients are sent, during the backward pass.

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
The recorded steps are replayed without replicating the model and without gathering, forward and backward, on the host
and on the GPUs. Summing up the replicas' gradients stays: it stands for the all-reduce. The threads take between the
time of one thread, if Python's lock lets only one work at a time, and the recorded time: the estimate is the middle,
and the range reaches to both ends. Loss and optimizer, which each process computes for its own part, stay as they are.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns import busiest_site, in_most_steps, length_ns, name_lines, times_a_step, works_under
from profkit.rules.base import LOW_FROM, Facts, Kind, Need, Suspicion, Suspicions, format_time, rule
from profkit.savings import Edit, combine, remove, shrink_spans
from profkit.trace import Bools, Category, Int64s, Rows, distinct

_FORWARD = "DataParallel.forward"
"""The range that PyTorch records around the wrapper's forward (``torch/nn/parallel/data_parallel.py``)."""
_SCATTER, _BROADCAST, _GATHER = "Scatter", "Broadcast", "Gather"
"""The functions of ``torch/nn/parallel/_functions.py``, which autograd records under their classes' names. `Scatter`
also runs on a single device; without gradients there is no `Broadcast`."""
_UNGATHERS = "autograd::engine::evaluate_function: GatherBackward"
_UNCERTAINTY = 0.2
"""Where the threads add little to the range: what DistributedDataParallel itself does in a step was not recorded."""


@rule(Kind.FAULT, Need.DEVICE, Need.OPERATORS)
def data_parallel(facts: Facts) -> Suspicions:
    """All forward passes of the wrapper together: the model's form has to change."""
    rows = _replicated(facts)
    if not rows.size or not in_most_steps(facts, rows):
        return
    launches, events = facts.launches, facts.trace.events
    work = launches.work[_within(events.start_ns[rows], events.ends_of(rows), launches.launched_ns)]
    devices = len({facts.trace.lanes[lane].process for lane in distinct(events.lane[work]).tolist()})
    if devices == 1:
        return
    replicate, apply, gather = _take_apart(facts, rows)
    copying_ns, applying_ns = (
        facts.steps.per_step_ns(length_ns(facts, start_ns, end_ns).sum())
        for start_ns, end_ns in ((replicate, apply), (apply, gather))
    )
    yield Suspicion(
        message=f"DataParallel copies the model to {devices} GPUs {times_a_step(facts, rows)}, which takes "
        f"{format_time(copying_ns)} of the host's time. The copies run in threads that share Python's lock, "
        f"{format_time(applying_ns)}.",
        fix=f"Start a process for each GPU (`torchrun --nproc_per_node={devices}`) and wrap the model in "
        "`DistributedDataParallel`. Each process keeps its copy, loads its part of the batch, and sends only "
        "gradients.",
        rows=rows,
        edit=_without(facts, rows, replicate, apply, gather, devices),
        worth=LOW_FROM,
        places=name_lines(facts, [busiest_site(facts, rows)]),
        evidence={"devices": devices, "replicating_ns_per_step": copying_ns, "threads_ns_per_step": applying_ns},
    )


def _replicated(facts: Facts) -> Rows:
    """The measured forward passes that send parameters or fetch outputs."""
    main = facts.trace.events.lane == facts.steps.main_lane
    copies = facts.trace.named(_BROADCAST, _GATHER) & (facts.trace.events.category == Category.OPERATOR)
    forwards = facts.trace.named(_FORWARD) & (facts.trace.events.category == Category.ANNOTATION) & main
    return facts.measured_rows(forwards & facts.tree.holding(copies))


def _within(start_ns: Int64s, end_ns: Int64s, times_ns: Int64s) -> Bools:
    """The times in one of these stretches, which are in order of time."""
    index = np.searchsorted(start_ns, times_ns, side="right") - 1
    within: Bools = (index >= 0) & (times_ns < end_ns[index.clip(min=0)])
    return within


def _take_apart(facts: Facts, rows: Rows) -> tuple[Int64s, Int64s, Int64s]:
    """When each pass begins to replicate the model, to run the replicas in threads, and to gather their outputs, on the
    main thread. The threads begin with the first work that they launch; replication lies between the inputs' copies and
    that. If no launch of theirs was recorded, replication ends with the broadcast."""
    events, calls = facts.trace.events, facts.launches.call[facts.launches.call >= 0]
    start, end = events.start_ns[rows], events.ends_of(rows)
    main = events.lane == facts.steps.main_lane
    of_threads = calls[~facts.serial_lanes[events.lane[calls]]]
    named = {name: np.flatnonzero(facts.trace.named(name) & main) for name in (_SCATTER, _BROADCAST, _GATHER)}
    gather = _first_between(np.sort(events.start_ns[named[_GATHER]]), start, end, end)
    scattered = _last_between(np.sort(events.ends_of(named[_SCATTER])), start, gather, start)
    broadcast = _last_between(np.sort(events.ends_of(named[_BROADCAST])), scattered, gather, scattered)
    first = _first_between(np.sort(events.start_ns[of_threads]), scattered, gather, gather)
    return scattered, np.where(first < gather, first, broadcast), gather


def _first_between(times_ns: Int64s, start: Int64s, end: Int64s, otherwise: Int64s) -> Int64s:
    """The first of the times from each start on and before its end."""
    found = np.append(times_ns, np.iinfo(np.int64).max)[np.searchsorted(times_ns, start)]
    return np.where(found < end, found, otherwise)


def _last_between(times_ns: Int64s, start: Int64s, end: Int64s, otherwise: Int64s) -> Int64s:
    """The last of the times after each start and up to its end."""
    found = np.append(times_ns, np.iinfo(np.int64).min)[np.searchsorted(times_ns, end, side="right") - 1]
    return np.where(found > start, found, otherwise)


def _without(facts: Facts, rows: Rows, replicate: Int64s, apply: Int64s, gather: Int64s, devices: int) -> Edit:
    """Without replicating and gathering, and with the threads at the middle of what they may take."""
    launches, events = facts.launches, facts.trace.events
    gathers = facts.trace.named(_GATHER) & facts.tree.under(facts.trace.mask_of(rows))
    copies = facts.measured_rows(facts.tree.outermost(gathers | facts.trace.named(_UNGATHERS)))
    on_main = (launches.owner >= 0) & (events.lane[launches.owner.clip(min=0)] == facts.steps.main_lane)
    replicated = launches.work[on_main & _within(replicate, apply, launches.launched_ns)]
    work = np.union1d(replicated, works_under(facts, facts.trace.mask_of(copies)))
    kept_ns = (gather - apply) * (devices + 1) // (2 * devices)
    gained_ns = int((gather - apply - kept_ns).sum())
    certain_ns = int((apply - replicate).sum() + events.duration_ns[copies].sum())
    uncertainty = max(_UNCERTAINTY, gained_ns / max(gained_ns + certain_ns, 1))
    return combine(
        [
            remove(copies, work, uncertainty),
            shrink_spans(replicate, apply, 0, uncertainty),
            shrink_spans(apply, gather, kept_ns, uncertainty),
        ]
    )
