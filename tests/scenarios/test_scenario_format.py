"""Every scenario keeps to the format: a documented mistake, its rule, and two variants that differ in it alone."""

from __future__ import annotations

import ast
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from profkit.diagnosis.catalogue import ANOTHER_RESULT, EFFECTS, NOTHING, Scenario, list_scenarios
from profkit.rules import all_rules
from tests.end_to_end.recording import RESULTS
from tests.end_to_end.running import record_variant
from tests.recordings import Recordings

SCENARIOS = list_scenarios()
RULES = set(all_rules())
HAS_COMPILER = bool(os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++"))

each_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)


def read_functions(scenario: Scenario) -> dict[str, ast.FunctionDef]:
    module = ast.parse(scenario.path.read_text(encoding="utf-8"))
    return {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}


def is_generator(function: ast.FunctionDef) -> bool:
    return any(isinstance(node, ast.Yield) for node in ast.walk(function))


def read_results(directory: Path) -> list[np.ndarray]:
    with np.load(directory / RESULTS) as archive:
        return [archive[f"arr_{number}"] for number in range(len(archive.files))]


@each_scenario
def test_the_docstring_states_the_mistake_and_its_source(scenario: Scenario) -> None:
    docstring = ast.get_docstring(ast.parse(scenario.path.read_text(encoding="utf-8"))) or ""
    summary, blank, *body = docstring.splitlines()
    assert summary == scenario.summary
    assert summary.endswith(".")
    assert blank == ""
    assert any(line.startswith("Source: ") for line in body)


@each_scenario
def test_the_triggers_are_rules(scenario: Scenario) -> None:
    assert set(scenario.triggers) <= RULES


@each_scenario
def test_a_scenario_without_triggers_says_why(scenario: Scenario) -> None:
    """What changes neither time nor memory has no rule. What does, and has none, tells that in its docstring."""
    assert scenario.effect in EFFECTS
    text = ast.get_docstring(ast.parse(scenario.path.read_text(encoding="utf-8"))) or ""
    says_so = any(words in " ".join(text.split()) for words in ("nothing is reported", "no rule reports it"))
    assert says_so == (not scenario.triggers)
    if scenario.effect in (NOTHING, ANOTHER_RESULT):
        assert not scenario.triggers


@each_scenario
def test_the_pitfall_marks_the_lines_of_its_triggers_and_the_fix_marks_none(scenario: Scenario) -> None:
    assert {rule for _, rule in scenario.expected["pitfall"]} == set(scenario.triggers)
    assert scenario.expected["fix"] == ()


@each_scenario
def test_setup_takes_the_device_and_the_variants_are_generators_of_its_state(scenario: Scenario) -> None:
    functions = read_functions(scenario)
    signatures = {
        name: [argument.arg for argument in functions[name].args.args] for name in ("setup", "pitfall", "fix")
    }
    assert signatures == {"setup": ["device"], "pitfall": ["state"], "fix": ["state"]}
    assert [is_generator(functions[name]) for name in ("setup", "pitfall", "fix")] == [False, True, True]


@each_scenario
def test_the_variants_differ(scenario: Scenario) -> None:
    functions = read_functions(scenario)
    bodies = [[ast.dump(statement) for statement in functions[name].body] for name in ("pitfall", "fix")]
    assert bodies[0] != bodies[1]


@pytest.mark.slow
@each_scenario
def test_both_variants_compute_the_same_unless_the_scenario_says_otherwise(
    scenario: Scenario, recordings: Recordings
) -> None:
    """As far as float32 arithmetic explains: 0.1 % each. They are recorded meanwhile."""
    if "torch.compile" in scenario.path.read_text(encoding="utf-8") and not HAS_COMPILER:
        pytest.skip("torch.compile needs a C++ compiler on a CPU")
    both = [record_variant(recordings, scenario, variant) for variant in ("pitfall", "fix")]
    assert [kept.ended.returncode for kept in both] == [0, 0], "\n".join(kept.ended.stderr for kept in both)
    pitfall, fix = (read_results(kept.directory) for kept in both)
    assert min(len(pitfall), len(fix)) >= 2  # how many steps are recorded and timed depends on how long they take
    for first, second in zip(pitfall, fix, strict=False):
        assert first.shape == second.shape
        if scenario.effect == ANOTHER_RESULT:
            assert not np.allclose(first, second, rtol=1e-3, atol=1e-4)
        else:
            np.testing.assert_allclose(first, second, rtol=1e-3, atol=1e-4, equal_nan=False)
