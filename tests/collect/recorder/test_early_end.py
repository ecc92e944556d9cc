"""A program that profkit ends once it is recorded: as by ``sys.exit``, in the program's code, with a known status."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import torch

from profkit.collect.machine import patience
from profkit.collect.recorder.early_end import STOPPED, RecordingComplete, Stopper
from profkit.collect.recorder.profiler import profile
from profkit.run.directory import load_run
from profkit.run.plan import Plan, Subject
from tests.collect.reading import read_events, steps_of
from tests.end_to_end.running import diagnose_forked

OPTION = "--stop-after-recording"
PROGRAM = """\
import atexit, sys, torch
atexit.register(print, "atexit")
parameter = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([parameter], lr=0.1)
done = 0
try:
    while done < {steps}:
        optimizer.zero_grad()
        (parameter * 2).sum().backward()
        optimizer.step()
        done += 1
except Exception:
    print("caught")
finally:
    print("finally", done < 100_000)
print("the end")
{end}
"""


def run_until_ended(plan: Plan, directory: Path, steps: int) -> int:
    """Train under a plan that stops; how many steps passed."""
    parameter = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    done = 0
    with pytest.raises(RecordingComplete) as caught, profile.planned(directory, plan, Subject()):
        for _ in range(steps):
            parameter.grad = torch.ones(4)
            optimizer.step()
            done += 1
    assert caught.value.code == STOPPED
    return done


def test_the_program_ends_once_all_planned_steps_passed(tmp_path):
    done = run_until_ended(Plan(wait=1, active=2, after=1, stops=True), tmp_path, 10_000_000)
    assert done >= 6
    assert sorted(steps_of(read_events(tmp_path))) == [0, 2, 3]


def test_a_program_that_ends_earlier_is_left_alone(tmp_path):
    with profile.planned(tmp_path, Plan(stops=True), Subject()):
        torch.rand(3) * 2


def test_no_thread_is_left():
    stopper = Stopper()
    stopper.cancel()
    stopper.request()
    assert stopper._thread is None
    assert [thread for thread in threading.enumerate() if thread.name == "profkit-stopper"] == []


class AtWork:
    """Its finalizer takes a while; an exception there would be ignored."""

    def __init__(self, stopper: Stopper) -> None:
        self.stopper = stopper

    def __del__(self) -> None:
        self.stopper.request()
        self.was_alive = all([self.stopper._thread is not None, *(len("rounds") for _ in range(200_000))])


def test_nothing_is_raised_in_a_finalizer():
    stopper = Stopper()
    with pytest.raises(RecordingComplete):
        working = AtWork(stopper)
        del working
        while True:
            len("the program's own code")
    stopper.cancel()


def test_a_program_that_waits_for_a_busy_cpu_is_given_longer(monkeypatch):
    looks: list[int] = []

    def wait(_: int) -> int:
        looks.append(1)
        return time.monotonic_ns()

    monkeypatch.setattr(patience, "count_crowded_ns", wait)
    stopper = Stopper()
    stopper.request(0.001)
    while len(looks) < 9:
        len("the program's own code")
    monkeypatch.setattr(patience, "count_crowded_ns", lambda _: looks.clear() or 0)
    with pytest.raises(RecordingComplete):
        while True:
            len("the program's own code")
    stopper.cancel()


@pytest.mark.slow
def test_the_end_of_the_program_is_reported(tmp_path, forks):
    (tmp_path / "program.py").write_text(PROGRAM.format(steps=300_000, end=""))
    outcome = diagnose_forked(forks, OPTION, "program.py", directory=tmp_path)
    assert outcome.status == 0, outcome.stderr
    assert outcome.stdout.startswith("finally True\n")
    assert "caught" not in outcome.stdout
    assert "the end" not in outcome.stdout
    assert "the program was ended once it was recorded, as asked" in outcome.stderr
    run = load_run(tmp_path / "run")
    assert (run.exit_status, run.was_stopped) == (STOPPED, True)
    assert sorted(steps_of(read_events(tmp_path / "run"))) == [2, 4, 5, 6, 7]


ROLLOUT = """\
import torch
policy = torch.nn.Linear(4, 2)
optimizer = {optimizer}
kept = []
for _ in range(20_000):
    kept.append(policy(torch.ones(4)).log_softmax(0)[0])
torch.stack(kept).sum().backward()
if optimizer is not None:
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "found"),
    [("torch.optim.Adam(policy.parameters())", False), ("None", True)],
    ids=["a policy that will learn", "nothing learns"],
)
def test_graphs_kept_for_a_later_optimizer_step_are_no_leak(tmp_path, forks, optimizer, found):
    (tmp_path / "program.py").write_text(ROLLOUT.format(optimizer=optimizer))
    outcome = diagnose_forked(forks, OPTION, "--verbose", "program.py", directory=tmp_path)
    assert outcome.status == 0, outcome.stderr
    run = load_run(tmp_path / "run")
    assert (run.was_stopped, run.step_signal, run.was_outdone) == (found, "forward", not found)
    said = " ".join(outcome.stdout.split())
    assert ("retained-graph at program.py" in said) is found
    assert ("what grows from call to call may end there" in said) is not found


def play_and_learn(directory: Path, games: int, learns: bool) -> str:
    """Calls of the model until they are steps, then games of many calls, with at most one optimizer step each; how the
    program ended."""
    policy = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
    plan = Plan(wait=1, active=2, after=1, steps_from=None, stops=True)
    try:
        with profile.planned(directory, plan, Subject()):
            while not torch.nn.modules.module._global_forward_hooks:
                torch.ones(1).neg()
            for _ in range(games):
                optimizer.zero_grad()
                torch.stack([policy(torch.ones(4)).sum() for _ in range(40)]).sum().backward()
                if learns:
                    optimizer.step()
    except RecordingComplete:
        return "stopped"
    return "ended"


@pytest.mark.usefixtures("calls_are_steps_at_once")
@pytest.mark.parametrize("allowed_s", [5.0, 0.0], ids=["as usual", "the first recording spent all that is allowed"])
def test_a_program_that_plays_before_it_learns_is_ended_once_it_has_learned(tmp_path, monkeypatch, allowed_s):
    monkeypatch.setattr("profkit.collect.sessions.allowance.LEAST_S", allowed_s)
    assert play_and_learn(tmp_path, games=100_000, learns=True) == "stopped"
    run = load_run(tmp_path)
    assert (run.step_signal, run.was_stopped, run.was_outdone) == ("optimizer", False, False)
    learnt = [event for event in read_events(tmp_path) if event.get("name") == "aten::linear"]
    assert len(learnt) == 40 * len(steps_of(read_events(tmp_path)))


@pytest.mark.usefixtures("calls_are_steps_at_once")
def test_a_program_that_never_learns_is_ended_after_a_while(tmp_path, monkeypatch):
    monkeypatch.setattr("profkit.collect.recorder.profiler.PATIENCE_S", 0.3)
    assert play_and_learn(tmp_path, games=10_000_000, learns=False) == "stopped"
    assert load_run(tmp_path).step_signal == "forward"


@pytest.mark.slow
def test_without_the_option_the_program_runs_to_the_end(tmp_path, forks):
    (tmp_path / "program.py").write_text(PROGRAM.format(steps=60, end=""))
    outcome = diagnose_forked(forks, "program.py", directory=tmp_path)
    assert outcome.status == 0, outcome.stderr
    assert outcome.stdout.startswith("finally True\nthe end\n")
    assert not load_run(tmp_path / "run").was_stopped


@pytest.mark.slow
def test_the_same_exit_status_from_the_program_is_its_own(tmp_path, forks):
    (tmp_path / "program.py").write_text(PROGRAM.format(steps=3, end=f"sys.exit({STOPPED})"))
    outcome = diagnose_forked(forks, OPTION, "program.py", directory=tmp_path)
    assert outcome.status == 3
    assert f"exit status {STOPPED}" in outcome.stderr
    assert not load_run(tmp_path / "run").was_stopped
