"""PyTorch's compiler is not imported by profkit's looking at a program that does without it."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from profkit.collect.memory.allocator import CudaAllocator
from profkit.collect.program import inductor


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
