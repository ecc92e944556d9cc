"""CUDA graphs that the compiler skips: what is kept of its reasons."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from profkit.collect.program import compiled
from profkit.collect.program.compiled import read_skipped_graphs
from profkit.run.directory import CallSite, SkippedGraph

USERS = "/home/me/train.py"
TRACE = (
    f'  File "{USERS}", line 4, in forward\n    self.update(y)\n'
    f'  File "{USERS}", line 9, in update\n    memory.add_(y)\n'
    '  File "/site-packages/lib.py", line 2, in add\n    return a + b\n'
)
STACK = (CallSite(USERS, 4, "forward", "self.update(y)"), CallSite(USERS, 9, "update", "memory.add_(y)"))


def is_user(file: str) -> bool:
    return file == USERS


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Stands in for the records of the compiler."""
    found: list[Any] = []
    monkeypatch.setitem(sys.modules, compiled._UTILS, SimpleNamespace(get_compilation_metrics=lambda: found))
    monkeypatch.delitem(sys.modules, compiled._TREES, raising=False)
    return found


def manage(monkeypatch: pytest.MonkeyPatch, **manager: Any) -> None:
    containers = {0: SimpleNamespace(tree_manager=SimpleNamespace(**manager))}
    local = SimpleNamespace(tree_manager_containers=containers)
    monkeypatch.setitem(sys.modules, compiled._TREES, SimpleNamespace(local=local))


def writing(*traces: str | None, static: tuple[int, ...] = ()) -> SimpleNamespace:
    placeholders = [SimpleNamespace(mutating_use_stack_trace=trace) for trace in traces]
    return SimpleNamespace(mutated_input_idxs=range(len(traces)), static_input_idxs=static, placeholders=placeholders)


def test_a_reason_from_compilation_has_its_function_and_the_users_lines(records):
    text = f"skipping cudagraphs due to cpu device (arg0_1). Found from : \n {TRACE}"
    records += [SimpleNamespace(compile_id="3/1", cudagraph_skip_reason=text), SimpleNamespace(compile_id="4/0")]
    assert read_skipped_graphs(is_user) == (SkippedGraph("cpu device (arg0_1)", STACK, 3),)


def test_inputs_that_a_function_writes_to_are_found_after_it_ran(records, monkeypatch):
    manage(monkeypatch, warned_mutation={5}, ids_to_funcs={5: writing(None, TRACE, None, static=(2,))})
    assert read_skipped_graphs(is_user) == (SkippedGraph("mutated inputs (2 instances)", STACK),)


def test_a_function_without_a_warning_is_left_out(records, monkeypatch):
    manage(monkeypatch, warned_mutation=set(), ids_to_funcs={5: writing(TRACE)})
    assert read_skipped_graphs(is_user) == ()


def test_repeated_reasons_are_kept_once(records):
    records += [SimpleNamespace(compile_id="3/0", cudagraph_skip_reason="skipping cudagraphs due to x")] * 3
    assert read_skipped_graphs(is_user) == (SkippedGraph("x", (), 3),)


@pytest.mark.parametrize("manager", [{}, {"warned_mutation": {5}, "ids_to_funcs": {}}, {"warned_mutation": 7}])
def test_unexpected_records_cost_nothing(records, monkeypatch, manager):
    manage(monkeypatch, **manager)
    records.append(SimpleNamespace(compile_id="3/0", cudagraph_skip_reason="skipping cudagraphs due to x"))
    assert read_skipped_graphs(is_user) == (SkippedGraph("x", (), 3),)


def test_no_compiler_is_imported(monkeypatch):
    for name in (compiled._UTILS, compiled._TREES):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert read_skipped_graphs(is_user) == ()
    assert compiled._TREES not in sys.modules
