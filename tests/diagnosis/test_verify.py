"""What counts as a proof, and one real one."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import click
import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from profkit.cli.verify import command
from profkit.diagnosis import experiments as measuring
from profkit.diagnosis import verify as verifying
from profkit.diagnosis.catalogue import ANOTHER_RESULT, NOTHING, Scenario, find_scenario
from profkit.diagnosis.verify import (
    HOLDS,
    INCONCLUSIVE,
    NOT_HERE,
    SILENCE,
    Measurement,
    Proof,
    Share,
    effect_of,
    verify,
)
from profkit.findings.values import (
    Diagnosis,
    Finding,
    Kind,
    Location,
    RunSummary,
    Saving,
    Severity,
    Timing,
    no_gain_note,
)
from profkit.report.trials.verification import (
    rank_correlation,
    render_beginning,
    render_end,
    render_row,
    render_verification,
)

SCENARIO = Scenario(
    "a-fault", Path("a_fault.py"), "", ("slow-thing",), False, "time", {"pitfall": ((7, "slow-thing"),)}
)


def rounds(pitfall: float, fix: float, noise: float = 0.0, count: int = 40) -> np.ndarray:
    generator = np.random.default_rng(1)
    values = np.array([pitfall, fix]) * (1 + noise * generator.standard_normal((count, 2)))
    return (1e6 * values).astype(np.int64)


def finding(line: int = 7, rule: str = "slow-thing", saving: Saving | None = None, **evidence: float) -> Finding:
    place = Location("a_fault.py", line, "pitfall")
    return Finding(rule, Kind.FAULT, Severity.HIGH, "", 1, 0.9, "", place, saving=saving, evidence=evidence)


def diagnosis(*findings: Finding, total: Saving | None = None) -> Diagnosis:
    return Diagnosis(RunSummary((), None, None, None, None), Timing(4, 1, ""), findings, {}, (), total)


def proof(monkeypatch, pitfall: Diagnosis, fix: Diagnosis, values: np.ndarray, scenario: Scenario = SCENARIO) -> Proof:
    """`verify` with both recordings and the measurement given."""
    given = {"pitfall": pitfall, "fix": fix}
    monkeypatch.setattr(verifying, "diagnose_variant", lambda _, variant, device: given[variant])
    number = np.full_like(values, 10)
    monkeypatch.setattr(verifying, "running", lambda *_: nullcontext([]))
    monkeypatch.setattr(verifying, "measure_variants", lambda *_: Measurement(values, values, number))
    return verify(scenario)


def test_the_effect_is_the_share_of_the_pitfall_that_the_fix_saves():
    assert effect_of(rounds(10, 6)) == Share(pytest.approx(0.4), pytest.approx(0.4), pytest.approx(0.4))


def test_the_interval_holds_the_truth_and_narrows_with_the_noise():
    wide, narrow = effect_of(rounds(10, 6, 0.2)), effect_of(rounds(10, 6, 0.02))
    for share in (wide, narrow):
        assert share.low < 0.4 < share.high
    assert narrow.high - narrow.low < (wide.high - wide.low) / 4


def test_a_change_of_the_machines_speed_affects_both_variants_alike():
    """Half of the rounds on a machine half as fast: medians of each variant by itself would hide the effect."""
    values = rounds(10, 6) * np.where(np.arange(len(rounds(10, 6))) % 2, 2, 1)[:, None]
    assert effect_of(values) == Share(pytest.approx(0.4), pytest.approx(0.4), pytest.approx(0.4))


def test_a_scenario_holds_when_the_rule_is_right_and_the_effect_is_real(monkeypatch):
    saving = Saving(1, 0.35, 0.3, 0.5)
    found = proof(monkeypatch, diagnosis(finding(saving=saving)), diagnosis(), rounds(10, 6, 0.02))
    assert (found.verdict, found.holds) == (HOLDS, True)
    assert found.predicted == Share(0.35, 0.3, 0.5)


@pytest.mark.parametrize(
    ("pitfall", "fix", "verdict"),
    [
        (diagnosis(), diagnosis(), "the rule did not fire"),
        (diagnosis(finding(rule="another")), diagnosis(), "the rule did not fire"),
        (diagnosis(finding(line=8)), diagnosis(), "the rule named another line"),
        (diagnosis(finding()), diagnosis(finding(line=9)), "the rule fired on the fix too"),
    ],
)
def test_a_wrong_rule_is_no_proof_whatever_the_effect(monkeypatch, pitfall, fix, verdict):
    found = proof(monkeypatch, pitfall, fix, rounds(10, 6))
    assert (found.verdict, found.holds) == (verdict, False)


def test_an_effect_within_the_noise_is_inconclusive(monkeypatch):
    found = proof(monkeypatch, diagnosis(finding()), diagnosis(), rounds(10, 10, 0.2))
    assert (found.verdict, found.holds) == (INCONCLUSIVE, False)


def test_a_fix_that_costs_time_fails(monkeypatch):
    assert proof(monkeypatch, diagnosis(finding()), diagnosis(), rounds(10, 12)).verdict == "the fix made it worse"


def test_a_mistake_on_several_lines_is_predicted_as_a_whole(monkeypatch):
    parts = [finding(saving=Saving(1, 0.3, 0.2, 0.4)), finding(line=9, saving=Saving(1, 0.3, 0.2, 0.4))]
    found = proof(monkeypatch, diagnosis(*parts, total=Saving(1, 0.45, 0.4, 0.5)), diagnosis(), rounds(10, 6))
    assert found.predicted == Share(0.45, 0.4, 0.5)


def test_memory_that_grows_is_predicted_for_the_steps_that_were_run(monkeypatch):
    memory = replace(SCENARIO, effect="memory")
    grows = finding(saving=Saving(0, 0.0, 0.0, 0.0, 500_000), growth_bytes_per_step=500_000)
    found = proof(monkeypatch, diagnosis(grows), diagnosis(), rounds(10, 4), memory)
    assert (found.kind, found.predicted) == ("memory", Share(0.5, 0.5, 0.5))  # 10 steps of 0.5 MB, of a peak of 10 MB
    freed = finding(saving=Saving(0, 0.0, 0.0, 0.0, 500_000))
    found = proof(monkeypatch, diagnosis(freed), diagnosis(), rounds(10, 4), memory)
    assert found.predicted == Share(0.05, 0.05, 0.05)


def faultless(effect: str) -> Scenario:
    return replace(SCENARIO, triggers=(), effect=effect, expected={"pitfall": (), "fix": ()})


@pytest.mark.parametrize("effect", [NOTHING, ANOTHER_RESULT])
def test_a_control_holds_when_nothing_is_reported_in_either_variant(monkeypatch, effect):
    control = faultless(effect)
    found = proof(monkeypatch, diagnosis(), diagnosis(), rounds(10, 10), control)
    assert (found.kind, found.measured, found.predicted, found.verdict) == (SILENCE, None, None, HOLDS)
    for pitfall, fix in ((diagnosis(finding()), diagnosis()), (diagnosis(), diagnosis(finding()))):
        found = proof(monkeypatch, pitfall, fix, rounds(10, 10), control)
        assert found.verdict == "slow-thing is reported where nothing is wrong"
        assert (found.holds, found.was_run) == (False, True)


@pytest.mark.parametrize("severity", [Severity.INFO, Severity.LOW])
def test_findings_for_information_do_not_count_as_reported(monkeypatch, severity):
    """Such as a few steps that took longer beside other programs."""
    small = diagnosis(replace(finding(), severity=severity))
    assert proof(monkeypatch, small, small, rounds(10, 10), faultless(NOTHING)).holds


@pytest.mark.parametrize(("values", "verdict"), [(rounds(10, 6), HOLDS), (rounds(10, 10, 0.1), INCONCLUSIVE)])
def test_an_effect_without_a_rule_is_still_measured(monkeypatch, values, verdict):
    found = proof(monkeypatch, diagnosis(), diagnosis(), values, faultless("time"))
    assert (found.kind, found.measured, found.verdict) == ("time", effect_of(values), verdict)


def test_a_scenario_that_needs_a_gpu_is_not_run_on_a_cpu():
    assert verify(replace(SCENARIO, effect="time on a GPU")).verdict == NOT_HERE
    assert verify(replace(SCENARIO, needs_gpu=True)).verdict == NOT_HERE


MEASURED = replace(SCENARIO, needs_measuring=True)


def test_a_scenario_is_not_run_on_a_machine_where_its_fix_cannot_help(monkeypatch):
    unable = replace(diagnosis(), skipped={"slow-thing": "the processor has no such instructions"})
    found = proof(monkeypatch, unable, diagnosis(), rounds(10, 6), MEASURED)
    assert (found.verdict, found.was_run) == ("not run: the processor has no such instructions", False)
    found = proof(monkeypatch, unable, diagnosis(), rounds(10, 6))
    assert (found.verdict, found.was_run) == ("the rule did not fire", True)


def test_a_scenario_is_not_run_on_a_machine_where_its_fix_was_measured_not_to_help(monkeypatch):
    note = f"{no_gain_note('slow-thing')}: it takes as long"
    nothing = replace(diagnosis(), health=("another note", note))
    assert proof(monkeypatch, nothing, diagnosis(), rounds(10, 6), MEASURED).verdict == f"not run: {note}"
    assert proof(monkeypatch, nothing, diagnosis(), rounds(10, 6)).verdict == "the rule did not fire"
    other = replace(diagnosis(), health=(no_gain_note("other-thing"),))
    assert proof(monkeypatch, other, diagnosis(), rounds(10, 6), MEASURED).verdict == "the rule did not fire"


@pytest.mark.parametrize(("scenario", "measured"), [(SCENARIO, False), (MEASURED, True)])
def test_experiments_run_only_for_scenarios_that_need_them(monkeypatch, scenario, measured):
    given = []
    monkeypatch.setattr(verifying, "diagnose_path", lambda path, measure: given.append(measure) or diagnosis())
    monkeypatch.setattr(verifying.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=0))
    verifying.diagnose_variant(scenario, "pitfall", "cpu")
    assert given == [measuring.measure if measured else None]


def test_the_error_of_a_failing_scenario_is_reported(monkeypatch, tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("def setup(device): raise ValueError('no data')\ndef pitfall(state): yield\nfix = pitfall\n")
    scenario = replace(SCENARIO, path=broken)
    monkeypatch.setattr(verifying, "diagnose_variant", lambda *_: diagnosis(finding()))
    assert verify(scenario).verdict == "failed: a-fault, pitfall: the scenario failed: ValueError: no data"


@pytest.mark.slow
@pytest.mark.races(why="both variants are measured, while others use the processors")
@pytest.mark.parametrize(("name", "kind"), [("cat-in-loop", "time"), ("eval-without-no-grad", "memory")])
def test_a_real_scenario_is_measured_in_both_variants(monkeypatch, name, kind):
    monkeypatch.setattr(verifying, "_BUDGET_S", 0.0)
    measurement = verifying.measure(find_scenario(name), "cpu", kind)
    rounds = verifying._ROUNDS if kind == "time" else verifying._MEMORY_STEPS // 2
    assert measurement.ns.shape == measurement.peak_bytes.shape == (rounds, 2)
    assert effect_of(measurement.ns if kind == "time" else measurement.peak_bytes).fraction > 0.1


PROOFS = [
    Proof("a-fault", "time", HOLDS, Share(0.4, 0.3, 0.5), Share(0.38, 0.2, 0.5), True, True, True),
    Proof("b-fault", "time", HOLDS, Share(0.1, 0.05, 0.2), Share(0.2, 0.1, 0.3), True, True, True),
    Proof("on-a-gpu", "time", NOT_HERE),
]


def test_the_table_shows_prediction_and_measurement():
    text = render_verification(PROOFS, "text").splitlines()
    assert text[1].split() == "a-fault time 38 % (20 to 50) 40 % (30 to 50) holds".split()
    assert text[3].split()[:4] == ["on-a-gpu", "time", "-", "-"]
    assert "2 of 2 scenarios hold" in text
    assert "median 6.0 %, 90th percentile 9.2 % of the step; rank correlation 1.00" in text[-1]
    assert "| a-fault | time | 38 % (20 to 50) | 40 % (30 to 50) | holds |" in render_verification(PROOFS, "markdown")


def test_the_json_has_the_keys_of_the_contract():
    first = json.loads(render_verification(PROOFS, "json"))["scenarios"][0]
    assert first == {
        "name": "a-fault",
        "kind": "time",
        "measured": {"fraction": 0.4, "low": 0.3, "high": 0.5},
        "predicted": {"fraction": 0.38, "low": 0.2, "high": 0.5},
        "fired": True,
        "exact_line": True,
        "silent_on_fix": True,
        "verdict": "holds",
    }


def test_ranks_are_compared_not_values():
    assert rank_correlation(np.array([1.0, 2.0, 50.0]), np.array([0.1, 0.2, 0.3])) == pytest.approx(1.0)
    assert rank_correlation(np.array([3.0, 2.0, 1.0]), np.array([0.1, 0.2, 0.3])) == pytest.approx(-1.0)


@pytest.mark.parametrize(
    ("verdict", "status"),
    [(HOLDS, 0), (NOT_HERE, 0), ("not run: no such instructions", 0), (INCONCLUSIVE, 1), ("failed: x", 1)],
)
def test_only_a_scenario_that_holds_is_a_success(monkeypatch, verdict, status):
    monkeypatch.setattr(verifying, "verify", lambda *_: replace(PROOFS[0], verdict=verdict))
    assert CliRunner().invoke(command, ["cat-in-loop", "--json", "--device", "cpu"]).exit_code == status


@pytest.fixture
def runs(monkeypatch) -> list[str]:
    """Names of the scenarios that were run; each holds."""
    names: list[str] = []

    def run(scenario: Scenario, device: str) -> Proof:
        names.append(scenario.name)
        return replace(PROOFS[0], name=scenario.name)

    monkeypatch.setattr(verifying, "verify", run)
    return names


def test_each_row_is_printed_as_it_comes(monkeypatch):
    printed: list[str] = []
    before: list[int] = []
    monkeypatch.setattr(click, "echo", lambda text, **_: printed.append(text))
    monkeypatch.setattr(verifying, "verify", lambda *_: before.append(len(printed)) or PROOFS[0])
    command.callback(("cat-in-loop", "loss-list"), False, False, False, False, "cpu", None)
    assert before == [1, 2]
    assert [line.split()[0] for line in printed] == ["scenario", "a-fault", "a-fault", "2"]


@pytest.mark.parametrize("format_name", ["text", "markdown"])
def test_the_rows_as_they_come_make_the_whole_table(format_name):
    names = [proof.name for proof in PROOFS]
    parts = [render_beginning(names, format_name), *(render_row(proof, names, format_name) for proof in PROOFS)]
    assert "\n".join([*parts, render_end(PROOFS, format_name)]) == render_verification(PROOFS, format_name)


def test_a_run_that_was_ended_is_resumed(tmp_path, runs):
    file = tmp_path / "results.json"
    first = CliRunner().invoke(command, ["cat-in-loop", "--device", "cpu", "--resume", str(file)])
    both = ["cat-in-loop", "loss-list", "--device", "cpu", "--resume", str(file)]
    second = CliRunner().invoke(command, both)
    third = CliRunner().invoke(command, both)
    assert (first.exit_code, second.exit_code, third.exit_code) == (0, 0, 0)
    assert runs == ["cat-in-loop", "loss-list"]
    assert "2 of 2 scenarios hold" in third.stdout
    assert second.stdout == third.stdout


def test_what_failed_or_ran_on_another_device_is_run_again(tmp_path, runs):
    file = tmp_path / "results.json"
    kept = [("cpu", replace(PROOFS[0], name="cat-in-loop", verdict="failed: x"))]
    kept += [("cuda", replace(PROOFS[0], name="loss-list"))]
    file.write_bytes(msgspec.json.encode(kept))
    CliRunner().invoke(command, ["cat-in-loop", "loss-list", "--device", "cpu", "--resume", str(file)])
    assert runs == ["cat-in-loop", "loss-list"]


def test_another_file_is_refused_and_stays_as_it_is(tmp_path, runs):
    file = tmp_path / "train.py"
    file.write_text("import torch\nx = 1")
    ended = CliRunner().invoke(command, ["cat-in-loop", "--device", "cpu", "--resume", str(file)])
    assert "cannot be resumed" in str(ended.exception)
    assert (runs, file.read_text()) == ([], "import torch\nx = 1")


def test_either_scenarios_or_all_must_be_given():
    for arguments in ([], ["--all", "cat-in-loop"]):
        assert "name the scenarios to verify" in str(CliRunner().invoke(command, arguments).exception)


class Slow:
    """A variant whose first step takes seconds, as on a GPU, and every other one a millisecond."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.blocks: list[int] = []

    def run(self, steps: int) -> dict[str, list[int]]:
        took = 10**6 if self.blocks else 3 * 10**9
        self.blocks.append(steps)
        return {"ns": [took] * steps, "peak_bytes": [1] * steps, "number": [1] * steps}


@pytest.mark.parametrize(("first", "block"), [(1, 1), (verifying._FIRST_ON_DEVICE, verifying._LARGEST_BLOCK)])
def test_on_a_gpu_the_first_step_does_not_set_the_number_of_steps_per_block(first: int, block: int) -> None:
    variants = [Slow(first), Slow(first)]
    clock = iter([0.0, *[verifying._BUDGET_S] * 100])
    verifying._by_turns(variants, lambda: next(clock))
    assert variants[0].blocks == [1] * first + [block] * (verifying._ROUNDS + verifying._WARM_UP)


class Scattering:
    """A variant whose turns take a millisecond and ``spread_ns`` more every other time."""

    first = 1

    def __init__(self, spread_ns: int) -> None:
        self.turns, self._spread_ns = 0, spread_ns

    def run(self, steps: int) -> dict[str, list[int]]:
        self.turns += 1
        took = 10**6 + self._spread_ns * (self.turns % 2)
        return {"ns": [took] * steps, "peak_bytes": [1] * steps, "number": [1] * steps}


@pytest.mark.parametrize(("spread_ns", "rounds"), [(10**3, verifying._ROUNDS), (10**6, verifying._ROUNDS + 5)])
def test_measuring_ends_once_the_effect_is_known_well(spread_ns: int, rounds: int) -> None:
    """Turns that scatter by a factor of two are measured until the time is up, here for five rounds more."""
    clock = iter([0.0, *[0.0] * 5, verifying._BUDGET_S])
    variants = [Scattering(spread_ns), Scattering(0)]
    assert len(verifying._by_turns(variants, lambda: next(clock))) == rounds


@pytest.mark.parametrize(("turn_s", "rounds"), [(0.1, 12), (0.75, 6), (10.0, 4)])
def test_slow_turns_end_early_where_the_time_is_short(turn_s: float, rounds: int) -> None:
    """Twelve rounds, or as many as fit into six seconds, but at least four. Warming up counts towards the time."""
    variants = [Scattering(10**6), Scattering(0)]
    turns = verifying.Turns(rounds=12, budget_s=0.0, most_s=6.0)
    found = verifying._by_turns(variants, lambda: variants[0].turns * turn_s, turns)
    assert len(found) == rounds
