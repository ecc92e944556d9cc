"""What the workers of each DataLoader did with their time and memory, by their own accounts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from profkit.derive.facts import Facts, derived_once
from profkit.trace.statistics import median
from profkit.trace.worker_records import HeldObjects, WorkerRecord, WorkerSums

_LEAST_EPOCHS = 3
_WARM_UP = 1
"""Batches of a worker that are left out: the first one loads modules and touches files and memory for the first
time."""


class WorkerAccount(Struct, frozen=True):
    """One worker after its first batch: times in nanoseconds over ``batches``, which took ``elapsed_ns``.

    ``fetch_ns`` (the dataset), ``collate_ns`` and ``put_ns`` are the time of its main thread, which otherwise waited
    for work. ``send_ns`` runs alongside, until batches were pickled and taken. ``cpu_ns`` is the CPU time of the
    process. ``blocked_ns`` is the time in which a batch was being made but its thread needed no CPU: files, networks,
    locks. ``private_bytes`` and ``private_first_bytes`` are the last and the first reading, None if there was none.
    """

    loader: int
    worker: int
    batches: int
    elapsed_ns: int
    fetch_ns: int
    collate_ns: int
    put_ns: int
    send_ns: int
    cpu_ns: int
    blocked_ns: int
    queued_ns: int
    private_bytes: int | None = None
    private_first_bytes: int | None = None
    threads: int = 1

    def joined(self, later: WorkerAccount) -> WorkerAccount:
        """This worker and the process that replaced it in the next epoch, as one."""
        sums = (
            "batches",
            "elapsed_ns",
            "fetch_ns",
            "collate_ns",
            "put_ns",
            "send_ns",
            "cpu_ns",
            "blocked_ns",
            "queued_ns",
        )
        added = {name: getattr(self, name) + getattr(later, name) for name in sums}
        return replace(later, **added)

    @property
    def busy_ns(self) -> int:
        return self.fetch_ns + self.collate_ns + self.put_ns

    @property
    def waiting_ns(self) -> int:
        """Time spent waiting for work: the program did not take the batches that were ready."""
        return max(0, self.elapsed_ns - self.busy_ns)


class LoaderAccount(Struct, frozen=True):
    """The workers of one loader, by number. ``objects`` counts the Python objects in its dataset."""

    loader: int
    dataset: str
    workers: tuple[WorkerAccount, ...]
    objects: tuple[HeldObjects, ...]

    @property
    def batches(self) -> int:
        return sum(worker.batches for worker in self.workers)

    def per_batch(self, name: str) -> float:
        """The mean of one of the times over all batches."""
        return float(sum(getattr(worker, name) for worker in self.workers)) / max(self.batches, 1)

    @property
    def batch_ns(self) -> float:
        """What a batch takes a worker with a CPU to itself: its CPU time and the time that it is blocked."""
        return self.per_batch("cpu_ns") + self.per_batch("blocked_ns")


class Restarts(Struct, frozen=True):
    """How often a loader started all its workers anew, and medians in nanoseconds: from one start to the next, from a
    start to the first batch, and per later batch."""

    loader: int
    workers: int
    count: int
    period_ns: int
    first_ns: int
    batch_ns: int

    @property
    def lost_ns(self) -> int:
        """What persistent workers would save: they begin the next epoch's first batch at once."""
        return max(0, self.first_ns - self.batch_ns)


def restarts_of(facts: Facts) -> Iterator[Restarts]:
    """The loaders that started their workers anew three times or more, instead of keeping them."""
    lasting = {loader.loader for loader in facts.workers.loaders if loader.persistent}
    known = [record for record in facts.workers.records if record.asked_ns and record.sums]
    for loader in sorted({record.loader for record in known} - lasting):
        records = sorted((one for one in known if one.loader == loader), key=lambda one: one.asked_ns)
        starts = [i for i, one in enumerate(records) if one.worker == 0]
        epochs = [records[i:j] for i, j in zip(starts, [*starts[1:], len(records)], strict=True)]
        if len(epochs) < _LEAST_EPOCHS:
            continue
        asked_ns = [epoch[0].asked_ns for epoch in epochs]
        first_ns = [min(one.begun_ns + one.sums[0].elapsed_ns for one in epoch) - epoch[0].asked_ns for epoch in epochs]
        yield Restarts(
            loader,
            records[0].workers,
            len(epochs),
            int(median(np.diff(asked_ns))),
            int(median(first_ns)),
            int(median([_batch_ns(one) for one in records])),
        )


def _batch_ns(record: WorkerRecord) -> float:
    """The mean time of a batch, without the first if there are others."""
    last, first = record.sums[-1], record.sums[0]
    if last.batches > first.batches:
        return (_busy_ns(last) - _busy_ns(first)) / (last.batches - first.batches)
    return _busy_ns(last) / max(last.batches, 1)


def _busy_ns(sums: WorkerSums) -> int:
    return sums.fetch_ns + sums.collate_ns + sums.put_ns


@derived_once
def loader_accounts(facts: Facts) -> tuple[LoaderAccount, ...]:
    """The loaders whose workers made more than one batch, the busiest loader first."""
    known = {loader.loader: loader for loader in facts.workers.loaders}
    accounts = [account for record in facts.workers.records if (account := _account_of(record)) is not None]
    loaders = []
    for number in sorted({account.loader for account in accounts}):
        loader = known.get(number)
        workers: dict[int, WorkerAccount] = {}
        for one in accounts:
            if one.loader == number:
                workers[one.worker] = workers[one.worker].joined(one) if one.worker in workers else one
        ordered = tuple(workers[worker] for worker in sorted(workers))
        dataset, objects = (loader.dataset, loader.objects) if loader else ("", ())
        loaders.append(LoaderAccount(number, dataset, ordered, objects))
    return tuple(sorted(loaders, key=lambda loader: -loader.batches))


def busiest_loader(facts: Facts) -> LoaderAccount | None:
    return next(iter(loader_accounts(facts)), None)


def _account_of(record: WorkerRecord) -> WorkerAccount | None:
    """What came after the first batch; None if nothing did."""
    later = [sums for sums in record.sums if sums.batches >= _WARM_UP]
    if len(later) < 2:
        return None
    first, last = later[0], later[-1]

    def more(name: str) -> int:
        return max(0, int(getattr(last, name)) - int(getattr(first, name)))

    busy_ns = more("fetch_ns") + more("collate_ns") + more("put_ns")
    private = [sums.private_bytes for sums in record.sums if sums.private_bytes is not None]
    return WorkerAccount(
        loader=record.loader,
        worker=record.worker,
        batches=more("batches"),
        elapsed_ns=more("elapsed_ns"),
        fetch_ns=more("fetch_ns"),
        collate_ns=more("collate_ns"),
        put_ns=more("put_ns"),
        send_ns=more("send_ns"),
        cpu_ns=more("cpu_ns"),
        blocked_ns=max(0, busy_ns - more("busy_cpu_ns") - more("queued_ns")),
        queued_ns=more("queued_ns"),
        private_bytes=private[-1] if private else None,
        private_first_bytes=private[0] if private else None,
        threads=max((sums.threads for sums in record.sums if sums.threads is not None), default=1),
    )
