"""What is said of packages around PyTorch is right, on packages of two lines and a torch of none."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace

import pytest

from profkit.run.directory import PROFKIT_FAILED
from tests.beside.packages import environments, packages, running
from tests.beside.packages.packages import PACKAGES, Package
from tests.beside.packages.running import Reach, Row, first_difference, run
from tests.beside.packages.table import render, render_reach, render_sums

TRAINING = """
import thing
import torch

layer = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(layer.parameters(), 0.0)
for _ in range(60):
    layer(torch.ones(2, 4)).sum().backward()
    optimizer.step()
print("done")
"""


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_each_program_imports_its_package_before_torch(package):
    imported = []
    for statement in ast.parse(package.program.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.ImportFrom):
            imported.append((statement.module or "").split(".")[0])
        elif isinstance(statement, ast.Import):
            imported += [alias.name.split(".")[0] for alias in statement.names]
    assert package.imported in imported
    assert "torch" not in imported[: imported.index(package.imported)]


def test_each_program_belongs_to_a_package():
    assert {package.program for package in PACKAGES} == set(packages.PROGRAMS.glob("*.py"))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", Reach()),
        ("import torch", Reach(plainly=True)),
        ("import importlib.util\nimportlib.util.find_spec('torch')", Reach(questions=("thing",))),
        (
            "import importlib.util\nimportlib.util.find_spec('torch')\nimport torch",
            Reach(plainly=True, questions=("thing",)),
        ),
        ("def __getattr__(name):\n    import torch\n    return 1", Reach(lazily="from thing import part")),
    ],
    ids=["not at all", "plain import", "question", "question and import", "lazy"],
)
def test_how_torch_comes_in_is_found_out(monkeypatch, tmp_path, source, expected):
    (tmp_path / "thing.py").write_text(source + "\npart = 1\n" * ("__getattr__" not in source))
    (tmp_path / "torch.py").write_text("")
    (tmp_path / "with_thing.py").write_text("from thing import part\nimport torch\nraise SystemExit(1)\n")
    monkeypatch.setattr(packages, "PROGRAMS", tmp_path)
    monkeypatch.setattr(running, "_CHECKOUT", tmp_path)
    assert running._reach(Package("thing", "thing"), sys.executable, tmp_path) == expected


def test_how_torch_comes_in_is_said():
    assert render_reach(Reach()) == "not at all"
    assert render_reach(Reach(plainly=True)) == "plain import"
    assert render_reach(Reach(questions=("a.b",))) == "asks `find_spec` (a.b), then not at all"
    assert render_reach(Reach(lazily="import a", questions=("a",))) == "asks `find_spec` (a), then lazy: `import a`"


def test_more_and_less_output_differ():
    assert first_difference("1\n2\n", "1\n2\n") == ""
    assert first_difference("1\n2\n", "1\n") == "line 2: '2' became '(nothing)'"
    assert first_difference("1\n", "1\n2\n") == "line 2: '(nothing)' became '2'"


def test_speeds_and_times_that_packages_print_are_no_difference_and_losses_are():
    assert first_difference("2026-01-01 00:00:00,000 begun", "2027-02-03 11:22:33,444 begun") == ""
    assert first_difference("2026-01-01 00:00:00,000 begun", "2026-01-01 00:00:00,000 ended") != ""
    known = "{{'train_runtime': '{}', 'train_steps_per_second': '{}', 'train_loss': '{}'}}"
    assert first_difference(known.format(1, 2, 3), known.format(4, 5, 3)) == ""
    assert first_difference(known.format(1, 2, 3), known.format(1, 2, 4)) != ""


def test_what_is_wrong_stands_out():
    package = Package("a|b", "a")
    right = Row(package, "1", statuses=(0, 0), is_recorded=True, signal="optimizer", measured=4)
    wrong = Row(package, "1", statuses=(0, 1), difference="line 1", signal="backward", measured=1)
    absent = Row(package, absent="no wheel")
    given_up = replace(right, notes=(f"{PROFKIT_FAILED}ImportError",))
    assert [row.is_right for row in (right, wrong, absent, given_up)] == [True, False, False, False]
    page = render([right, wrong, absent], "torch 0")
    assert r"| a\|b 1 | not at all | yes | optimizer, 4, 0 | same, status 0 |" in page
    assert "| NO | backward, 1, 0 (EXPECTED optimizer) | OUTPUT DIFFERS, line 1, STATUS 0 BECAME 1 |" in page
    assert r"| a\|b | does not run here: no wheel |" in page
    assert render_sums([right, wrong, absent]).startswith("2 of 3 packages run here. Of these, 1 are recorded, 1 with")


def test_the_reason_why_pip_fails_is_its_error():
    assert environments._reason("Looking up\n  ERROR: No wheel\n  note: it is not pip\n") == "ERROR: No wheel"


@pytest.mark.slow
def test_a_program_runs_bare_and_recorded(monkeypatch, tmp_path):
    (tmp_path / "with_thing.py").write_text(TRAINING)
    (tmp_path / "with_failing.py").write_text("raise ValueError('not here')")
    monkeypatch.setattr(packages, "PROGRAMS", tmp_path)
    thing = tmp_path / "thing.py"
    thing.write_text("import importlib.util\nimportlib.util.find_spec('torch')\n")
    row = run(Package("thing", "thing"), sys.executable, "1", tmp_path / "work" / "thing")
    assert row.is_right, row
    assert row.reach == Reach(questions=("thing",))
    absent = run(Package("failing", "failing"), sys.executable, "1", tmp_path / "work" / "failing")
    assert absent.absent == "its program fails bare: ValueError: not here"
    assert not absent.is_right
