"""The program with its own batch and with larger ones: what its processes say, and what is made of it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from profkit.cli._copies import try_larger_batches
from profkit.diagnosis.fixing.larger_batches import BatchTrial, BatchTrials, SeenSteps, judge
from profkit.report.trials.larger_batches import render_larger_batches
from tests.forks import Forks

MS = 1_000_000


def seen(step_ms=10, samples=4, count=10, **more):
    steps = tuple((i * step_ms * MS, samples, 0) for i in range(count))
    return SeenSteps(steps, sizes=(4,), of_optimizer=True, peak_bytes=7, **more)


def test_the_median_step_of_the_usual_samples_counts():
    steps = list(seen().steps)
    steps[5] = (steps[5][0] + 8 * MS, 3, 0)  # the last batch of an epoch, and the step after it
    trial = judge(2, SeenSteps(tuple(steps), sizes=(4,), peak_bytes=7))
    assert trial == BatchTrial(2, 4, 0.01, 7)
    assert trial.rate == 400


def test_waits_for_a_cpu_are_taken_out():
    steps = tuple((i * 10 * MS, 4, i * 6 * MS) for i in range(10))
    trial = judge(1, SeenSteps(steps, sizes=(4,)))
    assert (trial.step_s, trial.crowded) == (0.004, pytest.approx(0.6))


def test_beside_a_device_spans_between_its_waits_count():
    """The host launches eight steps in 8 ms, and then waits for 72 ms."""
    steps = tuple((80 * MS * (i // 8) + i % 8 * MS, 4, i * MS) for i in range(57))
    trial = judge(1, SeenSteps(steps, sizes=(4,), lap=8, peak_bytes=7, device_peak_bytes=9))
    assert trial == BatchTrial(1, 4, 0.01, 9)


@pytest.mark.parametrize(
    ("told", "failure", "problem"),
    [
        (seen(count=7), "", "too few to tell: 7 steps in all"),
        (seen(count=0), "", "no batch was taken"),
        (seen(count=3), "RuntimeError: 8 is not 4", "the program fails: RuntimeError: 8 is not 4"),
        (seen(samples=0), "", "how many samples a batch has cannot be told"),
        (seen(count=2, stopped="/data/x.pt"), "", "was about to write to /data/x.pt, outside of its copy"),
        (SeenSteps(), "", "no DataLoader was made, so the program makes its batches itself"),
        (SeenSteps(seen().steps, fixed=("a loader has batch_size=None",)), "", "a loader has batch_size=None"),
    ],
)
def test_what_cannot_be_measured_is_said(told, failure, problem):
    trial = judge(2, told, failure)
    assert problem in trial.problem
    assert trial.rate == 0


def test_steps_enough_before_the_program_failed_count():
    assert judge(1, seen(), "KeyError: 'x'") == BatchTrial(1, 4, 0.01, 7)


def test_the_report_sets_what_was_measured_beside_what_was_predicted():
    trials = (
        BatchTrial(1, 4, 0.01, 100 << 20),
        BatchTrial(2, 8, 0.0125, 110 << 20),
        BatchTrial(4, 12, 0.02, 120 << 20),
    )
    assert render_larger_batches(BatchTrials(trials, 0.05, trains=True, saved=1), {2: 1.5, 4: 2.25}) == (
        "Larger batches, tried\n"
        "  samples  a second  times  predicted   a step  memory\n"
        "        4       400                    10.0 ms  105 MB\n"
        "        8       640   1.60       1.50  12.5 ms  115 MB\n"
        "       12       600   1.50       2.25  20.0 ms  126 MB\n"
        "With 4 times the batch a step took 12 samples, not 16: the data hold no more, or\n"
        "the program decides that elsewhere.\n"
        "The first batch ran twice, 5.0 % apart: less than that is chance.\n"
        "The learning rate and its schedule depend on the batch: set them anew before you\n"
        "train with it.\n"
        "The trials saved checkpoints in their copies of the folder, which are gone."
    )


def test_without_any_measurement_there_is_only_the_reason():
    tried = BatchTrials((BatchTrial(1, problem="no batch was taken"),))
    assert render_larger_batches(tried, {2: 1.5}) == (
        "Larger batches, tried\nNo batch could be tried: no batch was taken."
    )


PROGRAM = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset

class Fixed(torch.nn.Module):
    def forward(self, batch):
        return batch.view(4, 8)

model = torch.nn.Sequential(torch.nn.Linear(8, 8), Fixed() if "fixed" in sys.argv else torch.nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(1 << 14, 8))
loader = [(torch.randn(4, 8),)] * 99 if "own" in sys.argv else DataLoader(data, batch_size=4)
for number, (batch,) in enumerate(loader):
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
    print("step")
    if number == 20 and len(sys.argv) > 2:
        torch.save(model.state_dict(), sys.argv[2])
open("ended", "w").close()
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path / "work")
    return "train.py"


def tried_in_forks(forks: Forks, *command: str) -> BatchTrials:
    """The trials of a script in the working folder, of which nothing else is printed. None imports PyTorch anew."""
    ended = forks.run("tests.diagnosis.fixing.trying:main", command, Path.cwd())
    assert ended.returncode == 0, ended.stderr
    return msgspec.json.decode(ended.stdout, type=BatchTrials)


@pytest.mark.slow
def test_larger_batches_are_tried_in_copies(script: str, tmp_path: Path, forks: Forks):
    tried = tried_in_forks(forks, script, "plain", "last.pt")
    assert [trial.samples for trial in tried.trials] == [4, 8, 16]
    assert all(trial.rate > 0 and trial.peak_bytes > 0 for trial in tried.trials)
    assert (tried.trains, tried.saved) == (True, 1)
    assert tried.spread is not None
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["train.py"]


@pytest.mark.slow
def test_a_program_with_fixed_shapes_is_told_with_its_error(script: str, forks: Forks):
    own, twice = tried_in_forks(forks, script, "fixed").trials
    assert own.rate > 0
    assert "RuntimeError: shape '[4, 8]' is invalid" in twice.problem


@pytest.mark.slow
def test_a_program_that_batches_itself_cannot_be_changed(script: str, capfd: pytest.CaptureFixture[str]):
    (own,) = try_larger_batches(script, ("own",), False, ()).trials
    assert own.problem == "no DataLoader was made, so the program makes its batches itself"
    assert capfd.readouterr().out == ""


@pytest.mark.slow
def test_a_trial_ends_before_it_writes_over_what_another_run_left(script: str, tmp_path: Path, forks: Forks):
    kept = tmp_path / "work" / "best.pt"
    kept.write_text("the result of days")
    (own, *_) = tried_in_forks(forks, script, "plain", str(kept)).trials
    assert own.problem == "" or own.problem.endswith("outside of its copy")
    assert kept.read_text() == "the result of days"
