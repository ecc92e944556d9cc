"""Steps of recordings without any event of the host."""

from __future__ import annotations

import pytest

from profkit.derive.steps.boundaries import WHOLE_RECORDING
from profkit.derive.steps.on_device import MARKED, REPEATED
from tests.traces import facts_of, kernel, op

STEP = ["embed", "gemm", "norm", "gemm", "norm", "loss", "adam"]


def kernels(names, each_us=300, stream=7):
    return [kernel(name, each_us * number, 100, stream=stream) for number, name in enumerate(names)]


def steps_of(events):
    steps = facts_of(events).steps
    return steps.source, [int(ns) // 1000 for ns in steps.end_ns - steps.start_ns]


def test_a_sequence_of_kernels_that_repeats_gives_the_steps():
    assert steps_of(kernels(STEP * 4)) == (REPEATED, [2_100] * 3)


def test_a_recording_that_begins_and_ends_within_a_step():
    assert steps_of(kernels((STEP * 5)[3:-2])) == (REPEATED, [2_100] * 3)


def test_layers_between_kernels_that_none_of_them_has_are_no_steps():
    layers = ["gemm", "norm", "gelu", "add"] * 12
    source, durations = steps_of(kernels(["embed", *layers, "loss"]))
    assert source == WHOLE_RECORDING
    assert len(durations) == 1


def test_what_repeats_within_a_millisecond_may_be_a_layer():
    assert steps_of(kernels(STEP * 4, each_us=140))[0] == WHOLE_RECORDING
    assert steps_of(kernels(STEP * 4, each_us=145))[0] == REPEATED


def test_the_stream_with_most_work_decides():
    copies = [kernel(f"copy{number}", 300 * number, 5, stream=9) for number in range(28)]
    assert steps_of([*kernels(STEP * 4), *copies])[0] == REPEATED


def test_the_profilers_marks_have_shadows_on_the_device():
    marks = [device_mark(f"ProfilerStep#{number}", 1_000 * number, 700) for number in range(3)]
    assert steps_of([*kernels(["a", "b", "c"], 1_000), *marks]) == (MARKED, [1_000, 1_000, 700])


@pytest.mark.parametrize("repeats", [1, 2])
def test_two_rounds_confirm_nothing(repeats):
    assert steps_of(kernels(STEP * repeats))[0] == WHOLE_RECORDING


def test_where_the_host_was_recorded_it_decides():
    assert steps_of([op("aten::mul", 0, 9_000), *kernels(STEP * 4)])[0] == WHOLE_RECORDING


def device_mark(name, start_us, duration_us):
    event = kernel(name, start_us, duration_us)
    return {**event, "cat": "gpu_user_annotation"}
