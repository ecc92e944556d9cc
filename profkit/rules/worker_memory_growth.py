"""Worker processes copy the memory of a dataset that is a list of Python objects, page by page, as they read it.

What it detects
Workers of a DataLoader that were forked from the main process and whose own memory grows with the batches, while the
memory that they share with the main process shrinks by as much: from the third batch on, at each of four readings or
more, in most workers, by 4 MB or more together. A dataset's own cache grows as well, but shares no less and is no
fault. Nor is the memory that the first batches touch.

Why is this bad?
A fork copies no memory: processes share pages until one writes to them. Reading a Python object writes to it, because
its reference counter goes up and down, so each worker ends up with a copy of all the objects that it reads. An epoch
that fits in memory with one worker does not fit with sixteen, after hours, on a machine that is larger than any test.

Example
    class Captions(Dataset):
        def __init__(self, path):
            self.records = [json.loads(line) for line in open(path)]

Use instead
    class Captions(Dataset):
        def __init__(self, path):
            lines = [line.encode() for line in open(path)]
            self.ends = np.cumsum([len(line) for line in lines])
            self.text = np.frombuffer(b"".join(lines), dtype=np.uint8)

How the saving is estimated
Memory, not time: by how much all workers' own memory grew per step between the readings. It grows until every worker
has read every object. The bound is the size of the objects that the dataset holds, if they could be found, else of all
memory that is still shared, times the workers. The severity compares this bound with what the program holds by then, or
with the machine's memory.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.patterns import Places, busiest_site, locations_of
from profkit.patterns.requests import worker_requests
from profkit.rules.base import (
    CannotLook,
    Facts,
    Kind,
    Location,
    Severity,
    Suspicion,
    Suspicions,
    format_bytes,
    format_count,
    pick_form,
    rule,
)
from profkit.trace.worker_records import HeldObjects, LoaderRecord, WorkerRecord, WorkerSums

_MIN_READINGS = 4
"""Three intervals: with fewer, growth may be a single jump."""
_WARM_UP = 2
"""Batches: until then workers that only read arrays copied 0.6 to 2 MB of Python's and PyTorch's own objects, after
that 0.1 to 0.2 MB in 20 batches."""
_PAGE_BYTES = 4096
_LEAST_BYTES = 4 << 20
_STILL = 0.25
"""Of the mean growth: a list whose pages are nearly all copied grows more slowly, a single jump does not grow at all
afterwards."""
_COPIED = 0.5
"""Of the growth of a worker's own memory, which also holds the batches that wait to be taken."""
_MOST_WORKERS = 0.5
_HIGH_SHARE = 0.1
"""Of the machine's memory, which other programs and the page cache need as well."""
_MEDIUM_SHARE, _LOW_SHARE = 0.5, 0.1
"""Of the memory the program holds, as for any lower peak."""


class _WorkerGrowth(Struct, frozen=True):
    """The workers of one loader whose own memory grows out of the shared one, over ``batches`` of theirs."""

    loader: LoaderRecord
    workers: int
    grown_bytes: int
    batches: int
    own_bytes: int
    shared_bytes: int

    @property
    def largest(self) -> HeldObjects | None:
        return max(self.loader.objects, key=lambda held: held.bytes, default=None)

    @property
    def bound_bytes(self) -> int:
        """What all workers together may have copied in the end."""
        objects = sum(held.bytes for held in self.loader.objects)
        each = min(objects, self.shared_bytes) if objects else self.shared_bytes
        return max(self.grown_bytes, self.workers * each)


@rule(Kind.FAULT)
def worker_memory_growth(facts: Facts) -> Suspicions:
    """One finding for each loader."""
    if not facts.workers.records:
        started = any(use.workers for use in facts.run.loaders)
        raise CannotLook(
            "the DataLoader's workers were not looked at: they began before the recording, or in another process"
            if started
            else "no workers of a DataLoader were looked at"
        )
    if not any(len(_readings(record)) >= _MIN_READINGS for record in facts.workers.records):
        raise CannotLook("the memory of the DataLoader's workers was read too seldom to tell growth")
    for loader in facts.workers.loaders:
        growth = _growth_of(facts, loader)
        if growth is not None and growth.grown_bytes >= _LEAST_BYTES:
            yield _suspect(facts, growth)


def _growth_of(facts: Facts, loader: LoaderRecord) -> _WorkerGrowth | None:
    """None if most workers do not grow."""
    looked_at = [
        readings
        for record in facts.workers.records
        if record.loader == loader.loader and len(readings := _readings(record)) >= _MIN_READINGS
    ]
    growing = [readings for readings in looked_at if _copies(readings)]
    if not growing or len(growing) <= _MOST_WORKERS * len(looked_at):
        return None
    first, last = [readings[0] for readings in growing], [readings[-1] for readings in growing]
    return _WorkerGrowth(
        loader=loader,
        workers=max(loader.workers, 1),
        grown_bytes=sum(_own(sums) for sums in last) - sum(_own(sums) for sums in first),
        batches=sum(sums.batches for sums in last) - sum(sums.batches for sums in first),
        own_bytes=sum(_own(sums) for sums in last),
        shared_bytes=max(_shared(sums) for sums in last),
    )


def _readings(record: WorkerRecord) -> list[WorkerSums]:
    """The moments after the warm-up at which a worker's memory was read."""
    read = (sums for sums in record.sums if sums.private_bytes is not None and sums.shared_bytes is not None)
    return [sums for sums in read if sums.batches > _WARM_UP]


def _own(sums: WorkerSums) -> int:
    return sums.private_bytes or 0


def _shared(sums: WorkerSums) -> int:
    return sums.shared_bytes or 0


def _copies(readings: list[WorkerSums]) -> bool:
    """Whether a worker's own memory keeps growing out of what it shared, by pages that the worker itself was given:
    pages that only the main process writes to become the worker's own, too."""
    own, shared = np.array([_own(sums) for sums in readings]), np.array([_shared(sums) for sums in readings])
    per_batch = np.diff(own) / np.diff([sums.batches for sums in readings])
    grown = int(own[-1] - own[0])
    mean = grown / (readings[-1].batches - readings[0].batches)
    given_bytes = _PAGE_BYTES * ((readings[-1].faults or 0) - (readings[0].faults or 0))
    copied_bytes = min(int(shared[0] - shared[-1]), given_bytes)
    return bool(grown > 0 and per_batch.min() >= _STILL * mean and copied_bytes >= _COPIED * grown)


def _suspect(facts: Facts, growth: _WorkerGrowth) -> Suspicion:
    requests = facts.measured_rows(worker_requests(facts))
    per_step = max(len(requests) / facts.steps.measured_count, 1.0) * growth.grown_bytes / growth.batches
    held, bound_bytes = growth.largest, growth.bound_bytes
    loop = locations_of(facts, [busiest_site(facts, requests)]) if requests.size else ()
    line = [Location.of(held.site)] if held is not None and held.site is not None else []
    what = (
        f"`{held.path}` is {format_count(held.objects, 'Python object')}, about {format_bytes(held.bytes)}"
        if held is not None
        else "its dataset reads Python objects of the main process"
    )
    theirs = pick_form(growth.workers, "The worker's", "The workers'")
    workers = "Each of " * (growth.workers > 1) + format_count(growth.workers, "worker")
    return Suspicion(
        message=f"{workers} copies the memory that it reads: {what}. {theirs} own memory grew by "
        f"{format_bytes(growth.grown_bytes)} in {format_count(growth.batches, 'batch', 'batches')}, and may grow "
        f"by {format_bytes(bound_bytes)} in all.",
        fix="Keep the samples in a few NumPy arrays or tensors, or in a file that workers read: nothing counts "
        "references there. Put numbers in one array. Join texts into one buffer of bytes, with an array of "
        "where each ends.",
        rows=requests,
        places=Places.of([*line, *loop]),
        size_bytes=round(per_step),
        grows=True,
        is_bounded=True,
        severity=_severity(facts, growth),
        count=1,
        confidence=0.9 if held is not None else 0.75,
        evidence={
            "workers": growth.workers,
            "batches": growth.batches,
            "grown_bytes": growth.grown_bytes,
            "still_shared_bytes": growth.shared_bytes,
            "bound_bytes": bound_bytes,
        },
    )


def _severity(facts: Facts, growth: _WorkerGrowth) -> Severity:
    """By how much the copies may take in the end."""
    bound, host = growth.bound_bytes, facts.run.host
    if host is not None and bound >= _HIGH_SHARE * host.memory_bytes:
        return Severity.HIGH
    held = growth.own_bytes + max((sample.rss_bytes for sample in facts.samples), default=0)
    share = bound / max(bound + held, 1)
    return Severity.MEDIUM if share >= _MEDIUM_SHARE else Severity.LOW if share >= _LOW_SHARE else Severity.INFO
