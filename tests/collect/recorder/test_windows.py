"""Windows that SIGUSR1 requests: when they begin, where they go, and that the program's own handlers come first."""

from __future__ import annotations

import _signal
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, TensorDataset

from profkit.collect.boundaries.next_boundary import NextBoundary, calls_hooks
from profkit.collect.launch.parent import _catches
from profkit.collect.recorder.profiler import profile
from profkit.collect.recorder.windows import WindowRequests, window_directory
from profkit.run.directory import load_run
from profkit.run.plan import Plan
from tests.collect.reading import read_events, steps_of
from tests.end_to_end.running import diagnose_forked

WHOLE = 50
"""Steps until nothing of profkit is left: one prologue, 3 timed, 5 recorded, 30 more timed, and some."""


@pytest.fixture(autouse=True)
def no_handler_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    yield
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


@contextmanager
def handled_by(handler: Any) -> Iterator[None]:
    signal.signal(signal.SIGUSR1, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)


class Training:
    def __init__(self) -> None:
        self.model = nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def run(self, steps: int, recording: profile | None = None) -> None:
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.model(torch.ones(4, 8)).sum().backward()
            self.optimizer.step()
            if recording is not None:
                recording.step()


def ask() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)


def test_each_signal_leaves_a_run_directory_of_its_own(tmp_path):
    training = Training()
    with profile(tmp_path / "run", wait=1, active=2) as recording:
        for _ in range(3):
            training.run(WHOLE)
            assert recording.is_over
            ask()
        training.run(WHOLE)
    names = ["run", "run-window2", "run-window3", "run-window4"]
    assert [path.name for path in recording.directories] == names
    for number, path in enumerate(recording.directories, 1):
        run = load_run(path)
        assert (run.window, run.step_signal, run.notes) == (number, "optimizer", ())
        assert sorted(steps_of(read_events(path))) == [0, 2, 3]
    assert load_run(recording.directory).windows == tuple(names[1:])


def test_a_window_begins_only_at_the_end_of_a_step(tmp_path):
    training = Training()
    with profile(tmp_path / "run", wait=0, warmup=0, active=1) as recording:
        training.run(WHOLE)
        ask()
        assert len(optimizers._global_optimizer_post_hooks) == 1
        torch.rand(3) * 2
        assert recording.is_over
        training.run(1)
        assert not recording.is_over
        training.run(1)
    names = [event["name"] for event in read_events(tmp_path / "run-window2")]
    assert "aten::mul" not in names
    assert names.count("aten::addmm") == 1


def test_a_signal_amid_a_recording_waits_for_its_end(tmp_path):
    training = Training()
    with profile(tmp_path / "run", wait=1, active=1) as recording:
        training.run(4)
        ask()
        ask()
        assert not recording.is_over
        training.run(2 * WHOLE)
    assert [path.name for path in recording.directories] == ["run", "run-window2"]


def test_explicit_steps_end_the_steps_of_windows_too(tmp_path):
    training = Training()
    with profile(tmp_path / "run", wait=1, active=1) as recording:
        training.run(WHOLE, recording)
        ask()
        training.run(WHOLE, recording)
    assert [load_run(path).step_signal for path in recording.directories] == ["step()", "step()"]


def test_a_window_keeps_the_signal_of_the_steps_before(tmp_path):
    loader = DataLoader(TensorDataset(torch.rand(WHOLE, 8)))
    with profile(tmp_path / "run", wait=1, active=1, steps_from="dataloader") as recording:
        list(loader)
        ask()
        list(loader)
    assert [load_run(path).step_signal for path in recording.directories] == ["dataloader", "dataloader"]


def test_a_window_requested_inside_an_optimizer_hook_waits(tmp_path):
    """PyTorch iterates over a dict of hooks that must not change meanwhile."""
    training = Training()
    training.optimizer.register_step_post_hook(lambda *_: ask() if asking else None)
    asking = False
    with profile(tmp_path / "run", wait=0, warmup=0, active=1) as recording:
        training.run(WHOLE)
        asking = True
        training.run(1)
        asking = False
        training.run(2)
    assert len(recording.directories) == 2
    assert not optimizers._global_optimizer_post_hooks


@pytest.mark.parametrize("kind", [torch.optim.LBFGS, torch.optim.SGD])
def test_a_closure_of_the_optimizer_is_no_hook(kind):
    """It may run for minutes, in which requests would be delayed again and again."""
    model, seen = nn.Linear(8, 1), dict[str, bool]()
    optimizer = kind(model.parameters(), lr=0.1)

    def closure() -> torch.Tensor:
        seen["closure"] = calls_hooks(sys._getframe())
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8)).sum()
        loss.backward()
        return loss

    optimizer.register_step_pre_hook(lambda *_: seen.update(before=calls_hooks(sys._getframe())))
    optimizer.register_step_post_hook(lambda *_: seen.update(after=calls_hooks(sys._getframe())))
    optimizer.step(closure)
    assert seen == {"before": True, "closure": False, "after": True}
    assert not calls_hooks(sys._getframe())


def test_a_window_that_never_saw_a_step_leaves_nothing(tmp_path):
    with profile(tmp_path / "run", wait=0, warmup=0, active=1) as recording:
        Training().run(WHOLE)
        ask()
    assert recording.directories == (tmp_path / "run",)
    assert not optimizers._global_optimizer_post_hooks


def test_the_programs_own_handler_stays(tmp_path):
    caught: list[int] = []
    with handled_by(lambda number, frame: caught.append(number)):
        with profile(tmp_path / "run", wait=0, warmup=0, active=1) as recording:
            Training().run(WHOLE)
            ask()
            Training().run(WHOLE)
    assert (caught, len(recording.directories)) == ([signal.SIGUSR1], 1)


def test_a_handler_that_the_program_sets_later_stays(tmp_path):
    def own(number: int, frame: FrameType | None) -> None:
        return None

    try:
        with profile(tmp_path / "run"):
            assert _signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL
            assert signal.signal(signal.SIGUSR1, own) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGUSR1) is own
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which signals have a handler")
def test_a_handler_in_c_stays(tmp_path):
    with (tmp_path / "stacks").open("w+") as stacks:
        faulthandler.register(signal.SIGUSR1, stacks)
        try:
            with profile(tmp_path / "run"):
                ask()
            stacks.seek(0)
            assert "test_windows.py" in stacks.read()
        finally:
            faulthandler.unregister(signal.SIGUSR1)


def test_an_ignored_signal_stays_ignored(tmp_path):
    with handled_by(signal.SIG_IGN), profile(tmp_path / "run"):
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN


def test_under_slurm_the_signal_is_left_to_the_scheduler(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    with profile(tmp_path / "run"):
        assert _signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL


def test_on_another_thread_no_handler_is_set(tmp_path):
    seen = []

    def record() -> None:
        with profile(tmp_path / "run"):
            seen.append(_signal.getsignal(signal.SIGUSR1))

    thread = threading.Thread(target=record)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]


def test_the_handler_only_remembers_the_request():
    begun: list[str] = []
    following = NextBoundary(lambda action: action(), lambda: True, begun.append)
    WindowRequests(following)._on_signal(signal.SIGUSR1, None)
    assert (following.is_wanted, following._signals, begun) == (True, None, [])


def test_a_child_process_has_the_default_handler(tmp_path):
    with profile(tmp_path / "run"):
        child = os.fork()
        if child == 0:
            os._exit(0 if _signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_an_existing_directory_is_not_used(tmp_path):
    (tmp_path / "run-window2").mkdir()
    assert window_directory(tmp_path / "run", 2) == tmp_path / "run-window2-2"


def test_the_plan_of_a_window_begins_at_once_and_keeps_the_signal():
    plan = Plan(wait=5, at_step=900).for_window(3, "step()")
    assert (plan.prologue, plan.chosen_signal, plan.at_step, plan.window, plan.wait) == (False, "step()", 0, 3, 5)


PROGRAM = """\
import os, signal, torch
parameter = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([parameter], lr=0.1)
arrived, arrives = os.pipe()
os.set_blocking(arrives, False)
signal.set_wakeup_fd(arrives)
for step in range(150):
    optimizer.zero_grad()
    (parameter * 2).sum().backward()
    optimizer.step()
    if step in (50, 100):
        os.kill(os.{process}(), signal.SIGUSR1)
        os.read(arrived, 1)
print(parameter.tolist())
"""


@pytest.mark.slow
@pytest.mark.parametrize("process", ["getpid", "getppid"])
def test_each_window_of_a_program_is_diagnosed(tmp_path, forks, process):
    """The signal may also be sent to profkit, which passes it on."""
    (tmp_path / "program.py").write_text(PROGRAM.format(process=process))
    outcome = diagnose_forked(forks, "program.py", directory=tmp_path)
    assert outcome.status == 0, outcome.stderr
    first = load_run(tmp_path / "run")
    assert first.windows == ("run-window2", "run-window3")
    for name in first.windows:
        assert f"Written to {tmp_path / name}" in outcome.stderr
        assert (tmp_path / name / "diagnosis.json").exists()
        assert load_run(tmp_path / name).exit_status == first.exit_status == 0


def test_a_process_without_a_handler_does_not_catch_the_signal():
    assert not _catches(os.getpid(), signal.SIGUSR1)
    with handled_by(lambda *_: None):
        assert _catches(os.getpid(), signal.SIGUSR1)
