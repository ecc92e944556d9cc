"""The committed table of what the scenarios show: all are in it, and the predictions are as good as claimed.

The figures were measured on one machine and are not measured again here; `profkit verify --all` does that.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from profkit.catalogue import list_scenarios
from profkit.report.verification import rank_correlation
from profkit.verifying import HOLDS, NOT_HERE

TABLE = Path(__file__).parents[2] / "scenarios" / "RESULTS.md"
_SHARE = r"(-?\d+) % \((-?\d+) to (-?\d+)\)"
_ROW = re.compile(rf"^\| (\S+) \| (time|memory) \| (?:{_SHARE}|-) \| (?:{_SHARE}|-) \| (.+?) \|$", re.MULTILINE)


def rows() -> list[tuple[str, ...]]:
    return _ROW.findall(TABLE.read_text(encoding="utf-8"))


def time_shares() -> np.ndarray:
    """Predicted and measured shares of the step, a row each."""
    return np.array([(int(row[2]), int(row[5])) for row in rows() if row[1] == "time" and row[8] == HOLDS]) / 100


def within_goals(shares: np.ndarray) -> bool:
    error = np.abs(shares[:, 0] - shares[:, 1])
    return bool(np.median(error) <= 0.10 and np.percentile(error, 90) <= 0.25 and rank_correlation(*shares.T) >= 0.9)


def test_every_scenario_stands_in_the_table():
    assert [row[0] for row in rows()] == [scenario.name for scenario in list_scenarios()]


def test_every_scenario_that_can_run_on_a_cpu_holds():
    assert {row[0]: row[8] for row in rows() if row[8] not in (HOLDS, NOT_HERE)} == {}


def test_enough_scenarios_show_time_and_memory():
    kinds = [row[1] for row in rows() if row[8] == HOLDS]
    assert kinds.count("time") >= 20
    assert kinds.count("memory") >= 6


def test_the_predictions_are_within_the_goals():
    assert within_goals(time_shares())


@pytest.mark.parametrize("left_out", range(20))
def test_no_single_scenario_carries_the_result(left_out):
    """Without any one of them the others are within the goals too, and no common factor would bring them nearer."""
    shares = time_shares()
    others = np.delete(shares, left_out, axis=0)
    assert within_goals(others)
    fitted = float(np.median(others[:, 1] / others[:, 0]))
    assert 0.8 <= fitted <= 1.25
