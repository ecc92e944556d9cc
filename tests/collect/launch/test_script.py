"""A program that is recorded in a process of its own behaves as it does without profkit."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from profkit.collect.launch import parent
from profkit.collect.launch.parent import count_kills, launch_script
from profkit.collect.launch.script import INTERRUPTED
from profkit.run.directory import KILLED, OutOfMemory, load_callsites, load_run
from tests.collect.reading import read_events, site_of, steps_of
from tests.forks import LONGEST_S

pytestmark = pytest.mark.slow

Outcome = tuple[int, str, str]
Run = Callable[..., Outcome]


@pytest.fixture
def plainly(tmp_path: Path) -> Run:
    """``python COMMAND``: its exit status, stdout and stderr."""

    def run(*command: str) -> Outcome:
        line = [sys.executable, *command]
        result = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=LONGEST_S)
        return result.returncode, result.stdout, result.stderr

    return run


@pytest.fixture
def recorded_into_run(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The same under profkit, into the directory ``run``."""

    def run(target: str, *arguments: str, module: bool = False) -> Outcome:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "run").mkdir()
        capfd.readouterr()
        status = launch_script(target, arguments, tmp_path / "run", module=module)
        return status, *capfd.readouterr()

    return run


WHOLE = '''\
"""Sets up before it imports torch, trains, and ends with a status of its own."""
import os
import re
import sys

os.environ["OMP_NUM_THREADS"] = "1"
early = "torch" in sys.modules
import torch

torch.manual_seed(0)
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.rand(8, 16)).square().mean()
        loss.backward()
        optimizer.step()
        print(loss.item().hex())


import __main__

print(sys.argv, sys.path[0], __name__, __file__, __spec__, __package__, __doc__, __main__.train is train)
print(early, torch.get_num_threads(), sorted(name for name in globals() if name.startswith("__")))
train(20)
print("last words", file=sys.stderr)
sys.exit(7)
'''


def test_a_program_prints_the_same_and_ends_the_same(tmp_path, plainly, recorded_into_run):
    (tmp_path / "train.py").write_text(WHOLE)
    plain = plainly("train.py", "--flag", "--", "-x")
    assert plain[0] == 7, plain[2]
    assert recorded_into_run("train.py", "--flag", "--", "-x") == plain
    run = load_run(tmp_path / "run")
    assert run.command == ("python", "train.py", "--flag", "--", "-x")
    assert (run.exit_status, run.target, run.step_signal, run.notes) == (7, "train.py", "optimizer", ())
    assert sorted(steps_of(read_events(tmp_path / "run"))) == [2, 4, 5, 6, 7]
    assert len(run.reference_step_ns) == 14  # twenty steps: prologue, 3 waited, 5 recorded, 11 after


FAILING = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        try:
            return self.missing
        except AttributeError as error:
            raise ValueError("no more") from error


Model()(torch.rand(3) * 2)
"""


def test_a_programs_traceback_shows_nothing_of_profkit(tmp_path, plainly, recorded_into_run):
    (tmp_path / "fail.py").write_text(FAILING)
    plain = plainly("fail.py")
    assert "direct cause" in plain[2]
    assert recorded_into_run("fail.py") == plain == (1, "", plain[2])
    run = load_run(tmp_path / "run")
    assert (run.exit_status, run.notes) == (1, ("the program failed: ValueError: no more (at fail.py:9)",))
    site = site_of("aten::mul", tmp_path / "run")
    assert (site.line, site.function) == (12, "<module>")


LOOKING_BACK = """\
import atexit
import sys
import traceback

import torch


def hook(kind, error, trace):
    if len(sys.argv) > 1:
        raise LookupError("in the hook")
    print("shown", kind.__name__, len(traceback.extract_tb(trace)))


@atexit.register
def look_back():
    print(sys.last_type, sys.last_value, len(traceback.extract_tb(sys.last_traceback)), sys.excepthook is hook)


sys.excepthook = hook
torch.ones(2).reshape(3)
"""


@pytest.mark.parametrize("arguments", [(), ("fail",)])
def test_what_python_keeps_of_an_error_is_the_programs(tmp_path, plainly, recorded_into_run, arguments):
    (tmp_path / "fail.py").write_text(LOOKING_BACK)
    plain = plainly("fail.py", *arguments)
    assert plain[0] == 1
    assert ("Error in sys.excepthook" in plain[2]) is bool(arguments)
    assert recorded_into_run("fail.py", *arguments) == plain


def test_a_script_with_a_syntax_error_fails_as_in_python(tmp_path, plainly, recorded_into_run):
    (tmp_path / "broken.py").write_text("import torch\nif :\n")
    assert recorded_into_run("broken.py") == plainly("broken.py")
    assert load_run(tmp_path / "run").exit_status == 1


def test_a_package_runs_as_a_module(tmp_path, plainly, recorded_into_run):
    package = tmp_path / "trainer"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "model.py").write_text("import torch\ndef double():\n    return torch.ones(2) * 2\n")
    (package / "__main__.py").write_text(
        "import sys\nfrom .model import double\n"
        "print(__name__, __package__, __spec__.name, __file__, sys.argv, sys.path[0], double())\n"
    )
    plain = plainly("-m", "trainer", "--flag")
    assert plain[0] == 0, plain[2]
    assert recorded_into_run("trainer", "--flag", module=True) == plain
    assert load_run(tmp_path / "run").command == ("python", "-m", "trainer", "--flag")


PROCESSES = '''\
"""Starts processes in every way: workers by fork, children by spawn and by hand."""
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.tensor([index, torch.autograd._profiler_enabled() and torch.ones(1).mul(1).numel() > 1])


class Doubled:
    def __init__(self, number):
        self.number, self.name, self.is_untraced = number * 2, __name__, sys.gettrace() is None


if __name__ == "__main__":
    for batch in DataLoader(Numbers(), batch_size=4, num_workers=2):
        print(batch.sum(0).tolist())
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        print([vars(doubled) for doubled in pool.map(Doubled, [1, 2])])
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        print("child", sys.gettrace() is None, len(threads := [*sys._current_frames()]))
        sys.stdout.flush()
        sys.exit(5)  # PyTorch's destructors must not wait for a thread of the parent
    print("parent", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print((torch.ones(2) * 3).tolist())
'''


def test_a_program_can_start_processes_in_every_way(tmp_path, plainly, recorded_into_run):
    (tmp_path / "processes.py").write_text(PROCESSES)
    plain = plainly("processes.py")
    assert plain[0] == 0, plain[2]
    assert recorded_into_run("processes.py") == plain
    traces = list((tmp_path / "run").glob("*.pt.trace.json.gz"))
    assert len(traces) == 1  # none from a child
    assert load_run(tmp_path / "run").exit_status == 0
    names = {event["name"] for event in read_events(tmp_path / "run")}
    assert names & {"aten::mul", "aten::sum"}  # the part between the forks with the most events is kept


def test_a_program_without_torch_is_noted(tmp_path, plainly, recorded_into_run):
    (tmp_path / "plain.py").write_text("print('done')\n")
    assert recorded_into_run("plain.py") == plainly("plain.py") == (0, "done\n", "")
    assert load_run(tmp_path / "run").notes == ("the program never imported torch: there was nothing to record",)


def test_an_immediate_exit_is_noted(tmp_path, recorded_into_run):
    (tmp_path / "leave.py").write_text("import os\nos._exit(9)\n")
    assert recorded_into_run("leave.py")[0] == 9
    run = load_run(tmp_path / "run")
    assert run.exit_status == 9
    assert "os._exit" in run.notes[-1]


def test_the_status_is_that_of_a_function_that_runs_at_the_exit(tmp_path, recorded_into_run):
    (tmp_path / "leave.py").write_text(
        "import atexit, os, torch\ntorch.ones(2) * 2\natexit.register(lambda: os._exit(9))\n"
    )
    assert recorded_into_run("leave.py")[0] == 9
    run = load_run(tmp_path / "run")
    assert (run.exit_status, [note for note in run.notes if "exit" in note]) == (9, [])


def test_a_program_runs_on_if_profkit_cannot_begin(tmp_path, plainly, recorded_into_run):
    (tmp_path / "psutil.py").write_text("value = 'mine'\n")
    (tmp_path / "train.py").write_text("import torch\nimport psutil\nprint(torch.ones(2) * 2, psutil.value)\n")
    plain = plainly("train.py")
    status, output, said = recorded_into_run("train.py")
    assert (status, output, plain[0]) == (0, plain[1], 0)
    assert said.startswith("profkit: not recording: ImportError: ")
    assert said.count("\n") == 1
    assert load_run(tmp_path / "run").notes[0].startswith("profkit failed: ImportError: cannot import name ")


WHO_CALLS = """\
import inspect
import sys

looked = []
modules = sys.modules
class Watched(dict):
    def copy(self):
        looked.append(1)
        return dict(self)
sys.modules = Watched(modules)
inspect.stack()
looked.clear()
inspect.stack()
sys.modules = modules
import torch
print(len(looked), torch.ones(1).sum())
"""


def test_looking_at_the_stack_goes_through_no_modules(tmp_path, plainly, recorded_into_run):
    """`inspect` does for each frame of a file that belongs to no module: thousands of modules beside PyTorch."""
    (tmp_path / "train.py").write_text(WHO_CALLS)
    status, output, _ = recorded_into_run("train.py")
    assert (status, output) == (0, plainly("train.py")[1])
    assert output.startswith("0 ")


LATE_THREAD = """\
import threading

import torch
from concurrent.futures import ThreadPoolExecutor

may_begin = threading.Event()


def train():
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    may_begin.wait()
    for _ in range(2000):
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()
    print("trained")


idle = ThreadPoolExecutor(1)
idle.submit(int).result()
threading.Thread(target=train).start()
print("the main thread is at its end")
may_begin.set()
raise SystemExit(5)
"""


def test_a_thread_that_trains_after_the_end_of_the_main_thread_is_recorded(tmp_path, recorded_into_run):
    (tmp_path / "train.py").write_text(LATE_THREAD)
    assert recorded_into_run("train.py") == (5, "the main thread is at its end\ntrained\n", "")
    run = load_run(tmp_path / "run")
    assert (run.exit_status, run.step_signal) == (5, "optimizer")
    assert "aten::addmm" in {event["name"] for event in read_events(tmp_path / "run")}


@pytest.mark.parametrize("safe_path", ["", "1"])
def test_files_named_like_the_standard_librarys_do_not_matter_in_the_working_directory(tmp_path, safe_path):
    for name in ("argparse", "ctypes", "difflib", "gzip", "html", "secrets", "signal", "socket", "statistics"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not the standard library')\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "train.py").write_text(
        "import sys, torch\nprint(torch.ones(2) * 2, [path for path in sys.path if sys.argv[1] in path])\n"
    )
    script = [str(tmp_path / "elsewhere" / "train.py"), str(tmp_path)]
    environment = os.environ | {"PYTHONSAFEPATH": safe_path}
    ended = [
        subprocess.run(
            [sys.executable, *how], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        for how in (script, ["-m", "profkit", "diagnose", "--output", "run", *script])
    ]
    assert ended[1].stdout.splitlines()[0] == ended[0].stdout.strip()


def test_an_interrupt_ends_the_program_as_shells_report_it(tmp_path, plainly, recorded_into_run):
    (tmp_path / "wait.py").write_text(
        "import os, signal, torch\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background is started without\n"
        "torch.ones(2) * 2\nos.kill(os.getpid(), signal.SIGINT)\n"
    )
    plain = plainly("wait.py")
    assert plain[0] == -signal.SIGINT
    status, _, said = recorded_into_run("wait.py")
    assert (status, said) == (INTERRUPTED, plain[2])
    assert load_run(tmp_path / "run").exit_status == INTERRUPTED
    assert "aten::mul" in {event["name"] for event in read_events(tmp_path / "run")}


NEVER_LEFT = """\
import sys
import torch
from profkit.collect.recorder.profiler import profile

profile("run").__enter__()
torch.ones(2) * 2
"""


def test_a_recording_that_is_never_left_is_written_at_exit(tmp_path, plainly):
    (tmp_path / "forgetful.py").write_text(NEVER_LEFT)
    assert plainly("forgetful.py") == (0, "", "")
    assert "never left the recording" in load_run(tmp_path / "run").notes[0]
    assert "aten::mul" in {event["name"] for event in read_events(tmp_path / "run")}


COMPILED = """\
import json
import sys
import torch

def inner(x):
    return x * 2

@torch.compile(backend="eager")
def model(x):
    y = inner(x)
    return y + 1

parameter = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([parameter], lr=0.1)
step = torch.compile(optimizer.step, backend="eager")
torch.manual_seed(0)
for _ in range(8):
    loss = (model(torch.rand(4)) * parameter).sum()
    loss.backward()
    step()
    optimizer.zero_grad()
from torch._dynamo.utils import counters
print(json.dumps([loss.item().hex(), counters["stats"], len(counters["graph_break"])]))
"""


def without_numbers(log: str) -> str:
    """The compiler logs the time and the process."""
    return re.sub(r"[0-9]+", "N", log)


def test_compiled_code_works_and_is_not_recompiled(tmp_path, forks):
    (tmp_path / "compiled.py").write_text(COMPILED)
    (tmp_path / "run").mkdir()
    plain = forks.run("tests.forks:run_script", ["compiled.py"], tmp_path)
    assert plain.returncode == 0, plain.stderr
    assert json.loads(plain.stdout)[1]
    recorded = forks.run("profkit.collect.launch.script:main", ["--directory=run", "--", "compiled.py"], tmp_path)
    assert (recorded.returncode, recorded.stdout) == (plain.returncode, plain.stdout)
    assert without_numbers(recorded.stderr) == without_numbers(plain.stderr)
    assert load_run(tmp_path / "run").notes == ()
    events = read_events(tmp_path / "run")
    located, *_ = steps_of(events).values()
    assert [event for event in events if event["name"] == "aten::mul" and event["ts"] > located["ts"]]


MOVING = """\
import os
import torch
import profkit

with profkit.profile("run"):
    os.chdir("elsewhere")
    print(torch.ones(3) * 2)
"""


def test_lines_are_found_after_a_change_of_directory(tmp_path, plainly):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "moving.py").write_text(MOVING)
    status, _, stderr = plainly("moving.py")
    assert (status, stderr) == (0, "")
    sites = load_callsites(tmp_path / "run")
    assert (str(tmp_path / "moving.py"), 7, "print(torch.ones(3) * 2)") in {(s.file, s.line, s.source) for s in sites}


WAITS = """\
print("begun", flush=True)
print(input("") + " on", flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux a process learns that its parent has ended")
@pytest.mark.parametrize(("rank", "said"), [({"RANK": "0", "WORLD_SIZE": "2"}, ""), ({}, "goes on\n")])
def test_killing_profkit_ends_the_program_only_in_a_rank(tmp_path, rank, said):
    """Without a launcher the program goes on."""
    (tmp_path / "waits.py").write_text(WAITS)
    command = [sys.executable, "-m", "profkit", "record", "--output", "run", "waits.py"]
    with subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, **rank}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as profkit:
        assert profkit.stdout is not None
        assert profkit.stdout.readline() == "begun\n"
        profkit.kill()
        profkit.wait()
        assert profkit.communicate("goes\n", timeout=LONGEST_S)[0] == said


@pytest.mark.parametrize(("counts", "killed"), [((3, 4), True), ((3, 3), False)])
def test_a_killed_program_ran_out_of_memory_if_the_system_counts_a_kill(
    tmp_path, recorded_into_run, monkeypatch, counts, killed
):
    left = list(counts)
    monkeypatch.setattr(parent, "count_kills", lambda: left.pop(0))
    (tmp_path / "killed.py").write_text("import os, signal, torch\nos.kill(os.getpid(), signal.SIGKILL)\n")
    status, _, _ = recorded_into_run("killed.py")
    assert status == 137
    known = OutOfMemory(message=KILLED, ended=True)
    assert load_run(tmp_path / "run").out_of_memory == (known if killed else None)


def test_kills_are_counted_in_the_container_or_else_on_the_machine(tmp_path, monkeypatch):
    files = tmp_path / "memory.events", tmp_path / "vmstat"
    monkeypatch.setattr(parent, "_KILL_COUNTS", files)
    assert count_kills() == 0
    files[1].write_text("nr_free_pages 12\noom_kill 5\ndrop_pagecache 0\n")
    assert count_kills() == 5
    files[0].write_text("low 0\nmax 3\n")
    assert count_kills() == 5
    files[0].write_text("low 0\noom 4\noom_kill 2\noom_group_kill 0\n")
    assert count_kills() == 2


@pytest.mark.parametrize("has_handles", [True, False])
def test_a_signal_that_does_not_interrupt_the_wait_is_forwarded_all_the_same(has_handles, monkeypatch):
    """Another thread gets it, so the system's call goes on. The same happens if it comes just before that begins."""
    if not has_handles:
        monkeypatch.setattr(parent, "_handle_of", lambda process: None)
    monkeypatch.setattr(parent, "_AWAKE_MS", 10)
    itself = threading.Thread(target=lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM))
    wait = parent._wait

    def tell_and_wait(process: subprocess.Popen[bytes]) -> int:
        itself.start()
        return wait(process)

    monkeypatch.setattr(parent, "_wait", tell_and_wait)
    assert parent._run([sys.executable, "-c", "import signal; signal.pause()"]) == -signal.SIGTERM
