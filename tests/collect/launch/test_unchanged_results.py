"""A program's output, exit status and results are the same with and without profkit, to the last bit: for every way in
which a program can end, with input, and with the context manager."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from profkit.run.directory import load_run
from tests.forks import ROOT
from tests.recordings import Kept, Recordings

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
IMPORTING = "import sys\nfrom training import train\n\n"
STUB = """\
def train(steps):
    print({said!r}, end="")
"""
"""Prints what the real training prints, without PyTorch."""
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
"""These need a process of their own; the others differ only in the status."""
STDIN = "a line\nanother\n"
STEPS = 50
"""Enough for a complete recording and for steps after it."""
RECORDED = ("-m", "profkit.collect.launch.entry", "--directory=run")


def ends_the_same(recordings: Recordings, how: Sequence[str], target: Sequence[str], program: str, end: str) -> None:
    """With ``python HOW`` and under profkit. The plain run needs no PyTorch: a stub prints what the training printed
    once."""
    files = {"package/__init__.py": "", program: f"{IMPORTING}train({STEPS})\n{ENDS[end]}\n"}
    trained = recordings.start(["-c", f"{IMPORTING}train({STEPS})"], writes={"training.py": TRAINING}).ended
    assert trained.stdout.count("0x") >= STEPS
    stub = {"training.py": STUB.format(said=trained.stdout)}
    plain = recordings.start(how, writes=files | stub, stdin=STDIN)
    kept = recordings.start(
        [*RECORDED, *target], stdin=STDIN, writes={**files, "training.py": TRAINING, "run/.keep": ""}
    )
    known = plain.ended.stderr.replace(str(plain.directory), str(kept.directory))
    assert kept.ended == replace(plain.ended, stderr=known)
    assert list((kept.directory / "run").glob("*.pt.trace.json.gz"))


@pytest.mark.parametrize("end", REAL)
def test_a_script_ends_the_same_and_has_the_same_results(recordings, end):
    ends_the_same(recordings, ["program.py"], ["--", "program.py"], "program.py", end)


@pytest.mark.parametrize("end", ["recursion", "stdin"])
def test_a_module_ends_the_same_and_has_the_same_results(recordings, end):
    how, target = ["-m", "package.train"], ["--module", "--", "package.train"]
    ends_the_same(recordings, how, target, "package/train.py", end)


@pytest.mark.parametrize("end", [end for end in ENDS if end not in REAL])
def test_every_exit_status_is_the_programs(recordings, end):
    files = {"program.py": f"{TRAINING}train({STEPS})\n{ENDS[end]}\n", "run/.keep": ""}
    plain = recordings.fork("tests.forks:run_script", ["program.py"], writes=files).ended
    kept = recordings.fork("profkit.collect.launch.script:main", ["--directory=run", "--", "program.py"], writes=files)
    assert (kept.ended.returncode, kept.ended.stdout) == (plain.returncode, plain.stdout)
    assert load_run(kept.directory / "run").exit_status == plain.returncode


WATCHING = """\
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

calls, backwards = [], []


class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, given=(), named=None):
        calls.append(function.__name__)
        return function(*given, **(named or {}))


class Operators(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, given=(), named=None):
        calls.append(str(function))
        return function(*given, **(named or {}))


original = torch.Tensor.backward


def backward(self, *given, **named):
    backwards.append(self)
    return original(self, *given, **named)


torch.Tensor.backward = backward
"""
"""A program that counts PyTorch's calls in three ways."""


@pytest.mark.parametrize("modes", ["Functions(), Operators()", "Functions()", "open(os.devnull)"])
def test_what_a_program_sees_of_its_calls_is_the_same(recordings, modes):
    files = {"program.py": f"{TRAINING}{WATCHING}with {modes}:\n    train({STEPS})\nprint(calls, len(backwards))\n"}
    plain = recordings.fork("tests.forks:run_script", ["program.py"], writes=files).ended
    writes = {**files, "run/.keep": ""}
    kept = recordings.fork("profkit.collect.launch.script:main", ["--directory=run", "--", "program.py"], writes=writes)
    assert kept.ended == plain
    assert list((kept.directory / "run").glob("*.pt.trace.json.gz"))


AROUND = """\
import contextlib, profkit
with (profkit.profile("run") if {is_on} else contextlib.nullcontext()) as recording:
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
def test_inside_the_context_manager_everything_is_the_same(recordings, end, steps):
    def run(is_on: bool) -> Kept:
        program = TRAINING + AROUND.format(is_on=is_on, steps=steps, end=INSIDE[end])
        writes = {"program.py": f"import sys\nsys.path.append({str(ROOT)!r})\n{program}"}
        return recordings.fork("tests.forks:run_script", ["program.py"], writes=writes)

    plain, kept = run(is_on=False), run(is_on=True)
    assert (kept.ended.returncode, kept.ended.stdout) == (plain.ended.returncode, plain.ended.stdout)
    there = plain.ended.stderr.replace(str(plain.directory), str(kept.directory))
    assert kept.ended.stderr == there.replace("if False", "if True")
    assert (kept.directory / "run" / "run.json").exists()
