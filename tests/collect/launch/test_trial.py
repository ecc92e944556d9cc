"""One variant of a scenario, unrecorded: what its steps take on the host and on a simulated GPU."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from profkit.collect.launch import scenario, trial
from profkit.collect.launch.trial import Trial

LAUNCH_NS, WORK_NS = 100_000, 5_000_000
MB = 1 << 20


class Machine:
    """A host that launches work, and a device that does it later. ``synchronize`` makes the host wait."""

    def __init__(self) -> None:
        self.now_ns = self.device_ns = 0
        self.held = self.peak = 0
        self.waits = 0

    def perf_counter_ns(self) -> int:
        return self.now_ns

    def launch(self, waits: bool = False) -> None:
        self.now_ns += LAUNCH_NS
        self.device_ns = max(self.device_ns, self.now_ns) + WORK_NS
        if waits:
            self.now_ns = self.device_ns

    def hold(self, size: int) -> None:
        self.held += size
        self.peak = max(self.peak, self.held)

    def synchronize(self) -> None:
        self.waits += 1
        self.now_ns = max(self.now_ns, self.device_ns)

    def reset_peak_memory_stats(self) -> None:
        self.peak = self.held

    def max_memory_allocated(self) -> int:
        return self.peak

    def memory_allocated(self) -> int:
        return self.held


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(time, "perf_counter_ns", made.perf_counter_ns)
    monkeypatch.setattr(scenario, "seed", lambda: None)
    return made


def scenario_of(machine: Machine, steps: int, waits: bool = False, holds: int = 0) -> ModuleType:
    module: Any = ModuleType("a_scenario")

    def setup(_device: str) -> None:
        machine.now_ns += 10**9

    def pitfall(_state: object) -> Iterator[int]:
        for number in range(steps):
            machine.hold(holds)
            machine.launch(waits)
            yield number
            machine.hold(-holds)

    module.setup, module.pitfall = setup, pitfall
    made: ModuleType = module
    return made


def trial_of(module: ModuleType, machine: Machine) -> Trial:
    return Trial(module, "pitfall", "cuda", cuda=machine)


def test_the_device_is_waited_for_only_before_and_after_a_block(machine):
    """So the host can run ahead as in a program: all launches but the first overlap with work."""
    one = trial_of(scenario_of(machine, 100), machine)
    one.run(1)
    before = machine.waits
    answer = one.run(10)
    assert machine.waits - before == 2
    assert answer["ns"] == [(LAUNCH_NS + 10 * WORK_NS) // 10] * 10
    assert answer["number"] == list(range(2, 12))


def test_a_wait_inside_a_step_costs_as_much_as_in_a_program(machine):
    freely = trial_of(scenario_of(machine, 100), machine).run(50)["ns"][0]
    waiting = trial_of(scenario_of(machine, 100, waits=True), machine).run(50)["ns"][0]
    assert waiting - freely == pytest.approx(LAUNCH_NS, rel=0.03)


def test_setting_up_again_is_no_part_of_a_step(machine):
    answer = trial_of(scenario_of(machine, 3), machine).run(8)
    assert answer["number"] == [1, 2, 3, 1, 2, 3, 1, 2]
    assert answer["ns"] == [(3 * LAUNCH_NS + 8 * WORK_NS) // 8] * 8


def test_the_peak_leaves_out_what_was_held_before(machine):
    machine.hold(7 * MB)
    one = trial_of(scenario_of(machine, 10, holds=64 * MB), machine)
    assert one.run(1)["peak_bytes"] == [64 * MB]
    assert one.run(3)["peak_bytes"] == [64 * MB] * 3


def test_without_memory_on_the_device_the_peak_is_the_hosts(machine, monkeypatch):
    monkeypatch.setattr(trial, "peak_rss_bytes", lambda: 1 << 50)
    assert trial_of(scenario_of(machine, 10), machine).run(1)["peak_bytes"][0] > 1 << 49


def test_on_the_cpu_each_step_is_timed(machine):
    answer = Trial(scenario_of(machine, 4, waits=True), "pitfall", "cpu", cuda=None).run(5)
    assert answer["ns"] == [LAUNCH_NS + WORK_NS] * 5
    assert answer["number"] == [1, 2, 3, 4, 1]
