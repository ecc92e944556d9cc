"""The largest batch that fits is found with few plans."""

from __future__ import annotations

import pytest

from profkit.collect.planning.search import find_largest
from profkit.memory_plan import Usage


def plans(needed):
    """A planning function by which a batch needs this much memory, and the batches that it planned."""
    asked: list[int] = []

    def plan(samples: int) -> Usage:
        asked.append(samples)
        return Usage(needed(samples), "backward", {}, {})

    return plan, asked


@pytest.mark.parametrize("batch", [1, 7, 128, 5000])
@pytest.mark.parametrize(
    "needed",
    [lambda samples: 100 + 7 * samples, lambda samples: max(900, 100 + 7 * samples),
     lambda samples: 100 + 7 * samples + 20 * (samples > 50), lambda samples: -(-(100 + 7 * samples) // 64) * 64],
    ids=["a line", "flat at first", "a step", "segments"],
)  # fmt: skip
def test_the_largest_batch_is_found(needed, batch):
    plan, asked = plans(needed)
    largest, usage = find_largest(plan, batch, plan(batch), 1000)
    assert usage is not None
    assert usage.peak_bytes == needed(largest)
    assert needed(largest) <= 1000 < needed(largest + 1)
    assert len(asked) == len(set(asked)) <= 12


def test_a_batch_of_one_may_be_the_answer():
    plan, _ = plans(lambda samples: 600 * samples)
    assert find_largest(plan, 64, plan(64), 1000)[0] == 1


def test_nothing_fits_if_one_sample_is_too_much():
    plan, asked = plans(lambda samples: 1001 + samples)
    assert find_largest(plan, 64, plan(64), 1001) == (0, None)
    assert 1 in asked


def test_a_batch_that_needs_exactly_the_memory_fits():
    plan, _ = plans(lambda samples: 10 * samples)
    assert find_largest(plan, 3, plan(3), 1000)[0] == 100
