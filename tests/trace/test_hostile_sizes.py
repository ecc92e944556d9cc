"""Traces of huge shapes and numbers, or thousands of threads and steps, are judged within limits of time and memory."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

import pytest

from profkit.core.errors import ProfkitError
from profkit.derive.facts import Facts
from profkit.diagnosis.pipeline import diagnose
from tests.trace.test_hostile_files import SYNTHESISED
from tests.traces import json_of, mark, op, step, trace_of_bytes

DOCUMENT: dict[str, Any] = json.loads(SYNTHESISED)
EVENTS: list[dict[str, Any]] = DOCUMENT["traceEvents"]
MOST_BYTES = 48 << 20
"""Of memory for traces of some kilobytes: a number in a file is never the size of an array."""
MOST_SECONDS = 5.0


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
