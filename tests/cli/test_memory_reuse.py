"""What a process does without that only reads a trace, and what it leaves as it was."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from profkit.cli._memory_reuse import reuse_memory_for_rules


def _in_a_process(code: str, **variables: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in {"OPENBLAS_NUM_THREADS", *variables}}
    program = f"from profkit.cli._memory_reuse import *; import os, sys, gc\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**kept, **variables}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists a process's threads")
def test_numpy_is_imported_without_threads_and_the_environment_is_as_before() -> None:
    code = """
before = dict(os.environ)
reuse_memory_for_columns()
print("numpy" in sys.modules, len(os.listdir("/proc/self/task")), dict(os.environ) == before)"""
    assert _in_a_process(code) == "True 1 True"


def test_what_the_user_has_set_stays() -> None:
    code = 'reuse_memory_for_columns(); print(os.environ["OPENBLAS_NUM_THREADS"])'
    assert _in_a_process(code, OPENBLAS_NUM_THREADS="2") == "2"


def test_reading_alone_leaves_the_garbage_collector_at_work() -> None:
    assert _in_a_process("reuse_memory_for_columns(); reuse_memory_for_rules(); print(gc.isenabled())") == "True"
    assert _in_a_process("stop_collecting_garbage(); print(gc.isenabled())") == "False"


@pytest.mark.parametrize(
    "library", [object(), OSError("no such library"), TypeError("no name")], ids=["no such function", "none", "no name"]
)
def test_where_the_c_library_cannot_be_told_nothing_happens(library: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(_name: None) -> object:
        if isinstance(library, Exception):
            raise library
        return library

    monkeypatch.setattr(ctypes, "CDLL", load)
    reuse_memory_for_rules()
