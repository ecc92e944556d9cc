"""One torch.profiler recording: its file, its silence, and how it makes way for the program's own profilers."""

from __future__ import annotations

import gc
import gzip
import io
import json
import os
import re
import resource
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, schedule

from profkit.collect.sessions import exporting
from profkit.collect.sessions.session import (
    ProfilerSession,
    ProfilerWatch,
    _settings,
    another_profiler_runs,
    is_capturing,
    pause_marked,
    when_cuda_starts,
)
from profkit.core.errors import RunDirectoryError
from tests.collect.reading import export_whole, read_events, steps_of

_PLUGIN_PATTERN = re.compile(r"^(.*?)(\.\d+)?\.pt\.trace\.json(?:\.gz)?$")
"""The names that torch-tb-profiler 0.4.3 accepts for a worker's trace (torch_tb_profiler/consts.py)."""


def record_steps(count: int, finish_last: bool = True, shapes: bool = True) -> ProfilerSession:
    recording = ProfilerSession(cuda=False, shapes=shapes)
    recording.start()
    for step in range(count):
        recording.begin_step(step)
        torch.rand(3) + 1
        if finish_last or step < count - 1:
            recording.end_step()
    recording.stop()
    return recording


def test_the_trace_is_the_only_file_and_has_a_name_for_tensorboard(tmp_path):
    name = export_whole([record_steps(1)], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    match = _PLUGIN_PATTERN.match(name)
    assert match
    assert match[2]
    assert match[1].endswith(f"_{os.getpid()}")
    assert name.endswith(".gz")


def test_steps_shapes_and_memory_are_recorded(tmp_path):
    export_whole([record_steps(2)], tmp_path)
    events = read_events(tmp_path)
    assert sorted(steps_of(events)) == [0, 1]
    addition = next(event for event in events if event["name"] == "aten::add")
    assert addition["args"]["Input Dims"][0] == [3]
    (trace,) = tmp_path.iterdir()
    assert b'"[memory]"' in gzip.decompress(trace.read_bytes())


def test_an_unfinished_step_is_kept_but_not_as_a_step(tmp_path):
    export_whole([record_steps(11, finish_last=False)], tmp_path, unfinished_step=10)
    events = read_events(tmp_path)
    assert sorted(steps_of(events)) == list(range(10))
    assert [event["name"] for event in events if event["name"] == "profkit.remainder"] == ["profkit.remainder"]


def test_consecutive_recordings_are_joined_into_one_trace(tmp_path):
    recordings = [record_steps(2), record_steps(3, shapes=False)]
    name = export_whole(recordings, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    trace = json.loads(gzip.decompress((tmp_path / name).read_bytes()))
    assert trace["record_shapes"] == 1
    steps = [event["ts"] for event in trace["traceEvents"] if event["name"].startswith("ProfilerStep#")]
    assert len(steps) == 5
    operators = [event for event in trace["traceEvents"] if event["name"] == "aten::add"]
    assert [("Input Dims" in event["args"]) for event in operators] == [True, True, False, False, False]
    assert len({event["args"]["External id"] for event in operators}) == 5
    assert [event["ts"] for event in operators] == sorted(event["ts"] for event in operators)


def test_with_a_gpu_each_recording_has_ids_of_its_own(tmp_path, monkeypatch):
    """CUPTI counts from 1 again once it was detached: a launch would be taken for the one of another recording."""
    monkeypatch.setattr(exporting, "cuda_is_used", lambda: True)
    text = '{{"deviceProperties": [{{"id": 0}}], "traceEvents": [{}, {{"name": "Record Window End"}}]}}'
    launch = '{"ph": "X", "cat": "cuda_runtime", "args": {"External id": 8, "correlation": 3}}'
    arrow = '{"ph": "s", "id": 3, "cat": "ac2g"}'
    files = [io.BytesIO(text.format(f"{launch}, {arrow}").encode()) for _ in range(3)]
    monkeypatch.setattr(exporting, "_size", lambda file: len(file.getvalue()))
    name = exporting.export(files, tmp_path)
    trace = json.loads(gzip.decompress((tmp_path / name).read_bytes()))
    events = [event for event in trace["traceEvents"] if "cat" in event]
    apart = 1 << 28
    assert trace["deviceProperties"] == [{"id": 0}]
    assert [event["args"]["External id"] for event in events[::2]] == [8, 8, 8]
    assert [event["args"]["correlation"] for event in events[::2]] == [3 + 2 * apart, 3 + apart, 3]
    assert [event["id"] for event in events[1::2]] == [3 + 2 * apart, 3 + apart, 3]


def test_a_pause_is_marked(tmp_path):
    recording = ProfilerSession(cuda=False)
    recording.start()
    with pause_marked():
        torch.rand(1)
    recording.stop()
    export_whole([recording], tmp_path)
    assert [event["cat"] for event in read_events(tmp_path) if event["name"] == "profkit.pause"] == ["user_annotation"]


def test_a_missing_directory_is_an_error_that_names_it(tmp_path):
    with pytest.raises(RunDirectoryError, match="absent"):
        export_whole([record_steps(1)], tmp_path / "absent")


def write_half(_: object, path: str) -> None:
    Path(path).write_text('{"traceEvents": [{"ph": "X", "na')


def test_a_truncated_trace_is_refused(tmp_path, monkeypatch):
    recording = record_steps(1)
    monkeypatch.setattr(profile, "export_chrome_trace", write_half)
    with pytest.raises(RunDirectoryError, match="it was cut off for an unknown reason"):
        export_whole([recording], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_trace_too_large_for_the_disk_is_refused_with_the_systems_reason(tmp_path, monkeypatch):
    recording = record_steps(1)
    monkeypatch.setattr(profile, "export_chrome_trace", write_half)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, hard))
    try:
        with pytest.raises(RunDirectoryError, match="the trace could not be written: File too large"):
            export_whole([recording], tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_recording_that_another_profiler_destroyed_is_an_error():
    recording = ProfilerSession(cuda=False)
    recording.start()
    with profile(activities=[ProfilerActivity.CPU]):
        pass
    with pytest.raises(RuntimeError, match="another profiler took its place"):
        recording.stop()


def test_the_log_level_is_restored(monkeypatch):
    monkeypatch.delenv("KINETO_LOG_LEVEL", raising=False)
    record_steps(1)
    assert "KINETO_LOG_LEVEL" not in os.environ
    monkeypatch.setenv("KINETO_LOG_LEVEL", "3")
    record_steps(1)
    assert os.environ["KINETO_LOG_LEVEL"] == "3"


def test_freeing_memory_older_than_the_recording_prints_nothing(capfd):
    for _ in range(3):
        old = [torch.rand(10) for _ in range(1200)]  # PyTorch would print a line at every thousandth
        recording = ProfilerSession(cuda=False)
        recording.start()
        old.clear()
        recording.stop()
    assert capfd.readouterr() == ("", "")


def test_without_another_profiler_none_is_seen():
    gc.collect()  # profilers of other tests
    record_steps(1)
    assert not another_profiler_runs()


def test_a_recording_goes_past_what_the_program_put_in_place_of_the_profiler(tmp_path, monkeypatch):
    def refuse(*_arguments, **_named):
        raise AssertionError

    gc.collect()  # profilers of other tests
    monkeypatch.setattr(torch.profiler, "profile", refuse)
    for holder in (torch.profiler, torch.autograd.profiler):
        monkeypatch.setattr(holder, "record_function", refuse)
    assert not another_profiler_runs()
    recording = ProfilerSession(cuda=False)
    recording.start()
    recording.begin_step(1)
    with pause_marked():
        torch.rand(1)
    recording.stop()
    export_whole([recording], tmp_path)
    assert {"profkit.pause", "ProfilerStep#1"} <= {event["name"] for event in read_events(tmp_path)}


def test_a_running_profiler_is_seen():
    with profile(activities=[ProfilerActivity.CPU]):
        assert another_profiler_runs()


def test_a_profiler_that_only_warms_up_is_seen():
    own = profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=2, active=1))
    own.start()
    try:
        assert another_profiler_runs()
    finally:
        own.stop()


def test_a_profiler_that_the_program_starts_takes_precedence():
    recording, stopped = ProfilerSession(cuda=False), []

    def give_way() -> None:
        recording.stop()
        stopped.append(recording)

    watch = ProfilerWatch(give_way)
    watch.install()
    try:
        with watch:
            recording.start()
        assert stopped == []
        with profile(activities=[ProfilerActivity.CPU]) as own:
            torch.rand(3)
    finally:
        watch.remove()
    assert stopped == [recording]
    assert "aten::rand" in {event.name for event in own.events() or ()}


def test_the_watch_leaves_nothing_behind():
    kind = torch.autograd.profiler.profile
    before = kind._prepare_trace
    watch = ProfilerWatch(lambda: None)
    watch.install()
    assert kind._prepare_trace is not before
    watch.remove()
    assert kind._prepare_trace is before


def test_asking_for_a_capture_does_not_initialise_cuda():
    assert not torch.cuda.is_initialized()
    assert not is_capturing()
    assert not torch.cuda.is_initialized()


def test_the_start_of_cuda_is_announced_to_living_listeners(monkeypatch):
    queued: list[Any] = []
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    monkeypatch.setattr(torch.cuda, "_lazy_call", queued.append)
    heard: list[int] = []

    def announce() -> None:
        heard.append(1)

    when_cuda_starts(announce)
    queued[0]()
    assert heard == [1]
    del announce
    queued[0]()
    assert heard == [1]


def test_kineto_prints_nothing_on_stderr(capfd):
    record_steps(1)
    sys.stderr.flush()
    assert capfd.readouterr().err == ""


def test_pytorchs_warning_about_cycles_does_not_reach_the_program(monkeypatch):
    """PyTorch 2.10 to 2.12 warn at the start of a profiler that does not keep events. The program's own profilers still
    warn it."""
    prepare = profile.prepare_trace

    def prepare_and_warn(started: Any) -> None:
        prepare(started)
        if not started.acc_events:
            warnings.warn("Profiler clears events at the end of each cycle", UserWarning, stacklevel=2)

    monkeypatch.setattr(profile, "prepare_trace", prepare_and_warn)
    record_steps(1)
    with pytest.warns(UserWarning, match="clears events"), profile(activities=[ProfilerActivity.CPU]):
        pass


def test_stopping_a_recording_parses_no_event(monkeypatch):
    looked: list[object] = []
    monkeypatch.setattr(torch.autograd.profiler.profile, "_ensure_function_events", looked.append)
    record_steps(1)
    assert looked == []


def test_synchronisations_are_recorded_with_cuda(monkeypatch):
    asked: list[dict[str, bool]] = []
    made: list[Any] = []
    monkeypatch.setattr(torch._C._profiler, "_ExperimentalConfig", lambda **options: asked.append(options) or "it")
    monkeypatch.setattr("profkit.collect.sessions.session.torch_profile", lambda **options: made.append(options))
    ProfilerSession(cuda=False)
    assert asked == []
    ProfilerSession(cuda=True)
    ProfilerSession(cuda=True, trees=False)
    assert asked == [{"enable_cuda_sync_events": True}] * 2
    assert [options["experimental_config"] for options in made] == [None, "it", "it"]


def test_without_trees_the_same_is_written(tmp_path):
    """Names, kinds and arguments; only in a stop that made objects can the events be asked for."""
    written, trees = [], []
    for wanted in (True, False):
        session = ProfilerSession(cuda=False, trees=wanted)
        session.start()
        session.begin_step(0)
        weight = torch.ones(4, requires_grad=True)
        (weight * 2).sum().backward()
        session.stop()
        trees.append(session.events())
        session.write(tmp_path / "trace.json")
        events = json.loads((tmp_path / "trace.json").read_bytes())["traceEvents"]
        spans = [one for one in events if one["ph"] == "X"]  # memory of other tests may be freed meanwhile
        written.append([(one["name"], one["cat"], sorted(one.get("args", {}))) for one in spans])
    assert written[0] == written[1]
    assert trees[0]


def test_a_version_that_always_makes_objects_records_synchronisations_too(monkeypatch):
    def settings(**options: bool) -> object:
        if "trace_only" in options:
            raise TypeError
        return options

    monkeypatch.setattr(torch._C._profiler, "_ExperimentalConfig", settings)
    assert _settings(synchronisations=True, trees=False) == {"enable_cuda_sync_events": True}
    assert _settings(synchronisations=False, trees=False) is None


def test_this_version_of_pytorch_can_record_synchronisations():
    with profile(
        activities=[ProfilerActivity.CPU], experimental_config=_settings(synchronisations=True, trees=True)
    ) as recording:
        torch.ones(1)
    assert recording.events()


@pytest.mark.parametrize("refusal", [AttributeError, TypeError, DeprecationWarning])
def test_a_version_without_synchronisations_records_the_rest(monkeypatch, refusal):
    def refuse(**_: object) -> None:
        raise refusal

    made: list[Any] = []
    monkeypatch.setattr(torch._C._profiler, "_ExperimentalConfig", refuse)
    monkeypatch.setattr("profkit.collect.sessions.session.torch_profile", lambda **options: made.append(options))
    ProfilerSession(cuda=True)
    assert made[0]["experimental_config"] is None
