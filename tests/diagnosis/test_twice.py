"""The first tensor whose bits differ between two runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.diagnosis.twice import FirstDifference, RunFailed, Seen, Twice, compare_runs, run_twice
from profkit.report.trials.twice import render_twice

RUN: list[Seen] = [
    (0, "parameter at the start", "weight", "a"),
    (0, "input", "Net", "b"),
    (0, "output", "Net", "c"),
    (0, "gradient", "weight", "d"),
    (0, "gradient", "bias", "e"),
    (0, "parameter", "weight", "f"),
    (1, "input", "Net", "g"),
]


def changed(*places: int) -> list[Seen]:
    return [(*seen[:3], "other") if at in places else seen for at, seen in enumerate(RUN)]


def test_equal_runs_have_no_difference():
    assert compare_runs(RUN, list(RUN)) == Twice(7, 1)
    assert render_twice(compare_runs(RUN, RUN)) == "The same bits in both runs: 7 tensors of 1 step were compared."


@pytest.mark.parametrize(
    ("places", "first", "words"),
    [
        ((0, 2, 5), FirstDifference(0, "parameter at the start", "weight"), "The model begins differently."),
        ((1, 2), FirstDifference(0, "input", "Net"), "The data differ"),
        ((2, 3), FirstDifference(0, "output", "Net"), "The same input gives another output."),
        ((3, 4, 5), FirstDifference(0, "gradient", "weight", 1), "gradient weight and 1 other of its kind."),
        ((5,), FirstDifference(0, "parameter", "weight"), "The gradients are the same"),
        ((6,), FirstDifference(1, "input", "Net"), "differ first in step 1: input Net."),
    ],
)
def test_the_first_difference_names_step_and_tensor(places, first, words):
    found = compare_runs(RUN, changed(*places))
    assert found.first == first
    assert words in render_twice(found)


@pytest.mark.parametrize("other", [RUN[:-1], [*RUN[:6], (1, "output", "Net", "g")], [*RUN, (1, "output", "Net", "h")]])
def test_runs_that_do_different_things_are_told_so(other):
    found = compare_runs(RUN, other)
    assert found.first == FirstDifference(1, "", "")
    assert "from step 1 on: they compute different things" in render_twice(found)


def test_a_program_without_tensors_cannot_be_judged():
    assert render_twice(compare_runs([], [])).startswith("Cannot judge")


PROGRAM = """
import sys
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    if step == 2 and len(sys.argv) > 1:
        torch.seed()
    loss = model(torch.randn(3, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
open("written", "x")
"""


@pytest.mark.slow
def test_a_script_runs_twice_in_copies_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    script = Path("train.py")
    assert run_twice(script, (), 300).first is None
    assert run_twice(script, ("unseeded",), 300).first == FirstDifference(2, "input", "Linear")
    assert not (tmp_path / "written").exists()
    script.write_text("raise ValueError('broken')")
    with pytest.raises(RunFailed, match="ended with status 1: ValueError: broken"):
        run_twice(script, (), 300)


def test_a_conjugate_view_has_bits_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """PyTorch refuses to read it as bytes, and the program would fail in profkit's hook."""
    (tmp_path / "run.py").write_text("import torch\ntorch.nn.Identity()(torch.ones(3, dtype=torch.complex64).conj())\n")
    monkeypatch.chdir(tmp_path)
    assert run_twice(Path("run.py"), (), 300) == Twice(2, 0)
