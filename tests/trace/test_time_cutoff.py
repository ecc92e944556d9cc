"""Of a trace larger than memory allows the first complete steps are kept, and a note says what is missing."""

from __future__ import annotations

import json
from unittest.mock import patch

import numpy as np
import pytest

from profkit.core.errors import UnreadableInput, UsageError
from profkit.derive.facts import Facts
from profkit.diagnosis.health import check_recording
from profkit.trace import containers
from profkit.trace.events import Category
from profkit.trace.kineto import columns
from profkit.trace.kineto.reader import read_kineto
from profkit.trace.limits import DEFAULT_LIMIT_BYTES, EMPTY_BYTES, MEMORY_LIMIT, memory_limit
from tests.traces import annotation, json_of, kernel, op, python, runtime, step


def steps_of(count, marks=True):
    """Steps of 100 µs with two operators, a launch, and its kernel, which begins when the step ends."""
    for i in range(count):
        start = 100 * i
        yield from [
            *([step(i, start, 100)] if marks else []),
            op("aten::mul", start + 10, 20),
            op("aten::add", start + 40, 20),
            runtime("cudaLaunchKernel", start + 45, 5, correlation=i + 1),
        ]
    yield from (kernel("add", 100 * i + 100, 30, correlation=i + 1) for i in range(count))


def read(tmp_path, events, most_events):
    path = tmp_path / "trace.json"
    path.write_bytes(json_of(events))
    small = {"PIECE_BYTES": 4096, "_BLOCK_BYTES": 4096}
    with patch.multiple(containers, **small), patch.object(columns, "EVENT_BYTES", 300):
        return read_kineto(path, EMPTY_BYTES + most_events * 300)


def test_a_trace_that_fits_is_kept_completely(tmp_path):
    trace = read(tmp_path, steps_of(20), 200)
    assert (len(trace.events), trace.health) == (100, ())


def test_of_a_larger_trace_the_first_complete_steps_are_kept_with_their_kernels(tmp_path):
    facts = Facts(read(tmp_path, steps_of(200), 500))
    events, steps = facts.trace.events, facts.steps
    kept = len(steps)
    assert (kept, len(events)) == (66, 329)
    assert steps.start_ns.tolist() == [100_000 * i for i in range(kept)]
    assert steps.host_ns.tolist() == [100_000] * kept
    for name in ("aten::mul", "aten::add", "cudaLaunchKernel"):
        inside = steps.index_of(events.start_ns[facts.trace.named(name)])
        assert np.bincount(inside[inside >= 0]).tolist() == [1] * kept
    kernels = facts.trace.rows(Category.KERNEL)
    assert set(range(100_000, 100_000 * kept, 100_000)) <= set(events.start_ns[kernels].tolist())


def test_a_note_counts_the_missing_steps_and_events(tmp_path):
    facts = Facts(read(tmp_path, steps_of(200), 500))
    (note,) = facts.trace.health
    assert note == (
        "only the first 66 of 200 steps (329 of 1,000 events) were kept, and all figures are of these alone: "
        "the trace needs more than 100 MB of memory (PROFKIT_MEMORY_LIMIT sets another limit)"
    )
    assert note in check_recording(facts)


def test_without_step_marks_the_note_states_the_time(tmp_path):
    trace = read(tmp_path, steps_of(200, marks=False), 500)
    (note,) = trace.health
    assert note.startswith("only the first 11.5 ms (460 of 800 events) were kept, ")
    assert (len(trace.events), trace.events.end_ns.max()) == (460, 11_500_000)


def test_no_kept_event_ends_after_the_cutoff(tmp_path):
    frames = [python("train.py(1): main", 0, 20_000), *steps_of(200)]
    trace = read(tmp_path, frames, 500)
    frame = int(np.flatnonzero(trace.named("train.py(1): main"))[0])
    last_ns = int(trace.events.end_ns.max())
    assert trace.events.end_ns[frame] == last_ns
    assert last_ns < 20_000_000


def test_a_cut_optimizer_step_ends_no_step(tmp_path):
    loop = [
        e
        for i in range(100)
        for e in (op("aten::mul", 100 * i, 20), annotation("Optimizer.step#SGD.step", 100 * i + 30, 70))
    ]
    for most in range(100, 130):
        facts = Facts(read(tmp_path, loop, most))
        assert facts.steps.source == "the optimizer's steps"
        assert set(facts.steps.duration_ns.tolist()) == {100_000}


def test_the_order_of_the_file_does_not_matter(tmp_path):
    events = list(steps_of(200))
    facts = Facts(read(tmp_path, events[::-1], 500))
    assert facts.trace.health[0].startswith("only the first 70 of 200 steps (349 of 1,000 events)")
    assert facts.steps.host_ns.tolist() == [100_000] * 70


def test_texts_of_dropped_events_are_dropped_too(tmp_path):
    events = [op("aten::mul", 10 * i, 5, dims=[[i], [4]], types=["float", "float"]) for i in range(400)]
    trace = read(tmp_path, events, 100)
    assert len(trace.events) <= 100
    assert len(trace.texts) == len(trace.events) + 1
    for row, event in enumerate(events[: len(trace.events)]):
        assert json.loads(trace.text_of(int(trace.events.dims_code[row]))) == event["args"]["Input Dims"]
        assert trace.text_of(int(trace.events.types_code[row])) == '["float", "float"]'


def test_more_events_at_one_moment_than_fit_are_refused(tmp_path):
    with pytest.raises(UnreadableInput, match="holds more at one moment than the memory limit allows"):
        read(tmp_path, [op("aten::mul", 5, 1) for _ in range(600)], 500)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("", DEFAULT_LIMIT_BYTES),
        ("500MB", 500 * 10**6),
        ("1.5 gb", 1_500_000_000),
        ("8g", 8 * 10**9),
        ("3e9", None),
        ("much", None),
        ("100MB", None),
        ("-2GB", None),
    ],
)
def test_the_environment_sets_the_limit(monkeypatch, text, size_bytes):
    monkeypatch.setenv(MEMORY_LIMIT, text)
    if size_bytes is None:
        with pytest.raises(UsageError, match=MEMORY_LIMIT):
            memory_limit()
    else:
        assert memory_limit() == size_bytes
