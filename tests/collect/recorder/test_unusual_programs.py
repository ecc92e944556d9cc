"""Programs with threads, their own profilers, deep recursion, huge steps or several ranks are recorded without harm."""

from __future__ import annotations

import json

import pytest

from profkit.run.directory import find_trace, load_run
from tests.collect.guarded import RECORDED, assert_diagnosed, run
from tests.collect.reading import read_events, steps_of

pytestmark = pytest.mark.slow


THREADED = """\
losses = []
worker = threading.Thread(target=train, args=(6,))
worker.start()
worker.join()
train({steps})
worker = threading.Thread(target=os.urandom, args=(9,), daemon=True)
worker.start()
print(threading.active_count() >= 1)
"""


def test_steps_on_other_threads_end_no_recorded_step(recordings):
    outcome = run(recordings, THREADED.format(steps=RECORDED))
    assert outcome.status == 0, outcome.stderr
    assert sorted(steps_of(read_events(outcome.run))) == [2, 4, 5, 6, 7]


OWN_PROFILER = """\
train({before})
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
    train(3)
print(sum(event.count for event in own.key_averages() if event.key == "aten::mul"))
train(8)
"""


@pytest.mark.parametrize("before", [0, 2, 7, RECORDED])
def test_a_profiler_of_the_program_gets_its_recording(recordings, before):
    outcome = run(recordings, OWN_PROFILER.format(before=before))
    assert outcome.status in (0, 2), outcome.stderr
    assert "\n6\n" in outcome.stdout  # one multiplication forward and one backward in each of three steps
    if before >= 7:
        assert outcome.diagnosis["timing"]["steps"] >= 1


NESTED = """\
import profkit
with profkit.profile("inner") as inner:
    train({steps})
print(inner.diagnosis)
"""


def test_a_profile_inside_a_profiled_program_leaves_one_recording(recordings):
    outcome = run(recordings, NESTED.format(steps=RECORDED))
    assert outcome.status == 0, outcome.stderr
    assert "\nNone\n" in outcome.stdout
    assert "another profkit.profile is active" in outcome.stderr
    assert not (outcome.run.parent / "inner").exists()
    assert_diagnosed(outcome)


DEEP = """\

def nest(x, depth):
    return nest(x * 1.0, depth - 1) if depth else x

def fall(x):
    return fall(x * 1.0)

for step in range(12):
    optimizer.zero_grad()
    try:
        fall(parameter)
    except RecursionError:
        pass
    nest(parameter, sys.getrecursionlimit() - 100).sum().backward()
    optimizer.step()
print(parameter.tolist())
"""


def test_the_deepest_recursion_ends_only_the_location_of_lines(recordings):
    outcome = run(recordings, DEEP)
    assert outcome.status == 0, outcome.stderr
    steps = sorted(steps_of(read_events(outcome.run)))
    assert steps == [2, 4, 5, 6, 7][: len(steps)]  # a slow machine may not afford so many marks in all steps
    assert steps
    assert any("recursed as deep as it may" in note for note in load_run(outcome.run).notes)


TINY = """\
for _ in range(4):
    total = torch.zeros(())
    for _ in range(250_000):
        total = total + 1
    optimizer.zero_grad()
    (parameter.sum() * total).backward()
    optimizer.step()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10, flush=True)
"""


def test_a_step_of_very_many_operators_is_cut_off_before_it_fills_the_memory(recordings):
    outcome = run(recordings, TINY)
    assert outcome.status == 0, outcome.stderr
    notes = load_run(outcome.run).notes
    cut_off = "a step was so long that the recording ended in the middle of it"
    waited = "recording the large steps had to wait"  # on a busy machine, until the program was over
    assert any(note.startswith((cut_off, waited)) for note in notes), notes
    peaks_mb = [int(line) for line in outcome.stdout.splitlines()[:4]]
    assert peaks_mb[-1] < 2000, peaks_mb


RANKS = """\
import json, sys
import torch
import torch.distributed
import profkit

torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with profkit.profile("run") as recording:
    for _ in range(12):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
rank = torch.distributed.get_rank()
torch.distributed.destroy_process_group()
with open(f"said{rank}", "w") as file:
    json.dump([str(recording.directory), recording.diagnosis.timing.steps], file)
"""


def test_each_process_of_torchrun_leaves_a_run_directory_of_its_own(tmp_path, forks):
    (tmp_path / "ranks.py").write_text(RANKS)
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "ranks.py"]
    result = forks.run("tests.forks:launch", command, tmp_path)
    assert result.returncode == 0, result.stderr
    for rank in (0, 1):
        directory, steps = json.loads((tmp_path / f"said{rank}").read_text())
        assert directory == str(tmp_path / "run" / f"rank{rank}")
        assert steps >= 3  # the measured ones, less one that may have been disturbed
        assert find_trace(tmp_path / "run" / f"rank{rank}") is not None
