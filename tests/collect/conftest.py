"""Setups that tests of recordings share: the recording of one call, closer sampling, and that nothing stays on."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from profkit.collect.boundaries import cycles
from profkit.collect.census.names import _UserModules
from profkit.collect.machine.sampler import Sampler
from profkit.collect.recorder.profiler import profile
from profkit.collect.sessions.session import ProfilerSession
from profkit.run.directory import Remark
from profkit.run.plan import Plan
from profkit.source.code import module_names
from profkit.source.remarks import review_sources
from tests.collect.reading import Event, export_whole, read_events
from tests.forks import ROOT

_TESTS = f"{ROOT / 'tests'}/"
_MANY_MODULES = 50
"""More than profkit itself imports when something is first recorded."""


@pytest.fixture(scope="module", autouse=True)
def _objects_of_earlier_tests_are_skipped() -> None:
    """A recording collects garbage and searches all living objects. Late in a session, what earlier tests imported and
    cached would make each recording several times as slow."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _what_a_test_imported_is_skipped() -> Iterator[None]:
    """The first optimizer of a process imports the compiler: half a million objects, which each recording would search
    and collect anew."""
    before = len(sys.modules)
    yield
    if len(sys.modules) > before + _MANY_MODULES:
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def _that_objects_are_frozen_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """To count them, twice, takes a tenth of a small recording."""
    monkeypatch.setattr("profkit.collect.machine.environment.gc", SimpleNamespace(get_freeze_count=lambda: 1))


@pytest.fixture(autouse=True)
def _nothing_is_compiled_yet() -> None:
    """Watches leave a process alone in which something was compiled, as another test may have done."""
    if dynamo := sys.modules.get("torch._dynamo"):
        dynamo.reset()
        dynamo.utils.counters.clear()


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[[Callable[[], Any]], list[Event]]:
    """Records a call and returns its events."""

    def record(action: Callable[[], Any]) -> list[Event]:
        recording = ProfilerSession(cuda=False)
        recording.start()
        try:
            action()
        finally:
            recording.stop()
        export_whole([recording], tmp_path)
        return read_events(tmp_path)

    return record


@pytest.fixture
def warnings_said(capfd: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """What was written to stderr since the last call."""
    return lambda: capfd.readouterr().err


@pytest.fixture
def watched_closely(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampling thread samples much more often, and yields the CPU in between."""
    monkeypatch.setattr("profkit.collect.recorder.recorder.Sampler", functools.partial(Sampler, interval_s=0.001))


class Clock:
    """Moves only when a program advances it, whatever the machine does. The thread computes for no time."""

    def __init__(self) -> None:
        self.now_ns = 0

    def perf_counter_ns(self) -> int:
        return self.now_ns

    time_ns = perf_counter_ns

    def thread_time_ns(self) -> int:
        return 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Times the steps, of which none waits for a CPU."""
    clock = Clock()
    for reader in ("recorder.recorder", "sessions.device_moments", "boundaries.choice", "boundaries.cycles"):
        monkeypatch.setattr(f"profkit.collect.{reader}.time", clock)
    for waits in ("count_crowded_ns", "count_crowded_ns_of_all"):
        monkeypatch.setattr(cycles, waits, lambda: 0)
    return clock


@pytest.fixture(autouse=True)
def nothing_is_left_on() -> Iterator[None]:
    """No test leaves a recording behind that would disturb another."""
    yield
    assert profile._current is None


@pytest.fixture(autouse=True)
def _no_step_is_timed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording ends with its steps, even if the machine is so busy that a step takes a millisecond or that some take
    several times as long as others."""
    monkeypatch.setattr(Plan, "finds_cycles", False)


_review = functools.cache(review_sources)


def _reviewed_once(paths: Iterable[str]) -> tuple[Remark, ...]:
    """The remarks on a test's own file, which stays as it is: they take a quarter of a small recording."""
    return _review(tuple(paths))


@pytest.fixture(autouse=True)
def _the_program_is_the_test(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all loaded test files only the test's own is read: reading hundreds takes longer than recording."""
    own = str(request.path)
    monkeypatch.setattr("profkit.collect.recorder.archive.user_sources", lambda is_user: [own] if is_user(own) else [])
    monkeypatch.setattr("profkit.collect.recorder.archive.review_sources", _reviewed_once)
    monkeypatch.setattr("profkit.collect.whole_run.watch.forget_surroundings", lambda: None)
    find = _UserModules._find

    def find_own(self: _UserModules, name: str) -> dict[str, Any] | None:
        """The variables of hundreds of other test modules would take several times as long to search."""
        file = module_names(name).get("__file__")
        is_of_others = isinstance(file, str) and file != own and file.startswith(_TESTS)
        return None if is_of_others else find(self, name)

    monkeypatch.setattr(_UserModules, "_find", find_own)
