"""The loader of TensorBoard's plugin on an original trace and on its copy.

For the original GPU trace torch-tb-profiler 0.4.3 shows four steps of 775 µs in place of two of 1000 µs,
no runtime, no communication, no DataLoader, and no device time for any operator.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from profkit.diagnosis.pipeline import diagnose_path, read_facts
from profkit.report.tensorboard.copies import rewrite_trace
from profkit.report.tensorboard.overview import of_median_step
from tests.forks import Forks
from tests.report.gpu_trace import OVERVIEW_US, STEPS, gpu_trace

pytestmark = pytest.mark.slow

RECORDED = Path(__file__).parents[2] / "traces" / "recorded" / "nvidia-h100-80gb-hbm3"

Load = Callable[[Path], list[dict[str, Any]]]

LOADER = """
import json, sys, tempfile
from torch_tb_profiler.io import Cache
from torch_tb_profiler.profiler import RunLoader

def figures(profile):
    (step,) = profile.overview["performance"]
    parts = {part["name"]: part["value"] for part in [step, *step["children"]]}
    rows = profile.operation_table_by_name["data"]
    operators = {row["name"]: row.get("device_self_duration", 0) for row in rows}
    curve = profile.get_memory_curve()["rows"].get("GPU0", []) if profile.memory_snapshot else []
    return {"parts": parts, "steps": len(profile.overview["steps"]["rows"]), "operators": operators,
            "overview": profile.overview, "curve": curve}

if __name__ == "__main__":
    for line in sys.stdin:
        with tempfile.TemporaryDirectory() as cache:
            run = RunLoader("run", line.strip(), Cache(cache)).load()
            print(json.dumps([figures(p) for p in run.profiles.values() if p.worker != "All"]), flush=True)
"""

PROGRAM = """
import sys, torch
from torch.profiler import ProfilerActivity, profile, schedule

class Waves(torch.utils.data.Dataset):
    def __len__(self): return 40
    def __getitem__(self, index): return torch.full((64,), index).sin()

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = torch.nn.Linear(64, 64).requires_grad_(False)
        self.head = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Linear(64, 1))
    def forward(self, x): return self.head(self.frozen(x))

model = Model()
optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
window = schedule(wait=0, warmup=1, active=3, repeat=1)
save = lambda done: done.export_chrome_trace(sys.argv[1])
with profile(activities=[ProfilerActivity.CPU], schedule=window, on_trace_ready=save, with_stack=True) as recording:
    for batch in torch.utils.data.DataLoader(Waves(), batch_size=8):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        recording.step()
"""


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Load]:
    """What the plugin shows of the run in a directory: one entry per worker, none where it failed. To import it takes
    longer than to load a run, so one process loads all."""
    script = tmp_path_factory.mktemp("loader") / "load.py"
    script.write_text(LOADER)
    forks = {**os.environ, "TORCH_PROFILER_START_METHOD": "fork"}  # what it spawned would import it again for each run
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, script], stdin=pipe, stdout=pipe, env=forks, text=True) as process:
        requests, answers = process.stdin, process.stdout
        assert requests is not None
        assert answers is not None

        def ask(directory: Path) -> list[dict[str, Any]]:
            print(directory, file=requests, flush=True)
            value = json.loads(answers.readline())
            assert isinstance(value, list)
            return value

        yield ask
        requests.close()
    assert process.returncode == 0


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory, forks: Forks) -> Path:
    """A real recording on the CPU of a program with a DataLoader, and modules that have no backward."""
    program, path = (tmp_path_factory.mktemp(name) / name for name in ("program.py", "host_1.pt.trace.json"))
    program.write_text(PROGRAM)
    ended = forks.run("tests.forks:run_script", [str(program), str(path)], program.parent)
    assert ended.returncode == 0, ended.stderr
    return path


def exposed_loader_us(trace: Path, measured: Sequence[bool]) -> float:
    """Mean time of a measured step that lies in the DataLoader, counted from the recording itself."""
    events = [event for event in json.loads(trace.read_bytes())["traceEvents"] if event.get("ph") == "X"]
    spans = [(e["name"], e["ts"], e["ts"] + e["dur"]) for e in events if e["cat"] == "user_annotation"]
    marked = sorted((start, end) for name, start, end in spans if name.startswith("ProfilerStep#"))
    steps = [step for step, counts in zip(marked, measured, strict=True) if counts]
    loads = [(start, end) for name, start, end in spans if name.startswith("enumerate(DataLoader)#")]
    shared = (min(end, stop) - max(start, begin) for start, end in steps for begin, stop in loads)
    return sum(time for time in shared if time > 0) / len(steps)


def test_the_copy_of_a_gpu_trace_shows_figures_counted_by_hand(tmp_path: Path, load: Load) -> None:
    source = tmp_path / "host_1.pt.trace.json"
    source.write_text(json.dumps(gpu_trace()))
    rewrite_trace(source, tmp_path / "copy" / "host_1.1234.pt.trace.json.gz")
    (shown,) = load(tmp_path / "copy")
    assert (shown["parts"], shown["steps"]) == (OVERVIEW_US, STEPS)
    assert shown["operators"] == {"aten::mm": 400 * STEPS, "record_param_comms": 0}


@pytest.mark.parametrize("name", ["dataloader-in-main-process", "hand-written-attention", "eager-pointwise-chain"])
def test_the_copy_of_an_h100_recording_shows_the_steps_that_profkit_measures(
    name: str, tmp_path: Path, load: Load
) -> None:
    recorded = RECORDED / name / "pitfall"
    (trace,) = recorded.glob("*.pt.trace.json.gz")
    rewrite_trace(trace, tmp_path / "copy" / trace.name)
    (shown,) = load(tmp_path / "copy")
    timing = diagnose_path(recorded).timing
    assert timing.step_time_ns is not None
    (overview,) = of_median_step(shown["overview"])["performance"]
    assert overview["value"] == pytest.approx(timing.step_time_ns / 1000, abs=1)
    assert sum(part["value"] for part in overview["children"]) == pytest.approx(overview["value"], abs=4)
    assert shown["steps"] == timing.steps
    assert (shown["parts"]["DataLoader"] > 0) == (name == "dataloader-in-main-process")
    assert sum(shown["operators"].values()) > 0
    assert len(shown["curve"]) > 10


def test_the_original_recording_shows_the_located_step_and_no_device_time(load: Load) -> None:
    recorded = RECORDED / "hand-written-attention" / "pitfall"
    (shown,) = load(recorded)
    timing = diagnose_path(recorded).timing
    assert shown["steps"] > timing.steps
    assert sum(shown["operators"].values()) == 0


def test_the_original_gpu_trace_shows_wrong_figures(tmp_path: Path, load: Load) -> None:
    (tmp_path / "host_1.pt.trace.json").write_text(json.dumps(gpu_trace()))
    (shown,) = load(tmp_path)
    assert shown["steps"] == 2 * STEPS
    assert {name: shown["parts"][name] for name in ("Runtime", "Communication", "DataLoader")} == {
        "Runtime": 0,
        "Communication": 0,
        "DataLoader": 0,
    }
    assert set(shown["operators"].values()) == {0}


def test_the_copy_of_a_real_recording_shows_the_time_in_the_dataloader(
    recording: Path, tmp_path: Path, load: Load
) -> None:
    rewrite_trace(recording, tmp_path / "copy" / recording.name)
    (shown,) = load(tmp_path / "copy")
    steps = read_facts(recording).steps
    expected = exposed_loader_us(recording, steps.measured.tolist())
    assert expected > 0
    assert shown["steps"] == steps.measured_count
    assert shown["parts"]["DataLoader"] == pytest.approx(expected, abs=1)
    assert shown["parts"]["CPU Exec"] > 0


def test_the_original_of_a_real_recording_shows_no_dataloader(recording: Path, load: Load) -> None:
    (shown,) = load(recording.parent)
    assert shown["parts"]["DataLoader"] == 0


def test_the_old_name_of_backward_links_makes_the_plugin_fail(recording: Path, tmp_path: Path, load: Load) -> None:
    renamed = tmp_path / "run" / recording.name
    renamed.parent.mkdir()
    renamed.write_text(recording.read_text().replace('"fwdbwd"', '"forward_backward"'))
    assert load(renamed.parent) == []
