"""The committed table of what the scenarios show: its rows hold, and it claims no more than they say.

The figures were measured on one machine and are not measured again here; `profkit verify --all` does that. A scenario
that is newer than the table joins it at the next measurement of all.
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
MOST_OF = 0.9
"""Where more are missing the summary no longer speaks for the scenarios: measure them anew."""
_SHARE = r"(-?\d+) % \((-?\d+) to (-?\d+)\)"
_ROW = re.compile(rf"^\| (\S+) \| (time|memory) \| (?:{_SHARE}|-) \| (?:{_SHARE}|-) \| (.+?) \|$", re.MULTILINE)


def rows() -> list[tuple[str, ...]]:
    return _ROW.findall(TABLE.read_text(encoding="utf-8"))


def time_shares() -> np.ndarray:
    """Predicted and measured shares of the step, a row each."""
    return np.array([(int(row[2]), int(row[5])) for row in rows() if row[1] == "time" and row[8] == HOLDS]) / 100


def test_every_row_is_a_scenario_and_few_scenarios_are_newer_than_the_table():
    names, measured = [scenario.name for scenario in list_scenarios()], [row[0] for row in rows()]
    assert measured == [name for name in names if name in measured]
    assert len(measured) >= MOST_OF * len(names)


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
