"""What prevents judging a recording."""

from __future__ import annotations

import pytest

from profkit.derive.facts import Facts
from profkit.diagnosis.health import find_obstacles
from tests.traces import facts_of, json_of, kernel, op, runtime, step, trace_of_bytes

LAUNCHES = tuple(runtime("cudaLaunchKernel", 10 * i, 1, correlation=i + 1) for i in range(10))
KERNELS = tuple(kernel("k", 10 * i + 2, 5, correlation=i + 1) for i in range(10))


def test_a_complete_recording_can_be_judged():
    assert find_obstacles(facts_of([step(0, 0, 100), *LAUNCHES, *KERNELS])) == ()


def test_a_recording_without_steps_or_kernels_is_not_judged():
    assert find_obstacles(facts_of(LAUNCHES)) == (
        (
            "the program used a CUDA device whose work was not recorded (10 kernel launches but no kernels; "
            "ProfilerActivity.CUDA records it): only the host's side is judged, and the device's times are unknown"
        ),
        "no steps were found: the whole recording is treated as one step",
    )


@pytest.mark.parametrize(
    ("launches", "kernels", "obstacles"),
    [
        (10, 5, ()),
        (10, 4, ("no kernel is recorded for 6 of 10 kernel launches",)),
        (5, 10, ()),
        (4, 10, ("no launch is recorded for 6 of 10 GPU events",)),
    ],
)
def test_a_recording_that_lost_most_kernels_or_launches_is_not_judged(launches, kernels, obstacles):
    assert find_obstacles(facts_of([step(0, 0, 100), *LAUNCHES[:launches], *KERNELS[:kernels]])) == obstacles


def test_a_file_that_is_cut_off_is_not_judged():
    whole = json_of([step(0, 0, 100), op("aten::mul", 0, 50), op("aten::add", 60, 20)])
    cut = trace_of_bytes(whole[: whole.index(b"aten::add")])
    (obstacle,) = find_obstacles(Facts(cut))
    assert obstacle == "the file is cut off, and what is lost may be from any part of the recording"
