"""Ranks that wait for the one with the largest input."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from msgspec import structs

from profkit.derive.launch.launch import Launch
from profkit.derive.launch.table import Cause, Inputs
from profkit.rules.base import CannotLook, Need, missing_needs
from profkit.rules.straggler import straggler
from profkit.rules.unbalanced_input import unbalanced_input
from profkit.savings.launch.launch_savings import predict_launch_saving
from tests.derive.launch.launches import Act, both, end_step, facts_of_launch, launch_of, length_of, work

TRANSFERS = {"grads": 10.0, "flag": 1.0}
TURNS = [[100, 200, 100, 200, 100, 200], [200, 100, 200, 100, 200, 100]]
"""Sizes by rank and step: the ranks take turns in having the larger input."""


def training(times: Sequence[float]) -> list[Act]:
    """A step: computing, then the gradients, for which the rank waits."""
    return [act for i, time in enumerate(times) for act in (work(time), *both(f"grads#{i}"), end_step())]


def with_inputs(
    launch: Launch,
    sizes: Sequence[Sequence[int]],
    *,
    operators: Sequence[int] = (),
    measures: tuple[str, ...] = ("elements", "allocated_bytes"),
) -> Launch:
    tables = []
    for rank, (table, size) in enumerate(zip(launch.tables, sizes, strict=True)):
        unknown = np.full(len(size), -1, dtype=np.int64)
        columns = {"elements": unknown, "allocated_bytes": unknown} | dict.fromkeys(measures, np.array(size))
        count = np.full(len(size), operators[rank] if operators else 3)
        tables.append(structs.replace(table, inputs=Inputs(operators=count, **columns)))
    return structs.replace(launch, tables=tuple(tables))


def launch_with(times: Sequence[Sequence[float]], sizes: Sequence[Sequence[int]], **known: object) -> Launch:
    return with_inputs(launch_of([training(one) for one in times], TRANSFERS), sizes, **known)  # type: ignore[arg-type]


def reported(launch: Launch) -> list[str]:
    """The rules that tell something of the ranks."""
    facts = facts_of_launch(launch)
    return [rule.name for rule in (unbalanced_input, straggler) for _ in rule.check(facts)]


@pytest.mark.parametrize("measure", ["elements", "allocated_bytes"])
def test_ranks_that_take_turns_with_the_larger_input_are_told_with_what_the_job_gains(measure):
    launch = launch_with(TURNS, TURNS, measures=(measure,))
    facts = facts_of_launch(launch)
    (found,) = unbalanced_input.check(facts)
    assert found.evidence == {
        "larger": 0.3333,
        "longer_ns_per_step": 50_000,
        "correlation": 1.0,
        "steps": 6,
        "ranks": 2,
    }
    assert "33 % above the mean" in found.message
    programs, mended = [training(one) for one in TURNS], [training([150] * 6)] * 2
    gain = 1 - length_of(mended, TRANSFERS) / length_of(programs, TRANSFERS)
    assert predict_launch_saving(facts, found.launch_edit).fraction == pytest.approx(gain, abs=1e-3)


def test_a_rank_that_always_has_the_larger_input_is_no_straggler():
    times = [[100, 101, 99, 100, 102, 98], [150, 149, 151, 150, 148, 152], [100, 99, 101, 100, 101, 99]]
    assert reported(launch_with(times, [[100] * 6, [150] * 6, [100] * 6])) == ["unbalanced-input"]
    assert reported(launch_with(times, [[100] * 6] * 3)) == ["straggler"]


@pytest.mark.parametrize(("larger", "expected"), [(126, ["unbalanced-input"]), (123, ["straggler"])])
def test_a_rank_whose_time_is_longer_by_more_than_the_square_of_its_input_is_slow_for_another_reason(larger, expected):
    """Of the ranks' means, 50 µs are 43 % of the time; 26 elements are 24 % of the size, 23 are 21 %."""
    assert (
        reported(launch_with([[100.0] * 6, [150.0] * 6, [100.0] * 6], [[100] * 6, [larger] * 6, [100] * 6])) == expected
    )


@pytest.mark.parametrize(("steps", "told_of"), [(3, 1), (2, None)])
def test_it_takes_three_steps(steps, told_of):
    launch = launch_with([one[:steps] for one in TURNS], [one[:steps] for one in TURNS])
    if told_of is None:
        with pytest.raises(CannotLook, match="three steps"):
            reported(launch)
    else:
        assert reported(launch) == ["unbalanced-input"]


def test_what_gives_less_than_half_a_per_cent_is_silent():
    def turns(more: float) -> list[list[float]]:
        return [[1000 + more * (i % 2 == rank) for i in range(6)] for rank in range(2)]

    sizes = [[1000 + 20 * (i % 2 == rank) for i in range(6)] for rank in range(2)]
    assert reported(launch_with(turns(12), sizes)) == ["unbalanced-input"]
    assert reported(launch_with(turns(8), sizes)) == []


def test_a_slow_rank_beside_inputs_of_different_size_is_told_too():
    """Three ranks take turns with the largest input, and the last one needs 120 µs for something else in each step."""
    sizes = [[100 + 100 * ((i + rank) % 3 == 0) for i in range(9)] for rank in range(3)]
    programs = [
        [
            act
            for i, size in enumerate(one)
            for act in (
                work(size),
                *([work(120, Cause.INPUT, 2)] if rank == 2 else []),
                *both(f"grads#{i}"),
                end_step(),
            )
        ]
        for rank, one in enumerate(sizes)
    ]
    launch = with_inputs(launch_of(programs, TRANSFERS), sizes)
    assert reported(launch) == ["unbalanced-input", "straggler"]
    (slow,) = straggler.check(facts_of_launch(launch))
    assert (slow.evidence["rank"], slow.evidence["cause"]) == (2, "input")


def test_inputs_of_one_size_are_silent():
    assert reported(launch_with(TURNS, [[100] * 6] * 2)) == []


def test_sizes_that_the_time_does_not_go_with_are_silent():
    unlike = [[100, 100, 200, 200, 100, 200], [200, 200, 100, 100, 200, 100]]
    assert reported(launch_with([one[::-1] for one in TURNS], unlike)) == []
    assert reported(launch_with(TURNS, [[300 - size for size in one] for one in TURNS])) == []


def test_a_slower_device_is_not_laid_upon_inputs_that_vary():
    """The slow rank's inputs are larger on the whole; from step to step its time does not go with them."""
    sizes = [[100 + 40 * (rank == 1) + 25 * (-1, 0, 1)[(i + rank) % 3] for i in range(9)] for rank in range(3)]
    assert reported(launch_with([[100.0] * 9, [150.0] * 9, [100.0] * 9], sizes)) == ["straggler"]


@pytest.mark.parametrize(
    ("sizes", "times"),
    [
        # Another rank has as much input and is not slow.
        ([100, 120, 70, 115], [100.0, 150.0, 100.0, 100.0]),
        # Twice the input, and hardly more time.
        ([100, 200, 100, 100], [100.0, 115.0, 100.0, 100.0]),
    ],
)
def test_a_rank_is_slow_for_another_reason_where_times_are_not_about_as_unequal_as_sizes(sizes, times):
    assert reported(launch_with([[time] * 6 for time in times], [[size] * 6 for size in sizes])) == ["straggler"]


def test_many_random_launches_hardly_ever_blame_the_inputs():
    """One in a hundred, by the level."""
    chance = np.random.default_rng(0)
    blamed = 0
    for _ in range(200):
        times, sizes = 100 + 50 * chance.random((4, 5)), chance.integers(100, 200, (4, 5))
        blamed += "unbalanced-input" in reported(launch_with(times.tolist(), sizes.tolist()))
    assert blamed <= 8


def test_a_rank_that_calls_more_operators_does_something_else():
    times = [[100.0] * 6, [150.0] * 6]
    launch = launch_with(times, [[100] * 6, [150] * 6], operators=(3, 5))
    with pytest.raises(CannotLook, match="equally many operators"):
        list(unbalanced_input.check(facts_of_launch(launch)))
    assert [found.evidence["rank"] for found in straggler.check(facts_of_launch(launch))] == [1]


def test_stages_of_a_pipeline_are_not_compared():
    other = [act for i in range(6) for act in (work(200), *both(f"flag#{i}"), *both(f"grads#{i}"), end_step())]
    alone = [act for i in range(6) for act in (work(1), *both(f"flag#{i}"), end_step())]
    launch = launch_of([training([100.0] * 6), other, alone], TRANSFERS)
    with pytest.raises(CannotLook, match="no two"):
        list(unbalanced_input.check(facts_of_launch(with_inputs(launch, [[100] * 6, [200] * 6, [1] * 6]))))


@pytest.mark.parametrize(
    "launch",
    [
        launch_of([training([100.0] * 6), training([150.0] * 6)], TRANSFERS),
        launch_with(TURNS, TURNS, measures=()),
    ],
)
def test_without_shapes_and_memory_it_cannot_look(launch):
    with pytest.raises(CannotLook, match="record_shapes"):
        list(unbalanced_input.check(facts_of_launch(launch)))


def test_a_rank_that_recorded_collectives_alone_is_left_out():
    launch = launch_with([*TURNS, [100] * 6], [*TURNS, [100] * 6])
    tables = (*launch.tables[:2], structs.replace(launch.tables[2], inputs=None))
    assert reported(structs.replace(launch, tables=tables)) == ["unbalanced-input"]


def test_one_rank_alone_does_not_meet_its_needs():
    assert missing_needs(facts_of_launch(None), unbalanced_input.needs) == [Need.RANKS]
