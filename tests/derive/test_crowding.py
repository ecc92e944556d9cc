"""Waits for a CPU are taken out of what took far longer than it usually does, and no more than was counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from profkit.derive.facts import Facts
from profkit.derive.steps.crowding import part_of_workers
from profkit.patterns.program import spent_ns
from profkit.run.directory import Host, LoadSample, RankIdentity, Run
from profkit.savings.edits import remove
from profkit.savings.replay import replay
from profkit.trace.events import Rows
from profkit.trace.worker_records import WorkerRecord, Workers, WorkerSums
from tests.traces import annotation, facts_of, kernel, op, rows_named, runtime, step

Json = dict[str, Any]
LENGTH = 1000


def facts_with(*counted_us: float, long_us: float = 410, threads: int = 1, **more: Any) -> Facts:
    """Two steps of a millisecond, each with five products of 100 µs; the third of the first takes ``long_us``."""
    events: list[Json] = []
    for number in range(2):
        at = float(LENGTH * number)
        events.append(step(number, at, LENGTH))
        for each in range(5):
            took = long_us if (number, each) == (0, 2) else 100
            events.append(op("aten::mm", at + 5, took, dims=[[8, 8], [8, 8]]))
            at += took + 5
    host = Host(2, threads, 0)
    run = Run(measured_step_crowded_ns=tuple(int(1000 * us) for us in counted_us), host=host, **more)
    return facts_of(events, run=run)


def spent_us(facts: Facts) -> list[float]:
    return (spent_ns(facts, rows_named_array(facts)) / 1000).tolist()


def rows_named_array(facts: Facts) -> Rows:
    return np.array(rows_named(facts.trace, "aten::mm"))


@pytest.mark.parametrize(
    ("counted_us", "threads", "left_us"),
    [(400, 1, 100), (310, 1, 100), (200, 1, 210), (200, 2, 100), (49, 1, 410), (0, 1, 410), (400, 3, 410)],
)
def test_what_is_beyond_the_usual_goes_as_far_as_it_was_counted(counted_us, threads, left_us):
    """Below a twentieth of the step nothing is taken, and nothing where three threads share two CPUs."""
    facts = facts_with(counted_us, 0, threads=threads)
    assert spent_us(facts) == pytest.approx([100, 100, left_us, *[100] * 7], abs=0.01)


@pytest.mark.parametrize(("long_us", "left_us"), [(300, 300), (301, 100)])
def test_up_to_three_times_the_usual_is_no_wait(long_us, left_us):
    assert spent_us(facts_with(400, 0, long_us=long_us))[2] == pytest.approx(left_us, abs=0.01)


def test_a_step_in_which_nothing_was_counted_keeps_its_times():
    assert spent_us(facts_with(0, 900))[2] == pytest.approx(410)


def test_a_count_of_other_steps_tells_nothing():
    assert spent_us(facts_with(400))[2] == pytest.approx(410)
    assert spent_us(facts_with(400, 0, 0))[2] == pytest.approx(410)


def test_a_rank_waits_for_others_as_long_as_these_take():
    facts = facts_with(400, 0, identity=RankIdentity(0, 2))
    assert spent_us(facts)[2] == pytest.approx(410)


def test_the_price_of_the_product_is_what_it_usually_takes():
    """Of 2 ms 0.31 are a wait: ten products of 100 µs are 1 / 1.69 of the rest."""
    facts = facts_with(400, 0)
    rows = rows_named_array(facts)
    assert replay(facts, remove(rows, rows[:0], 0.0)).fraction == pytest.approx(1000 / 1690, abs=1e-3)


def test_batches_differ_by_themselves():
    loads = [annotation("enumerate(DataLoader)#_Single.__next__", 300 * at + 1, 10 if at else 290) for at in range(5)]
    steps = [step(0, 0, 1500), step(1, 1500, 1500)]
    work = [op("aten::mm", 300 * at + 295, 4) for at in range(5)]
    facts = facts_of([*steps, *loads, *work], run=Run(measured_step_crowded_ns=(900_000, 0)))
    assert facts.crowding.total_ns == 0


def test_beside_a_device_nothing_is_taken():
    launched = [runtime("cudaLaunchKernel", 6, 1, correlation=1), kernel("mm", 10, 5, correlation=1)]
    facts = facts_of(
        [step(0, 0, 1000), op("aten::mm", 5, 400), *launched], run=Run(measured_step_crowded_ns=(400_000,))
    )
    assert facts.crowding.total_ns == 0


def left_ms(waited_ms: float, *rounds_us: float) -> tuple[float, float]:
    """What is left of a loop's 40 rounds, one after the other, and of a product of 80 ms behind it."""
    lengths = [rounds_us[at % len(rounds_us)] for at in range(40)]
    starts = np.cumsum([0, *lengths[:-1]])
    rounds = [op("aten::add", start, us, dims=[[8], [8]]) for start, us in zip(starts.tolist(), lengths, strict=True)]
    product = op("aten::mm", sum(lengths), 80_000, dims=[[64, 64], [64, 64]])
    run = Run(measured_step_crowded_ns=(int(1e6 * waited_ms),), host=Host(2, 1, 0))
    facts = facts_of([step(0, 0, sum(lengths) + 80_000), *rounds, product], run=run)
    products, loop = (np.array(rows_named(facts.trace, name)) for name in ("aten::mm", "aten::add"))
    return float(spent_ns(facts, loop).sum() / 1e6), float(spent_ns(facts, products).sum() / 1e6)


def test_where_no_round_took_longer_than_usual_the_long_operator_waited():
    assert left_ms(30, 470) == (pytest.approx(40 * 0.47), pytest.approx(50, abs=0.01))


def test_a_loop_waits_no_more_than_its_part_of_the_step_and_chance():
    """30 rounds took ten times as long, 27 ms in all. But the loop is a third of the step: 9 ms, 5.4 by chance, and
    1.2 as a wait is whole."""
    loop_ms, product_ms = left_ms(27, 100, 1300, 1300, 1300)
    assert 40 - loop_ms == pytest.approx(9 + 2 * (27 * 1.2 * 1 / 3 * 2 / 3) ** 0.5 + 1.2, abs=0.01)
    assert 80 - product_ms == pytest.approx(27 - (40 - loop_ms), abs=0.01)


def test_a_single_wait_in_a_short_operator_is_found_whole():
    assert left_ms(9, *[100] * 39, 9100)[0] == pytest.approx(4)


@pytest.mark.parametrize(("others_cpus", "by_workers_us"), [(1.0, 310), (2.0, 155), (0.0, 310), (None, 0)])
def test_the_part_of_the_waits_that_workers_make_is_the_programs_own(others_cpus, by_workers_us):
    """They keep one CPU busy, of what all others do."""
    one, five = (WorkerSums(n, *[100 * n] * 8) for n in (1, 5))
    workers = Workers((), (WorkerRecord(0, 0, 1, (one, five)),))
    samples = tuple(LoadSample(i, 0, 0.5, others_cpus=others_cpus) for i in range(3))
    found = facts_with(400, 0)
    facts = Facts(found.trace, found.run, workers=workers, samples=samples)
    assert facts.crowding_by_workers.total_ns == pytest.approx(1000 * by_workers_us, abs=2)
    assert facts.crowding.total_ns == pytest.approx(1000 * (310 - by_workers_us), abs=2)


def test_workers_that_are_hardly_busy_take_nothing():
    idle = WorkerSums(5, 0, 0, 0, 0, 0, 0, 10_000, 50)
    record = WorkerRecord(0, 0, 1, (WorkerSums(1, *[0] * 8), idle))
    samples = (LoadSample(0, 0, 0.5, others_cpus=0.0),)
    assert part_of_workers(Workers((), (record,)), samples) < 0.05
