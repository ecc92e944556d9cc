"""Distinct values, membership, medians and quantiles of columns."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.trace.statistics import among, distinct, distinct_rows, median, quantile

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


def test_none_of_this_imports_masked_arrays():
    program = """
import sys
import numpy as np
from profkit.trace.statistics import among, distinct, distinct_rows, median
few = np.array([3, 1 << 60, 3])
among(few, few), distinct(few), distinct_rows(few), median(few / 2)
assert "numpy.ma" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
