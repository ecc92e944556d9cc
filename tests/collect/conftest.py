"""Recording a piece of a test with torch.profiler, as a run does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from profkit.collect.exporting import export
from profkit.collect.plan import Plan
from profkit.collect.profiler import profile
from profkit.collect.session import Recording
from tests.collect.reading import Event, read_events


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[[Callable[[], Any]], list[Event]]:
    """Records a call and gives its events."""

    def record(action: Callable[[], Any]) -> list[Event]:
        recording = Recording(cuda=False)
        recording.start()
        try:
            action()
        finally:
            recording.stop()
        export([recording], tmp_path)
        return read_events(tmp_path)

    return record


@pytest.fixture(autouse=True)
def nothing_is_left_on() -> Iterator[None]:
    """No test leaves a recording behind that another would run into."""
    yield
    assert profile._current is None


@pytest.fixture(autouse=True)
def _no_step_is_timed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording is over when its steps are, also where the machine is so busy that steps take a millisecond, or that
    some of them take several times as long as others."""
    monkeypatch.setattr(Plan, "finds_cycles", False)
