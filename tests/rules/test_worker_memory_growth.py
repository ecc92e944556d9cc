"""Workers whose own memory grows out of what they share, and what else grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from profkit.derive.facts import Facts
from profkit.findings.values import Severity
from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.worker_memory_growth import worker_memory_growth
from profkit.run.directory import CallSite, Host, LoaderUse, LoadSample, Run
from profkit.trace.worker_records import HeldObjects, LoaderRecord, WorkerRecord, Workers, WorkerSums
from tests.traces import annotation, facts_of, mark, op, step

MB = 1 << 20
WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
SITE = CallSite("data.py", 9, "Records.__init__", "self.records = json.load(file)")
LOOP = CallSite("train.py", 30, "main", "for x, y in loader:")
HELD = HeldObjects("dataset.records", 1_000_000, 100 * MB, SITE)
Json = dict[str, Any]


def find(facts: Facts) -> list[Suspicion]:
    return list(worker_memory_growth.check(facts))


def worker(
    own: Sequence[float],
    shared: Sequence[float] | None = None,
    *,
    number: int = 0,
    first_batch: int = 3,
    faults: float = 1.0,
    loader: int = 0,
) -> WorkerRecord:
    """Memory in MB at the end of every second batch; ``faults`` is the share of what grows that it was given."""
    shared = [300 - size for size in own] if shared is None else shared
    sums = tuple(
        WorkerSums(
            first_batch + 2 * i,
            *[100 * (i + 1)] * 8,
            private_bytes=int(size * MB),
            shared_bytes=int(left * MB),
            faults=int(max(0.0, size - own[0]) * faults * MB / 4096),
        )
        for i, (size, left) in enumerate(zip(own, shared, strict=True))
    )
    return WorkerRecord(loader, number, 2, sums)


def both(*own: float, **more: Any) -> tuple[WorkerRecord, ...]:
    return tuple(worker(own, number=number, **more) for number in (0, 1))


def steps(requests: int = 1) -> list[Json]:
    """The first step is located."""
    events = [mark(0, 1, 30), mark(0, 101, 1)][:1]
    for i in range(4):
        at = 100.0 * i
        asked = [annotation(WORKERS, at + 2 + 10 * k, 5) for k in range(requests)]
        events += [step(i, at, 100), *asked, op("aten::mm", at + 50, 20)]
    return events


def growing(
    *records: WorkerRecord,
    held: tuple[HeldObjects, ...] = (HELD,),
    memory: int = 100_000 * MB,
    requests: int = 1,
    rss: int = 1000 * MB,
    workers: int = 2,
) -> Facts:
    return facts_of(
        steps(requests),
        run=Run(host=Host(2, 2, memory), loaders=(LoaderUse(workers, 8, False, False),)),
        callsites=(LOOP,),
        samples=(LoadSample(1, rss, 0.5),),
        workers=Workers((LoaderRecord(0, "Records", workers, objects=held),), records),
    )


def test_a_list_of_objects_is_found_where_it_is_filled():
    """Each of two workers copies 2 MB a batch, of which a step asks for one."""
    (found,) = find(growing(*both(20, 24, 28, 32)))
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("data.py", 9)
    assert [place.line for place in found.also] == [30]
    assert (found.size_bytes, found.grows, found.count) == (2 * MB, True, 1)
    assert found.evidence == {
        "workers": 2,
        "batches": 12,
        "grown_bytes": 24 * MB,
        "still_shared_bytes": 268 * MB,
        "bound_bytes": 200 * MB,
    }
    assert "`dataset.records` is 1,000,000 Python objects, about 105 MB" in found.message


def test_one_worker_is_one():
    (found,) = find(growing(worker([20, 24, 28, 32]), workers=1))
    assert found.message.startswith("1 worker copies the memory that it reads")
    assert ". The worker's own memory grew by 12.6 MB in 6 batches" in found.message


def test_a_step_of_two_batches_adds_twice_as_much():
    (found,) = find(growing(*both(20, 24, 28, 32), requests=2))
    assert found.size_bytes == 4 * MB


def test_where_no_container_is_known_the_loop_is_named_and_all_that_is_shared_is_the_bound():
    (found,) = find(growing(*both(20, 24, 28, 32), held=()))
    assert found.location is not None
    assert found.location.line == 30
    assert found.evidence["bound_bytes"] == 2 * 268 * MB
    assert found.confidence == 0.75


@pytest.mark.parametrize(
    "records",
    [
        both(20, 20, 20, 20),
        both(20, 31, 31, 32),
        both(20, 24, 22, 32),
        both(20, 24, 28, 32, shared=[300, 300, 299, 298]),
        both(20, 24, 28, 32, shared=[300, 298.1, 296.3, 294.1]),
        both(20, 24, 28, 32, faults=0.49),
        (worker((20, 24, 28, 32)), worker((20, 20, 20, 20), number=1)),
    ],
    ids=[
        "does not grow",
        "grew once",
        "falls again",
        "a cache of the dataset's own",
        "mostly a cache",
        "the main process writes to it",
        "half of the workers only",
    ],
)
def test_memory_that_is_not_copied_all_the_time_by_most_workers_is_silent(records):
    assert find(growing(*records)) == []


@pytest.mark.parametrize("own", [(20, 24, 26, 27), (20, 22, 25, 31)], ids=["nearly all was read", "ever faster"])
def test_growth_need_not_be_even(own):
    assert len(find(growing(*both(*own)))) == 1


@pytest.mark.parametrize(("last", "count"), [(22.01, 1), (21.99, 0)])
def test_four_megabytes_of_all_workers_are_the_least(last, count):
    own = [20 + (last - 20) * i / 3 for i in range(4)]
    assert len(find(growing(*both(*own)))) == count


def test_the_first_two_batches_do_not_count():
    """They end at batches 1, 3, 5, 7 and 9: the first jump is before the third."""
    assert find(growing(*both(1, 20, 20.1, 20.2, 20.3, first_batch=1))) == []


@pytest.mark.parametrize(
    ("memory", "rss", "severity"),
    [
        (2000 * MB, 1000 * MB, Severity.HIGH),
        (2001 * MB, 1000 * MB, Severity.LOW),
        (10**12, 136 * MB, Severity.MEDIUM),
        (10**12, 137 * MB, Severity.LOW),
        (10**12, 1736 * MB, Severity.LOW),
        (10**12, 1737 * MB, Severity.INFO),
    ],
)
def test_the_severity_is_that_of_what_the_copies_may_come_to(memory, rss, severity):
    """200 MB against the machine's memory, and against 64 MB of the workers' own with what the main process holds."""
    (found,) = find(growing(*both(20, 24, 28, 32), memory=memory, rss=rss))
    assert found.severity is severity


def test_three_readings_are_too_few():
    with pytest.raises(CannotLook, match="too seldom"):
        find(growing(*both(20, 24, 28)))


def test_workers_that_keep_no_account_were_not_looked_at():
    with pytest.raises(CannotLook, match="they began before the recording"):
        find(growing())
    with pytest.raises(CannotLook, match="no workers of a DataLoader"):
        find(facts_of(steps()))


def test_a_system_that_does_not_tell_memory_cannot_be_judged():
    blind = WorkerRecord(0, 0, 2, tuple(WorkerSums(n, *[n] * 8) for n in range(3, 12)))
    with pytest.raises(CannotLook, match="too seldom"):
        find(growing(blind))
