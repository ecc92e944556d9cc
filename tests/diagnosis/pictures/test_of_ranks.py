"""The picture of a launch."""

from __future__ import annotations

import numpy as np

from profkit.diagnosis.pictures.of_ranks import MOST_COLUMNS, MOST_ROWS, MOST_SINGLED_OUT, draw_ranks
from profkit.findings.pictures import RankRow, levels_of


def test_each_rank_has_a_row_and_each_step_a_column() -> None:
    caused = np.array([[0, 0, 0], [63, 0, 21]])
    waited = np.array([[63, 0, 21], [0, 42, 0]])
    picture = draw_ranks([4, 5], [10, 11, 12], caused, waited)
    assert picture.steps == (10, 11, 12)
    assert picture.most_ns == 63
    assert picture.rows == (RankRow(4, 4, "AAA", "/AV", 0, 63), RankRow(5, 5, "/AV", "AqA", 63, 42))
    assert picture.singled_out == ()


def test_waiting_and_being_waited_for_fit_into_one_row() -> None:
    picture = draw_ranks([0], [0], np.array([[30]]), np.array([[70]]))
    (row,) = picture.rows
    assert picture.most_ns == 100
    assert levels_of(row.caused + row.waited) == [19, 44]


def test_the_picture_of_thousands_of_ranks_and_steps_is_small() -> None:
    ranks, steps = list(range(4096)), list(range(1000))
    caused = np.zeros((4096, 1000), np.int64)
    caused[3000, 17] = 1_000
    waited = np.full((4096, 1000), 10)
    picture = draw_ranks(ranks, steps, caused, waited)
    assert len(picture.rows) == MOST_ROWS
    assert len(picture.steps) == len(picture.rows[0].caused) == 63 <= MOST_COLUMNS
    assert picture.steps_per_column == 16
    assert [(row.first, row.last) for row in picture.rows if set(row.caused) != {"A"}] == [(2944, 3007)]
    (alone,) = picture.singled_out
    assert (alone.first, alone.last) == (3000, 3000)
    assert levels_of(alone.caused)[:3] == [0, 62, 0]


def test_only_the_latest_ranks_are_listed_with_the_worst_first() -> None:
    caused = np.arange(100)[:, None]
    picture = draw_ranks(list(range(100)), [0], caused, np.zeros((100, 1), np.int64))
    assert [row.first for row in picture.singled_out] == list(range(99, 99 - MOST_SINGLED_OUT, -1))


def test_a_launch_without_ranks_has_an_empty_picture() -> None:
    nothing = np.zeros((0, 0), np.int64)
    assert draw_ranks([], [], nothing, nothing).rows == ()
    picture = draw_ranks([0], [], np.zeros((1, 0), np.int64), np.zeros((1, 0), np.int64))
    assert (picture.most_ns, picture.rows) == (0, (RankRow(0, 0, "", "", 0, 0),))
