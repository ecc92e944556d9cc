"""What the machine did while an operator ran is not what an edit gives back."""

from __future__ import annotations

import numpy as np
import pytest

from profkit.derive.facts import Facts
from profkit.savings.edits import remove
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, kernel, op, rows_named, runtime, step

LENGTH = 200.0
"""Microseconds a step."""


def steps_of(*durations: float, name: str = "aten::mul", calls: int = 1) -> list[dict[str, object]]:
    """Steps in which the operator takes these times, in microseconds."""
    return [
        event
        for i, duration in enumerate(durations)
        for event in (
            step(i, LENGTH * i, LENGTH),
            *(op(name, LENGTH * i + 10 + j * duration / calls, duration / calls) for j in range(calls)),
        )
    ]


def saved_us(facts: Facts, name: str = "aten::mul") -> float:
    """Per step, if the operator vanished."""
    rows = np.array(rows_named(facts.trace, name), dtype=np.int64)
    return predict_saving(facts, remove(rows)).fraction * LENGTH


def test_what_one_step_took_beyond_three_times_the_others_is_the_machines() -> None:
    assert saved_us(facts_of(steps_of(10, 10, 100, 10))) == pytest.approx((10 + 10 + 30 + 10) / 4)


@pytest.mark.parametrize("longest", [10, 29, 30])
def test_up_to_three_times_the_median_it_is_the_operators_own(longest: float) -> None:
    assert saved_us(facts_of(steps_of(10, 10, longest, 10))) == pytest.approx((30 + longest) / 4, abs=1e-3)


def test_of_two_steps_nobody_can_tell_which_is_the_usual_one() -> None:
    assert saved_us(facts_of(steps_of(10, 100))) == pytest.approx(55)


def test_a_step_that_runs_more_operators_takes_longer_rightly() -> None:
    events = [*steps_of(10, 10, 10, 10), *(op("aten::mul", 2 * LENGTH + 30 + 10 * i, 10) for i in range(9))]
    assert saved_us(facts_of(events)) == pytest.approx((10 + 10 + 100 + 10) / 4)


def test_a_wait_for_a_batch_may_come_with_one_step_alone() -> None:
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    events = [step(i, LENGTH * i, LENGTH) for i in range(4)]
    events += [annotation(name, LENGTH * i + 10, duration) for i, duration in enumerate((10, 10, 100, 10))]
    assert saved_us(facts_of(events), name) == pytest.approx(130 / 4)


def test_where_a_device_works_nothing_is_held_to_be_the_machines() -> None:
    events = steps_of(10, 10, 100, 10)
    events += [runtime("cudaLaunchKernel", LENGTH * i + 150, 2, correlation=i + 1) for i in range(4)]
    events += [kernel("sgemm", LENGTH * i + 155, 2, correlation=i + 1) for i in range(4)]
    assert saved_us(facts_of(events)) == pytest.approx(130 / 4, abs=1)
