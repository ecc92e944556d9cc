"""Frames of other threads are read while no garbage is collected, as Python 3.11 would crash."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import profkit
from profkit.core.other_threads import FramesOfThreads

affected = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="only Python 3.11 collects while it makes frames")
CHURN = """
import gc, os, sys, threading, time
from profkit.core.other_threads import FramesOfThreads

main, seen = threading.get_ident(), {"reading": False, "collected": 0, "frames": 0}

def callback(phase, info):
    if seen["reading"] and threading.get_ident() != main:
        seen["collected"] += 1
        time.sleep(0.0003)

def read():
    while True:
        time.sleep(0.0001)
        with FramesOfThreads() as innermost:
            seen["reading"], frame = True, innermost.get(main)
            while frame is not None:
                frame, seen["frames"] = frame.f_back, seen["frames"] + 1
            seen["reading"] = False

def shallow(n, a=1):
    return deep(n - 1) if n > 0 else time.sleep(0)

def deep(n, a=1, b=2, c=3, d=4, e=5, f=6, g=7):
    return shallow(n - 1) if n > 0 else time.sleep(0)

gc.callbacks.append(callback)
gc.set_threshold(20, 5, 500)
threading.Thread(target=read, daemon=True).start()
while seen["frames"] < 20_000:
    shallow(40)
print(seen["collected"], flush=True)
os._exit(0)
"""


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    yield
    gc.enable()


@affected
def test_garbage_waits_only_while_frames_are_read():
    with FramesOfThreads() as innermost:
        assert not gc.isenabled()
        assert innermost[threading.get_ident()].f_code.co_name == "test_garbage_waits_only_while_frames_are_read"
    assert gc.isenabled()


def test_where_the_program_collects_none_it_stays_so():
    gc.disable()
    with FramesOfThreads():
        pass
    assert not gc.isenabled()


@affected
def test_garbage_waits_for_the_last_reader():
    is_inside, may_leave = threading.Event(), threading.Event()

    def read() -> None:
        with FramesOfThreads():
            is_inside.set()
            may_leave.wait()

    other = threading.Thread(target=read)
    other.start()
    is_inside.wait()
    with FramesOfThreads():
        pass
    assert not gc.isenabled()
    may_leave.set()
    other.join()
    assert gc.isenabled()


def test_an_error_while_frames_are_read_lets_garbage_go_on():
    with pytest.raises(ValueError, match="read"), FramesOfThreads():
        raise ValueError("read")
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_forked_meanwhile_collects():
    with FramesOfThreads():
        child = os.fork()
        if not child:
            os._exit(0 if gc.isenabled() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_no_collection_begins_while_another_threads_frames_are_read():
    """Without this the process ends with a segmentation fault within seconds."""
    ended = subprocess.run([sys.executable, "-c", CHURN], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert sys.version_info[:2] != (3, 11) or ended.stdout == "0\n"


def test_frames_of_threads_are_read_nowhere_else():
    package = Path(profkit.__file__).parent
    using = [path.name for path in package.rglob("*.py") if re.search(r"\b_current_frames\b", path.read_text("utf-8"))]
    assert sorted(using) == ["__init__.py", "other_threads.py"]  # the first tells of it in words
