"""What a timed run says of itself: what profkit looks at aside counts neither as time nor as waiting."""

from __future__ import annotations

import importlib
import json

import pytest

from profkit.collect.launch import turn

SECOND = 10**9


class Clock:
    """Time passes when the program or profkit says so; part of it the thread waits for a busy processor."""

    def __init__(self) -> None:
        self.now_ns = self.crowded_ns = 7 * SECOND  # the thread has waited before

    def pass_by(self, computing_s: float, waiting_s: float) -> None:
        self.now_ns += int((computing_s + waiting_s) * SECOND)
        self.crowded_ns += int(waiting_s * SECOND)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(turn.time, "perf_counter_ns", lambda: clock.now_ns)
    monkeypatch.setattr(turn, "count_crowded_ns", lambda _: clock.crowded_ns)
    return clock


@pytest.fixture
def unwatched(monkeypatch):
    """Nothing of PyTorch tells what happens: the test does."""
    monkeypatch.setattr(turn.Turn, "_save_parameters", lambda _: None)
    optimizer = importlib.import_module("torch.optim.optimizer")
    for when in ("pre", "post"):
        monkeypatch.setattr(optimizer, f"register_optimizer_step_{when}_hook", lambda _: None)
    for watcher in (turn.Entropy, turn.Loads, turn.Passes):
        monkeypatch.setattr(watcher, "watch", lambda _: None)


@pytest.mark.usefixtures("unwatched")
def test_waits_while_profkit_looks_aside_do_not_count(clock, monkeypatch, tmp_path):
    def count_graph_nodes() -> int:
        clock.pass_by(computing_s=1, waiting_s=30)
        return 5

    def random_states() -> dict[str, str]:
        clock.pass_by(computing_s=1, waiting_s=50)
        return {}

    monkeypatch.setattr(turn, "_count_graph_nodes", count_graph_nodes)
    monkeypatch.setattr(turn, "_random_states", random_states)
    run = turn.Turn(tmp_path / "result.json", None, [str(tmp_path)])
    run.begin()
    for _ in range(8):  # it looks after the fourth and the eighth
        clock.pass_by(computing_s=2, waiting_s=3)
        run._after_step()
    run.end()
    seen = json.loads((tmp_path / "result.json").read_text())
    assert seen["graph_nodes"] == [5, 5]
    assert seen["step_ns"] == [58 * SECOND + 5 * SECOND * step for step in range(1, 9)]
    assert seen["step_crowded_ns"] == [3 * SECOND * step for step in range(1, 9)]
    assert (seen["run_ns"], seen["crowded_ns"]) == (40 * SECOND, 24 * SECOND)


def test_a_wait_between_the_two_clocks_is_in_both_or_in_none(clock, monkeypatch, tmp_path):
    waits = iter([30, 0, 0])

    def read_late() -> int:
        now_ns = clock.now_ns
        clock.pass_by(computing_s=0, waiting_s=next(waits))
        return now_ns

    monkeypatch.setattr(turn.time, "perf_counter_ns", read_late)
    run = turn.Turn(tmp_path / "result.json", None, [str(tmp_path)])
    run._crowded_aside_ns = clock.crowded_ns
    assert run._clocks() == (37 * SECOND, 30 * SECOND)


@pytest.mark.usefixtures("unwatched")
def test_time_in_which_the_run_is_stopped_does_not_count(clock, monkeypatch, tmp_path):
    computed = iter([0, 3 * SECOND])
    monkeypatch.setattr(turn, "_random_states", dict)
    monkeypatch.setattr(turn.time, "thread_time_ns", lambda: next(computed))
    file = tmp_path / "stopped"
    file.write_bytes(bytes(8))
    run = turn.Turn(tmp_path / "result.json", None, [str(tmp_path)], str(file))
    run.begin()
    clock.pass_by(computing_s=2, waiting_s=1)
    run._after_step()
    clock.now_ns += 40 * SECOND
    with file.open("r+b") as opened:
        opened.write((40 * SECOND).to_bytes(8, "little"))
    clock.pass_by(computing_s=3, waiting_s=0)
    run._after_step()
    run.end()
    seen = json.loads((tmp_path / "result.json").read_text())
    assert seen["step_ns"][1] - seen["step_ns"][0] == 3 * SECOND
    assert (seen["run_ns"], seen["crowded_ns"]) == (6 * SECOND, 1 * SECOND)
    assert seen["idle_ns"] == 2 * SECOND  # it computed for three, and waited for a processor for one
