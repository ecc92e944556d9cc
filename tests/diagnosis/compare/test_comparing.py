"""From run directories to a comparison."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import profkit
from profkit.core.errors import UnreadableInput
from profkit.diagnosis.compare.comparison import Fate, Verdict
from profkit.diagnosis.compare.moves import finding_moves
from profkit.diagnosis.compare.recorded import read_recording
from profkit.findings.values import Finding, Kind, Location, Severity
from profkit.run.directory import CALLSITES_FILE, DIAGNOSIS_FILE, RECORDING, RUN_FILE, CallSite, Host, save
from tests.diagnosis.compare.runs import OPERATORS, RUN, around, events_of, write_run
from tests.traces import json_of, mark

MORE_CALLS = (*OPERATORS, ("aten::relu", 100.0, "[[64,64]]"))
SLOWER_ADD = (OPERATORS[0], ("aten::add", 300.0, "[[64,64],[64,64]]"))


def test_two_equal_runs_show_no_difference(tmp_path: Path) -> None:
    found = profkit.compare(write_run(tmp_path / "a"), write_run(tmp_path / "b"))
    assert found.verdict is Verdict.NO_DIFFERENCE
    assert (found.differences, found.operators, found.lines) == ((), (), ())
    assert (found.before.steps, found.before.calls, found.step_time.steps) == (12, 2, "unprofiled steps")


def test_a_directory_with_the_reports_on_a_trace_stands_for_the_trace(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name) for name in "ab"]
    for name, run in zip(("one", "other"), runs, strict=True):
        (tmp_path / name).mkdir()
        files = {"files": {RECORDING: str(run / "a.pt.trace.json")}}
        save(tmp_path / name, DIAGNOSIS_FILE, {"run": files, "findings": []})
    found = profkit.compare(tmp_path / "one", tmp_path / "other")
    assert found.before.paths == (str(runs[0] / "a.pt.trace.json"),)
    assert found.after.paths == (str(runs[1] / "a.pt.trace.json"),)
    shutil.rmtree(runs[0])
    with pytest.raises(UnreadableInput, match=r"holds the reports on .*json, which is not there any more"):
        profkit.compare(tmp_path / "one", runs[1])


def _found(rule: str, function: str, source: str) -> Finding:
    place = Location(f"{function}.py", 3, function, source)
    return Finding(rule, Kind.FAULT, Severity.LOW, "message", 1, 0.9, "fix", location=place)


@pytest.mark.parametrize(
    ("after", "fates"),
    [
        pytest.param([("a", "main", "x = f(y)")], ["same"], id="the same line"),
        pytest.param([("a", "other", "x  = f(y)")], ["same"], id="moved to another function"),
        pytest.param([("a", "main", "x = f(z)")], ["same"], id="another text, alone on both sides"),
        pytest.param([("b", "main", "x = f(y)")], ["new", "gone"], id="another rule"),
        pytest.param([("a", "main", "p"), ("a", "main", "q")], ["new", "new", "gone"], id="two of which neither is it"),
    ],
)
def test_findings_are_paired_by_rule_and_source_text(tmp_path: Path, after, fates) -> None:
    run = read_recording(write_run(tmp_path / "a"))
    sides = [
        replace(run, diagnosis=replace(run.diagnosis, findings=tuple(_found(*one) for one in side)))
        for side in ([("a", "main", "x = f(y)")], after)
    ]
    assert [move.fate.value for move in finding_moves(sides[:1], sides[1:])] == fates


def test_later_timed_steps_count_too(tmp_path: Path) -> None:
    a, b = (write_run(tmp_path / name, later_step_ns=around(1.0) * 3) for name in "ab")
    assert profkit.compare(a, b).before.steps == 48


def test_additional_work_is_worse_and_named_with_its_calls(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", reference_step_ns=around(10))
    b = write_run(tmp_path / "b", MORE_CALLS, reference_step_ns=around(11))
    found = profkit.compare(a, b)
    assert found.verdict is Verdict.WORSE
    (move,) = found.operators
    assert (move.name, move.before_ns, move.after_ns) == ("aten::relu", 0, 100_000)
    assert (move.before_calls, move.after_calls, move.calls_changed) == (0, 1, True)
    assert profkit.compare(b, a).verdict is Verdict.BETTER


def test_a_slower_operator_is_named_if_the_step_became_longer(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", reference_step_ns=around(1.0))
    b = write_run(tmp_path / "b", SLOWER_ADD, reference_step_ns=around(1.1))
    found = profkit.compare(a, b)
    assert found.verdict is Verdict.WORSE
    assert [(move.name, move.change_ns, move.calls_changed) for move in found.operators] == [
        ("aten::add", 100_000, False)
    ]


def test_generated_kernels_are_matched_regardless_of_their_numbers(tmp_path: Path) -> None:
    fused = ("triton_poi_fused_add_tanh_0", 100.0, "[[64,64]]")
    a = write_run(tmp_path / "a", (*OPERATORS, fused))
    b = write_run(tmp_path / "b", (*OPERATORS, *(("triton_poi_fused_add_tanh_7", 100.0, "[[64,64]]"),) * 2))
    found = profkit.compare(a, b)
    assert [(move.name, move.before_calls, move.after_calls) for move in found.operators] == [
        ("fused add, tanh (pointwise)", 1, 2)
    ]


def test_a_slower_operator_is_not_named_if_the_step_did_not_change(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", SLOWER_ADD)
    found = profkit.compare(a, b)
    assert found.verdict is Verdict.NO_DIFFERENCE
    assert found.operators == ()


def test_if_all_operators_became_slower_the_machine_is_suspected(tmp_path: Path) -> None:
    slow = tuple((name, duration * 1.2, dims) for name, duration, dims in OPERATORS)
    a = write_run(tmp_path / "a", reference_step_ns=around(10))
    b = write_run(tmp_path / "b", slow, reference_step_ns=around(12))
    found = profkit.compare(a, b)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.step_time.machine_change == pytest.approx(0.2)


def test_new_pages_that_explain_the_difference_make_it_inconclusive(tmp_path: Path) -> None:
    """200 pages at 10,000 ns in 12 ms: without them the step would take 10 ms."""
    few, many = ({"reference_step_faults": (count,) * 12, "page_fault_ns": 10_000} for count in (0, 200))
    a = write_run(tmp_path / "a", reference_step_ns=around(10), **few)
    b = write_run(tmp_path / "b", reference_step_ns=around(12), **many)
    found = profkit.compare(a, b)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert any("new pages of memory made the step 20 % longer" in reason for reason in found.step_time.reasons)


def test_pages_without_a_price_explain_nothing(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", reference_step_ns=around(10), reference_step_faults=(0,) * 12)
    b = write_run(tmp_path / "b", reference_step_ns=around(12), reference_step_faults=(200,) * 12)
    assert profkit.compare(a, b).verdict is Verdict.WORSE


def test_operators_of_another_pytorch_version_are_no_control(tmp_path: Path) -> None:
    slow = tuple((name, duration * 1.2, dims) for name, duration, dims in OPERATORS)
    a = write_run(tmp_path / "a", reference_step_ns=around(10))
    b = write_run(tmp_path / "b", slow, reference_step_ns=around(12), torch="2.14.0")
    found = profkit.compare(a, b)
    assert found.verdict is Verdict.WORSE
    assert found.step_time.machine_change is None
    assert [(d.what, d.before, d.after) for d in found.differences] == [("torch", "2.13.0", "2.14.0")]


def test_disturbances_that_change_sides_are_put_down_to_the_machine(tmp_path: Path) -> None:
    mm, add = OPERATORS
    stolen = [((mm[0], 750.0, mm[2]), add), (mm, (add[0], 350.0, add[2]))] * 2
    a = write_run(tmp_path / "a", reference_step_ns=around(10))
    b = write_run(tmp_path / "b", reference_step_ns=around(11.5))
    (b / "a.pt.trace.json").write_bytes(json_of(events_of(stolen)))
    found = profkit.compare(a, b)
    assert found.step_time.machine_change is not None
    assert found.step_time.machine_change > 0.15
    assert found.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("of_the_run", "what", "before", "after"),
    [
        ({"device": "NVIDIA H100"}, "device", "cpu", "NVIDIA H100"),
        ({"host": Host(2, 1, 8 << 30)}, "threads of PyTorch", "2", "1"),
        ({"flags": {"autocast": True}}, "autocast", "False", "True"),
        ({"flags": {"autocast": False, "env:OMP_NUM_THREADS": "1"}}, "OMP_NUM_THREADS", "not set", "1"),
    ],
)
def test_differences_besides_the_program_are_listed(
    tmp_path: Path, of_the_run: dict[str, Any], what: str, before: str, after: str
) -> None:
    found = profkit.compare(write_run(tmp_path / "a"), write_run(tmp_path / "b", **of_the_run))
    assert [(d.what, d.before, d.after, d.blocks) for d in found.differences] == [(what, before, after, False)]


def test_a_value_unknown_on_one_side_is_no_difference(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", torch=None, device=None, host=None, flags={})
    assert profkit.compare(a, b).differences == ()


def test_different_shapes_are_listed_with_an_example(tmp_path: Path) -> None:
    larger = tuple((name, duration, dims.replace("64", "128")) for name, duration, dims in OPERATORS)
    found = profkit.compare(write_run(tmp_path / "a"), write_run(tmp_path / "b", larger))
    (difference,) = found.differences
    assert difference.what == "shapes of inputs"
    assert "[64,64]" in difference.before.replace(", ", ",")
    assert "[128,128]" in difference.after.replace(", ", ",")
    assert "2 kinds of operators" in difference.after


def test_steps_that_end_at_different_events_are_not_compared(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", reference_step_ns=around(10))
    b = write_run(tmp_path / "b", reference_step_ns=around(20), step_signal="optimizer")
    found = profkit.compare(a, b)
    assert found.differences[0].blocks
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.step_time.low is None
    assert not found.is_regression(0.05)


def test_without_unprofiled_steps_on_one_side_both_are_compared_by_recorded_ones(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a", reference_step_ns=around(10)), write_run(tmp_path / "b", reference_step_ns=())
    found = profkit.compare(a, b)
    assert found.step_time.steps == "recorded steps"
    assert (found.step_time.before_ns, found.step_time.after_ns) == (1_000_000, 1_000_000)


def test_directories_of_runs_are_compared_run_by_run(tmp_path: Path) -> None:
    for i, (before, after) in enumerate([(10.0, 10.6), (10.1, 10.7), (10.2, 10.8)]):
        write_run(tmp_path / "a" / str(i), reference_step_ns=around(before), started=f"2026-01-01T10:0{2 * i}:00")
        write_run(tmp_path / "b" / str(i), reference_step_ns=around(after), started=f"2026-01-01T10:0{2 * i + 1}:00")
    found = profkit.compare(tmp_path / "a", tmp_path / "b")
    assert (len(found.before.paths), found.before.steps) == (3, 36)
    assert found.verdict is Verdict.WORSE
    assert found.step_time.machine_change is None
    assert found.is_regression(0.05)
    assert not found.is_regression(0.07)


def test_runs_recorded_side_after_side_keep_their_control(tmp_path: Path) -> None:
    for side, hour in (("a", 10), ("b", 11)):
        for i in range(2):
            write_run(tmp_path / side / str(i), started=f"2026-01-01T{hour}:0{i}:00")
    assert profkit.compare(tmp_path / "a", tmp_path / "b").step_time.machine_change == 0


def test_lines_keep_their_identity_when_they_move(tmp_path: Path) -> None:
    directories = []
    for name, line, duration in (("a", 10, 500.0), ("b", 14, 600.0)):
        operators = (("aten::mm", duration, "[[64,64],[64,64]]"), *MORE_CALLS[1 : 3 if name == "b" else 2])
        directory = write_run(tmp_path / name, operators, reference_step_ns=around(10 if name == "a" else 12))
        events = events_of([operators] * 5)
        (directory / "a.pt.trace.json").write_bytes(json_of([*events, mark(0, 0, 950.0)]))
        save(directory, CALLSITES_FILE, (CallSite(f"/{name}/train.py", line, "train", "y = x @ w"),))
        directories.append(directory)
    (move,) = profkit.compare(*directories).lines
    assert move.location is not None
    assert (move.location.line, move.name) == (14, "y = x @ w")
    assert (move.before_ns, move.after_ns) == (700_000, 900_000)


def test_findings_are_listed_as_gone_new_or_unchanged(tmp_path: Path) -> None:
    plain = write_run(tmp_path / "a")
    faulty = write_run(tmp_path / "b")
    text = (plain / "a.pt.trace.json").read_text().replace('["float", "float"]', '["double", "double"]')
    (faulty / "a.pt.trace.json").write_text(text)
    fates = {move.fate for move in profkit.compare(faulty, plain).findings if move.rule == "float64-compute"}
    assert fates == {Fate.GONE}
    (new,) = (move for move in profkit.compare(plain, faulty).findings if move.rule == "float64-compute")
    assert (new.fate, new.before_severity) == (Fate.NEW, None)
    again = shutil.copytree(faulty, tmp_path / "c")
    (same,) = (move for move in profkit.compare(faulty, again).findings if move.rule == "float64-compute")
    assert same.fate is Fate.SAME


def test_a_directory_without_a_recording_is_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnreadableInput, match="empty: holds no trace"):
        profkit.compare(run, tmp_path / "empty")
    with pytest.raises(UnreadableInput, match="absent: no such file"):
        profkit.compare(tmp_path / "absent", run)


def test_traces_without_a_run_are_compared_by_their_recorded_steps(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    save(run, RUN_FILE, replace(RUN, trace="another.pt.trace.json"))
    trace = run / "a.pt.trace.json"
    found = profkit.compare(trace, shutil.copy(trace, tmp_path / "b.json"))
    assert found.step_time.steps == "recorded steps"
    assert found.verdict is Verdict.NO_DIFFERENCE
