"""A note lists lost events without a usable time by kind, unless no figure depends on them."""

from __future__ import annotations

import pytest

from profkit.trace.left_out import LEFT_OUT
from tests.traces import Json, kernel, mark, memcpy, memset, op, runtime, step, trace_of

LATE = 4.5e12
"""The clock of a recording begins up to three months before it."""


def clockless(event: Json) -> Json:
    return {**event, "ts": 0, "dur": 0}


def overhead(start: float | None) -> Json:
    return {"ph": "X", "cat": "overhead", "name": "Activity Buffer Request", "pid": -1, "tid": 0, "ts": start, "dur": 0}


def located(*events: Json) -> list[Json]:
    """A step with a line mark around an operator, a measured step, and these events."""
    return [
        step(2, LATE, 1000),
        mark(0, LATE + 100, 500, external=6),
        op("aten::mm", LATE + 200, 100, external=7),
        step(4, LATE + 1000, 900),
        op("aten::mm", LATE + 1200, 100, external=8),
        *events,
    ]


OF_THE_DEVICE = [
    clockless(runtime("cudaLaunchKernel", 0, 0, correlation=1, external=7)),
    clockless(kernel("gemm", 0, 0, correlation=1, external=7)),
    clockless(memset(0, 0, correlation=2, external=7)),
    clockless(kernel("graphed", 0, 0, correlation=3, external=6)),
    clockless(runtime("cudaDeviceSynchronize", 0, 0, correlation=4)),
    clockless(overhead(0)),
]


def test_located_work_without_a_time_gets_no_note():
    trace = trace_of(located(*OF_THE_DEVICE))
    assert trace.health == ()
    assert len(trace.events) == 5


def test_work_between_the_located_step_and_the_next_gets_no_note():
    between = [
        op("aten::copy_", LATE + 900, 50, external=9),
        clockless(memcpy("Memcpy DtoH", 0, 0, correlation=4, external=9)),
    ]
    assert trace_of(located(*OF_THE_DEVICE, *between)).health == ()


def test_work_of_measured_steps_without_a_time_is_listed_by_kind():
    lost = [
        clockless(runtime("cudaLaunchKernel", 0, 0, correlation=9, external=8)),
        *[clockless(kernel("gemm", 0, 0, correlation=9, external=8)) for _ in range(2)],
        clockless(memcpy("Memcpy DtoD", 0, 0, correlation=10, external=8)),
    ]
    (note,) = trace_of(located(*OF_THE_DEVICE, *lost)).health
    assert note == (f"{LEFT_OUT}: 4 events (2 kernels, 1 copy, 1 runtime call), so that the GPU's work is understated")


def test_without_line_marks_no_step_is_located():
    events = [event for event in located(*OF_THE_DEVICE) if "profkit.line" not in event["name"]]
    (note,) = trace_of(events).health
    assert note == (
        f"{LEFT_OUT}: 5 events (2 kernels, 2 runtime calls, 1 memory fill), so that the GPU's work is understated"
    )


@pytest.mark.parametrize("start", [0, None])
def test_lost_work_of_the_profiler_gets_no_note(start):
    assert trace_of([op("aten::mm", LATE + at, 1) for at in range(3)] + [overhead(start)]).health == ()


def test_operators_without_a_time_get_a_note():
    events = [op("aten::mm", LATE, 10), {**op("aten::add", 0, 5), "ts": None}, {**op("aten::add", 0, 5), "ts": "soon"}]
    assert trace_of(events).health == (f"{LEFT_OUT}: 2 events (2 operators)",)


def test_lost_events_of_unknown_kind_are_counted():
    strange = {**op("x", 0, 5), "cat": "strange", "ts": None}
    assert trace_of([op("aten::mm", LATE, 10), strange]).health == (f"{LEFT_OUT}: 1 event",)
    assert trace_of([op("aten::mm", LATE, 10), strange, {**op("y", 0, 1), "ts": None}]).health == (
        f"{LEFT_OUT}: 2 events (1 operator, 1 other)",
    )
