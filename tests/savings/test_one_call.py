"""Calls that become one: what they compute stays, and what a call costs goes."""

from __future__ import annotations

import pytest

from profkit.derive.facts import Facts
from profkit.patterns import program_operators
from profkit.savings.one_call import join_calls
from profkit.savings.pricing import one_round_ns
from profkit.savings.replay import replay
from tests.traces import facts_of, op, step

CASES = [
    pytest.param("aten::exp", 20_000, 10, id="half a nanosecond each"),
    pytest.param("aten::neg", 20_000, 80_000 / 28.8e3, id="its bytes, three times as fast as from memory"),
    pytest.param("aten::exp", 100_000, 20, id="no more than all of its time"),
    pytest.param("aten::exp", 8, 0, id="a few numbers"),
    pytest.param("aten::sort", 20_000, 0, id="another kind: no longer than a call may take"),
]
WHOLE_US = 8 * 20 + 7 * 10


def recording(name: str, numbers: int) -> Facts:
    """Steps of 1000 µs with eight calls on so many numbers, 20 µs each, and 10 µs of Python between two."""
    events = [step(i, 1000.0 * i, 1000) for i in range(3)]
    shapes = {"dims": [[numbers]], "types": ["float"]}
    events += [op(name, 1000.0 * i + 100 + 30 * turn, 20, **shapes) for i in range(3) for turn in range(8)]
    return facts_of(events)


@pytest.mark.parametrize(("name", "numbers", "works_us"), CASES)
def test_joined_calls_keep_what_they_compute_element_by_element(name, numbers, works_us):
    facts = recording(name, numbers)
    saved = replay(facts, join_calls(facts, program_operators(facts), 1 / 8)).fraction
    assert 1000 * saved == pytest.approx((WHOLE_US - 8 * works_us) * 7 / 8, abs=1.5)


@pytest.mark.parametrize(("name", "numbers", "works_us"), CASES)
def test_the_rounds_of_a_loop_keep_it_as_well(name, numbers, works_us):
    facts = recording(name, numbers)
    run = program_operators(facts)[:8]
    assert one_round_ns(facts, run, 8) == pytest.approx(1000 * (20 + works_us * 7), abs=500)
