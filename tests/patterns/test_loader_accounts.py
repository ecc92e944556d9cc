"""What a DataLoader worker did after its first batch, from the sums that it wrote."""

from __future__ import annotations

from profkit.derive.facts import Facts
from profkit.patterns.loader_accounts import LoaderAccount, Restarts, busiest_loader, loader_accounts, restarts_of
from profkit.trace.worker_records import HeldObjects, LoaderRecord, WorkerRecord, Workers, WorkerSums
from tests.traces import facts_of, op


def sums(
    batches: int, *, fetch: int = 60, collate: int = 20, cpu: int = 70, queued: int = 5, elapsed: int = 200, **more: int
) -> WorkerSums:
    """So much for each batch; 10 of the CPU time are not the main thread's."""
    return WorkerSums(
        batches,
        batches * fetch,
        batches * collate,
        batches * 10,
        batches * 30,
        batches * (cpu - 10),
        batches * queued,
        batches * elapsed,
        batches * cpu,
        **more,
    )


def facts_with(*records: WorkerRecord, loaders: tuple[LoaderRecord, ...] = ()) -> Facts:
    return facts_of([op("aten::mm", 0, 1)], workers=Workers(loaders, records))


def test_the_first_batch_is_left_out():
    first = sums(1, fetch=5000, elapsed=9000, private_bytes=100, threads=1)
    last = sums(5, private_bytes=130)
    later = WorkerSums(
        5, *(a + b - c for a, b, c in zip(_times(first), _times(last), _times(sums(1)), strict=True)), private_bytes=130
    )
    (loader,) = loader_accounts(facts_with(WorkerRecord(0, 0, 1, (first, later))))
    (worker,) = loader.workers
    assert (worker.batches, worker.fetch_ns, worker.collate_ns, worker.put_ns) == (4, 240, 80, 40)
    assert (worker.elapsed_ns, worker.waiting_ns, worker.cpu_ns, worker.queued_ns) == (800, 440, 280, 20)
    assert worker.blocked_ns == 4 * (90 - 60 - 5)  # neither on a CPU nor waiting for one
    assert (worker.private_first_bytes, worker.private_bytes) == (100, 130)


def _times(one: WorkerSums) -> list[int]:
    return [
        one.fetch_ns,
        one.collate_ns,
        one.put_ns,
        one.send_ns,
        one.busy_cpu_ns,
        one.queued_ns,
        one.elapsed_ns,
        one.cpu_ns,
    ]


def test_a_batch_takes_its_cpu_time_and_its_blocked_time():
    loader = busiest_loader(facts_with(WorkerRecord(0, 0, 1, (sums(1), sums(3)))))
    assert loader is not None
    assert loader.batch_ns == 70 + 25


def test_a_worker_with_one_batch_has_no_account():
    assert loader_accounts(facts_with(WorkerRecord(0, 0, 1, (sums(1),)), WorkerRecord(0, 1, 2, ()))) == ()
    assert busiest_loader(facts_with()) is None


def test_successive_processes_of_one_worker_count_as_one():
    records = [WorkerRecord(0, 0, 1, (sums(1), sums(4))), WorkerRecord(0, 0, 1, (sums(1), sums(3)))]
    (loader,) = loader_accounts(facts_with(*records))
    assert [(worker.worker, worker.batches, worker.fetch_ns) for worker in loader.workers] == [(0, 5, 300)]


def test_the_loader_that_prepared_most_comes_first():
    held = HeldObjects("dataset.x", 2000, 9000)
    records = [WorkerRecord(0, 0, 1, (sums(1), sums(3))), WorkerRecord(1, 0, 1, (sums(1), sums(9)))]
    known = (LoaderRecord(1, "Images", 1, objects=(held,)),)
    loaders = loader_accounts(facts_with(*records, loaders=known))
    assert [(loader.loader, loader.dataset, loader.batches, loader.objects) for loader in loaders] == [
        (1, "Images", 8, (held,)),
        (0, "", 2, ()),
    ]
    assert isinstance(loaders[0], LoaderAccount)


def started(worker: int, asked: int, begun: int, *taken: WorkerSums, workers: int = 1) -> WorkerRecord:
    return WorkerRecord(0, worker, workers, taken, asked, begun)


def test_an_epoch_starts_with_its_first_worker_and_ends_starting_with_the_first_batch():
    """Epochs start 1000 apart. Worker 0 begins after 100 and needs 500 for its first batch, worker 1 begins after 90
    and needs 400. Any other batch takes 90."""
    records = [
        one
        for at in (5000, 6000, 7000)
        for one in (
            started(0, at, at + 100, sums(1, elapsed=500), sums(3), workers=2),
            started(1, at + 10, at + 90, sums(1, elapsed=400), sums(2), workers=2),
        )
    ]
    (found,) = restarts_of(facts_with(*records, loaders=(LoaderRecord(0, "Data", 2),)))
    assert found == Restarts(loader=0, workers=2, count=3, period_ns=1000, first_ns=490, batch_ns=90)
    assert found.lost_ns == 400


def test_persistent_workers_and_workers_started_twice_are_not_restarts():
    records = [started(0, at, at + 100, sums(1)) for at in (5000, 6000, 7000)]
    assert list(restarts_of(facts_with(*records, loaders=(LoaderRecord(0, "Data", 1, persistent=True),)))) == []
    assert list(restarts_of(facts_with(*records[:2]))) == []
    assert list(restarts_of(facts_with(*(started(0, 0, 0, sums(1)) for _ in range(3))))) == []  # older accounts
