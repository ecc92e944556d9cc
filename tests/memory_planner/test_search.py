"""The largest batch that fits is found with few plans."""

from __future__ import annotations

import pytest

from profkit.memory_planner.plan import Usage
from profkit.memory_planner.search import find_largest


def plans(needed):
    """A function that plans batches of which each needs this much memory, and the batches that it planned."""
    asked: list[int] = []

    def plan(samples: int) -> Usage:
        asked.append(samples)
        return Usage(needed(samples), "backward", {}, {})

    return plan, asked


@pytest.mark.parametrize("batch", [1, 7, 128, 5000])
@pytest.mark.parametrize(
    "needed",
    [
        lambda samples: 100 + 7 * samples,
        lambda samples: max(900, 100 + 7 * samples),
        lambda samples: 100 + 7 * samples + 20 * (samples > 50),
        lambda samples: -(-(100 + 7 * samples) // 64) * 64,
    ],
    ids=["a line", "flat at first", "a step", "segments"],
)
def test_the_largest_batch_is_found(needed, batch):
    plan, asked = plans(needed)
    largest, usage = find_largest(plan, batch, plan(batch), 1000)
    assert usage is not None
    assert usage.peak_bytes == needed(largest)
    assert needed(largest) <= 1000 < needed(largest + 1)
    assert len(asked) == len(set(asked)) <= 12


@pytest.mark.parametrize(
    ("sample_bytes", "fixed_bytes", "expected"),
    [(600, 0, 1), (10, 0, 100), (1, 1000, 0)],
    ids=["one sample", "exactly the memory", "not even one sample"],
)
def test_the_largest_batch_may_be_one_or_fill_the_memory_or_not_exist(sample_bytes, fixed_bytes, expected):
    plan, asked = plans(lambda samples: fixed_bytes + sample_bytes * samples)
    largest, usage = find_largest(plan, 64, plan(64), 1000)
    assert (largest, usage is None) == (expected, expected == 0)
    if not expected:
        assert 1 in asked
