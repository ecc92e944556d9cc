"""The environment variable that makes Kineto detach CUPTI: when it is set, and that it is removed again."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from profkit.collect.recorder.profiler import profile
from profkit.collect.sessions import detaching, session
from profkit.collect.sessions.detaching import STAYS_ATTACHED, detachable, stays_attached
from profkit.collect.sessions.session import ProfilerSession
from profkit.run.directory import load_run
from tests.collect.training import train

VARIABLE = "TEARDOWN_CUPTI"


class Kineto:
    """Stands in for PyTorch's profiler and notes what it finds in the environment."""

    def __init__(self, seen: list[Any], **_: object) -> None:
        self._seen = seen
        self.profiler = None

    def start(self) -> None:
        self._seen.append(("start", os.environ.get(VARIABLE)))

    def stop(self) -> None:
        self._seen.append(("stop", os.environ.get(VARIABLE)))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What Kineto and calls of CUDA 13 found in the environment."""
    found: list[Any] = []

    class Stream:
        def query(self) -> bool:
            found.append(("call", os.environ.get(VARIABLE)))
            return True

    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(detaching.time, "sleep", lambda _: None)
    monkeypatch.setattr(session, "torch_profile", lambda **options: Kineto(found, **options))
    monkeypatch.setattr(session, "_is_profiling", lambda: True)
    return found


def record(cuda: bool = True) -> None:
    recording = ProfilerSession(cuda)
    recording.start()
    assert VARIABLE not in os.environ or os.environ[VARIABLE] == "0"
    recording.stop()


def test_cupti_is_detached_at_the_stop_and_attached_again_at_the_next_start(seen):
    record()
    assert seen == [("start", "1"), ("stop", "1"), *[("call", "1")] * 5]
    assert VARIABLE not in os.environ


def test_a_recording_without_cuda_sets_nothing(seen):
    record(cuda=False)
    assert seen == [("start", None), ("stop", None)]


def test_a_value_set_by_the_user_stays(seen, monkeypatch):
    monkeypatch.setenv(VARIABLE, "0")
    record()
    assert seen == [("start", "0"), ("stop", "0")]
    assert os.environ[VARIABLE] == "0"
    assert stays_attached()


def test_a_detachment_that_the_user_asked_for_is_completed_at_once(seen, monkeypatch):
    monkeypatch.setenv(VARIABLE, "1")
    with detachable():
        detaching.detach()
    assert seen == [("call", "1")] * 5
    assert os.environ[VARIABLE] == "1"


@pytest.mark.parametrize(
    ("version", "stays"),
    [("11.8", True), ("12.4", True), ("12.5", True), ("12.6", False), ("13.0", False), (None, False), ("odd", True)],
)
def test_before_cuda_12_6_the_profiler_stays_attached(seen, monkeypatch, version, stays):
    """Programs with CUDA graphs would crash after a detachment."""
    monkeypatch.setattr(torch.version, "cuda", version)
    assert stays_attached() is stays
    record()
    assert (("stop", "1") in seen) is (version is not None and not stays)


def test_a_refusal_by_pytorch_is_left_alone(seen):
    with detachable():
        os.environ[VARIABLE] = "0"
    assert os.environ.pop(VARIABLE) == "0"


def test_an_error_in_a_kernel_of_the_program_is_not_raised_here(seen, monkeypatch):
    def fail() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "current_stream", fail)
    record()
    assert seen == [("start", "1"), ("stop", "1")]


@pytest.mark.parametrize(("version", "is_noted"), [("12.4", True), ("12.8", False)])
def test_a_profiler_that_stays_attached_is_noted(tmp_path, monkeypatch, version, is_noted):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(torch.version, "cuda", version)
    monkeypatch.setattr("profkit.collect.recorder.archive.cuda_is_used", lambda: True)
    with profile(tmp_path, wait=1, warmup=1, active=1) as recording:
        train(6, recording)
    assert (STAYS_ATTACHED in load_run(tmp_path).notes) is is_noted


def test_without_a_gpu_nothing_is_noted(tmp_path):
    with profile(tmp_path, wait=1, warmup=1, active=1) as recording:
        train(6, recording)
    assert STAYS_ATTACHED not in load_run(tmp_path).notes
