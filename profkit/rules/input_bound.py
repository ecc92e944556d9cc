"""The step waits for its batch while the model has nothing to do.

What it detects
Time in which the main thread asks a DataLoader for the next batch, in most steps, where the replay shows that a ready
batch would make the step at least 3 % shorter. A loader without workers is no fault in itself: with cheap samples it is
the faster choice, and a wait during which the device still works costs nothing. The rule ignores the first batch of a
loader with workers, which waits for them to start, and loops over samples that already lie in memory.

Why is this bad?
One CPU reads, decodes and augments while the device idles, then the CPU idles while the device works. Worker processes
prepare the next batches in the meantime, so the two overlap.

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
The recorded steps are replayed without the waits, within the limits of the machine. Workers do not reduce the work: a
step takes at least the time of a batch divided by the number of workers. Workers also need CPUs. The program has those
in its affinity mask and cgroup, minus those that the model keeps busy while it computes (CPU time over wall time of
the process, counted in unrecorded steps; where that is unknown, or other processes leave no CPU idle, one per operator
thread, or one beside a GPU), minus those that other processes use. Loading that fits into the CPUs left over costs the
step nothing. The rest either waits until the model stands still, and is then divided among all CPUs, or it holds the
model up: an operator on several threads is as fast as its slowest thread, so a worker that takes one of their CPUs
stops them all, and nothing is gained. If the model fills all CPUs and a batch takes less than the rest of the step,
more workers do not help.

A finding names a line of the program under three conditions. It takes half of a batch's time itself, or three quarters
together with another line of its function. With each batch ready the step would be a fifth shorter. And without that
line's function the step would be shorter by as much as workers give back on this machine. Its saving is that of the
requests without the function: the most that a cheaper way can give back. If that is twice what workers would give back
on a machine without other programs, they are not advised at all. If workers gain nothing and several lines together
take most of it, the finding names the line that calls them, without a price. If each batch comes from an iterator of
its own, which first orders the whole set anew, the saving is that of the requests without the order, and of freeing it
after them.

For a loader that already has workers, their own account gives the CPU time of a batch and the time it is blocked on
files and networks; waiting for a CPU does not count. Time the main process is blocked needs no CPU either. Without an
account, workers that cannot keep up are assumed to be busy all the time. The rule advises at most as many workers as
CPUs. If a batch mostly waits instead of computing, it advises as many as keep the CPUs busy, up to a quarter of memory.
Handing over a batch has a price, too: PyTorch's queues take about as long as two of its tensors; each tensor is sent
over a connection of its own (0.3 ms); and the batch lies in shared memory, of which the main process maps and frees
each page of 4 KiB (1.1 µs). The counts of tensors and pages come from the stacking of the samples or the copies to the
device. Where more workers are not possible, only cheaper samples help, and the saving is that of a ready batch.

Workers on all CPUs take them from the model, too. The system counts how long the main thread waits for a CPU. The part
of that which the workers' accounts explain, of what all other processes use, is a wait for batches as well. It is no
longer than unrecorded steps show, whose CPU time is known. Without a function of the workers, model and workers share
the CPUs with that much less to do. What the main process computes itself while it takes a batch stays.

If even the shortest request waits longer than the workers' account says that a batch takes to make, handing it over is
what takes the time, and no worker is the faster choice. The saving is what the shortest request waits beyond making,
for each of them: the others may have waited because other programs had the CPUs. A worker's time is more than the main
process takes, as a worker puts the batch into shared memory; what it waits for a CPU meanwhile is left out.

If only the program's beginning was recorded, looks at the main thread over the whole run tell how much of it waits for
batches. From a tenth on that is an opportunity, at the innermost line under which half of the wait passes. What the
line takes of the run is the most that can be gained. The severity is medium if the waits take half of the run, else
low.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from msgspec import Struct

from profkit.derive.timeline.intervals import Intervals, union
from profkit.patterns import Places, busiest_site, in_most_steps, loader_places, locations_of, named_operators, per_step
from profkit.patterns.loader_accounts import LoaderAccount, busiest_loader, loader_accounts
from profkit.patterns.loops.located import in_located_step
from profkit.patterns.requests import (
    asked_of_workers,
    begins_an_iterator,
    discarded_orders,
    main_requests,
    picked_one_by_one,
)
from profkit.patterns.time.advice import advice_on
from profkit.patterns.time.hottest import hottest_function, narrowest_line
from profkit.patterns.time.line_prices import batch_function, batch_prices, worker_function, worker_prices
from profkit.patterns.whole_run.phases import DATA, whole_run
from profkit.patterns.whole_run.timed_lines import line_of_phase
from profkit.rules.base import (
    HIGH_FROM,
    MEDIUM_FROM,
    CannotLook,
    Facts,
    Kind,
    Location,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    format_count,
    format_share,
    format_time,
    missing_needs,
    reason_for,
    rule,
)
from profkit.run.directory import Host
from profkit.savings import Edit, combine, remove, shrink, shrink_spans
from profkit.savings.replay import replay
from profkit.savings.step_time import as_in_step_ns
from profkit.source.changes import Argument, ChangedCall
from profkit.trace import Category, Rows, among, median

_WORTH = MEDIUM_FROM
"""The least gain that justifies worker processes, with their memory and start-up time."""
_UNCERTAINTY, _UNCERTAINTY_SHARED = 0.3, 1.0
"""If other programs use the CPUs, the scheduler decides how many of them the workers get. A group of processes may get
as much as a single one."""
_FEW_OTHERS = 0.25
"""CPUs. The background load of an idle machine varies by about that much."""
_MOST = 0.5
"""Of a batch's time. Below that, no single line accounts for it; above, whether it leads depends on what it gives back
beside workers. Also of the step, for a price of high severity."""
_MOST_OF_RUN, _PART_MAY_STAY = 0.5, 0.5
"""Of a run whose steps were not recorded. Waits that take so much are where to begin, whatever workers would save."""
_MOST_OF_TWO = 3 / 4
"""Of a batch's time, for the two lines of a function that take most of it: what they share, none has half of. Of a
longer row of steps, such as reading, decoding and several transforms, each is needed, and workers come first."""
_LEAST_SHARE = 0.2
"""Of the step, from which on the making of samples is told although workers do not pay: as of other time outside of
PyTorch (`unattributed-time`)."""
_CLEARLY_MORE = 2.0
"""If a cheaper function would give back this many times what workers do, they are not advised. Workers that hide all of
it would give back as much; twice is more than the uncertainty of either."""
_UNCERTAINTY_SEEN = 0.2
"""Of what is recorded and needs no model: an order of half a million samples drives the model's data out of the caches,
so that the rest of the step takes 2.5 ms without it instead of 4 (AMD EPYC)."""
_MOST_OF_AN_ORDER = 2
"""Batches. Of an order that is hardly longer than what is used of it, little is thrown away."""
_HICCUP = 0.8
"""A single wait with this share of all waiting is a hiccup, not the rate at which batches come."""
_PAGE_BYTES = 4096
_TENSOR_NS, _PAGE_NS = 300_000, 1_100
"""What the main process spends on each tensor from a worker and on each of its pages, read once: 0.23 to 0.34 ms and
1.0 to 1.3 µs in a virtual machine of two CPUs under Linux 6.18 on AMD EPYC. The file descriptor of each tensor comes
over a connection of its own, on which both ends prove that they know a key (``multiprocessing.resource_sharer``). Of a
page, 0.3 µs is the fault (lmbench's ``lat_pagefault``: 0.1 to 0.5 µs on x86 servers) and the rest its freeing."""
_MOST_WAITING = 100
"""Workers per CPU. A computing share below a hundredth cannot be told from none."""
_WORKER_BYTES, _MEMORY_SHARE = 300_000_000, 0.25
"""Memory of one worker (a spawned one holds some 200 MB for Python and PyTorch alone), and the share of the machine's
memory that all of them together may take."""
_TENSORS = 2
"""In a batch: the input and the target."""
_QUEUES = 2
"""Cost of the queues, in tensors: ready batches of 1, 2, 4 and 8 one-element tensors from one worker took 1.3, 1.9, 2.7
and 5.0 ms where a tensor takes 0.45 (PyTorch 2.13)."""
_CHEAPER = (
    "Make what this line does cheaper, or do it once beforehand for all samples. What is the same for every sample "
    "belongs where the dataset is made. Results that are asked for again can be kept."
)


class _Loading(Struct, frozen=True):
    """Times per measured step: waiting for data, and the step with every batch ready."""

    rows: Rows
    wait_ns: float
    rest_ns: float
    workers: int | None
    """0: the main process prepares the batches. None: worker processes, their number is unknown."""
    account: LoaderAccount | None = None
    """What the workers measured themselves."""
    batches: float = 1.0
    """How many a step asks for."""
    cpu_share: float = 1.0
    """The share of the preparation during which the main process is not blocked."""
    crowded_ns: float = 0.0
    """How long the model waits for a CPU that a worker has. It is part of the rest."""

    @property
    def batch_ns(self) -> float:
        """How long a CPU of its own takes for the batches of a step."""
        if self.account is not None:
            return self.account.batch_ns * self.batches
        # Workers that cannot keep up are busy all the time, so a batch takes as many steps as there are workers.
        return self.wait_ns if not self.workers else self.workers * (self.wait_ns + self.rest_ns)

    @property
    def batch_cpu_ns(self) -> float:
        """The CPU time in it."""
        if self.account is not None:
            return self.account.per_batch("cpu_ns") * self.batches
        return self.batch_ns * self.cpu_share

    @property
    def needed(self) -> int:
        """How many workers have a batch ready for each step if each has a CPU."""
        return max(1, math.ceil(self.batch_ns / max(self.rest_ns, 1.0)))

    @property
    def lost_ns(self) -> float:
        """Both waits: for the batch, and for a CPU."""
        return self.wait_ns + self.crowded_ns

    def most_workers(self, host: Host) -> int:
        """As many as keep all CPUs busy: one per CPU, more if a batch is blocked, as far as memory allows."""
        busy = host.cpus / max(self.batch_cpu_ns / max(self.batch_ns, 1.0), 1 / _MOST_WAITING)
        return max(host.cpus, int(min(busy, _MEMORY_SHARE * host.memory_bytes / _WORKER_BYTES)))


class _Cpus(Struct, frozen=True):
    """The CPUs that the program may use, those the model keeps busy while it computes, and those others use."""

    usable: float
    computing: float
    others: float

    @property
    def are_enough(self) -> bool:
        """Whether workers need no CPU that other programs use now."""
        return self.others < _FEW_OTHERS

    def given_to(self, processes: int) -> float:
        """How many CPUs this many busy processes get. The scheduler gives each process the same."""
        return processes * min(1.0, self.usable / (processes + self.others))

    def lacking_ns(self, loading: _Loading, workers: int) -> float:
        """How much longer a step takes than the model's part because the workers wait for CPUs."""
        idle = max(0.0, self.usable - self.computing - self.others)
        over_ns = max(0.0, loading.batch_cpu_ns - min(workers, idle) * loading.rest_ns)
        # The main process was recorded with the same programs beside it, which had their share of its CPU.
        shared_ns = over_ns * self.given_to(1) / self.given_to(workers)
        in_parallel = (self.computing - 1) / (self.usable - 1) if self.usable > 1 else 0.0
        return max(shared_ns, in_parallel * min(over_ns, loading.rest_ns))


class _Plan(Struct, frozen=True):
    """How many workers to use, None if that is unknown, and how long a step then still waits for CPUs."""

    workers: int | None
    lacking_ns: float = 0.0
    cpus: _Cpus | None = None

    @property
    def is_alone(self) -> bool:
        return self.cpus is None or self.cpus.are_enough


@rule(Kind.FAULT)
def input_bound(facts: Facts) -> Suspicions:
    """Findings at the line that makes the DataLoader, at the loop that asks for batches, or at the line that makes most
    of a batch."""
    if missing_needs(facts, (Need.WHOLE_STEP,)):
        yield _suspect_waits_of_run(facts)
    else:
        yield from _suspect_waits_of_steps(facts)


def _suspect_waits_of_steps(facts: Facts) -> Suspicions:
    rows = _requests(facts)
    if not in_most_steps(facts, rows):
        return
    loading = _measure(facts, rows)
    picks = 2 * int(picked_one_by_one(facts, rows).sum()) >= len(rows)  # `per-sample-fetch` reports those
    if picks or (_is_hiccup(facts, rows) and loading.crowded_ns < _LEAST_SHARE * loading.rest_ns):
        return
    if in_vain := _handed_over_in_vain(facts, loading) or _orders_made_afresh(facts, loading):
        yield in_vain
        return
    if _workers_would_not_last(facts, loading) or _has_no_cpu_left(facts, loading):
        if (making := _making(facts, loading, 0.0)) is not None:
            yield _suspect_making(facts, loading, _Plan(loading.workers), making, 0.0)
        else:
            yield from _suspect_crowding(facts, loading)
        return
    plan = _plan_workers(facts, loading, _others_cpus(facts))
    edit = _wait_for(facts, loading, plan)
    saved = replay(facts, edit).fraction
    making = _making(facts, loading, saved)
    if making is not None:
        yield _suspect_making(facts, loading, plan, making, saved)
        if making.saved >= _CLEARLY_MORE * _saved_on_quiet(facts, loading, plan):
            return
    if saved < _WORTH:
        told = list(_suspect_samples(facts, loading, plan)) if making is None else []
        if making is None and not told:
            _abstain_where_others_decide(facts, loading, plan)
        yield from told
        return
    places, slowest = loader_places(facts, rows), _slowest_line(facts, loading)
    yield Suspicion(
        message=_describe(facts, loading, plan, saved, replay(facts, remove(rows)).fraction),
        fix=_advise(facts, loading, plan.workers) + (slowest[1] if slowest else ""),
        rows=rows,
        edit=edit,
        confidence=0.9 if facts.device.present else 0.8,
        places=Places(places.location, (slowest[0], *places.also)) if slowest else places,
        rewrite=_with_workers(facts, loading, plan.workers),
        evidence=_evidence(facts, loading, plan),
    )


def _suspect_waits_of_run(facts: Facts) -> Suspicion:
    """No whole step was recorded, but looks at the main thread tell how much of the run it waits for batches, and
    where."""
    whole, line = whole_run(facts), line_of_phase(facts, DATA)
    share = line.phase_ns / whole.programs_ns if whole is not None and line is not None else 0.0
    if line is None or not facts.is_beginning or share < HIGH_FROM:
        raise CannotLook(reason_for(facts, Need.WHOLE_STEP))
    return Suspicion(
        message=f"The program waits for batches in {format_share(share)} of the run, {format_time(line.phase_ns)}, and "
        f"{format_share(line.time_ns / line.phase_ns)} of that passes at this line. No step was recorded, so what "
        "workers would save of one is not known.",
        fix="Look at what the line does for each sample. What is the same for many, such as where a sample lies, can "
        "be worked out once, when the dataset is made. What has to be done for each can be done by a DataLoader's "
        "workers.",
        kind=Kind.OPPORTUNITY,
        severity=Severity.MEDIUM if share >= _MOST_OF_RUN else Severity.LOW,
        run_ns=line.time_ns,
        run_uncertainty=_PART_MAY_STAY,
        confidence=0.7,
        count=1,
        places=Places.of_sites((line.site,)),
        evidence={"waits_ns_in_run": line.phase_ns, "line_ns_in_run": line.time_ns},
    )


def _suspect_samples(facts: Facts, loading: _Loading, plan: _Plan) -> Suspicions:
    """Workers would gain nothing, or nobody can tell beside other programs, but one line may take most of what makes a
    batch. What it does may have to be done, so the price is unknown."""
    ready = replay(facts, remove(loading.rows)).fraction
    slowest = _slowest_line(facts, loading) if loading.workers == 0 and ready >= _LEAST_SHARE else None
    if slowest is None:
        return
    line, advice = slowest
    yield Suspicion(
        message=f"Each step waits {_told(facts, loading.wait_ns)} for its batch, because the main process prepares it "
        f"while the model waits. With each batch ready the step would be {format_share(ready)} shorter. "
        + (
            "Workers would take the CPUs from the model and gain nothing here."
            if plan.is_alone
            else "Other programs keep the CPUs busy, so whether workers help is open."
        ),
        fix="Do what is the same for every sample once, where the dataset is made. Keep results that are asked for "
        f"again.{advice}",
        rows=loading.rows,
        confidence=0.6,
        places=Places.of([line, *loader_places(facts, loading.rows).all()]),
        severity=Severity.LOW,
        evidence=_evidence(facts, loading, plan),
    )


class _Making(Struct, frozen=True):
    """A function of the program with its share of a batch's time, its lines that take much, the first one most, the
    first one's own share and what it calls, the requests without the function, and the share of the step that this
    gives back."""

    name: str
    share: float
    lines: tuple[Location, ...]
    line_share: float
    callee: str
    edit: Edit
    saved: float


def _making(facts: Facts, loading: _Loading, least: float) -> _Making | None:
    """The function that takes most of a batch's time, if a ready batch would give a fifth of the step back, and the
    function ``least`` or more: then cheaper samples come before workers. None if no line takes half of a batch itself,
    or two three quarters, or if the main process or the workers only wait.

    Samples tell it in the main process and in workers. Without them line marks do in the main process: they make Python
    slower, but of what only passes there the shares are about right."""
    found = worker_function(facts) if loading.workers else batch_function(facts)
    if found is not None:
        line, lines = found.line, tuple(Location.of(one.site) for one in (found.line, *found.others))
        if line.own_share < _MOST and found.two_lines_share < _MOST_OF_TWO:
            return None
        known = found.name, found.share, lines, line.own_share, line.callee
    elif loading.workers == 0 and not batch_prices(facts):
        hot = hottest_function(facts, _located_requests(facts), _MOST, busiest_site(facts, loading.rows))
        places = locations_of(facts, [hot.line.site]) if hot is not None else ()
        if hot is None or not places:
            return None
        known = hot.name, hot.fraction, places[:1], hot.line.fraction, ""
    else:
        return None
    edit = _without_part(facts, loading, known[1])
    saved = replay(facts, edit).fraction
    is_told = saved >= max(least, _WORTH) and replay(facts, _without_waits(facts, loading)).fraction >= _LEAST_SHARE
    return _Making(*known, edit, saved) if is_told else None


def _without_part(facts: Facts, loading: _Loading, share: float) -> Edit:
    """The waits if that share of making a batch is gone. Workers then are ready the sooner."""
    kept_share, crowded_share = 1 - share, 1.0
    if loading.workers:
        alone_ns = loading.rest_ns - loading.crowded_ns
        all_ns = (alone_ns + loading.batch_cpu_ns * kept_share) / _usable(facts)
        crowded_share = min(max(0.0, all_ns - alone_ns) / max(loading.lost_ns, 1.0), 1.0)
        still_ns = max(loading.batch_ns * kept_share / loading.workers, all_ns) - loading.rest_ns
        kept_share = min(max(still_ns, _taking_ns(facts, loading)) / max(loading.wait_ns, 1.0), 1.0)
    kept = (facts.trace.events.duration_ns[loading.rows] * kept_share).astype(np.int64)
    return _shorter(facts, shrink(loading.rows, kept, _UNCERTAINTY), loading, crowded_share)


def _without_waits(facts: Facts, loading: _Loading) -> Edit:
    return _shorter(facts, remove(loading.rows), loading, 0.0)


def _shorter(facts: Facts, edit: Edit, loading: _Loading, crowded_share: float) -> Edit:
    """With only that share of the waits for a CPU as well."""
    waits = facts.crowding_by_workers
    if not loading.crowded_ns:
        return edit
    gone_share = (1 - crowded_share) * loading.crowded_ns / facts.steps.per_step_ns(waits.total_ns)
    kept_ns = ((1 - gone_share) * (waits.end_ns - waits.start_ns)).astype(np.int64)
    return combine([edit, shrink_spans(waits.start_ns, waits.end_ns, kept_ns, _UNCERTAINTY)])


def _taking_ns(facts: Facts, loading: _Loading) -> float:
    """What the main process computes itself while it asks for a batch: it maps and copies what a worker hands over."""
    known = facts.run.feeding
    computes_ns = 0.0 if known is None else min(known.loading_cpus, 1.0) * loading.wait_ns
    return max(computes_ns, _handing_over_ns(facts, loading.rows))


def _usable(facts: Facts) -> float:
    """The number of CPUs; without limit if unknown."""
    return float(facts.run.host.cpus) if facts.run.host is not None else math.inf


def _suspect_making(facts: Facts, loading: _Loading, plan: _Plan, making: _Making, by_workers: float) -> Suspicion:
    """One function takes most of what makes a batch, and more workers would gain less than doing without it."""
    share, of_line = format_share(making.share), format_share(making.line_share)
    in_line = "" if share == of_line else f", {of_line} to this line of it"
    calls = f", which calls `{making.callee}`" if making.callee else ""
    workers = (
        f"{format_count(plan.workers or 0, 'worker')} would make the step {format_share(by_workers)} shorter."
        if by_workers >= _WORTH and plan.workers not in (None, loading.workers)
        else "Other programs keep the CPUs busy, so whether workers help is open."
        if loading.workers == 0 and not plan.is_alone
        else "Workers would take the CPUs from the model and gain nothing here."
        if loading.workers == 0
        else "More workers would gain nothing here."
    )
    advice = advice_on(facts, making.lines[0].file, making.lines[0].line, making.callee)
    does = f" {advice.does}" if advice else ""
    return Suspicion(
        message=f"{_waits_told(facts, loading)} {share} of a batch goes "
        f"to `{making.name}`{in_line}{calls}.{does} Without the function the step would be at most "
        f"{format_share(making.saved)} shorter. {workers}",
        fix=advice.fix if advice else _CHEAPER,
        rows=loading.rows,
        edit=making.edit,
        confidence=0.7,
        severity=None if making.saved >= _MOST else Severity.MEDIUM,  # of less, more may be necessary
        kind=Kind.OPPORTUNITY,
        places=Places.of([*making.lines, *loader_places(facts, loading.rows).all()]),
        evidence={**_evidence(facts, loading, plan), "making_share": round(making.share, 4)},
    )


def _waits_told(facts: Facts, loading: _Loading) -> str:
    """A sentence: how long a step waits, and why."""
    waits = f"Each step waits {_told(facts, loading.wait_ns)} for its batch"
    if loading.workers == 0:
        return f"{waits}, because the main process prepares it while the model waits."
    workers = format_count(loading.workers or 0, "worker")
    if not loading.crowded_ns:
        return f"{waits}, because {workers} cannot keep up."
    shared = f"{workers} and the model share {format_count(int(_usable(facts)), 'CPU')}"
    return f"{waits} and {_told(facts, loading.crowded_ns)} for a CPU, because {shared}."


def _suspect_crowding(facts: Facts, loading: _Loading) -> Suspicions:
    """The workers take the CPUs from the model, and no function of the program takes most of a batch."""
    saved = replay(facts, edit := _without_part(facts, loading, 1.0)).fraction
    if loading.crowded_ns < _LEAST_SHARE * (loading.wait_ns + loading.rest_ns) or saved < _LEAST_SHARE:
        return
    places, slowest = loader_places(facts, loading.rows), _slowest_line(facts, loading)
    yield Suspicion(
        message=f"{_waits_told(facts, loading)} With batches that cost nothing the step would be "
        f"{format_share(saved)} shorter.",
        fix="Make each sample once and keep it, where it is the same in each epoch, and take whole batches of tensors "
        "by index. Fewer or more workers change little: they need the same time of the CPUs."
        + (slowest[1] if slowest else ""),
        rows=loading.rows,
        edit=edit,
        confidence=0.7,
        severity=Severity.MEDIUM,  # some of what makes a batch is necessary
        kind=Kind.OPPORTUNITY,
        places=Places(places.location, (slowest[0], *places.also)) if slowest else places,
        evidence=_evidence(facts, loading, _Plan(loading.workers)),
    )


def _workers_would_not_last(facts: Facts, loading: _Loading) -> bool:
    """Whether each request begins an iterator of its own, so that workers would start for a single batch."""
    every = np.flatnonzero(main_requests(facts))
    return not loading.workers and len(every) > 1 and bool(begins_an_iterator(facts, every).all())


def _orders_made_afresh(facts: Facts, loading: _Loading) -> Suspicion | None:
    """Each batch comes from an iterator of its own, which first puts all samples in a new order."""
    uses = [use.batch_size for use in facts.run.loaders if use.batch_size]
    if loading.workers != 0 or not uses or not begins_an_iterator(facts, loading.rows).all():
        return None
    orders = discarded_orders(facts, loading.rows, _MOST_OF_AN_ORDER * max(uses))
    if len(orders.rows) < len(loading.rows):
        return None
    ended_ns = facts.tree.end_ns[orders.rows]
    kept_ns = facts.trace.events.duration_ns[orders.rows] - orders.drawing_ns
    freeing = shrink_spans(ended_ns, ended_ns + orders.freeing_ns, 0, _UNCERTAINTY_SEEN)
    edit = combine([shrink(orders.rows, kept_ns, _UNCERTAINTY_SEEN), freeing])
    if replay(facts, edit).fraction < _WORTH:
        return None
    in_vain_ns = facts.steps.per_step_ns(int((orders.drawing_ns + orders.freeing_ns).sum()))
    return Suspicion(
        message=f"Each step makes a new iterator of the DataLoader for a single batch. That shuffles the whole set of "
        f"samples and frees the order afterwards, {_told(facts, in_vain_ns)} a step. All of it but the first batch is "
        "thrown away.",
        fix="Make the iterator once and ask it again, until it is used up:\n    batches = iter(loader)\n    ...\n"
        "    x, y = next(batches)\nOr draw the samples of a batch without a DataLoader (torch.randint).",
        rows=orders.rows,
        edit=edit,
        confidence=0.9,
        places=Places.of(
            [*locations_of(facts, [busiest_site(facts, orders.rows)]), *loader_places(facts, orders.rows).all()]
        ),
        evidence={"drawing_ns_per_step": in_vain_ns},
    )


def _handed_over_in_vain(facts: Facts, loading: _Loading) -> Suspicion | None:
    """Each request for a batch waits longer than a worker takes to make it.

    Workers that cannot keep up are waited for less long, as they began before they were asked. The shortest wait
    counts, as any may be longer because other programs have the CPUs."""
    accounts = loader_accounts(facts)
    if not loading.workers or not accounts:
        return None
    made_ns = max(map(_making_ns, accounts))
    waits_ns = facts.trace.events.duration_ns[loading.rows]
    handing_ns = int(waits_ns.min() - made_ns)
    if handing_ns <= 0:
        return None
    edit = shrink(loading.rows, waits_ns - handing_ns, _UNCERTAINTY)
    saved = replay(facts, edit).fraction
    if saved < _WORTH:
        return None
    return Suspicion(
        message=f"Each step waits {_told(facts, loading.wait_ns)} for data, though a worker makes a batch in "
        f"{format_time(made_ns)}: handing it over takes longer than making it. Made in the main process, the step "
        f"would be at least {format_share(saved)} shorter.",
        fix="Pass `num_workers=0`. Workers pay where a batch takes longer to make than to hand over, as where files "
        "are read, decoded or augmented. If the whole set lies in memory, index it with a batch's numbers at once.",
        rows=loading.rows,
        edit=edit,
        confidence=0.8,
        places=loader_places(facts, loading.rows),
        evidence={
            "wait_ns_per_step": int(loading.wait_ns),
            "batch_made_ns": int(made_ns),
            "workers": loading.workers,
        },
    )


def _told(facts: Facts, recorded_ns: float) -> str:
    """A time per recorded step, as the same share of the step that the price refers to."""
    return format_time(as_in_step_ns(facts, recorded_ns))


def _making_ns(account: LoaderAccount) -> float:
    """How long a worker takes to make a batch, without its waits for a CPU while it does so or hands one over."""
    fetch, collate, put, queued = map(account.per_batch, ("fetch_ns", "collate_ns", "put_ns", "queued_ns"))
    return (fetch + collate) * max(0.0, 1 - queued / max(fetch + collate + put, 1.0))


def _evidence(facts: Facts, loading: _Loading, plan: _Plan) -> dict[str, float | int | str]:
    found: dict[str, float | int | None] = {
        "wait_ns_per_step": int(loading.wait_ns),
        "step_with_data_ready_ns": int(loading.rest_ns),
        "workers": loading.workers,
        "workers_needed": plan.workers,
    }
    if plan.cpus is not None and facts.run.feeding is not None:
        found["cpus_computing"] = round(plan.cpus.computing, 2)
    if plan.cpus is not None and not plan.cpus.are_enough:
        found["cpus_others"] = round(plan.cpus.others, 2)
    if loading.crowded_ns:
        found["wait_for_cpu_ns_per_step"] = int(loading.crowded_ns)
    if loading.account is not None and loading.workers:
        names = ("fetch_ns", "collate_ns", "send_ns", "cpu_ns", "blocked_ns")
        found |= {f"batch_{name}": round(loading.account.per_batch(name)) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _wait_for(facts: Facts, loading: _Loading, plan: _Plan) -> Edit:
    """Each request takes what a step still waits for with these workers."""
    kept_ns = plan.lacking_ns + _handing_over_ns(facts, loading.rows)
    kept_share = min(1.0, kept_ns / max(loading.wait_ns, 1.0))
    kept = (facts.trace.events.duration_ns[loading.rows] * kept_share).astype(np.int64)
    return shrink(loading.rows, kept, _UNCERTAINTY if plan.is_alone else _UNCERTAINTY_SHARED)


def _saved_on_quiet(facts: Facts, loading: _Loading, plan: _Plan) -> float:
    """What workers would give back if no other process used the CPUs."""
    if plan.cpus is not None and not plan.is_alone:
        plan = _plan_workers(facts, loading, 0.0)
    return replay(facts, _wait_for(facts, loading, plan)).fraction


def _abstain_where_others_decide(facts: Facts, loading: _Loading, plan: _Plan) -> None:
    """Raises `CannotLook` if workers do not pay only because of other processes, which may be gone in the next run."""
    if plan.cpus is None or plan.is_alone:
        return
    if _saved_on_quiet(facts, loading, plan) >= _WORTH:
        raise CannotLook(
            f"other processes kept {plan.cpus.others:.1f} of the {plan.cpus.usable:.0f} CPUs busy: only a quieter "
            "machine shows what workers would gain here"
        )


def _requests(facts: Facts) -> Rows:
    """The main thread's requests for a batch, without those that wait for workers to start or to stop."""
    every = np.flatnonzero(main_requests(facts))
    rows = every[facts.measured[every]]
    if not rows.size:
        raise CannotLook("the recorded steps ask no DataLoader for batches")
    first = begins_an_iterator(facts, every)
    last = np.concatenate([first[1:], np.zeros(min(len(first), 1), dtype=bool)])
    return rows[~(asked_of_workers(facts)[rows] & among(rows, every[first | last]))]


def _located_requests(facts: Facts) -> Intervals:
    """When the located step asked for batches."""
    inside = in_located_step(facts, np.flatnonzero(facts.tree.outermost(facts.loading)))
    return union(facts.trace.events.start_ns[inside], facts.tree.end_ns[inside])


def _slowest_line(facts: Facts, loading: _Loading) -> tuple[Location, str] | None:
    """The line of the dataset, the sampler or the collating that takes most of a batch's time with all it calls, and a
    sentence about it. None if the main process only waits, or if no line of the program takes that much."""
    prices = worker_prices(facts) if loading.workers else batch_prices(facts)
    if prices:
        slow = [price for price in prices if price.share >= _MOST]
        if not slow:
            return None
        price = min(slow, key=lambda one: one.share)  # the innermost of those that call each other
        place, fraction, calls = Location.of(price.site), price.share, price.callee
    else:
        line = narrowest_line(facts, _located_requests(facts), _MOST)
        if line is None or line.site == busiest_site(facts, loading.rows):
            return None
        places = locations_of(facts, [line.site])
        if not places:
            return None
        place, fraction, calls = places[0], line.fraction, ""
    at = f"{Path(place.file).name}:{place.line}, in {place.function}" + (f", which calls `{calls}`" if calls else "")
    advice = "Making that cheaper, or doing it once beforehand, needs no worker."
    return place, f" {format_share(fraction)} of a batch's time is spent at {at}. {advice}"


def _measure(facts: Facts, rows: Rows) -> _Loading:
    steps = facts.steps
    waited = steps.per_step_ns(facts.trace.events.duration_ns[rows].sum())
    rest = steps.per_step_ns(replay(facts, remove(rows)).edited_ns)
    code = int(np.bincount(facts.trace.events.name_code[rows]).argmax())
    if "MultiProcessing" not in facts.trace.names[code]:
        return _Loading(rows, waited, rest, 0, cpu_share=_cpu_share(facts))
    known = [loader.workers for loader in facts.run.loaders if loader.workers]
    return _Loading(
        rows,
        waited,
        rest,
        max(known, default=None),
        busiest_loader(facts),
        per_step(facts, rows),
        crowded_ns=_crowded_ns(facts, rest),
    )


def _crowded_ns(facts: Facts, rest_ns: float) -> float:
    """How long a step without its batch waits for a CPU that a worker has. No more than unrecorded steps show: beside a
    recording, which begins as the workers fill their queue, it may be longer."""
    feeding, threads = facts.run.feeding, facts.run.flags.get("torch_threads")
    found_ns = facts.steps.per_step_ns(facts.crowding_by_workers.total_ns)
    if feeding is None:
        return found_ns
    wanted = max(threads, 1) if isinstance(threads, int) else 1
    return min(found_ns, rest_ns * max(0.0, 1 - feeding.computing_cpus / wanted))


def _cpu_share(facts: Facts) -> float:
    """1 if unknown, or if other processes leave no CPU idle, as a wait may then be one for a CPU."""
    run = facts.run
    if run.feeding is None or run.host is None or run.host.cpus < _others_cpus(facts) + 1:
        return 1.0
    return min(1.0, run.feeding.loading_cpus)


def _others_cpus(facts: Facts) -> float:
    """How many CPUs other processes keep busy, including the program's workers."""
    read = [sample.others_cpus for sample in facts.samples if sample.others_cpus is not None]
    return median(read) if read else 0.0


def _is_hiccup(facts: Facts, rows: Rows) -> bool:
    """Whether a single wait of several makes up most of the waiting."""
    duration = facts.trace.events.duration_ns[rows]
    return len(rows) > 2 and bool(duration.max() > _HICCUP * duration.sum())


def _has_no_cpu_left(facts: Facts, loading: _Loading) -> bool:
    """Whether workers already share the CPUs with the model, so that more workers would prepare nothing sooner."""
    host = facts.run.host
    if loading.workers == 0 or facts.device.present:
        return False
    if loading.account is not None and loading.workers and host is not None:
        return min(loading.needed, loading.most_workers(host)) <= loading.workers
    return host is None or (loading.workers or 1) + host.torch_threads > host.cpus


def _plan_workers(facts: Facts, loading: _Loading, others: float) -> _Plan:
    """As many workers as keep up with the step, limited by the CPUs. Other programs use ``others`` CPUs."""
    host, needed = facts.run.host, loading.needed
    if loading.workers is None or host is None:
        return _Plan(None if loading.workers is None else needed)
    room = loading.most_workers(host)
    if loading.workers >= room:  # no room for more workers: cheaper samples would have the batch ready
        return _Plan(loading.workers)
    workers, cpus = max(loading.workers, min(needed, room)), _cpus_of(facts, host, loading, others)
    by_workers = loading.batch_ns / workers
    return _Plan(workers, max(by_workers - loading.rest_ns, cpus.lacking_ns(loading, workers)), cpus)


def _cpus_of(facts: Facts, host: Host, loading: _Loading, others: float) -> _Cpus:
    feeding, threads = facts.run.feeding, 1 if facts.device.present else host.torch_threads
    # Existing workers count among the other processes, and what they measured already includes their share of the CPUs.
    others = others if loading.workers == 0 else 0.0
    computing = float(threads) if feeding is None else feeding.computing_cpus
    if computing + others > host.cpus - _FEW_OTHERS:  # the model got that much, but may want a CPU for each thread
        computing = max(computing, threads)
    return _Cpus(float(host.cpus), min(max(computing, 1.0), float(host.cpus)), others)


def _handing_over_ns(facts: Facts, rows: Rows) -> float:
    """How long a step takes to receive its batches: the connections, and the pages of what is sent to the device or
    else of what the main process stacked."""
    events, steps = facts.trace.events, facts.steps.measured_count
    sent = facts.trace.where_name(lambda name: "HtoD" in name)
    copies = facts.measured & (events.category == Category.MEMCPY) & sent
    stacked = named_operators(facts, "aten::stack") & facts.tree.under(facts.trace.mask_of(rows))
    size = max(int(events.size_bytes[copies].sum()), int(facts.operators.input_bytes[stacked].sum()))
    tensors = max(_TENSORS, int(stacked.sum()) / len(rows)) + _QUEUES
    return tensors * _TENSOR_NS * len(rows) / steps + size / steps / _PAGE_BYTES * _PAGE_NS


def _describe(facts: Facts, loading: _Loading, plan: _Plan, saved: float, ready: float) -> str:
    """``saved`` is what the advised workers give back, ``ready`` what a ready batch would give."""
    who = {0: "the main process prepares it", None: "the workers are not done with it"}.get(
        loading.workers, f"{format_count(loading.workers or 0, 'worker')} cannot keep up"
    )
    meanwhile = "the device idles" if facts.device.present else "the model waits"
    reported, most = format_share(saved), format_share(ready)
    gain = all_of_it = f"With each batch ready the step would be {most} shorter"
    if plan.workers not in (None, loading.workers):
        others = "" if plan.is_alone else " and other programs"
        shared = f", which share the CPUs with the model{others}," if plan.cpus and plan.lacking_ns > 0 else ""
        gain = f"{format_count(plan.workers or 0, 'worker')}{shared} would make the step {reported} shorter"
        gain += "" if reported == most else f". {all_of_it}"
    elif reported != most:
        gain += f"; handing batches over leaves {reported} of that"
    return f"Each step waits {_told(facts, loading.wait_ns)} for its batch, because {who} while {meanwhile}. {gain}."


def _with_workers(facts: Facts, loading: _Loading, needed: int | None) -> ChangedCall | None:
    """The loader's line with the workers that a step needs, if it has none or fewer."""
    if loading.workers is None or needed is None or needed <= loading.workers:
        return None
    pinned = [Argument("pin_memory", "True", (True, False), absent=True, position=7)] if facts.device.present else []
    return ChangedCall(
        "DataLoader",
        (
            Argument("num_workers", str(needed), (loading.workers,), absent=loading.workers == 0, position=5),
            Argument("persistent_workers", "True", (True, False), absent=True),
            *pinned,
        ),
    )


def _advise(facts: Facts, loading: _Loading, needed: int | None) -> str:
    host, more = facts.run.host, ""
    if host is not None and needed is not None and needed > host.cpus:
        more = " PyTorch warns of more workers than CPUs; these mostly wait and need none meanwhile."
    if loading.workers == 0:
        pinned = ", pin_memory=True" if facts.device.present else ""
        return (
            f"Prepare batches in worker processes: DataLoader(..., num_workers={needed}, "
            f"persistent_workers=True{pinned}). A batch takes {_told(facts, loading.wait_ns)}, "
            f"the rest of the step {_told(facts, loading.rest_ns)}.{more}"
        )
    cheaper = "Make __getitem__ cheaper: decode once and keep the result, augment whole batches on the device"
    if loading.workers is None:
        return f"Use more workers, with persistent_workers=True. {cheaper}."
    if loading.account is not None:
        fetch, collate = (format_time(loading.account.per_batch(name)) for name in ("fetch_ns", "collate_ns"))
        cheaper = f"A batch takes a worker {fetch} fetching it and {collate} collating it. {cheaper}"
    if needed is not None and needed > loading.workers:
        return f"Use num_workers={needed} with persistent_workers=True.{more} {cheaper} if that is not enough."
    if loading.account is not None and loading.needed <= loading.workers:
        return f"{cheaper}: there are enough workers, but they do not get the CPUs, or some batches take much longer."
    return f"{cheaper}: there are already as many workers as keep the program's CPUs busy."
