"""The parent's side: py-spy is started when asked, stopped in time, and what it lacks is said."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from profkit.collect.launch.parent import launch_script
from profkit.collect.stacks import spying
from profkit.collect.stacks.requests import REQUEST_FILE, StackRequest, read_request
from profkit.collect.stacks.spying import StackSampling, choose_rate, find_py_spy
from profkit.run.directory import STACKS_FILE, StackSamples, load_stacks, save

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="stacks are sampled on Linux only")

PROGRAM = """
import json
import torch

TEXT = json.dumps(list(range(20_000)))

def read():
    return json.loads(TEXT)

parameter = torch.nn.Parameter(torch.ones(8))
optimizer = torch.optim.SGD([parameter], lr=0.1)
for step in range(200):
    optimizer.zero_grad()
    read()
    parameter.sum().backward()
    optimizer.step()
"""


def ask(directory: Path, **fields: object) -> StackRequest:
    request = StackRequest(**{"process": 100, "thread": 7, "begun_ns": 1, **fields})  # type: ignore[arg-type]
    (directory / REQUEST_FILE).write_bytes(msgspec.json.encode(request))
    return request


def put_py_spy(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program in place of py-spy; ``$OUTPUT`` is the file that it is to write."""
    program = directory / "py-spy"
    head = '#!/bin/sh\nfor argument; do case "$argument" in --output=*) OUTPUT="${argument#--output=}";; esac; done\n'
    program.write_text(head + script)
    program.chmod(0o755)
    monkeypatch.setattr(spying, "find_py_spy", lambda: str(program))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    made = tmp_path / "run"
    made.mkdir()
    return made


def sample(run: Path) -> StackSamples:
    """What is saved after the program asked once."""
    with StackSampling(run, ()) as sampling:
        sampling._look(read_request(run))
        assert sampling._spy is not None
        sampling._spy._process.wait()
        ask(run, is_over=True, steps=1, from_ns=sampling._spy.started_ns, to_ns=sampling._spy.started_ns + 1)
        sampling._look(read_request(run))
    return load_stacks(run)


def test_what_py_spy_writes_is_saved_and_the_request_removed(run, tmp_path, monkeypatch):
    call = {"name": "main", "pid": 100, "tid": 7, "args": {"filename": "/w/train.py", "line": 3}}
    events = json.dumps([{**call, "ph": "B", "ts": 0}, {**call, "ph": "E", "ts": 1000}])
    put_py_spy(tmp_path, monkeypatch, f"echo '{events}' > \"$OUTPUT\"\n")
    ask(run)
    found = sample(run)
    assert [(site.file, site.line) for site in found.sites] == [("/w/train.py", 3)]
    assert [thread.kind for thread in found.threads] == ["main"]
    assert [path.name for path in run.iterdir()] == [STACKS_FILE]


def test_why_py_spy_cannot_read_is_said(run, tmp_path, monkeypatch):
    put_py_spy(tmp_path, monkeypatch, "echo 'Error: Permission denied' >&2\nexit 1\n")
    ask(run)
    assert sample(run).reason == "py-spy could not read the program's stacks: Error: Permission denied"


def test_without_py_spy_its_absence_is_the_reason(run, monkeypatch):
    monkeypatch.setattr(spying, "find_py_spy", lambda: None)
    with StackSampling(run, ()) as sampling:
        assert not sampling.is_possible
    assert load_stacks(run).reason.startswith("py-spy is not installed")


def test_a_program_that_asks_for_nothing_leaves_nothing(run, tmp_path, monkeypatch):
    put_py_spy(tmp_path, monkeypatch, "exit 0\n")
    with StackSampling(run, ()):
        pass
    assert list(run.iterdir()) == []


def test_a_request_is_read_when_it_was_written_and_not_at_each_look(run, monkeypatch):
    reads: list[object] = []
    monkeypatch.setattr(spying, "find_py_spy", lambda: None)
    monkeypatch.setattr(spying, "read_request", reads.append)
    sampling = StackSampling(run, ())
    looks = iter([None, None, StackRequest(1, 1, 1), None, None, StackRequest(1, 1, 1, is_over=True), None])

    def wait(_seconds: float) -> bool:
        request = next(looks, sampling)
        if isinstance(request, StackRequest):
            save(run, REQUEST_FILE, request)
        return request is sampling

    monkeypatch.setattr(sampling, "_over", SimpleNamespace(wait=wait))
    sampling._watch()
    assert reads == [run, run]


def test_a_second_recording_is_sampled_anew_and_alone_counts(run, tmp_path, monkeypatch):
    put_py_spy(tmp_path, monkeypatch, "echo '[]' > \"$OUTPUT\"\n")
    with StackSampling(run, ()) as sampling:
        for begun_ns in (1, 2):
            ask(run, begun_ns=begun_ns)
            sampling._look(read_request(run))
            sampling._look(read_request(run))
        assert [spy.request.begun_ns for spy in sampling._spied] == [1, 2]
        assert [bool(spy.stopped_ns) for spy in sampling._spied] == [True, False]


@pytest.mark.parametrize(
    ("cpus", "has_workers", "rate"),
    [(1, False, 50), (2, False, 80), (5, False, 200), (64, False, 200), (2, True, 40), (64, True, 100)],
)
def test_samples_cost_a_hundredth_of_the_machine(cpus, has_workers, rate):
    assert choose_rate(cpus, has_workers) == rate


@pytest.mark.slow
@pytest.mark.races(why="a dozen samples of a program that others on the machine hold up")
@pytest.mark.skipif(find_py_spy() is None, reason="py-spy is not installed")
def test_a_line_of_python_has_its_price_and_its_callee(run, tmp_path):
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    assert launch_script(str(program), [], run) == 0
    found = load_stacks(run)
    by_line = {found.sites[stack.lines[-1]].source: stack for stack in reversed(found.stacks)}
    (main,) = (thread for thread in found.threads if thread.kind == "main")
    stack = by_line["return json.loads(TEXT)"]
    assert stack.callee == "json.loads"
    assert stack.time_ns > main.time_ns / 2
