"""The committed table of what the scenarios show: all are in it and hold, and it claims no more than its rows say.

The figures were measured on one machine and are not measured again here; `profkit verify --all` does that.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from profkit.catalogue import list_scenarios
from profkit.findings import no_gain_note
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


def test_every_scenario_stands_in_the_table():
    assert [row[0] for row in rows()] == [scenario.name for scenario in list_scenarios()]


def test_every_scenario_that_can_run_on_a_cpu_holds():
    """What only an experiment can price need not gain on every machine: the table then says what it found."""
    rules = [rule for scenario in list_scenarios() if scenario.needs_measuring for rule in scenario.triggers]
    gains_nothing = tuple(f"not run: {no_gain_note(rule)}" for rule in rules)
    others = {row[0]: row[8] for row in rows() if row[8] not in (HOLDS, NOT_HERE)}
    assert {name: verdict for name, verdict in others.items() if not verdict.startswith(gains_nothing)} == {}


def test_enough_scenarios_show_time_and_memory():
    kinds = [row[1] for row in rows() if row[8] == HOLDS]
    assert kinds.count("time") >= 20
    assert kinds.count("memory") >= 6


def test_the_summary_is_that_of_the_table():
    shares = time_shares()
    error = 100 * np.abs(shares[:, 0] - shares[:, 1])
    found = re.search(r"median (\S+) %, 90th percentile (\S+) % of the step; rank correlation (\S+)", TABLE.read_text())
    assert found is not None
    median, most, correlation = map(float, found.groups())
    assert median == pytest.approx(np.median(error), abs=1.0)  # the table is rounded to whole per cent
    assert most == pytest.approx(np.percentile(error, 90), abs=1.0)
    assert correlation == pytest.approx(rank_correlation(*shares.T), abs=0.05)


@pytest.mark.parametrize("left_out", range(20))
def test_no_factor_common_to_the_others_would_have_foretold_the_one_left_out_much_better(left_out):
    """A model tuned to the scenarios would hide such a factor."""
    shares = time_shares()
    others = np.delete(shares, left_out, axis=0)
    assert 0.8 <= float(np.median(others[:, 1] / others[:, 0])) <= 1.25
