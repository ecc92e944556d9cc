"""The memory settings of a process that only reads a trace, and what they leave unchanged."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from profkit.core.memory_reuse import reuse_memory_for_rules


def _in_a_process(code: str, **variables: str) -> str:
    own = (name for name in os.environ if not name.endswith("_NUM_THREADS"))
    kept = {name: os.environ[name] for name in own if name not in variables}
    program = f"from profkit.core.memory_reuse import *; import os, sys, gc\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**kept, **variables}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists a process's threads")
def test_numpy_starts_no_threads_and_the_environment_stays_unchanged() -> None:
    code = """
before = dict(os.environ)
reuse_memory_for_columns()
print("numpy" in sys.modules, len(os.listdir("/proc/self/task")), dict(os.environ) == before)"""
    assert _in_a_process(code) == "True 1 True"


def test_variables_set_by_the_user_are_kept() -> None:
    code = 'reuse_memory_for_columns(); print(os.environ["OPENBLAS_NUM_THREADS"])'
    assert _in_a_process(code, OPENBLAS_NUM_THREADS="2") == "2"


def test_reading_alone_leaves_the_garbage_collector_on() -> None:
    assert _in_a_process("reuse_memory_for_columns(); reuse_memory_for_rules(); print(gc.isenabled())") == "True"
    assert _in_a_process("stop_collecting_garbage(); print(gc.isenabled())") == "False"


def test_garbage_is_collected_again_unless_it_was_not_before() -> None:
    code = """
with collecting_later():
    print(gc.isenabled())
print(gc.isenabled())
gc.disable()
with collecting_later():
    pass
print(gc.isenabled())"""
    assert _in_a_process(code).split() == ["False", "True", "False"]


def test_what_was_made_meanwhile_counts_as_old_and_nothing_stays_frozen() -> None:
    code = """
with collecting_later():
    made = [[] for _ in range(5000)]
young = {id(one) for one in gc.get_objects(generation=0)}
print(any(id(one) in young for one in made), gc.get_freeze_count())
gc.freeze()
count = gc.get_freeze_count()
with collecting_later():
    pass
print(gc.get_freeze_count() == count)"""
    assert _in_a_process(code).split() == ["False", "0", "True"]


@pytest.mark.parametrize(
    "library", [object(), OSError("no such library"), TypeError("no name")], ids=["no such function", "none", "no name"]
)
def test_without_mallopt_nothing_happens(library: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(_name: None) -> object:
        if isinstance(library, Exception):
            raise library
        return library

    monkeypatch.setattr(ctypes, "CDLL", load)
    reuse_memory_for_rules()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists a process's threads")
def test_the_process_that_diagnoses_a_trace_has_no_threads_and_can_be_forked(tmp_path: Path) -> None:
    trace = tmp_path / "a.json"
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 5}
    trace.write_text(json.dumps({"traceEvents": [event]}))
    code = f"""
from profkit.cli.diagnose import command
command.main([{str(trace)!r}, "--output", {str(tmp_path / "run")!r}], standalone_mode=False)
print(len(os.listdir("/proc/self/task")))"""
    assert _in_a_process(code).splitlines()[-1] == "1"
