"""Worker processes that are started and ended around each epoch."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.workers_respawned import workers_respawned
from profkit.run.directory import LoaderUse, Run
from profkit.savings.simulate import predict_saving
from profkit.trace.worker_records import LoaderRecord, WorkerRecord, Workers, WorkerSums
from tests.traces import annotation, facts_of, mark, op, step

Json = dict[str, Any]
WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
MS = 1000


def find(facts) -> list[Suspicion]:
    return list(workers_respawned.check(facts))


def run_with(workers: int = 2, persistent: bool = False) -> Run:
    return Run(torch="2.13", loaders=(LoaderUse(workers, 8, pin_memory=False, persistent_workers=persistent),))


def epoch(start: float = 10, first: float = 20, end: float = 15, batches: int = 4) -> list[Json]:
    """Times in ms: a seed at 1, ``start`` until the first request; requests of 1 every 2, the last takes ``end``."""
    at = 2 + start
    later = [at + first + 1 + 2 * i for i in range(batches)]
    waits = [(at, first), *((time, 1.0) for time in later[:-1]), (later[-1], end)]
    asked = [annotation(WORKERS, time * MS, wait * MS) for time, wait in waits]
    training = [op("aten::mm", (time + wait) * MS, 0.5 * MS) for time, wait in waits]
    return [op("aten::random_", 1 * MS, 0.5 * MS), op("aten::item", 1.5 * MS, 0.5 * MS), *asked, *training]


def facts_about(*parts: list[Json], length: float = 100, run: Run | None = None, located: list[Json] | None = None):
    """Steps of 100 ms."""
    events = []
    for i, part in enumerate(parts):
        at = length * MS * i
        events += [step(i, at, length * MS), *({**event, "ts": event["ts"] + at} for event in part)]
    return facts_of([*events, *(located or [])], run=run or run_with())


def test_starting_vanishes_and_of_the_requests_what_a_batch_takes_is_kept():
    """Of the 10 to start nothing is kept; of the first request of 20, 2 workers x 2; of the last of 15, a wait of 1."""
    facts = facts_about(*[epoch()] * 4)
    (found,) = find(facts)
    assert found.evidence == {
        "workers": 2,
        "starting_ns": 10_000_000,
        "first_batch_ns": 20_000_000,
        "ending_ns": 15_000_000,
    }
    assert len(found.rows) == 4
    assert predict_saving(facts, found.edit).fraction == pytest.approx((10 + 16 + 14) / 100)


def test_the_end_of_an_epoch_that_was_not_recorded_has_no_price():
    """The last of four epochs is cut off after two requests: its workers do not end."""
    facts = facts_about(*[epoch()] * 3, epoch(batches=1)[:4])
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((3 * (10 + 16 + 14) + 10) / 400)


def test_one_worker_is_one():
    (found,) = find(facts_about(*[epoch()] * 4, run=run_with(workers=1)))
    assert "1 worker anew: 10.0 ms to start it," in found.message
    assert found.message.endswith("15.0 ms to end it.")


def test_the_line_is_that_of_the_loop():
    facts = facts_about(*[epoch()] * 4, located=[mark(5, 0, 60 * MS)])
    (found,) = find(facts)
    assert set(facts.lines.site[found.rows]) == {5}


@pytest.mark.parametrize("run", [run_with(persistent=True), run_with(workers=0), Run(torch="2.13")])
def test_workers_that_persist_and_loaders_without_workers_are_silent(run):
    assert find(facts_about(*[epoch()] * 4, run=run)) == []


@pytest.mark.parametrize(("start", "reported"), [(1, 1), (0.99, 0)])
def test_what_takes_less_than_a_millisecond_starts_no_worker(start, reported):
    assert len(find(facts_about(*[epoch(start)] * 4))) == reported


@pytest.mark.parametrize(("steps", "reported"), [(2, 1), (1, 0)])
def test_half_of_the_steps_begin_an_epoch_at_least(steps, reported):
    rest = [event for event in epoch() if not event["name"].startswith(("enumerate", "aten::random_", "aten::item"))]
    assert len(find(facts_about(*[epoch()] * steps, *[rest] * (4 - steps)))) == reported


@pytest.mark.parametrize(("length", "reported"), [(1333, 1), (1334, 0)])
def test_three_percent_are_the_least(length, reported):
    assert len(find(facts_about(*[epoch()] * 4, length=length))) == reported


def test_a_number_drawn_between_batches_begins_no_epoch():
    """Each step draws, computes for 5 ms where nothing shows, and asks for one batch."""
    part = [op("aten::random_", 1 * MS, 0.5 * MS), annotation(WORKERS, 6.5 * MS, 20 * MS), op("aten::mm", 30 * MS, 9)]
    assert find(facts_about(*[part] * 4)) == []


def test_a_long_pause_that_follows_no_seed_starts_no_worker():
    late = [
        {**event, "ts": 11.4 * MS} if event["name"] in ("aten::random_", "aten::item") else event for event in epoch()
    ]
    assert find(facts_about(*[late] * 4)) == []


def test_a_recording_made_elsewhere_cannot_tell():
    with pytest.raises(CannotLook, match="persist"):
        find(facts_about(*[epoch()] * 4, run=Run()))


def long_epochs(first_ms: float, period_ms: float, epochs: int = 3, requests: bool = True):
    """Four steps of 100 ms without an epoch's beginning, beside the accounts of workers that take 2 ms for a batch."""
    account = WorkerSums(1, MILLION, MILLION // 2, MILLION // 2, 0, 0, 0, int(first_ms * MILLION) - 1000, 0)
    records = tuple(
        WorkerRecord(0, 0, 1, (account,), 1 + int(i * period_ms * MILLION), 1001 + int(i * period_ms * MILLION))
        for i in range(epochs)
    )
    asked = [annotation(WORKERS, 10 * MS, MS)] if requests else []
    events = []
    for at in (0, 100 * MS, 200 * MS, 300 * MS):
        shown = [*asked, op("aten::mm", 50 * MS, 20 * MS)]
        events += [step(at // (100 * MS), at, 100 * MS), *({**one, "ts": one["ts"] + at} for one in shown)]
    return facts_of(events, run=run_with(1), workers=Workers((LoaderRecord(0, "Clips", 1),), records))


MILLION = 1_000_000


def test_epochs_longer_than_the_recording_are_told_by_the_workers_accounts():
    facts = long_epochs(first_ms=252, period_ms=1000)
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.25)
    assert found.evidence == {
        "workers": 1,
        "starts": 3,
        "first_batch_ns": 252 * MILLION,
        "batch_ns": 2 * MILLION,
        "epoch_ns": 1000 * MILLION,
    }
    assert len(found.rows) == 4
    assert "The first batch comes after 252 ms" in found.message


@pytest.mark.parametrize(
    ("first_ms", "period_ms", "epochs", "requests", "reported"),
    [
        (32, 1000, 3, True, True),
        (31, 1000, 3, True, False),
        (252, 1000, 2, True, False),
        (252, 1000, 3, False, False),
    ],
)
def test_short_starts_few_epochs_and_loaders_of_other_phases_are_silent(
    first_ms: float, period_ms: float, epochs: int, requests: bool, reported: bool
):
    assert bool(find(long_epochs(first_ms, period_ms, epochs, requests))) is reported
