"""The curve of the process's memory."""

from __future__ import annotations

import os

from profkit.collect.whole_run.memory import MemoryCurve

S = 1_000_000_000


def test_samples_are_in_bytes_and_not_closer_than_a_fifth_of_a_second(tmp_path):
    (tmp_path / "statm").write_text("900 3 2 1 0 4 0\n")
    curve = MemoryCurve(tmp_path / "statm")
    for now in (0, S // 10, S // 5, S):
        curve.look(now)
    assert curve.taken() == tuple((now, 3 * os.sysconf("SC_PAGE_SIZE")) for now in (0, S // 5, S))


def test_a_long_run_keeps_a_bounded_number(tmp_path):
    (tmp_path / "statm").write_text("900 3 2 1 0 4 0\n")
    curve = MemoryCurve(tmp_path / "statm")
    for second in range(5000):
        curve.look(second * S)
    taken = curve.taken()
    assert 300 <= len(taken) < 600
    assert taken[-1][0] > 4950 * S


def test_nothing_is_known_without_the_file(tmp_path):
    curve = MemoryCurve(tmp_path / "missing")
    curve.look(0)
    assert curve.taken() == ()
