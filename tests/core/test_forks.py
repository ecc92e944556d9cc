"""Another process that works for this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from profkit.core.forks import PROCESSES, Channel, Fork, processes_at_hand

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    # The runner of the tests has threads; the children touch nothing that these could hold.
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


@contextmanager
def fork(work) -> Iterator[Channel]:
    other = Fork(work)
    try:
        yield other.channel
    finally:
        other.end()


def double(channel: Channel) -> None:
    while True:
        channel.send(channel.receive() * 2)


def test_values_go_both_ways_in_order() -> None:
    with fork(double) as channel:
        for value in (1, "a", [None]):
            channel.send(value)
        assert [channel.receive() for _ in range(3)] == [2, "aa", [None, None]]


def test_a_value_may_be_larger_than_a_pipe_holds() -> None:
    with fork(double) as channel:
        channel.send(b"x" * 3_000_001)
        assert channel.receive() == b"x" * 6_000_002


def test_whether_there_is_an_answer_is_known_without_waiting() -> None:
    with fork(lambda channel: channel.send(channel.receive())) as channel:
        assert not channel.has_more()
        channel.send(1)
        while not channel.has_more():
            pass
        assert channel.receive() == 1


def test_a_dead_process_answers_nothing_and_takes_no_requests() -> None:
    with fork(lambda channel: os._exit(9)) as channel:
        with pytest.raises(EOFError):
            channel.receive()
        with pytest.raises(BrokenPipeError):
            while True:  # its other end may take a moment longer to close
                channel.send(1)


def test_an_error_ends_the_process_without_running_the_cleanup_of_its_parent(capfd: pytest.CaptureFixture[str]) -> None:
    print("not yet written", end="")
    with fork(lambda channel: 1 / 0) as channel, pytest.raises(EOFError):
        channel.receive()
    sys.stdout.flush()
    assert capfd.readouterr().out == "not yet written"


@pytest.mark.usefixtures("_leaves_no_process")
def test_no_process_and_no_open_file_is_left() -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    with fork(double), fork(double):
        assert len(os.listdir("/proc/self/fd")) == len(before) + 4
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_if_no_process_can_be_started_no_open_file_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError("no more processes")

    before = sorted(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fork", refuse)
    with pytest.raises(BlockingIOError):
        Fork(double)
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_the_processes_end_when_their_parent_is_killed() -> None:
    """Each holds the writing end of a pipe as long as it lives."""
    code = """if True:
        import os, sys
        from profkit.core.forks import Fork
        forks = [Fork(lambda channel: channel.receive()) for _ in range(3)]
        print("begun", flush=True)
        sys.stdin.read()
    """
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGKILL)
    assert process.stdout.read() == ""  # at the end of file: nobody else holds it any more
    process.communicate()


def test_a_process_with_threads_is_not_forked() -> None:
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait)
    thread.start()
    try:
        assert processes_at_hand() == 1
    finally:
        go_on.set()
        thread.join()


def in_a_fresh_process(code: str, **variables: str) -> str:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", **variables}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


ASK = "from profkit.core.forks import processes_at_hand as f; print(f())"


def test_a_process_without_threads_uses_the_cpus_that_it_may_run_on() -> None:
    expected = min(4, len(os.sched_getaffinity(0)))
    assert in_a_fresh_process(ASK) == str(expected)


@pytest.mark.parametrize(("variable", "processes"), [("1", "1"), ("0", "1"), ("many", "1")])
def test_the_environment_sets_the_number_of_processes(variable: str, processes: str) -> None:
    assert in_a_fresh_process(ASK, **{PROCESSES: variable}) == processes


def test_one_cpu_means_one_process() -> None:
    assert in_a_fresh_process(f"import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); {ASK}") == "1"
