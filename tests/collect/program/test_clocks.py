"""The program's clocks are not profkit's."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from pathlib import Path

import pytest

import profkit.collect
from profkit.collect.program import clocks

_COLLECT = Path(str(profkit.collect.__file__)).parent
_PROCESSES_OF_THEIR_OWN = ("planning/process.py", "experiments/process.py", "launch/trial.py")
_FILES = sorted(path.relative_to(_COLLECT).as_posix() for path in _COLLECT.rglob("*.py"))


def test_replaced_clocks_do_not_reach_profkit(monkeypatch):
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    assert (time.monotonic(), clocks.time.monotonic() > 0) == (0.0, True)


def test_they_are_loaded_before_the_program():
    code = "import sys, profkit.collect.launch.script; print('profkit.collect.program.clocks' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"


@pytest.mark.parametrize("name", [name for name in _FILES if name not in _PROCESSES_OF_THEIR_OWN])
def test_nobody_in_the_program_imports_the_standard_one(name):
    tree = ast.parse((_COLLECT / name).read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert ("time" in imported) is (name == "program/clocks.py")
