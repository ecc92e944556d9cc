"""Recordings of scenarios on an H200: what profkit says of them beside what was measured there.

Most hold a single step, the one with marks on its lines, so their prices are rough.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from profkit.diagnosis.catalogue import find_scenario, recordings_root
from profkit.diagnosis.pipeline import diagnose_path
from profkit.findings.values import Diagnosis, Severity, faults

ROOT = (recordings_root() or Path()) / "nvidia-h200"
MEASURED = {
    "batch-sent-in-the-computing-stream": 0.3083,
    "buffer-moved-every-step": 0.5794,
    "cpu-tensor-then-cuda": 0.9944,
    "odd-dimensions": 0.6374,
    "pageable-batch-copy": 0.7902,
    "sample-of-many-tensors": 0.873,
}
"""The share of the step that the fix gave back, by turns of both variants without the profiler."""
ROUGH = {
    "numpy-round-trip": "0.34 measured: the fix also spares NumPy's sort, and in the marked step the host comes late",
    "cudnn-benchmark-off": "0.50 measured: no recording shows other kernels' times",
}
_NEAR = 0.02
"""How far outside a range a measurement may lie: it varies by as much itself."""


@cache
def diagnosed(name: str, variant: str) -> Diagnosis:
    return diagnose_path(ROOT / name / variant)


def test_every_recording_is_judged_here():
    assert sorted(path.name for path in ROOT.iterdir()) == sorted(MEASURED | ROUGH)


@pytest.mark.parametrize("name", MEASURED)
def test_the_fault_is_first_and_its_range_holds_what_was_measured(name):
    scenario = find_scenario(name)
    first = diagnosed(name, "pitfall").findings[0]
    assert first.rule in scenario.triggers
    assert first.severity is Severity.HIGH
    assert first.location is not None
    assert (first.location.line, first.rule) in scenario.expected["pitfall"]
    assert first.saving is not None
    assert first.saving.low - _NEAR <= MEASURED[name] <= first.saving.high + _NEAR


def test_a_read_in_the_middle_is_found_and_its_range_holds_what_was_measured():
    found = {finding.rule: finding for finding in diagnosed("numpy-round-trip", "pitfall").findings}
    read = found["device-to-host-in-step"]
    assert read.location is not None
    assert (read.location.line, read.confidence) == (49, 0.7)
    assert read.saving is not None
    assert read.saving.low <= 0.3375 <= read.saving.high


def test_what_only_an_experiment_can_price_is_not_called_fine():
    reason = diagnosed("cudnn-benchmark-off", "pitfall").skipped["cudnn-benchmark-mismatch"]
    assert reason == "one step was recorded: whether its images have the same sizes in every step is not known"


@pytest.mark.parametrize("name", [*MEASURED, *ROUGH])
def test_the_fix_has_no_fault_and_no_time_that_its_steps_cannot_hold(name):
    found = diagnosed(name, "fix").findings
    assert [one.rule for one in faults(found) if one.severity is not Severity.LOW] == []
    assert "unattributed-time" not in [one.rule for one in found]
