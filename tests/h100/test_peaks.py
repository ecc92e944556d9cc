"""The peak of device memory in a recording of a few steps matches `torch.cuda.max_memory_allocated`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profkit.diagnosis.pipeline import read_facts
from profkit.patterns.memory_use import memory_use

OF_THE_FIRST_STEP = {"allocator_retries"}
"""Its batches differ, and the peak was measured for the first alone."""


def test_peaks_match_the_measured_ones(corpus: Path) -> None:
    """In every recording with memory events, up to the rounding of the figures to three decimals."""
    truth = json.loads((corpus / "h100" / "truth.json").read_text())
    peaks = {}
    for program, known in truth.items():
        for variant, measured_mb in (known.get("peak_allocated_mb") or {}).items():
            path = corpus / "h100" / "runs" / program / variant
            if program in OF_THE_FIRST_STEP or not path.is_dir():
                continue
            facts = read_facts(path)
            if facts.memory.is_absolute:
                peaks[program, variant] = memory_use(facts).allocated_bytes / 1e6, measured_mb
    assert len(peaks) >= 35
    assert {key: pair for key, pair in peaks.items() if pair[0] != pytest.approx(pair[1], abs=0.06)} == {}
