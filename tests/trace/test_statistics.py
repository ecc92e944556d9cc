"""Distinct values, membership, medians and quantiles of columns."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.trace.statistics import among, distinct, distinct_rows, median, pace, quantile

_NUMBERS = st.integers(-3, 3) | st.sampled_from([-(2**40), 2**40, 2**60])
_TIMES = st.lists(st.integers(-(2**50), 2**50) | st.floats(-1e15, 1e15), min_size=1)


@given(st.lists(st.tuples(_NUMBERS, _NUMBERS, _NUMBERS), min_size=1))
def test_distinct_rows_differ_in_any_column(rows):
    first, inverse = distinct_rows(*np.array(rows, dtype=np.int64).T)
    kinds = sorted(set(rows))
    assert first.tolist() == [rows.index(kind) for kind in kinds]
    assert inverse.tolist() == [kinds.index(row) for row in rows]


@given(st.lists(_NUMBERS))
def test_distinct_values_are_sorted(values):
    assert distinct(np.array(values, dtype=np.int64)).tolist() == sorted(set(values))


@given(st.lists(_NUMBERS), st.lists(_NUMBERS))
def test_membership_matches_isin(values, wanted):
    found = among(np.array(values, dtype=np.int64), np.array(wanted, dtype=np.int64))
    assert found.tolist() == [value in wanted for value in values]


@given(_TIMES, st.floats(0, 1))
def test_medians_and_quantiles_match_numpy(values, share):
    assert median(values) == pytest.approx(float(np.median(values)), rel=1e-9, abs=1e-3)
    assert quantile(values, share) == pytest.approx(float(np.quantile(values, share)), rel=1e-9, abs=1e-3)


@pytest.mark.parametrize(
    ("times", "usual"),
    [
        ([15, 84, *[15, 355] * 9], 185),  # the median, 49.5, is nobody's time
        ([355, *[15, 355] * 9], 185),  # that of the longer sort
        ([15, 355, *[15] * 13], 15),
        ([15, 84, 355] * 5, 84),  # too few
        ([10, 30] * 10, 20),
        ([10, 31] * 10, 20.5),
        ([3, 3, 3, 3, 220] * 8, 3),  # most are alike
        ([20, 39] * 10, 29.5),
        ([10] * 30 + [5_000], 10),
        ([7], 7),
    ],
)
def test_the_pace_is_the_median_unless_times_alternate(times, usual):
    assert pace(times) == pytest.approx(usual)


def test_one_long_time_among_alternating_ones_changes_the_pace_by_little():
    assert pace([*[20, 360] * 10, 9_000, *[20, 360] * 10]) == pytest.approx(190)


def test_none_of_this_imports_masked_arrays():
    program = """
import sys
import numpy as np
from profkit.trace.statistics import among, distinct, distinct_rows, median, pace
few = np.array([3, 1 << 60, 3])
among(few, few), distinct(few), distinct_rows(few), median(few / 2), pace([1, 9] * 10)
assert "numpy.ma" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
