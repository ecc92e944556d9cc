"""Calls that become one: what they compute stays, and what a call costs goes."""

from __future__ import annotations

import pytest

from profkit.derive.facts import Facts
from profkit.patterns import program_operators
from profkit.savings.one_call import fills_zeros, join_calls
from profkit.savings.pricing import one_round_ns
from profkit.savings.replay import replay
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, op, step

CASES = [
    pytest.param("aten::exp", 20_000, 10, id="half a nanosecond each"),
    pytest.param("aten::neg", 20_000, 80_000 / 28.8e3, id="its bytes, three times as fast as from memory"),
    pytest.param("aten::exp", 100_000, 20, id="no more than all of its time"),
    pytest.param("aten::exp", 8, 0, id="a few numbers"),
    pytest.param("aten::sort", 20_000, 0, id="another kind: no longer than a call may take"),
]
WHOLE_US = 8 * 20 + 7 * 10


def recording(name: str, numbers: int, call_us: float = 20) -> Facts:
    """Steps of 1000 µs with eight calls on so many numbers, 20 µs each, and 10 µs of Python between two."""
    events = [step(i, 1000.0 * i, 1000) for i in range(3)]
    shapes = {"dims": [[numbers]], "types": ["float"]}
    events += [
        op(name, 1000.0 * i + 50 + (call_us + 10) * turn, call_us, **shapes) for i in range(3) for turn in range(8)
    ]
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


@pytest.mark.parametrize(
    ("name", "low_us", "high_us"),
    [("aten::neg", 61 * 0.7, (8 * (40 - 264 / 9.6) + 70) * 7 / 8 + 61 * 0.3), ("aten::sort", 61 * 0.7, 61 * 1.3)],
)
def test_what_leaves_the_cache_saves_python_at_least_and_what_memory_leaves_at_most(name, low_us, high_us):
    """Eight calls of 40 µs on 264 kB each, which memory moves at 9.6 GB/s. What does more than move data keeps all of
    its time. Both ends may be off by the model's 30 %: of the lower one here."""
    facts = recording(name, 66_000, 40)
    saved = predict_saving(facts, join_calls(facts, program_operators(facts), 1 / 8))
    assert (1000 * saved.low, 1000 * saved.high) == pytest.approx((low_us, high_us), abs=2)


def differentiated(name: str) -> Facts:
    """Steps of 1000 µs with eight calls of 10 µs, and eight backward nodes of this name, each of which fills a tensor
    with zeros for 50 µs."""
    events = []
    for i in range(3):
        events.append(step(i, 1000.0 * i, 1000))
        for turn in range(8):
            number, shapes = 8 * i + turn, {"dims": [[1000]], "types": ["float"]}
            events.append(op("aten::mul", 1000.0 * i + 10 + 10 * turn, 10, sequence=number, **shapes))
            start = 1000.0 * i + 300 + 60 * turn
            events.append(op(f"autograd::engine::evaluate_function: {name}", start, 60, sequence=number))
            events.append(op("aten::fill_", start + 5, 50, dims=[[4_000_000]], types=["float"]))
    return facts_of(events)


@pytest.mark.parametrize(
    ("name", "saved_us"), [("SelectBackward0", 490), ("SliceBackward0", 490), ("MulBackward0", 140)]
)
def test_zeros_that_are_filled_for_each_part_are_filled_once(name, saved_us):
    """Of other nodes the work stays: it is as much for all calls together."""
    facts = differentiated(name)
    rows = program_operators(facts)
    assert 1000 * replay(facts, join_calls(facts, rows, 1 / 8)).fraction == pytest.approx(saved_us, abs=40)
    assert fills_zeros(facts, rows) is (name != "MulBackward0")
