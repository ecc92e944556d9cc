"""Traces with swapped, nested, huge or repeated fields are judged or refused, within limits of time and memory."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.derive.facts import Facts
from profkit.diagnosing import diagnose
from profkit.errors import ProfkitError
from tests.trace.test_hostile_files import SYNTHESISED
from tests.traces import json_of, mark, op, step, trace_of_bytes

DOCUMENT: dict[str, Any] = json.loads(SYNTHESISED)
EVENTS: list[dict[str, Any]] = DOCUMENT["traceEvents"]
MOST_BYTES = 48 << 20
"""Of memory for traces of some kilobytes: a number in a file is never the size of an array."""
MOST_SECONDS = 5.0

some = settings(max_examples=settings().max_examples // 6)
"""Each example is judged by all rules, under a profiler of memory."""

_PLACES = [
    (i, keys)
    for i, event in enumerate(EVENTS)
    for keys in [*((key,) for key in event), *(("args", key) for key in event["args"])]
]
_PLACE = st.sampled_from(_PLACES)
_KEY = st.sampled_from(sorted({keys[-1] for _, keys in _PLACES}))
_NUMBER = st.one_of(
    st.integers(-(2**70), 2**70),
    st.sampled_from([0, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**64, 10**25, 1e-320, 1e22, 1e308, -0.0, 1.5]),
    st.sampled_from(["1e999999999", "9" * 5000, "0x" + "f" * 40, "NaN", "-Infinity", "", "\ud800"]),
)


def _holder(events: list[dict[str, Any]], place: tuple[int, tuple[str, ...]]) -> dict[str, Any]:
    index, keys = place
    return events[index] if len(keys) == 1 else events[index]["args"]


def _copied() -> list[dict[str, Any]]:
    copied: list[dict[str, Any]] = json.loads(json.dumps(EVENTS))
    return copied


def _judge(content: bytes) -> None:
    """Read, derive, let all rules judge: nothing is raised, no rule fails, and time and memory stay within limits."""
    began = time.process_time()
    tracemalloc.start()
    try:
        diagnose(Facts(trace_of_bytes(content)))
    except ProfkitError as error:
        assert "\n" not in str(error)  # noqa: PT017  # any mutation may be readable
    finally:
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak_bytes < MOST_BYTES
    assert time.process_time() - began < MOST_SECONDS


@some
@given(st.lists(st.tuples(_PLACE, _PLACE), min_size=1, max_size=6))
def test_a_trace_with_swapped_values_is_judged_or_refused(swaps):
    events = _copied()
    for one, other in swaps:
        if "args" in (one[1][0], other[1][0]) and (len(one[1]) == 1 or len(other[1]) == 1):
            continue  # arguments would hold themselves
        left, right = _holder(events, one), _holder(events, other)
        left[one[1][-1]], right[other[1][-1]] = right[other[1][-1]], left[one[1][-1]]
    _judge(json_of(events))


@some
@given(st.lists(st.tuples(_KEY, _KEY), min_size=1, max_size=3))
def test_a_trace_with_renamed_keys_is_judged_or_refused(renamed):
    content = SYNTHESISED
    for one, other in renamed:
        content = content.replace(f'"{one}":'.encode(), f'"{other}":'.encode())
    _judge(content)


@some
@given(st.lists(st.tuples(_PLACE, _NUMBER), min_size=1, max_size=8))
def test_a_trace_with_hostile_numbers_is_judged_or_refused(changes):
    events = _copied()
    for place, number in changes:
        if place[1] != ("args",):
            _holder(events, place)[place[1][-1]] = number
    _judge(json_of(events))


@some
@given(_PLACE, st.sampled_from(["[", '{"a":', '[{"b":[', '"\\"', "[[],"]), st.integers(1, 30_000), st.booleans())
def test_a_deeply_nested_trace_is_judged_or_refused(place, opening, depth, closed):
    events = _copied()
    _holder(events, place)[place[1][-1]] = "NESTED"
    inner = opening * depth
    if closed:
        inner += "0" + "".join({"[": "]", "{": "}"}.get(letter, "") for letter in reversed(inner))
    _judge(json_of(events).replace(b'"NESTED"', inner.encode()))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("Input Dims", [[2**62, 2**62], [2**62, 2**62]]),
        ("Input Dims", [[-(2**62)] * 30] * 3),
        ("Input Dims", [list(range(5000))] * 3),
        ("Input type", ["float"] * 20_000),
        ("Sequence number", 2**62),
        ("External id", 2**62),
        ("Concrete Inputs", ["9" * 4000, "1e400", "[" * 500]),
    ],
)
def test_shapes_and_ids_of_any_size_are_judged(field, value):
    events = _copied()
    for event in events:
        if event["cat"] == "cpu_op":
            event["args"][field] = value
    _judge(json_of(events))


def test_marks_of_unknown_lines_take_no_memory():
    events = [step(0, 0, 50), step(1, 50, 50), mark(9_999_999, 0, 20), mark(9_999_998, 20, 20), op("aten::mul", 5, 5)]
    _judge(json_of(events))


def test_thousands_of_threads_cost_no_more_than_their_events():
    events = [op("aten::mul", n % 7, 3, tid=n) for n in range(3000)]
    _judge(json_of(events))


def test_thousands_of_steps_are_judged():
    _judge(json_of([event for n in range(1500) for event in (step(n, 10 * n, 10), op("aten::mul", 10 * n + 2, 5))]))
