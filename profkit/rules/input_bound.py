"""The step waits for its batch while the model has nothing to do.

What it detects
Time in which the main thread asks a DataLoader for the next batch, in most steps, where the replay says that a batch
which is ready would make the step at least 3 % shorter. Having no workers is no fault: with cheap samples it is the
faster choice, and a wait during which the device still works costs nothing. The first batch of a loader with workers,
which waits for them to start, is left out; so are loops over samples that already lie in memory.

Why is this bad?
Reading, decoding and augmenting run on one CPU while the device idles, then the CPU idles while the device works.
Worker processes prepare the next batches meanwhile, so the two overlap.

Example
    loader = DataLoader(dataset, batch_size=64, shuffle=True)
    for x, y in loader:
        train_step(x, y)

Use instead
    loader = DataLoader(
        dataset, batch_size=64, shuffle=True, num_workers=4, persistent_workers=True, pin_memory=True
    )
    for x, y in loader:
        train_step(x, y)

How the saving is estimated
The recorded steps are replayed with the waits taken out, but for what the machine cannot give. Workers do not make the
work smaller: the step stays at least as long as a batch takes divided by the workers. And they need CPUs: those in the
program's affinity mask and cgroup, less those that the model keeps busy while it computes (the CPU time of the process
by the time that passed, counted in steps that nobody recorded; where that is not known, or others leave no CPU idle,
one for each thread of an operator, or one beside a GPU), less those that other processes use. What fits into the CPUs
that are left costs the step nothing. The rest waits until the model stands still, and is divided among all CPUs, which
other processes share; or it holds the model up: an operator on several threads is as fast as the slowest of them, so
that a worker which takes one of their CPUs for a while stops them all, and nothing is gained. Where the model fills all
CPUs and a batch takes less than the rest of the step, more workers help nothing, and nothing is reported: only less
work would. Workers that were there already kept an account of themselves: a batch takes the CPU time that they
measured, and what they were blocked for (files, networks); what they waited for a CPU does not count. What the main
process was blocked for needs no CPU either. Without an account, workers that cannot keep up are taken to be busy all
the time. As many workers as CPUs are advised at most, and more where a batch waits instead of computing: then as many
as keep the CPUs busy, while a quarter of memory has room for them. A batch from a worker is not free either: PyTorch's
queues take about as long as two of its tensors, of which each is asked for over a connection of its own, and it lies in
shared memory, of which the main process is given, and frees, each page of 4 KiB. How many tensors and pages, is read
off the stacking of the samples or the copies to the device; a tensor takes 0.3 ms and a page 1.1 µs. Where more workers
cannot be had, only cheaper samples help, and the saving is that of a batch which is ready.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.timeline.intervals import union
from profkit.evidence.attribution import busiest_site
from profkit.evidence.frequency import in_most_steps, per_step
from profkit.evidence.hottest import lines_by_time
from profkit.evidence.loader_accounts import LoaderAccount, busiest_loader
from profkit.evidence.loops.located import in_located_step
from profkit.evidence.program import named_operators
from profkit.evidence.requests import asked_of_workers, begins_an_iterator, main_requests, picked_one_by_one
from profkit.findings import MEDIUM_FROM, Kind, Location
from profkit.rules.base import CannotLook, Need, Suspicion, rule
from profkit.ruling.places import Places, loader_places, locations_of
from profkit.run import Host
from profkit.savings.edits import Edit, remove, shrink
from profkit.savings.replay import replay
from profkit.source.changes import Argument, ChangedCall
from profkit.trace.events import Category, Rows
from profkit.trace.values import among, median
from profkit.units import format_count, format_share, format_time

_WORTH = MEDIUM_FROM
"""The least gain for which worker processes, with their memory and start-up time, are worth it."""
_UNCERTAINTY, _UNCERTAINTY_SHARED = 0.3, 1.0
"""Where other programs have the CPUs it is the scheduler's matter how many of them workers get; groups of processes may
be given as much as one."""
_FEW_OTHERS = 0.25
"""CPUs: a quarter of one, as what an idle machine does besides varies."""
_MOST = 0.5
"""Of a batch's time: with less no single line is where it goes."""
_HICCUP = 0.8
"""One wait that makes up so much of all is a hiccup, not the rate at which batches come."""
_PAGE_BYTES = 4096
_TENSOR_NS, _PAGE_NS = 300_000, 1_100
"""What it takes the main process to be given a tensor by a worker, and each of its pages, which are read once and let
go: 0.23 to 0.34 ms and 1.0 to 1.3 µs in a virtual machine of two CPUs, under Linux 6.18 on AMD EPYC. Each tensor's file
descriptor comes over a connection of its own, at which both ends prove that they know a key
(``multiprocessing.resource_sharer``); of a page 0.3 µs are the fault (lmbench's ``lat_pagefault``: 0.1 to 0.5 µs on x86
servers) and the rest its freeing."""
_MOST_WAITING = 100
"""Workers for each CPU: computing of less than a hundredth of the time is not told from none."""
_WORKER_BYTES, _MEMORY_SHARE = 300_000_000, 0.25
"""What a worker may hold of its own, as one that is spawned does with Python and PyTorch alone (some 200 MB), and the
share of memory that all of them may."""
_TENSORS = 2
"""Of a batch: what to learn from, and what it is."""
_QUEUES = 2
"""What the queues take, in tensors: ready batches of 1, 2, 4 and 8 tensors of one element, from one worker, took 1.3,
1.9, 2.7 and 5.0 ms where a tensor takes 0.45 (PyTorch 2.13)."""


class _Loading(Struct, frozen=True):
    """Times per measured step: waiting for data, and the step with every batch ready."""

    rows: Rows
    wait_ns: float
    rest_ns: float
    workers: int | None
    """0: the main process prepares the batches; None: worker processes, nobody knows how many."""
    account: LoaderAccount | None = None
    """What the workers themselves measured."""
    batches: float = 1.0
    """How many a step asks for."""
    cpu_share: float = 1.0
    """Of the time in which the main process prepares a batch, what it is not blocked for."""

    @property
    def batch_ns(self) -> float:
        """What preparing a step's batches takes, on a CPU of its own."""
        if self.account is not None:
            return self.account.batch_ns * self.batches
        # Workers that cannot keep up are busy all the time: a batch takes them as long as they are many steps.
        return self.wait_ns if not self.workers else self.workers * (self.wait_ns + self.rest_ns)

    @property
    def batch_cpu_ns(self) -> float:
        """The CPU time in it."""
        if self.account is not None:
            return self.account.per_batch("cpu_ns") * self.batches
        return self.batch_ns * self.cpu_share


class _Cpus(Struct, frozen=True):
    """How many the program may use, and how many of these the model keeps busy while it computes, and others do."""

    usable: float
    computing: float
    others: float

    @property
    def idle(self) -> float:
        return max(0.0, self.usable - self.computing - self.others)

    @property
    def in_parallel(self) -> float:
        """The share of the model's time in which all its threads compute at once, and wait for each other."""
        return (self.computing - 1) / (self.usable - 1) if self.usable > 1 else 0.0

    def given_to(self, processes: int) -> float:
        """How many CPUs so many processes get that always want one: the scheduler gives each the same."""
        return processes * min(1.0, self.usable / (processes + self.others))

    @property
    def are_enough(self) -> bool:
        """Whether workers need nothing that other programs have now."""
        return self.others < _FEW_OTHERS


class _Plan(Struct, frozen=True):
    """How many workers to use, None where their number is not known, and how long a step then still waits for CPUs."""

    workers: int | None
    lacking_ns: float
    cpus: _Cpus | None = None


@rule(Kind.FAULT, Need.WHOLE_STEP)
def input_bound(facts: Facts) -> Iterator[Suspicion]:
    """One finding: the line that makes the DataLoader, or the loop that asks for batches."""
    rows = _requests(facts)
    if not in_most_steps(facts, rows):
        return
    loading = _measure(facts, rows)
    if _is_hiccup(facts, rows) or _is_in_memory(facts, rows) or _has_no_cpu_left(facts, loading):
        return
    plan = _plan_workers(facts, loading, _others_cpus(facts))
    edit = _wait_for(facts, loading, plan)
    saved = replay(facts, edit).fraction
    if saved < _WORTH:
        _abstain_where_others_decide(facts, loading, plan)
        return
    places, slowest = loader_places(facts, rows), _slowest_line(facts, rows)
    yield Suspicion(
        message=_describe(facts, loading, plan, saved, replay(facts, remove(rows)).fraction),
        fix=_advise(facts, loading, plan.workers) + ("" if slowest is None else _name_slowest(*slowest)),
        rows=rows,
        edit=edit,
        confidence=0.9 if facts.device.present else 0.8,
        places=places if slowest is None else Places(places.location, (slowest[0], *places.also)),
        rewrite=_with_workers(facts, loading, plan.workers),
        evidence={
            "wait_ns_per_step": int(loading.wait_ns),
            "step_with_data_ready_ns": int(loading.rest_ns),
            **({} if loading.workers is None else {"workers": loading.workers}),
            **({} if plan.workers is None else {"workers_needed": plan.workers}),
            **_busy_cpus(facts, plan.cpus),
            **_measured_parts(loading),
        },
    )


def _wait_for(facts: Facts, loading: _Loading, plan: _Plan) -> Edit:
    """A request takes what a step still waits for with these workers."""
    kept_ns = plan.lacking_ns + _handing_over_ns(facts, loading.rows)
    kept_share = min(1.0, kept_ns / max(loading.wait_ns, 1.0))
    kept = (facts.trace.events.duration_ns[loading.rows] * kept_share).astype(np.int64)
    alone = plan.cpus is None or plan.cpus.are_enough
    return shrink(loading.rows, kept, _UNCERTAINTY if alone else _UNCERTAINTY_SHARED)


def _abstain_where_others_decide(facts: Facts, loading: _Loading, plan: _Plan) -> None:
    """Raises `CannotLook` where workers are not worth it for nothing but other processes, which may be gone in the next
    run: then neither yes nor no is true of the program."""
    if plan.cpus is None or plan.cpus.are_enough:
        return
    quiet = replay(facts, _wait_for(facts, loading, _plan_workers(facts, loading, 0.0))).fraction
    if quiet >= _WORTH:
        raise CannotLook(
            f"other processes kept {plan.cpus.others:.1f} of the {plan.cpus.usable:.0f} CPUs busy: what workers would "
            "gain here can only be told on a quieter machine"
        )


def _requests(facts: Facts) -> Rows:
    """The main thread's requests for a batch, without those that wait for workers to start or to stop."""
    every = np.flatnonzero(main_requests(facts))
    rows = every[facts.measured[every]]
    if not rows.size:
        raise CannotLook("the recorded steps ask no DataLoader for batches")
    with_workers = asked_of_workers(facts)[rows]
    first = begins_an_iterator(facts, every)
    last = np.concatenate([first[1:], np.zeros(min(len(first), 1), dtype=bool)])
    turning = among(rows, every[first | last])
    kept: Rows = rows[~(with_workers & turning)]
    return kept


def _slowest_line(facts: Facts, rows: Rows) -> tuple[Location, float] | None:
    """The line of the dataset, the sampler or the collating that most of a batch's time is spent at, and its share;
    None where the main process only waits, or where no line of the program has so much."""
    inside = in_located_step(facts, np.flatnonzero(facts.tree.outermost(facts.loading)))
    spent = union(facts.trace.events.start_ns[inside], facts.tree.end_ns[inside])
    line = next(iter(lines_by_time(facts, spent)), None)
    if line is None or line.fraction < _MOST or line.site == busiest_site(facts, rows):
        return None
    return next(((place, line.fraction) for place in locations_of(facts, [line.site])), None)


def _name_slowest(place: Location, share: float) -> str:
    return (
        f" {format_share(share)} of a batch's time is spent at {Path(place.file).name}:{place.line}, in "
        f"{place.function}: what is made cheaper there, or done once beforehand, needs no worker."
    )


def _measure(facts: Facts, rows: Rows) -> _Loading:
    steps, run = facts.steps, facts.run
    waited = steps.per_step_ns(facts.trace.events.duration_ns[rows].sum())
    rest = steps.per_step_ns(replay(facts, remove(rows)).edited_ns)
    code = int(np.bincount(facts.trace.events.name_code[rows]).argmax())
    if "MultiProcessing" not in facts.trace.names[code]:
        return _Loading(rows, waited, rest, 0, cpu_share=_cpu_share(facts))
    known = [loader.workers for loader in run.loaders if loader.workers]
    return _Loading(rows, waited, rest, max(known, default=None), busiest_loader(facts), per_step(facts, rows))


def _cpu_share(facts: Facts) -> float:
    """1 where it is not known, or where other processes leave no CPU idle: then a wait may be one for a CPU."""
    run, others = facts.run, _others_cpus(facts)
    if run.feeding is None or run.host is None or run.host.cpus < others + 1:
        return 1.0
    return min(1.0, run.feeding.loading_cpus)


def _others_cpus(facts: Facts) -> float:
    """How many CPUs other processes keep busy, the program's workers among them."""
    read = [sample.others_cpus for sample in facts.samples if sample.others_cpus is not None]
    return median(read) if read else 0.0


def _is_hiccup(facts: Facts, rows: Rows) -> bool:
    """Whether a single wait makes up most of all, where there were several."""
    duration = facts.trace.events.duration_ns[rows]
    return len(rows) > 2 and bool(duration.max() > _HICCUP * duration.sum())


def _is_in_memory(facts: Facts, rows: Rows) -> bool:
    """Whether half of the requests and more only pick samples, one at a time, out of tensors that lie in memory: from
    there on it is the matter of per-sample-fetch."""
    return 2 * int(picked_one_by_one(facts, rows).sum()) >= len(rows)


def _has_no_cpu_left(facts: Facts, loading: _Loading) -> bool:
    """Whether workers already share the CPUs with the model, so that more of them would prepare nothing sooner."""
    host = facts.run.host
    if loading.workers == 0 or facts.device.present:
        return False
    if loading.account is not None and loading.workers and host is not None:
        return min(_needed(loading), _most_workers(loading, host)) <= loading.workers
    return host is None or (loading.workers or 1) + host.torch_threads > host.cpus


def _plan_workers(facts: Facts, loading: _Loading, others: float) -> _Plan:
    """As many workers as keep up with the step, as far as there are CPUs: ``others`` of these are busy with other
    programs."""
    if loading.workers is None:
        return _Plan(None, 0.0)
    host, needed = facts.run.host, _needed(loading)
    if host is None:
        return _Plan(needed, 0.0)
    room = _most_workers(loading, host)
    if loading.workers >= room:  # no more workers, then: cheaper samples, which would have the batch ready
        return _Plan(loading.workers, 0.0)
    workers, cpus = max(loading.workers, min(needed, room)), _cpus_of(facts, host, loading, others)
    by_workers = loading.batch_ns / workers
    return _Plan(workers, max(by_workers - loading.rest_ns, _lacking_ns(loading, cpus, workers)), cpus)


def _most_workers(loading: _Loading, host: Host) -> int:
    """How many keep all CPUs busy: one for each, and more where a batch waits for files, networks or a clock, but no
    more than fit into memory."""
    computing = loading.batch_cpu_ns / max(loading.batch_ns, 1.0)
    busy = host.cpus / max(computing, 1 / _MOST_WAITING)
    return max(host.cpus, int(min(busy, _MEMORY_SHARE * host.memory_bytes / _WORKER_BYTES)))


def _cpus_of(facts: Facts, host: Host, loading: _Loading, others: float) -> _Cpus:
    feeding, threads = facts.run.feeding, 1 if facts.device.present else host.torch_threads
    # Workers that are there already are among the other processes, and have their share in what they were measured by.
    others = others if loading.workers == 0 else 0.0
    computing = float(threads) if feeding is None else feeding.computing_cpus
    if computing + others > host.cpus - _FEW_OTHERS:  # what the model got; it may want a CPU for each of its threads
        computing = max(computing, threads)
    return _Cpus(float(host.cpus), min(max(computing, 1.0), float(host.cpus)), others)


def _lacking_ns(loading: _Loading, cpus: _Cpus, workers: int) -> float:
    """How much longer than the model's part a step is because the workers have to wait for CPUs."""
    during_ns = min(workers, cpus.idle) * loading.rest_ns
    over_ns = max(0.0, loading.batch_cpu_ns - during_ns)
    # Recorded as the main process got a CPU for it: the same programs took their part of that.
    shared_ns = over_ns * cpus.given_to(1) / cpus.given_to(workers)
    return max(shared_ns, cpus.in_parallel * min(over_ns, loading.rest_ns))


def _needed(loading: _Loading) -> int:
    """How many workers have a batch ready for each step, if each has a CPU."""
    return max(1, math.ceil(loading.batch_ns / max(loading.rest_ns, 1.0)))


def _measured_parts(loading: _Loading) -> dict[str, int]:
    """What a batch takes a worker, by its own account."""
    if loading.account is None or not loading.workers:
        return {}
    names = ("fetch_ns", "collate_ns", "send_ns", "cpu_ns", "blocked_ns")
    return {f"batch_{name}": round(loading.account.per_batch(name)) for name in names}


def _handing_over_ns(facts: Facts, rows: Rows) -> float:
    """How long it takes a step to receive its batches: the connections, and the pages of what is sent to the device,
    else of what the main process stacked."""
    events, steps = facts.trace.events, facts.steps.measured_count
    sent = facts.trace.where_name(lambda name: "HtoD" in name)
    copies = facts.measured & (events.category == Category.MEMCPY) & sent
    stacked = named_operators(facts, "aten::stack") & facts.tree.under(facts.trace.mask_of(rows))
    size = max(int(events.size_bytes[copies].sum()), int(facts.operators.input_bytes[stacked].sum()))
    tensors = max(_TENSORS, int(stacked.sum()) / len(rows)) + _QUEUES
    return tensors * _TENSOR_NS * len(rows) / steps + size / steps / _PAGE_BYTES * _PAGE_NS


def _busy_cpus(facts: Facts, cpus: _Cpus | None) -> dict[str, float]:
    """As far as they were counted."""
    if cpus is None:
        return {}
    computing = {} if facts.run.feeding is None else {"cpus_computing": round(cpus.computing, 2)}
    return computing if cpus.are_enough else {**computing, "cpus_others": round(cpus.others, 2)}


def _describe(facts: Facts, loading: _Loading, plan: _Plan, saved: float, ready: float) -> str:
    """``saved`` is what the advised workers give back, ``ready`` what it would be with each batch ready."""
    who = {0: "the main process prepares it", None: "the workers are not done with it"}.get(
        loading.workers, f"{format_count(loading.workers or 0, 'worker')} cannot keep up"
    )
    meanwhile = "the device idles" if facts.device.present else "the model stands still"
    told, most = format_share(saved), format_share(ready)
    all_of_it = f"with each batch ready the step would be {most} shorter"
    if plan.workers in (None, loading.workers):
        gain = all_of_it if told == most else f"{all_of_it}, of which handing batches over leaves {told}"
    else:
        count = f"{format_count(plan.workers or 0, 'worker')}{_which_share(plan)}"
        gain = f"{count} would make the step {told} shorter" + ("" if told == most else f"; {all_of_it}")
    return f"Each step waits {format_time(loading.wait_ns)} for its batch, because {who} while {meanwhile}; {gain}."


def _which_share(plan: _Plan) -> str:
    """Where the workers have to wait for CPUs."""
    if plan.lacking_ns <= 0 or plan.cpus is None:
        return ""
    others = "" if plan.cpus.are_enough else " and other programs"
    return f", which share the CPUs with the model{others},"


def _with_workers(facts: Facts, loading: _Loading, needed: int | None) -> ChangedCall | None:
    """The loader's line with as many workers as a step needs, where it has none or fewer."""
    if loading.workers is None or needed is None or needed <= loading.workers:
        return None
    pinned = [Argument("pin_memory", "True", (True, False), absent=True, position=7)] if facts.device.present else []
    return ChangedCall("DataLoader", (
        Argument("num_workers", str(needed), (loading.workers,), absent=loading.workers == 0, position=5),
        Argument("persistent_workers", "True", (True, False), absent=True),
        *pinned,
    ))  # fmt: skip


def _advise(facts: Facts, loading: _Loading, needed: int | None) -> str:
    pinned = ", pin_memory=True" if facts.device.present else ""
    if loading.workers == 0:
        return (
            f"Prepare batches in worker processes: DataLoader(..., num_workers={needed}, "
            f"persistent_workers=True{pinned}). A batch takes {format_time(loading.wait_ns)}, "
            f"the rest of the step {format_time(loading.rest_ns)}.{_more_than_cpus(facts, needed)}"
        )
    cheaper = "Make __getitem__ cheaper: decode once and keep the result, augment whole batches on the device"
    if loading.workers is None:
        return f"Use more workers, with persistent_workers=True. {cheaper}."
    if loading.account is not None:
        parts = {"fetching it": "fetch_ns", "collating it": "collate_ns"}
        times = [f"{format_time(loading.account.per_batch(name))} {part}" for part, name in parts.items()]
        cheaper = f"A batch takes a worker {' and '.join(times)}. {cheaper}"
    if needed is not None and needed > loading.workers:
        more = _more_than_cpus(facts, needed)
        return f"Use num_workers={needed} with persistent_workers=True.{more} {cheaper} where that is not enough."
    if loading.account is not None and _needed(loading) <= loading.workers:
        return f"{cheaper}: the workers are many enough, but they do not get the CPUs, or not all batches take alike."
    return f"{cheaper}: there are as many workers as keep the program's CPUs busy."


def _more_than_cpus(facts: Facts, workers: int | None) -> str:
    host = facts.run.host
    if host is None or workers is None or workers <= host.cpus:
        return ""
    return " PyTorch warns of more workers than CPUs; these mostly wait, and need none meanwhile."
