"""What one timed run notes of itself, by a clock that is set by hand."""

from __future__ import annotations

import importlib
import json
from types import SimpleNamespace

from profkit.collect.launch import turn


def test_neither_the_time_of_a_look_at_the_graph_nor_its_waits_count(tmp_path, monkeypatch):
    clock = SimpleNamespace(now=0, crowded=0)

    def pass_by(took: int, waited: int) -> int:
        clock.now, clock.crowded = clock.now + took, clock.crowded + waited
        return 7

    monkeypatch.setattr(turn, "time", SimpleNamespace(perf_counter_ns=lambda: clock.now))
    monkeypatch.setattr(turn, "_count_graph_nodes", lambda: pass_by(100, 90))
    monkeypatch.setattr(turn, "_elsewhere_s", lambda: 0.0)
    monkeypatch.setattr(turn.Turn, "_count_crowded_ns", lambda _: clock.crowded)
    optimizer = importlib.import_module("torch.optim.optimizer")
    for when in ("pre", "post"):
        monkeypatch.setattr(optimizer, f"register_optimizer_step_{when}_hook", lambda _: None)
    pass_by(1, 1)
    watched = turn.Turn(tmp_path / "result.json", None)
    watched.begin()
    for _ in range(8):
        pass_by(10, 5)
        watched._after_step()
    watched.end()
    seen = json.loads((tmp_path / "result.json").read_text())
    assert seen["step_ns"] == [1 + 10 * number for number in range(1, 9)]
    assert seen["step_crowded_ns"] == [1 + 5 * number for number in range(1, 9)]
    assert (seen["run_ns"], seen["crowded_ns"], seen["graph_nodes"]) == (80, 40, [7, 7])
