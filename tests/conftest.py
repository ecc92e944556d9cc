"""Settings of the property-based tests, and the corpus of recordings made elsewhere."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.end_to_end.programs import Verdict, render
from tests.forks import Forks
from tests.recordings import Recordings, default_root, forget, tidy

settings.register_profile("steady", deadline=None, derandomize=True, max_examples=60)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

# Tests start hundreds of processes: each would compile profkit anew where the surroundings forbid to keep bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# They run side by side: threads of one that wait for work must not keep the others from the processors.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# What breaks inside profkit fails the test that meets it, instead of a line in a report.
os.environ["PROFKIT_STRICT"] = "1"
# No test leaves a file beside a recording that it reads.
os.environ["PROFKIT_CACHE"] = "0"
# What was once measured on this machine must not decide what a test sees.
_CACHE = tempfile.TemporaryDirectory(prefix="profkit-cache-")
os.environ["XDG_CACHE_HOME"] = _CACHE.name

_HAS_FAILED = pytest.StashKey[bool]()
_BESIDE_THE_CHECKOUT = Path(__file__).parents[2] / "shared" / "corpus"


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Real recordings, which are no part of the project: tests that need them skip where they are absent."""
    directory = Path(os.environ.get("PROFKIT_CORPUS") or _BESIDE_THE_CHECKOUT)
    if not directory.is_dir():
        pytest.skip(f"no corpus of recordings at {directory}: set PROFKIT_CORPUS")
    return directory


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Processes that need not import PyTorch first."""
    with Forks() as started:
        yield started


@pytest.fixture
def recordings(request: pytest.FixtureRequest, forks: Forks) -> Iterator[Recordings]:
    """Runs that other tests, and later sessions, need not make again, unless this test fails."""
    given = Recordings(default_root(), forks)
    yield given
    if request.node.stash.get(_HAS_FAILED, False):
        for kept in given.used:
            forget(kept)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tell the fixtures of a test how it ended."""
    report = yield
    if report.failed:
        item.stash[_HAS_FAILED] = True
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each worker has a part of the slow tests at the head of its share, which it was given first: what is left at the
    end is short. A test that races, and says with what, may fail once."""
    for item in items:
        if (race := item.get_closest_marker("races")) is not None:
            assert race.kwargs.get("why"), f"{item.nodeid}: say what it races with"
            item.add_marker(pytest.mark.flaky(reruns=1))
    count = getattr(config, "workerinput", {}).get("workercount", 1)
    slow = [item for item in items if item.get_closest_marker("slow") is not None]
    others = [item for item in items if item.get_closest_marker("slow") is None]
    items[:] = [
        item
        for number in range(count)
        for part in (slow, others)
        for item in part[len(part) * number // count : len(part) * (number + 1) // count]
    ]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What the tests are made of stays, so nobody looks for garbage in it, neither while it is imported nor when a
    recording collects garbage and looks at what is alive."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Before the workers start."""
    if not hasattr(session.config, "workerinput"):
        tidy(default_root())


@pytest.fixture
def _leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every process that the test forked is gone when it ends, and somebody asked how it ended."""
    forked: list[int] = []
    fork = os.fork

    def remember() -> int:
        pid = fork()
        forked.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", remember)
    yield
    assert forked
    for pid in forked:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How the ordinary programs fared, as ``python -m tests.programs`` shows it; the rows come from all workers."""
    reports = [report for state in ("passed", "failed") for report in terminalreporter.stats.get(state, [])]
    properties = [pair for report in reports if report.when == "call" for pair in report.user_properties]
    verdicts = [Verdict(**value) for name, value in properties if name == "program"]
    if verdicts:
        terminalreporter.section("ordinary programs")
        terminalreporter.write_line(render(sorted(verdicts, key=lambda verdict: verdict.program)))
