"""When a rank had no CPU, by the system's count, is no time of its work."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.derive.launch.table import Cause, RankTable
from profkit.patterns.ranks.table import rank_table
from profkit.run.directory import Run
from tests.patterns.ranks.test_table import TWO, reduce_on_gloo, spent_us
from tests.traces import facts_of, kernel, op, runtime, step

Json = dict[str, Any]


def table_of(events: list[Json], *crowded_us: int) -> RankTable:
    run = Run(measured_step_crowded_ns=tuple(1000 * us for us in crowded_us))
    return rank_table(facts_of(events, run=run, distributedInfo=TWO), "rank1")


def steps(*lengths: float) -> list[Json]:
    """In each the rank computes for so long, sleeps 30 µs, and waits for a reduction until the step ends after 200."""
    events: list[Json] = []
    for number, length in enumerate(lengths):
        at = 200 * number
        events += [
            step(number, at, 200),
            op("aten::mm", at, length),
            *reduce_on_gloo(at + length + 30, at + 199, asynchronous=False, external=number),
        ]
    return events


def test_it_is_taken_out_of_what_runs_on_a_cpu():
    table = table_of(steps(80, 60), 20, 0)
    spent = spent_us(table)
    assert spent[Cause.CONTENTION, 0] == pytest.approx(20, abs=0.01)
    without = spent_us(table_of(steps(80, 60)))
    assert spent[Cause.COMPUTE, 0] + spent[Cause.HOST, 0] == pytest.approx(
        without[Cause.COMPUTE, 0] + without[Cause.HOST, 0] - 20, abs=0.01
    )
    of_first = table.work.step == 0
    assert table.work.time_ns[of_first & (table.work.cause == Cause.CONTENTION)].sum() == pytest.approx(20_000, abs=10)


def test_pieces_stay_as_long_as_they_were():
    crowded, free = (table_of(steps(80, 60), *counted).work for counted in ((20, 500), ()))
    for work in (crowded, free):
        assert sum(work.time_ns.tolist()) == sum(free.time_ns.tolist())
    assert (crowded.time_ns > 0).all()


def test_what_is_counted_beyond_the_work_was_no_part_of_it():
    spent = spent_us(table_of(steps(80, 60), 1000, 1000))
    assert set(spent) == {(Cause.CONTENTION, 0)}


def test_work_of_a_device_goes_on_without_a_cpu():
    events = [
        step(0, 0, 200),
        op("aten::mm", 0, 10),
        runtime("cudaLaunchKernel", 2, 5, correlation=1),
        kernel("gemm", 10, 100, correlation=1),
    ]
    assert spent_us(table_of(events, 150))[Cause.COMPUTE, 0] == 100


@pytest.mark.parametrize("counted", [(), (20,), (20, 20, 20)])
def test_counts_that_are_not_those_of_the_steps_change_nothing(counted: tuple[int, ...]):
    assert not (table_of(steps(80, 60), *counted).work.cause == Cause.CONTENTION).any()
