"""The plugin's own loader on a trace as recorded, and on its copy.

Without the rewrite, torch-tb-profiler 0.4.3 shows of the GPU trace: four steps of 775 us in place of two of 1000 us,
no runtime, no communication, no DataLoader, and no device time for any operator.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from profkit.report.tensorboard import rewrite_trace
from tests.forks import Forks
from tests.report.gpu_trace import OVERVIEW_US, STEPS, gpu_trace

pytestmark = pytest.mark.slow

LOADER = """
import json, sys, tempfile
from torch_tb_profiler.io import Cache
from torch_tb_profiler.profiler import RunLoader

def figures(profile):
    (step,) = profile.overview["performance"]
    parts = {part["name"]: part["value"] for part in [step, *step["children"]]}
    rows = profile.operation_table_by_name["data"]
    operators = {row["name"]: row.get("device_self_duration", 0) for row in rows}
    return {"parts": parts, "steps": len(profile.overview["steps"]["rows"]), "operators": operators}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as cache:
        run = RunLoader("run", sys.argv[1], Cache(cache)).load()
        print(json.dumps([figures(p) for p in run.profiles.values() if p.worker != "All"]))
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


def load(directory: Path, scratch: Path) -> list[dict[str, Any]]:
    """What the plugin shows of the run in ``directory``: one entry per worker, none where it failed."""
    script = scratch / "load.py"
    script.write_text(LOADER)
    done = subprocess.run([sys.executable, script, directory], capture_output=True, text=True, timeout=120, check=True)
    value = json.loads(done.stdout)
    assert isinstance(value, list)
    return value


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory, forks: Forks) -> Path:
    """A real recording on the CPU of a program with a DataLoader, and modules that have no backward."""
    program, path = (tmp_path_factory.mktemp(name) / name for name in ("program.py", "host_1.pt.trace.json"))
    program.write_text(PROGRAM)
    ended = forks.run("tests.forks:run_script", [str(program), str(path)], program.parent)
    assert ended.returncode == 0, ended.stderr
    return path


def exposed_loader_us(trace: Path) -> float:
    """Mean time of a step that lies in the DataLoader, counted from the recording itself."""
    events = [event for event in json.loads(trace.read_bytes())["traceEvents"] if event.get("ph") == "X"]
    spans = [(e["name"], e["ts"], e["ts"] + e["dur"]) for e in events if e["cat"] == "user_annotation"]
    steps = [(start, end) for name, start, end in spans if name.startswith("ProfilerStep#")]
    loads = [(start, end) for name, start, end in spans if name.startswith("enumerate(DataLoader)#")]
    shared = (min(end, stop) - max(start, begin) for start, end in steps for begin, stop in loads)
    return sum(time for time in shared if time > 0) / len(steps)


def test_the_copy_of_a_gpu_trace_shows_the_figures_counted_by_hand(tmp_path: Path) -> None:
    source = tmp_path / "host_1.pt.trace.json"
    source.write_text(json.dumps(gpu_trace()))
    rewrite_trace(source, tmp_path / "copy" / "host_1.1234.pt.trace.json.gz")
    (shown,) = load(tmp_path / "copy", tmp_path)
    assert shown == {
        "parts": OVERVIEW_US,
        "steps": STEPS,
        "operators": {"aten::mm": 400 * STEPS, "record_param_comms": 0},
    }


def test_a_gpu_trace_as_recorded_is_why_there_are_copies(tmp_path: Path) -> None:
    (tmp_path / "host_1.pt.trace.json").write_text(json.dumps(gpu_trace()))
    (shown,) = load(tmp_path, tmp_path)
    assert shown["steps"] == 2 * STEPS
    assert {name: shown["parts"][name] for name in ("Runtime", "Communication", "DataLoader")} == {
        "Runtime": 0,
        "Communication": 0,
        "DataLoader": 0,
    }
    assert set(shown["operators"].values()) == {0}


def test_the_copy_of_a_real_recording_shows_the_time_in_the_dataloader(recording: Path, tmp_path: Path) -> None:
    rewrite_trace(recording, tmp_path / "copy" / recording.name)
    (shown,) = load(tmp_path / "copy", tmp_path)
    expected = exposed_loader_us(recording)
    assert expected > 0
    assert shown["steps"] == 3
    assert shown["parts"]["DataLoader"] == pytest.approx(expected, abs=1)
    assert shown["parts"]["CPU Exec"] > 0


def test_a_real_recording_as_it_is_shows_no_dataloader(recording: Path, tmp_path: Path) -> None:
    (shown,) = load(recording.parent, tmp_path)
    assert shown["parts"]["DataLoader"] == 0


def test_the_old_name_of_backward_links_would_end_the_plugin(recording: Path, tmp_path: Path) -> None:
    renamed = tmp_path / "run" / recording.name
    renamed.parent.mkdir()
    renamed.write_text(recording.read_text().replace('"fwdbwd"', '"forward_backward"'))
    assert load(renamed.parent, tmp_path) == []
