"""Kernels belong to the step that launched them, however late they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.diagnosis.compare.recorded import read_recording
from tests.traces import Json, json_of, kernel, op, runtime, step

STEPS, KERNELS = 4, 3


def _recording(directory: Path, late_us: float) -> Path:
    """Steps of 100 µs, each with three launches. Their kernels begin so long after the launch."""
    events: list[Json] = []
    for number in range(STEPS):
        events += [step(number, 100 * number, 100), op("aten::mm", 100 * number + 5, 80)]
        for place in range(KERNELS):
            launched, correlation = 100 * number + 10 + 20 * place, 1 + KERNELS * number + place
            events.append(runtime("cudaLaunchKernel", launched, 5, correlation=correlation))
            events.append(kernel("gemm", launched + late_us, 15 + place, correlation=correlation))
    path = directory / f"{late_us:.0f}.pt.trace.json"
    path.write_bytes(json_of(events))
    return path


@pytest.mark.parametrize("late_us", [6, 95, 250])
def test_all_kernels_of_a_step_count_however_late_they_run(tmp_path: Path, late_us: float) -> None:
    recorded = read_recording(_recording(tmp_path, late_us))
    work = recorded.operators["gemm (device)"]
    assert (work.calls, work.is_steady) == (KERNELS, True)
    assert work.step_ns == (48_000,) * len(recorded.measured_ns)
    assert recorded.control["gemm", "", ""].step_ns == (48_000,) * len(recorded.measured_ns)
    assert recorded.operators["cudaLaunchKernel"].calls == KERNELS


def test_kernels_without_a_recorded_launch_count_where_they_run(tmp_path: Path) -> None:
    events = [event for n in range(STEPS) for event in (step(n, 100 * n, 100), op("aten::mm", 100 * n + 5, 80))]
    path = tmp_path / "a.pt.trace.json"
    path.write_bytes(json_of([*events, *(kernel("gemm", 100 * n + 10, 50) for n in range(STEPS))]))
    assert read_recording(path).operators["gemm (device)"].step_ns == (50_000,) * STEPS
