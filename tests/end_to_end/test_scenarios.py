"""Every scenario that shows on a CPU: its pitfall is found first and on the exact line, its fix is clean of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.catalogue import Scenario, list_scenarios
from tests.end_to_end.running import diagnose_forked
from tests.forks import Forks

CPU_SCENARIOS = [scenario for scenario in list_scenarios() if not scenario.needs_gpu]
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scenario", CPU_SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_pitfall_is_found_at_rank_1_on_the_exact_line(scenario: Scenario, tmp_path: Path, forks: Forks) -> None:
    outcome = diagnose_forked(forks, scenario.name, "--device", "cpu", directory=tmp_path)
    assert outcome.status == 0, outcome.stderr
    first = outcome.diagnosis["findings"][0]
    assert first["rule"] in scenario.triggers, outcome.stdout
    assert first["location"]["precision"] == "call"
    assert (first["location"]["line"], first["rule"]) in scenario.expected["pitfall"], outcome.stdout
    assert Path(first["location"]["file"]).name == scenario.path.name


@pytest.mark.parametrize("scenario", CPU_SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_fix_is_clean_of_it(scenario: Scenario, tmp_path: Path, forks: Forks) -> None:
    outcome = diagnose_forked(forks, scenario.name, "--variant", "fix", "--device", "cpu", directory=tmp_path)
    assert outcome.status == 0, outcome.stderr
    assert not set(outcome.rules) & set(scenario.triggers), outcome.stdout
    grave = [fault for fault in outcome.faults if fault["severity"] in ("high", "medium")]
    assert grave == []
