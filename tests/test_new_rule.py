"""A rule needs three new files and no edit elsewhere: one made from the templates works in a copy of the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.new_rule import FILES, Refused, make_rule

ROOT = Path(__file__).parent.parent
NAME = "sorted-for-one"
COPIED = ("profkit", "scenarios", "tests", "traces/recorded", ".mypy_cache", "pyproject.toml", "README.md")
WHAT_NAMES_ALL_RULES = (
    "tests/rules/test_sorted_for_one.py",
    "tests/scenarios/test_scenario_format.py",
    "tests/scenarios/test_programs.py",
    "tests/test_imports.py",
    "tests/test_house_style.py",
    "tests/diagnosis/test_judge.py",
    "tests/cli/test_commands.py::test_rules_lists_every_rule_with_its_summary",
    f"tests/cli/test_commands.py::test_explain_shows_a_page_with_all_its_headings_in_order[{NAME}]",
)


UNLIKE = ("--device", "cpu", "--format", "json", "--ignore", "needless-sort")
"""What the template's rule looks for is of the kind that this rule finds, too."""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout with a new rule in it."""
    copy = tmp_path_factory.mktemp("checkout")
    leave_out = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        if (ROOT / name).is_dir():  # pytest's compiled tests would name the files they were made of, Python's do not
            shutil.copytree(ROOT / name, copy / name, ignore=leave_out if name == "tests" else None)
        elif (ROOT / name).exists():
            shutil.copy2(ROOT / name, copy / name)
    make_rule(NAME, copy)
    return copy


def run(checkout: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_rule_is_listed(checkout: Path) -> None:
    assert NAME in run(checkout, "profkit", "rules").split()


@pytest.mark.slow
def test_the_tests_of_all_rules_pass_with_the_new_rule(checkout: Path) -> None:
    run(checkout, "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *WHAT_NAMES_ALL_RULES)


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "found"), [("pitfall", [NAME]), ("fix", [])])
def test_the_new_rule_finds_its_pitfall_and_not_the_fix(checkout: Path, variant: str, found: list[str]) -> None:
    shown = run(checkout, "profkit", "diagnose", NAME, "--variant", variant, *UNLIKE)
    faults = [one for one in json.loads(shown)["findings"] if one["kind"] == "fault" and one["severity"] != "info"]
    assert [one["rule"] for one in faults] == found


@pytest.mark.slow
@pytest.mark.parametrize("check", [("ruff", "check"), ("mypy",)], ids=lambda one: one[0])
def test_the_static_checks_pass(checkout: Path, check: tuple[str, ...]) -> None:
    if find_spec(check[0]) is None:
        pytest.skip(f"{check[0]} is not installed")
    made = [path.format(NAME.replace("-", "_")) for path in FILES.values()]
    run(checkout, *check, *(made if check[0] == "ruff" else made[:1]))


@pytest.mark.parametrize("name", ["Sorted-For-One", "sorted", "sorted_for_one", "../sorted-for-one", "sorted-"])
def test_an_invalid_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Refused, match="no name for a rule"):
        make_rule(name, tmp_path)


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    scenario = tmp_path / "scenarios" / "sorted_for_one.py"
    scenario.parent.mkdir()
    scenario.write_text("mine")
    with pytest.raises(Refused, match="exists"):
        make_rule(NAME, tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [scenario]
    assert scenario.read_text() == "mine"
