"""From what py-spy writes to stacks of the program's lines, with exact times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from profkit.collect.stacks.reading import read_samples
from profkit.collect.stacks.requests import StackRequest
from profkit.run.directory import CallSite, SampledStack, SampledThread, StackSamples
from profkit.source.code import PROFKIT
from profkit.source.user_code import UserFiles

TORCH = "/venv/lib/python3.11/site-packages/torch/utils/data"
WORKER, FETCH, LOADER = f"{TORCH}/_utils/worker.py", f"{TORCH}/_utils/fetch.py", f"{TORCH}/dataloader.py"
COPY = "/usr/lib/python3.11/site-packages/copies/copy.py"
TRAIN = "/w/train.py"
MAIN, PID = 7, 100
STARTED_NS = 1_000_000_000
Call = tuple[str, str, int]
THREAD: Call = ("thread (1): MainThread", "", 0)
TOP: Call = ("<module>", TRAIN, 9)


def request(**fields: Any) -> StackRequest:
    """Two steps, from 10 to 30 ms after py-spy began."""
    steps = {"is_over": True, "steps": 2, "from_ns": STARTED_NS + 10_000_000, "to_ns": STARTED_NS + 30_000_000}
    return StackRequest(**{"process": PID, "thread": MAIN, "begun_ns": 1, "plain_ns": 1, **steps, **fields})


def read(
    directory: Path, *samples: tuple[float, tuple[Call, ...]], thread: int = MAIN, process: int = PID, **fields: Any
) -> StackSamples:
    """The samples of one thread, each a time in milliseconds and the stack from then on."""
    events, open_calls = [], ()
    for at_ms, calls in samples:
        same = next((i for i, (a, b) in enumerate(zip(open_calls, calls, strict=False)) if a != b), None)
        kept = min(len(open_calls), len(calls)) if same is None else same
        for ph, part in (("E", open_calls[kept:][::-1]), ("B", calls[kept:])):
            for name, file, line in part:
                args = {"filename": file, "line": line}
                events.append({"name": name, "ph": ph, "pid": process, "tid": thread, "ts": at_ms * 1e3, "args": args})
        open_calls = calls
    path = directory / "spied.json"
    path.write_text(json.dumps(events))
    stopped_ns = STARTED_NS + 50_000_000
    return read_samples(path, request(**fields), STARTED_NS, stopped_ns, 5_000_000, UserFiles())


def test_only_the_time_of_the_whole_steps_counts_and_a_line_has_what_it_calls(tmp_path):
    deep = (THREAD, TOP, ("main", TRAIN, 4), ("deepcopy", COPY, 33))
    found = read(tmp_path, (5, (THREAD, TOP)), (15, deep), (28, (THREAD, TOP, ("main", TRAIN, 5))), (40, ()))
    assert found.threads == (SampledThread("main", "MainThread", 20_000_000),)
    assert found.sites == (
        CallSite(TRAIN, 9, "<module>"),
        CallSite(TRAIN, 4, "main"),
        CallSite(TRAIN, 5, "main"),
    )
    assert found.stacks == (
        SampledStack(0, (0, 1), "copies.deepcopy", 13_000_000),
        SampledStack(0, (0,), "", 5_000_000),
        SampledStack(0, (0, 2), "", 2_000_000),
    )
    assert (found.steps, found.period_ns, found.reason) == (2, 5_000_000, "")


def test_a_comprehension_is_its_line_and_a_recursion_each_line_once(tmp_path):
    comprehension = ("main.<locals>.<listcomp>", TRAIN, 4)
    walk = [("walk", TRAIN, 20), ("walk", TRAIN, 21)] * 3
    found = read(tmp_path, (10, (THREAD, TOP, ("main", TRAIN, 4), comprehension)), (20, (THREAD, TOP, *walk)), (30, ()))
    assert [stack.lines for stack in found.stacks] == [(0, 1), (0, 2, 3)]
    assert found.sites[1] == CallSite(TRAIN, 4, "main")


def test_a_generator_that_is_being_resumed_has_the_callers_that_it_has_else(tmp_path):
    encode = ("_iterencode", "/usr/lib/python3.11/site-packages/lines/encoder.py", 7)
    unknown = ("_other", "/usr/lib/python3.11/site-packages/lines/encoder.py", 9)
    whole = (THREAD, TOP, ("main", TRAIN, 4), encode)
    found = read(tmp_path, (10, whole), (16, (THREAD, encode)), (20, (THREAD, unknown)), (22, (THREAD, TOP)), (30, ()))
    assert [(stack.lines, stack.time_ns) for stack in found.stacks] == [((0, 1), 10_000_000), ((0,), 8_000_000)]
    assert found.threads[0].time_ns == 18_000_000


def test_profkits_own_work_is_none_of_the_programs(tmp_path):
    own = (THREAD, TOP, ("take", f"{PROFKIT}collect/recorder/recorder.py", 3))
    found = read(tmp_path, (10, own), (25, (THREAD, TOP)), (30, ()))
    assert [thread.time_ns for thread in found.threads] == [5_000_000]
    below = (("run", f"{PROFKIT}collect/launch/script.py", 3), *(THREAD, TOP)[1:])
    assert read(tmp_path, (10, below), (30, ())).threads[0].time_ns == 20_000_000
    assert read(tmp_path, (10, (("thread (9): profkit-sampler", "", 0), TOP)), (30, ()), thread=8).threads == ()


def test_the_lines_that_make_a_batch_are_told_from_those_that_ask_for_it(tmp_path):
    asks = (THREAD, TOP, ("__next__", LOADER, 1), ("fetch", FETCH, 2), ("Set.__getitem__", "/w/data.py", 6))
    found = read(tmp_path, (10, asks), (20, (THREAD, TOP, ("__next__", LOADER, 1))), (25, (THREAD, TOP)), (30, ()))
    assert [(stack.lines, stack.batch_from) for stack in found.stacks] == [((0, 1), 1), ((0,), 1), ((0,), -1)]


def test_what_pytorchs_own_python_does_is_told(tmp_path):
    torch = ("Linear.forward", "/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", 3)
    found = read(tmp_path, (10, (THREAD, TOP, torch)), (22, (THREAD, TOP)), (30, ()))
    assert [(stack.callee, stack.in_torch) for stack in found.stacks] == [("Linear.forward", True), ("", False)]


def test_workers_count_while_they_make_batches_and_only_their_own_lines(tmp_path):
    loop = (THREAD, TOP, ("_worker_loop", WORKER, 1))
    making = (*loop, ("fetch", FETCH, 2), ("Set.__getitem__", "/w/data.py", 6))
    found = read(tmp_path, (10, loop), (20, making), (30, ()), process=101)
    assert found.threads == (SampledThread("worker", "", 10_000_000),)
    assert found.stacks == (SampledStack(0, (0,), "", 10_000_000, 0),)
    assert found.sites == (CallSite("/w/data.py", 6, "Set.__getitem__"),)


def test_other_threads_are_told_apart_and_other_processes_are_nobodys(tmp_path):
    stack = (("thread (3): producer", "", 0), TOP)
    assert read(tmp_path, (10, stack), (30, ()), thread=9).threads[0].kind == "thread"
    assert read(tmp_path, (10, stack), (30, ()), process=101).threads == ()


def test_steps_that_were_not_sampled_as_a_whole_have_no_shares(tmp_path):
    samples = (10, (THREAD, TOP)), (60, ())
    assert read(tmp_path, *samples, to_ns=STARTED_NS + 50_000_000).threads
    found = read(tmp_path, *samples, to_ns=STARTED_NS + 50_000_001)
    assert found == StackSamples("the steps were too long for their stacks to be sampled as a whole")
    assert read(tmp_path, *samples, steps=0) == StackSamples()


def test_a_program_that_ended_without_pythons_exit_has_what_came_last(tmp_path):
    found = read(tmp_path, (10, (THREAD, TOP)), (60, ()), is_over=False, steps=0, plain_ns=STARTED_NS + 20_000_000)
    assert (found.steps, found.threads[0].time_ns) == (0, 30_000_000)


@pytest.mark.parametrize("content", ["", "{}", '[{"name": 3}]', "[1]"])
def test_what_py_spy_did_not_write_is_not_read(tmp_path, content):
    path = tmp_path / "spied.json"
    path.write_text(content)
    found = read_samples(path, request(), STARTED_NS, STARTED_NS + 50_000_000, 1, UserFiles())
    assert found.reason == "the samples of the program's stacks could not be read"
