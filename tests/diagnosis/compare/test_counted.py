"""If the step times leave the verdict open, added and removed calls decide."""

from __future__ import annotations

from pathlib import Path

import pytest

import profkit
from profkit.diagnosis.compare.comparison import Comparison, Verdict
from tests.diagnosis.compare.runs import OPERATORS, Operators, events_of, write_run
from tests.traces import json_of, kernel

MM, ADD = OPERATORS
RELU = ("aten::relu", 100.0, "[[64,64]]")
NOISE = 0.2
"""Steps that vary by a fifth either way leave a change of a tenth open."""


def compared(
    tmp_path: Path,
    before: Operators,
    after: Operators,
    after_ms: float = 1.0,
    noise: float = NOISE,
    **after_run: object,
) -> Comparison:
    one = write_run(tmp_path / "a", before, reference_step_ns=drifting(1.0, noise))
    other = write_run(tmp_path / "b", after, reference_step_ns=drifting(after_ms, noise), **after_run)
    return profkit.compare(one, other)


def drifting(centre_ms: float, spread: float) -> tuple[int, ...]:
    """Twelve steps whose times drift by the spread."""
    return tuple(round(centre_ms * 1e6 * (1 + spread * (-1) ** (i // 3))) for i in range(12))


def of_the_steps(directory: Path, *steps: Operators) -> None:
    (directory / "a.pt.trace.json").write_bytes(json_of(events_of(steps)))


def test_an_additional_call_in_each_step_is_worse_even_if_the_times_vary(tmp_path: Path) -> None:
    """The median step takes 1 ms, the call 100 µs, of which 30 % are uncertain."""
    found = compared(tmp_path, OPERATORS, (*OPERATORS, RELU)).step_time
    assert (found.verdict, found.is_counted) == (Verdict.WORSE, True)
    assert found.change == pytest.approx(100 / 1000, abs=1e-6)
    assert found.low == pytest.approx(70 / 1000, abs=1e-6)
    assert found.high == pytest.approx(130 / 1000, abs=1e-6)


def test_a_removed_call_is_better(tmp_path: Path) -> None:
    found = compared(tmp_path, (*OPERATORS, RELU), OPERATORS)
    assert (found.verdict, found.step_time.is_counted) == (Verdict.BETTER, True)
    assert found.step_time.change == pytest.approx(-0.1, abs=1e-6)
    assert str(found).startswith("Better: a step does 10 % less work (95 % interval -13 % to -7.0 %)")


def test_a_clear_difference_in_time_decides_without_counting(tmp_path: Path) -> None:
    found = compared(tmp_path, OPERATORS, (*OPERATORS, RELU), after_ms=1.1, noise=0.001).step_time
    assert (found.verdict, found.is_counted) == (Verdict.WORSE, False)


def test_if_the_times_exclude_a_change_an_additional_call_is_none(tmp_path: Path) -> None:
    found = compared(tmp_path, OPERATORS, (*OPERATORS, RELU), noise=0.001).step_time
    assert (found.verdict, found.is_counted) == (Verdict.NO_DIFFERENCE, False)


def test_times_that_contradict_the_count_leave_the_verdict_open(tmp_path: Path) -> None:
    """Half as long, within the noise: certainly not a tenth longer."""
    found = compared(tmp_path, OPERATORS, (*OPERATORS, RELU), after_ms=0.3, noise=0.05).step_time
    assert found.verdict is Verdict.BETTER
    assert not found.is_counted


@pytest.mark.parametrize(("length_us", "verdict"), [(41.0, Verdict.WORSE), (25.0, Verdict.INCONCLUSIVE)])
def test_too_little_additional_work_is_no_change(tmp_path: Path, length_us: float, verdict: Verdict) -> None:
    small = ("aten::relu", length_us, "[[64,64]]")
    assert compared(tmp_path, OPERATORS, (*OPERATORS, small)).verdict is verdict


def test_work_replaced_by_as_much_other_work_is_no_change(tmp_path: Path) -> None:
    other = ("aten::baddbmm", 640.0, "[[64,64]]")
    found = compared(tmp_path, OPERATORS, (other, ADD))
    assert found.verdict is Verdict.INCONCLUSIVE


def test_operators_that_only_take_longer_are_not_counted(tmp_path: Path) -> None:
    slow = tuple((name, duration * 1.15, dims) for name, duration, dims in OPERATORS)
    assert not compared(tmp_path, OPERATORS, slow).step_time.is_counted


def test_calls_that_vary_between_steps_may_be_chance(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", reference_step_ns=drifting(1.0, NOISE))
    other = write_run(tmp_path / "b", reference_step_ns=drifting(1.0, NOISE))
    of_the_steps(other, OPERATORS, (*OPERATORS, RELU, RELU), (*OPERATORS, RELU), (*OPERATORS, RELU))
    assert profkit.compare(one, other).verdict is Verdict.INCONCLUSIVE


def test_calls_that_vary_between_runs_may_be_chance(tmp_path: Path) -> None:
    for number, operators in enumerate((OPERATORS, (*OPERATORS, RELU), (*OPERATORS, RELU))):
        write_run(tmp_path / "after" / str(number), operators, reference_step_ns=drifting(1.0 + number / 5, NOISE))
        write_run(tmp_path / "before" / str(number), reference_step_ns=drifting(1.0 + number / 5, NOISE))
    assert profkit.compare(tmp_path / "before", tmp_path / "after").verdict is Verdict.INCONCLUSIVE


def test_too_few_recorded_steps_are_not_counted(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", reference_step_ns=drifting(1.0, NOISE))
    other = write_run(tmp_path / "b", reference_step_ns=drifting(1.0, NOISE))
    of_the_steps(other, *[(*OPERATORS, RELU)] * 2)
    assert profkit.compare(one, other).verdict is Verdict.INCONCLUSIVE


def test_calls_beside_a_device_are_not_counted(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", reference_step_ns=drifting(1.0, NOISE))
    other = write_run(tmp_path / "b", reference_step_ns=drifting(1.0, NOISE))
    events = events_of([(*OPERATORS, RELU)] * 4)
    (other / "a.pt.trace.json").write_bytes(json_of([*events, *(kernel("k", 1000 * i + 5, 900) for i in range(4))]))
    assert not profkit.compare(one, other).step_time.is_counted


def test_calls_under_different_settings_are_not_counted(tmp_path: Path) -> None:
    found = compared(tmp_path, OPERATORS, (*OPERATORS, RELU), flags={"autocast": True})
    assert not found.step_time.is_counted


def test_every_report_says_that_calls_were_counted(tmp_path: Path) -> None:
    found = compared(tmp_path, OPERATORS, (*OPERATORS, RELU))
    text = " ".join(str(found).split())
    assert text.startswith("Worse: a step does 10 % more work (95 % interval +7.0 % to +13 %); it took")
    assert "the calls that one side makes more often are counted" in text
    assert found.is_regression(0.05)
    assert not found.is_regression(0.11)
