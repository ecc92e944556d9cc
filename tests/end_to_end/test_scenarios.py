"""Every scenario that works on a CPU: its pitfall is found first and on its line, and its fix does not have it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from profkit.collect.tensors.denormals import read_tensors
from profkit.diagnosis.catalogue import Scenario, list_scenarios
from profkit.findings.values import no_gain_note
from tests.end_to_end.recording import RUN
from tests.end_to_end.running import Outcome, diagnose, judge, record_variant
from tests.recordings import Recordings

CPU_SCENARIOS = [scenario for scenario in list_scenarios() if not scenario.needs_gpu]
FAULTY = [scenario for scenario in CPU_SCENARIOS if scenario.triggers]
FAULTLESS = [scenario for scenario in CPU_SCENARIOS if not scenario.triggers]
Variants = Callable[[Scenario, str], Outcome]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.races(why="which fault comes first, and which is worth a report, depends on times measured once"),
]


@pytest.fixture
def diagnose_variant(tmp_path: Path, recordings: Recordings, monkeypatch: pytest.MonkeyPatch) -> Variants:
    """Experiments store the machine's rates, which would affect later recordings: here they go elsewhere."""

    def run(scenario: Scenario, variant: str) -> Outcome:
        kept = record_variant(recordings, scenario, variant)
        if kept.ended.returncode or not scenario.needs_measuring:
            return judge(kept)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        return diagnose(str(kept.directory / RUN), "--measure", directory=tmp_path)

    return run


@pytest.mark.parametrize("scenario", FAULTY, ids=lambda scenario: scenario.name)
def test_the_pitfall_comes_first_and_on_its_line(scenario: Scenario, diagnose_variant: Variants) -> None:
    outcome = diagnose_variant(scenario, "pitfall")
    assert outcome.status == 0, outcome.stderr
    unable = [outcome.diagnosis["skipped"][rule] for rule in scenario.triggers if rule in outcome.diagnosis["skipped"]]
    no_gain = tuple(map(no_gain_note, scenario.triggers))
    unable += [note for note in outcome.diagnosis["health"] if note.startswith(no_gain)]
    if scenario.needs_measuring and unable:
        pytest.skip(unable[0])
    if scenario.triggers == ("denormal-numbers",) and not read_tensors([torch.full((1 << 16,), 1e-40)]):
        pytest.skip("this processor computes with denormal numbers as fast as with others")
    findings = outcome.diagnosis["findings"]
    kinds = {found["kind"] for found in findings if found["rule"] in scenario.triggers}
    first = next((found for found in findings if found["kind"] in kinds), None)  # a fault may stand below a chance
    assert first is not None, outcome.stdout
    assert first["rule"] in scenario.triggers, outcome.stdout
    assert first["location"]["precision"] == "call"
    assert (first["location"]["line"], first["rule"]) in scenario.expected["pitfall"], outcome.stdout
    assert Path(first["location"]["file"]).name == scenario.path.name


@pytest.mark.parametrize("scenario", FAULTY, ids=lambda scenario: scenario.name)
def test_the_fix_does_not_have_the_fault(scenario: Scenario, diagnose_variant: Variants) -> None:
    outcome = diagnose_variant(scenario, "fix")
    assert outcome.status == 0, outcome.stderr
    assert not set(outcome.rules) & set(scenario.triggers), outcome.stdout
    grave = [fault for fault in outcome.faults if fault["severity"] in ("high", "medium")]
    assert grave == []


@pytest.mark.parametrize("variant", ["pitfall", "fix"])
@pytest.mark.parametrize("scenario", FAULTLESS, ids=lambda scenario: scenario.name)
def test_a_scenario_without_triggers_has_no_fault(scenario: Scenario, variant: str, diagnose_variant: Variants) -> None:
    outcome = diagnose_variant(scenario, variant)
    assert outcome.status == 0, outcome.stderr
    assert [fault["rule"] for fault in outcome.faults if fault["severity"] in ("high", "medium")] == [], outcome.stdout
