"""The parent's side of a plan: the planning process fails, or sends nonsense or endless output."""

from __future__ import annotations

import sys

import pytest

from profkit.memory_planner import parent
from profkit.memory_planner.plan import PlanRequest

REQUEST = PlanRequest("models:net", 1)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import os; os._exit(7)", "ended with status 7 and without an answer"),
        ("import os; os.kill(os.getpid(), 9)", "ended with signal 9"),
        ("import sys; sys.stdin.read(); print('{\"plan\": 3}')", "ended with status 0 and without an answer"),
        ("import sys; sys.stdin.read()\nwhile True: sys.stdout.write('x' * 65536)", "without an answer"),
    ],
    ids=["exit", "signal", "nonsense", "without end"],
)
def test_a_process_without_an_answer_is_reported(monkeypatch, program, words):
    monkeypatch.setattr(parent, "COMMAND", (sys.executable, "-c", program))
    answer = parent.make_plan(REQUEST)
    assert answer.plan is None
    assert words in answer.traceback
