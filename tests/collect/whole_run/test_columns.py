"""When each stack was seen, in columns of equal length."""

from __future__ import annotations

import pytest

from profkit.collect.whole_run.columns import _FIRST_NS, _MOST, _MOST_IN_ONE, Columns


def test_a_stretch_is_divided_among_the_columns_that_it_touches():
    columns = Columns()
    columns.add(0, 250_000_000, 0)
    columns.add(250_000_000, 260_000_000, 1)
    assert columns.taken() == (((0, 100_000_000),), ((0, 100_000_000),), ((0, 50_000_000), (1, 10_000_000)))


def test_columns_double_in_length_before_there_are_too_many():
    columns = Columns()
    whole_ns = _FIRST_NS * _MOST * 5
    for at in range(5):
        columns.add(at * whole_ns // 5, (at + 1) * whole_ns // 5, at)
    assert columns.column_ns == 8 * _FIRST_NS
    taken = columns.taken()
    assert len(taken) == _MOST * 5 // 8
    assert sum(time_ns for column in taken for _, time_ns in column) == whole_ns


def test_a_column_keeps_the_stacks_with_most_of_its_time():
    columns, at_ns = Columns(), 0
    for stack in range(_MOST_IN_ONE + 5):
        columns.add(at_ns, at_ns + 1000 + stack, stack)
        at_ns += 1000 + stack
    (column,) = columns.taken()
    assert [stack for stack, _ in column] == list(range(_MOST_IN_ONE + 4, 4, -1))


@pytest.mark.parametrize("until_ns", [0, 5])
def test_a_stretch_without_length_adds_nothing(until_ns):
    columns = Columns()
    columns.add(until_ns, until_ns, 0)
    assert columns.taken() == ()
