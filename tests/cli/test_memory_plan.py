"""``profkit memory-plan``: its arguments, its output, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from profkit.cli.memory_plan import parse_input, parse_size
from profkit.core.errors import UsageError
from profkit.memory_planner.plan import InputSpec
from tests.forks import Ended, Forks

MODELS = """
import sys
import torch
from torch import nn

def linear():
    return nn.Linear(1000, 1000), lambda samples: torch.zeros(samples, 1000)

class Reads(nn.Linear):
    def forward(self, data):
        result = super().forward(data)
        if result.sum().item() > 0:
            return result * 2
        return result

def reads():
    return Reads(4, 4), torch.zeros(1, 4)

def fails():
    raise ValueError("no weights here")

def leaves():
    sys.exit("gone")

def prints():
    print("made a model")
    return linear()

def dropout():
    return nn.Sequential(nn.Linear(1000, 1000, bias=False), nn.Dropout(0.5)), torch.zeros(1, 1000)

ready = nn.Linear(2, 2)
number = 3
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    (tmp_path / "models.py").write_text(MODELS, encoding="utf-8")
    return tmp_path


@pytest.fixture
def plan_alone(models: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``profkit memory-plan ARGUMENTS`` as a user calls it."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "profkit", "memory-plan", *arguments]
        return subprocess.run(command, cwd=models, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def plan(models: Path, forks: Forks) -> Callable[..., Ended]:
    """The same in a process that has imported PyTorch and makes the plan, too."""
    return lambda *arguments: forks.run("tests.cli.planning:main", ["memory-plan", *arguments], models)


def test_a_plan_as_text(plan_alone):
    """4,004,000 bytes of parameters: the peak is four times that and the inputs, in the optimizer's step."""
    options = ("--device", "cpu", "--optimizer", "adamw-foreach", "--fits", "30MB")
    result = plan_alone("models.py:linear", "--batch", "8", *options)
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "Linear at batch 8: 20.1 MB at the peak, in the optimizer step"
    assert lines[1] == "1,001,000 parameters; adamw-foreach; all in float32"
    assert "optimizer state    8.01 MB     40 %" in lines
    assert any(line.startswith("The largest batch that fits into 30.0 MB is ") for line in lines)
    assert any(line.startswith("8-bit optimizer state * ~") and line.endswith("yes") for line in lines)
    assert max(map(len, lines)) <= 80


def test_output_of_the_factory_is_not_part_of_the_plan(plan_alone):
    result = plan_alone("models.py:prints", "--batch", "8", "--device", "cpu", "--peak-only", "--format", "json")
    assert json.loads(result.stdout)["model"] == "Linear"
    assert result.stderr == "made a model\n"


def test_a_plan_as_json_for_a_gpu(plan_alone):
    """A mask of a byte for each of 4,096,000 elements is kept, and the loss in a block of 512; cuBLAS has a workspace
    for each of two threads."""
    result = plan_alone("models:dropout", "--batch", "4096", "--format", "json", "--optimizer", "sgd", "--peak-only")
    assert result.returncode == 0, result.stderr
    read = json.loads(result.stdout)
    assert read["schema"] == "profkit.memory-plan/1"
    assert read["usage"]["by_category"]["workspace"] == 2 * 8_519_680 + (1 << 20)
    assert read["usage"]["by_category"]["activations"] == 4_096_000 + 512
    assert read["changes"] == []
    assert read["usage"]["reserved_bytes"] % (2 << 20) == 0


def test_a_model_too_large_for_one_sample_is_reported(plan):
    result = plan("models.py:linear", "--batch", "4", "--device", "cpu", "--fits", "16MB")
    assert "Not even one sample fits into 16.0 MB." in result.stdout
    assert "- checkpointing: not planned: the model has no repeated blocks in a" in result.stdout
    assert result.returncode == 0


@pytest.mark.parametrize(
    ("target", "options", "words"),
    [
        ("nosuch.module:Model", (), "nosuch.module: there is no module 'nosuch'"),
        ("nosuch.py:Model", (), "nosuch.py: there is no such file"),
        ("models.py:Nothing", (), "models.py:Nothing: models.py has no 'Nothing'"),
        ("models.py", (), "models.py: give module:factory or file.py:factory"),
        ("models.py:ready", (), "this model exists already, with its memory"),
        ("models.py:number", (), "not a function or a class, but of type int"),
        ("models.py:linear", ("--optimizer", "nosuch"), "--optimizer nosuch: choose from adadelta"),
        ("models.py:linear", ("--fits", "much"), "--fits much: give a size such as 24GB"),
        ("models.py:linear", ("--input", "3by3"), "--input 3by3: give the shape of one sample"),
        ("models.py:reads", (), "models.py:12 in forward needs the values of a tensor (aten._local_scalar_dense"),
    ],
)
def test_a_plan_that_cannot_be_made_gives_one_line(plan, target, options, words):
    result = plan(target, "--batch", "2", "--peak-only", *options)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("profkit: ")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("target", "words"), [("models.py:fails", "ValueError: no weights here"), ("models.py:leaves", "SystemExit: gone")]
)
def test_a_factory_that_fails_shows_its_own_traceback(plan, target, words):
    result = plan(target, "--batch", "2")
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr.startswith("Traceback (most recent call last):\n  File ")
    assert words in result.stderr
    assert result.stderr.splitlines()[1].split('"')[1].endswith("models.py")
    assert result.stderr.endswith(f"profkit: {target}: the program itself failed\n")


def test_a_batch_without_samples_is_refused(plan):
    assert plan("models.py:linear", "--batch", "0").returncode == 2


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("3x224x224", InputSpec((3, 224, 224))),
        ("1024:int64", InputSpec((1024,), dtype="int64")),
        ("ids=16:int32", InputSpec((16,), dtype="int32", name="ids")),
        ("100xBx32", InputSpec((100, 32), 1)),
        ("B", InputSpec(())),
        ("mask=B:bool", InputSpec((), dtype="bool", name="mask")),
    ],
)
def test_inputs(text, spec):
    assert parse_input(text) == spec


@pytest.mark.parametrize("text", ["", "3x", "x3", "3xBxB", "0x3", "3:complex", "3:", "a b=3", "-3", "3x-1"])
def test_inputs_that_are_refused(text):
    with pytest.raises(UsageError, match="--input"):
        parse_input(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("24GB", 24_000_000_000), ("80GiB", 80 << 30), ("500 MB", 500_000_000), ("1.5g", 1_500_000_000), ("1000", 1000)],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1GB", "24XB", "GB", "nan"])
def test_sizes_that_are_refused(text):
    with pytest.raises(UsageError, match="--fits"):
        parse_size(text)
