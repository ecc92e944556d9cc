"""What a shell offers as completion, without importing anything heavy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from profkit.cli import group
from profkit.cli._targets import RULE_GROUP, rule_names
from profkit.diagnosis.catalogue import list_scenarios
from profkit.rules import GROUP, all_rules

RULES = sorted(all_rules())
SCENARIOS = [scenario.name for scenario in list_scenarios()]


def offered(*words: str) -> list[str]:
    """The completions of the last word."""
    *before, incomplete = words
    found = ShellComplete(group, {}, "profkit", "_PROFKIT_COMPLETE").get_completions(before, incomplete)
    return [item.value if item.type == "plain" else f"<{item.type}>" for item in found]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_names_offered_are_those_of_the_rules_without_importing_them() -> None:
    assert rule_names() == RULES
    assert RULE_GROUP == GROUP


def test_options_that_take_a_rule_offer_rules() -> None:
    assert offered("explain", "") == RULES
    wanted = [name for name in RULES if name.startswith("re")]
    for words in (("explain",), ("diagnose", "--select"), ("diagnose", "a.py", "--ignore")):
        assert offered(*words, "re") == wanted


def test_commands_that_run_scenarios_offer_them() -> None:
    assert offered("verify", "") == SCENARIOS
    assert offered("verify", "loss-list", "cat-in-") == ["cat-in-loop"]
    assert offered("diagnose", "loss-l") == offered("record", "loss-l") == ["loss-list"]


def test_runs_and_files_are_offered_beside_scenarios(folder: Path) -> None:
    for name in ("cat.py", "cat.json.gz", "cat.txt", "cat\nx.py"):
        (folder / name).touch()
    run = folder / "traces" / "train" / "20260102-030405"
    run.mkdir(parents=True)
    (run / "run.json").touch()
    assert offered("diagnose", "cat") == ["cat-in-loop", "cat.json.gz", "cat.py"]
    assert offered("diagnose", "tra") == ["traces/train/20260102-030405"]
    assert offered("compare", "") == offered("compare", "a", "tr") == ["traces/train/20260102-030405"]


@pytest.mark.parametrize("words", [("diagnose", "no/such"), ("compare", "x"), ("compare", "x", "/tmp/")])
def test_an_unknown_beginning_is_completed_as_a_path(words: tuple[str, ...]) -> None:
    assert offered(*words) == ["<file>"]


@pytest.mark.parametrize("words", ["profkit diagnose lo", "profkit explain lau", "profkit diagnose --select lau"])
def test_completion_imports_neither_torch_nor_numpy(words: str) -> None:
    code = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from profkit.cli import main; main()"
    )
    asked = {"_PROFKIT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    root = str(Path(__file__).parents[2])
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **asked, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout.startswith("plain,l")
    assert {"torch", "numpy", "msgspec", "tensorboard", "profkit.rules"}.isdisjoint(result.stderr.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_with_the_documented_script(folder: Path) -> None:
    shim = folder / "profkit"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m profkit "$@"\n')
    shim.chmod(0o755)
    script = (
        'eval "$(_PROFKIT_COMPLETE=bash_source profkit)"\n'
        "COMP_WORDS=(profkit diagnose loss-l) COMP_CWORD=2\n"
        '_profkit_completion profkit\necho "${COMPREPLY[@]}"'
    )
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    root = str(Path(__file__).parents[2])
    result = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "PATH": path, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout == "loss-list\n", result.stderr
