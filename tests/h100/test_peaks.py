"""The peak of a device's memory, as a recording of a few steps tells it, beside `torch.cuda.max_memory_allocated`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profkit.diagnosing import read_facts
from profkit.evidence.memory_use import memory_use

OF_THE_FIRST_STEP = {"allocator_retries"}
"""Its batches differ, and the peak was measured for the first alone."""


def test_peaks_match_the_measured_ones(corpus: Path) -> None:
    """Of every recording that holds memory events, to the rounding of the figures: three digits behind the point."""
    truth = json.loads((corpus / "h100" / "truth.json").read_text())
    told = {}
    for program, known in truth.items():
        for variant, measured_mb in (known.get("peak_allocated_mb") or {}).items():
            path = corpus / "h100" / "runs" / program / variant
            if program in OF_THE_FIRST_STEP or not path.is_dir():
                continue
            facts = read_facts(path)
            if facts.memory.is_absolute:
                told[program, variant] = memory_use(facts).allocated_bytes / 1e6, measured_mb
    assert len(told) >= 35
    assert {key: pair for key, pair in told.items() if pair[0] != pytest.approx(pair[1], abs=0.06)} == {}
