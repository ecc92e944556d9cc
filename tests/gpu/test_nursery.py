"""Processes that are forked from one that has imported PyTorch."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forks import LONGEST_S
from tests.gpu.children import Child
from tests.gpu.nursery import Nursery
from tests.gpu.rows import PartFailed

PROGRAM = """
import os
import sys

at_start = "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized()

def main():
    line = sys.stdin.readline().strip()
    if line == "fail":
        raise ValueError("no data")
    if line == "many":
        print("x" * 200_000)
    print(__name__, sys.argv[1:], "torch" in sys.modules, at_start, os.getpgid(0) == os.getpid(), line)
    print("noise", file=sys.stderr)

main()
"""


@pytest.fixture(scope="module")
def nursery(tmp_path_factory) -> Iterator[Nursery]:
    folder = tmp_path_factory.mktemp("programs")
    (folder / "waiting.py").write_text(PROGRAM)
    checkout = str(Path(__file__).parents[2])
    with Nursery({**os.environ, "PYTHONPATH": f"{folder}:{checkout}"}) as opened:
        yield opened


def test_a_fork_runs_its_module_as_a_program_of_its_own_with_pytorch_imported(nursery):
    for number in (1, 2):
        forked = nursery.start("waiting", ["a", str(number)])
        out, err = forked.communicate("go\n", timeout=LONGEST_S)
        assert out == f"__main__ ['a', '{number}'] True False True go\n"
        assert (err, forked.returncode) == ("noise\n", 0)


def test_forks_live_side_by_side_and_end_when_they_are_asked_to(nursery):
    first, second = nursery.start("waiting", []), nursery.start("waiting", [])
    assert len({first.pid, second.pid, os.getpid()}) == 3
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(0.0)
    second.kill()
    assert second.wait(LONGEST_S) == -signal.SIGKILL
    assert first.communicate("go\n", timeout=LONGEST_S)[1] == "noise\n"
    second.kill()  # it is gone, and nobody else is hit
    second.communicate()


def test_a_fork_can_be_stopped_with_its_children(nursery):
    forked = nursery.start("waiting", [])
    os.killpg(forked.pid, signal.SIGSTOP)
    os.killpg(forked.pid, signal.SIGCONT)
    assert forked.communicate("many\n", timeout=LONGEST_S)[0].startswith("xxx")


@pytest.mark.parametrize(("asked", "reason"), [("", None), ("fail", "it: ValueError: no data")])
def test_a_child_may_be_a_fork(nursery, asked, reason):
    with Child("it", "waiting", nursery=nursery) as child:
        if reason is None:
            child.finish(60)
        else:
            with pytest.raises(PartFailed, match=f"^{reason}$"):
                child.finish(60, asked)


def test_nobody_is_forked_from_a_process_that_is_gone():
    with Nursery(os.environ) as broken:
        broken._server.kill()
        broken._server.wait()
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            broken.start("waiting", [])
