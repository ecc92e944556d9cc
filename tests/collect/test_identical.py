"""A program's output, exit status and results with and without profkit, to the last bit: every way a program can end,
what it reads from stdin, and the context manager in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from profkit.run import load_run
from tests.forks import ROOT, Forks

pytestmark = pytest.mark.slow

TRAINING = """\
import os, sys
import numpy, random
import torch

random.seed(0), numpy.random.seed(0), torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters())


def train(steps):
    for step in range(steps):
        optimizer.zero_grad()
        noise = random.random() + numpy.random.rand()
        loss = (model(torch.rand(8, 16)) * noise).square().mean()
        loss.backward()
        optimizer.step()
        print(step, loss.item().hex())
    state = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    print(state.numpy().tobytes().hex(), torch.rand(1).item().hex(), random.random().hex())


"""
ENDS = {
    "nothing": "",
    "exit": "sys.exit()",
    "none": "sys.exit(None)",
    "status": "sys.exit(7)",
    "true": "sys.exit(True)",
    "large": "sys.exit(256 + 3)",
    "negative": "sys.exit(-1)",
    "text": "sys.exit('a last word')",
    "thing": "sys.exit(('a', 1))",
    "raised": "raise SystemExit(5)",
    "error": "raise KeyError('lost')",
    "chain": "try:\n    {}['a']\nexcept KeyError as error:\n    raise ValueError('worse') from error",
    "recursion": "def fall():\n    fall()\n\nfall()",
    "own hook": "sys.excepthook = lambda kind, *_: print('seen', kind.__name__)\n1 / 0",
    "atexit": "import atexit\natexit.register(print, 'last')\nsys.exit(2)",
    "thread": "import threading\nthread = threading.Thread(target=lambda: sys.exit(4))\nthread.start()\nthread.join()",
    "closed": "sys.stdout.close()\nsys.exit(1)",
    "immediate": "sys.stdout.flush()\nos._exit(6)",
    "stdin": "print(input('? '), sys.stdin.read().upper(), sys.stdin.isatty())\ninput()",
}
REAL = ("text", "chain", "recursion", "own hook", "atexit", "thread", "closed", "immediate", "stdin")
"""Those that a process of its own is needed for; the others differ in the status alone."""
STDIN = "a line\nanother\n"
STEPS = 50
"""The recording is whole, and nothing of profkit's is left in the program."""


def run(directory: Path, *command: str) -> tuple[int, bytes, bytes]:
    line = [sys.executable, *command]
    result = subprocess.run(
        line, cwd=directory, input=STDIN.encode(), capture_output=True, check=False, timeout=120
    )
    return result.returncode, result.stdout, result.stderr


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for programs: modules and scripts alike."""
    return tmp_path_factory.mktemp("programs")


def under_profkit(directory: Path, name: str, *target: str) -> tuple[int, bytes, bytes]:
    output = directory / f"run-{name}"
    output.mkdir()
    return run(directory, "-m", "profkit.collect.launch.script", f"--directory={output}", *target)


@pytest.mark.parametrize("end", REAL)
def test_a_script_ends_as_it_would_and_has_the_same_results(recorded: Path, end: str) -> None:
    name = end.replace(" ", "_")
    program = recorded / f"script_{name}.py"
    program.write_text(TRAINING + f"train({STEPS})\n" + ENDS[end] + "\n")
    plain = run(recorded, program.name)
    assert under_profkit(recorded, f"script-{name}", "--", program.name) == plain
    assert plain[1].count(b"0x") >= STEPS
    assert list((recorded / f"run-script-{name}").glob("*.pt.trace.json.gz"))


@pytest.mark.parametrize("end", [end for end in ENDS if end not in REAL])
def test_every_status_is_the_programs_own(tmp_path: Path, forks: Forks, end: str) -> None:
    (tmp_path / "program.py").write_text(TRAINING + f"train({STEPS})\n" + ENDS[end] + "\n")
    plain = forks.run("tests.forks:run_script", ["program.py"], tmp_path)
    (tmp_path / "run").mkdir()
    recorded = forks.run("profkit.collect.launch.script:main", ["--directory=run", "--", "program.py"], tmp_path)
    assert (recorded.returncode, recorded.stdout) == (plain.returncode, plain.stdout)
    assert load_run(tmp_path / "run").exit_status == plain.returncode


@pytest.mark.parametrize("end", ["recursion", "stdin"])
def test_a_module_ends_as_it_would_and_has_the_same_results(recorded: Path, end: str) -> None:
    package = recorded / f"package_{end}"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "train.py").write_text(TRAINING + f"train({STEPS})\n" + ENDS[end] + "\n")
    module = f"package_{end}.train"
    assert under_profkit(recorded, f"module-{end}", "--module", "--", module) == run(recorded, "-m", module)


AROUND = """\
import contextlib, profkit
with (profkit.profile({directory!r}) if {is_on} else contextlib.nullcontext()) as recording:
    try:
        train({steps})
    finally:
        print("leaving")
    {end}
print("left")
"""
INSIDE = {
    "nothing": "pass",
    "status": "sys.exit(7)",
    "error": "raise KeyError('lost')",
    "stop": "raise StopIteration",
    "interrupt": "raise KeyboardInterrupt",
    "more": "train(2)",
}


@pytest.mark.parametrize("steps", [0, 6, STEPS])
@pytest.mark.parametrize("end", INSIDE)
def test_inside_the_context_manager_all_is_as_outside(tmp_path: Path, forks: Forks, end: str, steps: int) -> None:
    def write(is_on: bool) -> None:
        around = AROUND.format(directory=str(tmp_path / "run"), is_on=is_on, steps=steps, end=INSIDE[end])
        (tmp_path / "program.py").write_text(f"import sys\nsys.path.append({str(ROOT)!r})\n" + TRAINING + around)

    write(is_on=False)
    plain = forks.run("tests.forks:run_script", ["program.py"], tmp_path)
    write(is_on=True)
    recorded = forks.run("tests.forks:run_script", ["program.py"], tmp_path)
    assert (recorded.returncode, recorded.stdout) == (plain.returncode, plain.stdout)
    assert recorded.stderr == plain.stderr.replace("if False", "if True")
    assert (tmp_path / "run" / "run.json").exists()
