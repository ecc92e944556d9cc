"""After the planned steps the garbage collector runs once, so the trace shows what was waiting for it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from profkit.collect.recorder.profiler import profile
from tests.collect.reading import is_inside, read_events, steps_of


class Cycle:
    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def collector_never_runs_by_itself() -> Iterator[None]:
    """The collector is on but does not run by itself during the test."""
    gc.collect()
    before = gc.get_threshold()
    gc.set_threshold(1_000_000, 1000, 1000)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("collector_never_runs_by_itself")
def test_waiting_garbage_is_collected_outside_the_steps(tmp_path):
    with profile(tmp_path, wait=0, warmup=0, active=2) as recording:
        recording.step()
        left = weakref.ref(Cycle())
        recording.step()
        assert left() is not None
        recording.step()
        assert left() is None
    events = read_events(tmp_path)
    (full,) = [event for event in events if event["name"].startswith("profkit.gc#2")]
    assert not any(is_inside(full, step) for step in steps_of(events).values())


@pytest.mark.usefixtures("collector_never_runs_by_itself")
def test_nothing_is_collected_if_the_program_switched_the_collector_off(tmp_path):
    gc.disable()
    try:
        with profile(tmp_path, wait=0, warmup=0, active=2) as recording:
            recording.step()
            left = weakref.ref(Cycle())
            recording.step()
            recording.step()
            assert left() is not None
    finally:
        gc.enable()
