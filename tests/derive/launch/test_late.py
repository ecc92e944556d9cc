"""Which ranks stand out, on tables of numbers."""

from __future__ import annotations

import numpy as np
import pytest

from profkit.derive.launch.chance import stand_out
from profkit.derive.launch.late import find_late, usual_ns
from profkit.derive.launch.table import Cause
from profkit.derive.launch.work_by_rank import WorkByRank

EVEN = np.array([[10, 11, 10, 12.0], [11, 10, 12, 10], [10, 12, 11, 10], [12, 10, 10, 11]])


def late_by(*excess: float) -> np.ndarray:
    return EVEN + np.array(excess)[:, None]


def own_work(*place_ns: np.ndarray, causes: tuple[Cause, ...] = (Cause.COMPUTE, Cause.INPUT)) -> WorkByRank:
    by_place = np.stack(place_ns, axis=2)
    own = [at for at in range(len(place_ns)) if causes[at] != Cause.CONTENTION]
    places = tuple((int(cause), "train.py", line) for line, cause in enumerate(causes[: len(place_ns)]))
    ranks, steps = by_place.shape[:2]
    return WorkByRank(
        np.arange(steps), by_place[:, :, own].sum(axis=2), places, by_place, np.zeros(ranks, dtype=np.int64)
    )


@pytest.mark.parametrize(
    ("excess", "found"),
    [
        ((0, 0, 0, 0), []),
        ((0, 9, 0, 0), [1]),
        ((0, 9, 0, 9), [1, 3]),
        ((0, 19, 0, 9), [1, 3]),
        ((0, 9, 9, 9), []),
    ],
    ids=["none", "one", "two equally", "two by different times", "a majority"],
)
def test_at_most_half_of_the_ranks_stand_out(excess: tuple[float, ...], found: list[int]) -> None:
    assert np.flatnonzero(stand_out(late_by(*excess))).tolist() == found


def test_the_steps_of_all_ranks_show_what_is_chance() -> None:
    """Rank 1 is late by 3 or 6 of 10. Its own four steps alone would not show that at a level of 1 % for four ranks."""
    late = late_by(0, 0, 0, 0)
    late[1] += np.array([3, 6, 3, 6])
    assert np.flatnonzero(stand_out(late)).tolist() == [1]


def test_a_rank_does_not_stand_out_if_all_differ() -> None:
    assert not stand_out(late_by(0, 4, 8, 12)).any()


def test_finding_a_late_rank_takes_three_steps_and_two_ranks() -> None:
    assert not stand_out(late_by(0, 9, 0, 0)[:, :2]).any()
    assert not stand_out(late_by(0, 9, 0, 0)[:1]).any()
    assert np.flatnonzero(stand_out(np.array([[1.0, 1, 1], [2, 2, 2]]))).tolist() == [1]


def test_one_long_step_is_not_lateness_however_steady_the_others_are() -> None:
    work = np.repeat(EVEN, 16, axis=0) / 100 + 10
    work[5, 2] += 40
    assert stand_out(work)[5]
    found = find_late(own_work(work))
    assert found is not None
    assert not found.late.any()


def test_work_at_one_place_shows_lateness_that_other_work_hides() -> None:
    varying = 40 * EVEN[::-1] ** 2 / 10
    found = find_late(own_work(varying, late_by(0, 99, 0, 0)))
    assert found is not None
    assert found.ranks.tolist() == [1]


def test_a_place_that_explains_little_of_the_difference_is_ignored() -> None:
    """Rank 0 works 3 longer at one place in each step, and 10 at others in some."""
    varying = np.array([[300, 100, 100, 100.0], [100, 200, 100, 100], [100, 100, 200, 100], [100, 100, 100, 200]])
    found = find_late(own_work(varying, 1 + EVEN / 100 + np.array([3, 0, 0, 0])[:, None]))
    assert found is not None
    assert not found.late.any()


def test_waiting_for_a_cpu_is_not_work_at_a_place() -> None:
    found = find_late(own_work(EVEN, late_by(0, 99, 0, 0), causes=(Cause.COMPUTE, Cause.CONTENTION)))
    assert found is not None
    assert not found.late.any()


def test_lateness_is_measured_against_the_ranks_that_are_not_late() -> None:
    own = own_work(late_by(0, 9, 0, 9))
    found = find_late(own)
    assert found is not None
    usual = np.median(EVEN[[0, 2]], axis=0)
    assert found.excess_ns[1].tolist() == (EVEN[1] + 9 - usual).tolist()
    assert found.excess_ns[0].tolist() == [0, 0, 0, 0]
    assert usual_ns(own.total_ns, own.kind, found.late, 3).tolist() == usual.tolist()


def test_a_late_rank_among_thousands_is_found() -> None:
    chance = np.random.default_rng(0)
    work = 10 + chance.standard_normal((2048, 5))
    assert not stand_out(work).any()
    work[:8] += 9
    assert np.flatnonzero(stand_out(work)).tolist() == list(range(8))


def test_without_steps_nobody_is_late() -> None:
    assert find_late(own_work(EVEN[:, :0], EVEN[:, :0])) is None
