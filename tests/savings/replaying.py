"""Small recordings, and what their replay says."""

from __future__ import annotations

import numpy as np

from profkit.derive.facts import Facts
from profkit.savings.edits import Edit
from profkit.savings.replay import replay
from tests.traces import rows_named

SYNC = "cudaStreamSynchronize"


LAUNCH = "cudaLaunchKernel"


def _rows(facts: Facts, *names: str) -> np.ndarray:
    return np.array(rows_named(facts.trace, *names), dtype=np.int64)


def _replay_us(facts: Facts, edit: Edit) -> tuple[float, float]:
    result = replay(facts, edit)
    return result.recorded_ns / 1000, result.edited_ns / 1000


def _ns(*values_us: float) -> np.ndarray:
    return np.array(values_us, dtype=np.int64) * 1000
