"""The parts, as far as nothing has to run: their order, their rows, and what they could not do."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from profkit.diagnosis.catalogue import Scenario, list_scenarios
from profkit.diagnosis.verify import Measurement
from profkit.findings.values import Diagnosis, RunSummary, Timing
from tests.gpu import __main__ as command
from tests.gpu import plans, scenarios, snapshots
from tests.gpu.__main__ import PARTS, main
from tests.gpu.children import Child
from tests.gpu.machine import Machine
from tests.gpu.overhead import interval
from tests.gpu.programs import snapshots as snapshot_programs
from tests.gpu.rows import PartFailed, Row

CPU = Machine("cpu", Path("work"), cpus=2)
GPU = Machine("cuda", Path("work"), "NVIDIA H100 80GB HBM3", 1, (9, 0), cpus=16)
SCENARIO = Scenario("a-fault", Path("a.py"), "", ("slow",), False, "time", {"pitfall": ()})


class Echo:
    """Stands for a scenario's processes."""

    def __init__(self, scenario: Scenario, machine: Machine, nursery: object) -> None:
        self.name, self.log = scenario.name, LOG

    def __enter__(self) -> Echo:
        self.log.append(f"start {self.name}")
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def record(self, left_s) -> None:
        self.log.append(f"record {self.name}")
        if self.name == "broken":
            raise PartFailed("broken, fix: no data")

    def judge(self, left_s) -> Row:
        self.log.append(f"judge {self.name}")
        return Row("scenarios", self.name)

    def close(self) -> None:
        self.log.append(f"close {self.name}")


LOG: list[str] = []


@pytest.fixture
def log(monkeypatch) -> list[str]:
    LOG.clear()
    monkeypatch.setattr(scenarios, "_Started", Echo)
    monkeypatch.setattr(scenarios, "_try_nursery", lambda *_: (None, ""))
    return LOG


def named(*names: str) -> list[Scenario]:
    return [dataclasses.replace(SCENARIO, name=name) for name in names]


def test_scenarios_that_need_a_gpu_come_first_and_then_those_that_only_show_on_one():
    ordered = scenarios.in_order(list_scenarios())
    ranks = [(scenario.needs_gpu, scenario.effect == "time on a GPU") for scenario in ordered]
    assert ranks == sorted(ranks, reverse=True)
    assert ranks[0] == (True, True)
    assert len(ordered) == len(list_scenarios())


def test_the_next_scenarios_processes_start_while_one_is_judged_if_there_are_processors(log):
    assert len(list(scenarios.rows(GPU, lambda: 60.0, named("a", "b")))) == 2
    assert log == "start a/record a/start b/judge a/close a/record b/judge b/close b".split("/")
    log.clear()
    assert len(list(scenarios.rows(CPU, lambda: 60.0, named("a", "b")))) == 2
    assert log == "start a/record a/judge a/close a/start b/record b/judge b/close b".split("/")


def test_if_no_fork_can_begin_with_the_device_that_is_told_and_all_goes_on(log, monkeypatch):
    monkeypatch.setattr(scenarios, "_try_nursery", lambda *_: (None, "a fork: no CUDA"))
    found = [(row.name, row.outcome) for row in scenarios.rows(GPU, lambda: 60.0, named("a"))]
    assert found == [("processes by forking", "could not: a fork: no CUDA"), ("a", "done")]


def test_a_scenario_that_fails_is_a_row_and_the_next_one_runs(log):
    found = list(scenarios.rows(GPU, lambda: 60.0, named("a", "broken", "c")))
    assert [row.outcome for row in found] == ["done", "failed: broken, fix: no data", "done"]


def test_what_a_machine_lacks_is_told_first(log):
    pair = dataclasses.replace(SCENARIO, name="pair", gpus=2)
    asked = [*named("a"), pair, dataclasses.replace(SCENARIO, name="gpu", needs_gpu=True)]
    told = [(row.name, row.outcome) for row in scenarios.rows(GPU, lambda: 60.0, asked)]
    assert told == [("pair", "could not: it needs 2 GPUs"), ("gpu", "done"), ("a", "done")]
    told = [(row.name, row.outcome) for row in scenarios.rows(CPU, lambda: 60.0, asked)]
    assert told == [("gpu", "could not: it needs a GPU"), ("a", "done"), ("pair", "done")]


def test_scenarios_with_a_result_in_an_earlier_run_are_skipped(log, tmp_path):
    rows = [
        {"part": "scenarios", "name": "a", "outcome": "done"},
        {"part": "scenarios", "name": "b", "outcome": "failed: x"},
        {"part": "scenarios", "name": "c", "outcome": "could not: the time was over"},
        {"part": "overhead", "name": "d", "outcome": "done"},
    ]
    (tmp_path / "results.json").write_text(json.dumps({"rows": rows}))
    assert command._known(tmp_path / "results.json") == ["a"]
    assert [row.name for row in scenarios.rows(GPU, lambda: 60.0, named("a", "b", "c", "d"), ["a"])] == ["b", "c", "d"]


def test_the_times_of_both_variants_are_kept_with_their_range():
    ns = np.array([[4_000_000, 1_000_000], [6_000_000, 2_000_000], [5_000_000, 3_000_000]])
    told = scenarios._measured_ms(Measurement(ns, ns, ns))
    assert (told["pitfall ms"], told["pitfall ms from"], told["pitfall ms to"]) == (5.0, 4.0, 6.0)
    assert (told["fix ms"], told["fix ms from"], told["fix ms to"]) == (2.0, 1.0, 3.0)


def test_the_step_said_is_the_one_without_the_recording_where_it_is_known():
    run = RunSummary((), None, None, None, None)
    known = Diagnosis(run, Timing(4, 8_000_000, "", 5_000_000, bound_by="host"), (), {}, (), None)
    plain = Diagnosis(run, Timing(4, 8_000_000, ""), (), {}, (), None)
    told = scenarios._said({"pitfall": known, "fix": plain})
    assert (told["pitfall ms said"], told["pitfall bound by"], told["fix ms said"]) == (5.0, "host", 8.0)


def test_what_a_snapshot_says_stands_beside_what_pytorch_counted():
    truth = {"allocated_bytes.all.peak": 100, "reserved_bytes.all.peak": 120, "parameters_bytes": 30}
    memory = {"peak_bytes": 90, "reserved_peak_bytes": 120, "parts": [{"label": "parameters and buffers", "bytes": 31}]}
    said = {"memory": [memory], "verdict": {"text": "nothing"}, "findings": [{"rule": "a"}, {"rule": "b"}]}
    told = snapshots.compared(truth, said)
    assert (told["peak"], told["peak said"], told["parameters said"], told["state said"]) == (100, 90, 31, None)
    assert (told["headline"], told["findings"]) == ("nothing", "a, b")
    assert snapshots.compared(truth, {**said, "memory": []})["peak said"] is None


def test_each_situation_has_its_program():
    assert tuple(snapshot_programs.SITUATIONS) == snapshots._SITUATIONS


def test_a_hopper_is_planned_by_its_own_rules():
    case = plans._ON_GPU[0]
    for machine, rules in ((GPU, "hopper"), (dataclasses.replace(GPU, capability=(8, 0)), "cuda"), (CPU, "cpu")):
        plan, training = plans._commands(case, machine)
        assert plan[plan.index("--device") + 1] == rules
        assert (training[-1] == "cuda") is (machine is not CPU)


def test_the_interval_of_the_ratios_holds_their_median():
    assert interval([1.0]) == (1.0, 1.0)
    low, high = interval([1.0, 1.1, 1.2, 1.3, 1.4])
    assert (low, high) == (1.0, 1.4)


def test_the_shares_are_of_one_whole():
    assert sum(part.share for part in PARTS.values()) == pytest.approx(1.0)


def test_the_list_names_each_part(capsys):
    assert main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(PARTS)


@pytest.mark.parametrize("arguments", [["--parts", "scenarios,nothing"], ["--device", "tpu"]])
def test_a_wish_that_cannot_be_met_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2


def test_results_of_an_earlier_run_are_not_overwritten(tmp_path):
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(SystemExit, match="is not empty"):
        main(["--output", str(tmp_path)])


_ANSWERING = """
import sys
from tests.gpu.children import answer_requests

def answer(request):
    print("noise of the program")
    if request == "fail":
        raise ValueError("no data")
    if request == "hang":
        import time
        time.sleep(600)
    return {"request": request}

answer_requests(answer)
"""


@pytest.fixture
def child(tmp_path, monkeypatch) -> Child:
    (tmp_path / "answering.py").write_text(_ANSWERING)
    checkout = str(Path(__file__).parents[2])
    environment = {"PYTHONPATH": f"{tmp_path}:{checkout}", "PATH": ""}
    return Child("it", "answering", environment=environment)


def test_a_process_answers_requests_whatever_else_it_prints(child):
    with child:
        assert child.ask("a", 60) == {"request": "a"}
        assert child.ask("b", 60) == {"request": "b"}
        with pytest.raises(PartFailed, match=r"^it: ValueError: no data$"):
            child.ask("fail", 60)
        with pytest.raises(PartFailed):
            child.ask("a", 60)


@pytest.mark.parametrize(
    ("program", "limit_s", "reason"),
    [
        ("input()", 60, None),
        ("input(); print('x' * 200_000)", 60, None),
        ("input(); raise ValueError('no data')", 60, "it: ValueError: no data"),
        ("input(); import time; time.sleep(600)", 1, "it: not done within 1 s"),
    ],
)
def test_a_process_that_waits_for_a_line_is_let_go(tmp_path, program, limit_s, reason):
    (tmp_path / "waiting.py").write_text(program)
    with Child("it", "waiting", environment={"PYTHONPATH": str(tmp_path), "PATH": ""}) as child:
        if reason is None:
            child.finish(limit_s)
        else:
            with pytest.raises(PartFailed, match=f"^{reason}$"):
                child.finish(limit_s)


def test_a_process_that_does_not_answer_is_ended(child):
    with child, pytest.raises(PartFailed, match="no answer within 0 s"):
        child.ask("hang", 0.1)
