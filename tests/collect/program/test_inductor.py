"""PyTorch's compiler is not imported by profkit's looking at a program that does without it."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from profkit.collect.memory.allocator import CudaAllocator
from profkit.collect.program import inductor
from tests.forks import LONGEST_S


@pytest.mark.parametrize(("others", "is_hidden"), [((), True), (("profkit-sampler",), True), (("loader",), False)])
def test_the_compiler_is_hidden_unless_another_thread_could_notice(monkeypatch, others, is_hidden):
    """``torch.profiler`` would import its 800 modules just to check for it."""
    monkeypatch.delitem(sys.modules, "torch._inductor", raising=False)
    monkeypatch.setattr(torch, "_lazy_modules", {"_inductor", "_export"})
    threads = [SimpleNamespace(name=name) for name in ("MainThread", *others)]
    monkeypatch.setattr(inductor.threading, "enumerate", lambda: threads)
    with inductor.without_inductor():
        assert ("_inductor" not in torch._lazy_modules) == is_hidden
    assert torch._lazy_modules == {"_inductor", "_export"}


def test_a_snapshot_of_the_memory_does_not_import_it(monkeypatch):
    """PyTorch looks for the lines of compiled code wherever a snapshot has frames."""
    monkeypatch.delitem(sys.modules, "torch._inductor", raising=False)
    monkeypatch.setattr(torch, "_lazy_modules", {"_inductor"})
    monkeypatch.setattr(inductor.threading, "enumerate", lambda: [SimpleNamespace(name="MainThread")])
    asked = []
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: asked.append("_inductor" in torch._lazy_modules))
    CudaAllocator().snapshot()
    assert asked == [False]


AMID_THE_IMPORT = """
import importlib.abc, sys, torch
from pathlib import Path
from profkit.collect.program.inductor import inductor_is_being_imported
from profkit.collect.sessions.session import ProfilerSession
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "torch._inductor.custom_graph_pass":  # the first that the settings import
            print(inductor_is_being_imported())
            session = ProfilerSession(cuda=False)
            session.start()
            torch.ones(2) + 1
            session.stop()
            trace = Path(sys.argv[1], "trace.json")
            session.write(trace)
            print("aten::ones" in trace.read_text())
sys.meta_path.insert(0, Finder())
import torch._inductor.config
print(inductor_is_being_imported(), torch._inductor.config.triton.cudagraphs is not None)
"""


def test_a_recording_may_begin_while_the_compiler_is_being_imported(tmp_path):
    """Making an optimizer imports it, for seconds on a crowded machine, where profkit may look once more at what comes
    before the first step. ``torch.profiler`` fails there: the module is there in part."""
    told = subprocess.run(
        [sys.executable, "-c", AMID_THE_IMPORT, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
    )
    assert told.stdout.split() == ["True", "True", "False", "True"], told.stderr
