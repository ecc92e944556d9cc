"""What the notes say about the device: work that was not recorded, and launches and kernels that lack each other."""

from __future__ import annotations

import json

import pytest

from profkit.diagnosis.health import check_recording
from profkit.diagnosis.pipeline import diagnose
from profkit.report import render
from profkit.run.directory import Run
from tests.diagnosis.health.launches import launched, notes_of
from tests.traces import facts_of, kernel, op, runtime, step


def test_an_unrecorded_accelerator_is_the_first_note_and_prevents_judging():
    events = [step(0, 0, 100), runtime("cudaLaunchKernel", 0, 1, correlation=1)]
    notes = check_recording(facts_of(events, run=Run(notes=("the disk was full",))))
    unrecorded = (
        "the program used a CUDA device whose work was not recorded (1 kernel launch but no kernels; "
        "ProfilerActivity.CUDA records it): only the host's side is judged, and the device's times are unknown"
    )
    assert notes == (unrecorded, "the disk was full")
    diagnosis = diagnose(facts_of([*events, op("aten::mm", 5, 90)]))
    assert diagnosis.cannot_judge == notes[0]
    assert json.loads(render(diagnosis, "json"))["cannot_judge"] == notes[0]
    reason = "the program used a CUDA device whose work was not recorded"
    assert diagnosis.skipped["tensor-element-loop"] == reason
    assert diagnosis.skipped["full-precision-matmul"] == reason
    assert "input-bound" not in {rule for rule, why in diagnosis.skipped.items() if why == reason}


def test_no_activity_is_recommended_for_a_device_that_pytorch_cannot_record():
    (note,) = check_recording(facts_of([step(0, 0, 100), op("aten::_mps_convolution", 0, 50)]))
    assert note.startswith(
        "the program used an MPS device whose work was not recorded (aten::_mps_convolution runs on no other): only"
    )


def test_a_recorded_device_and_a_cpu_can_be_judged():
    assert diagnose(facts_of([step(0, 0, 100), op("aten::mm", 0, 50)])).cannot_judge is None
    work = [runtime("cudaLaunchKernel", 0, 1, correlation=1), kernel("k", 3, 9, correlation=1)]
    assert diagnose(facts_of([step(0, 0, 100), op("aten::mm", 0, 50), *work])).cannot_judge is None


def test_kernels_without_a_recorded_launch_are_counted():
    (note,) = check_recording(facts_of([step(0, 0, 100), kernel("k", 0, 9, correlation=5)]))
    assert note == "no launch is recorded for 1 of 1 GPU events: they cannot be traced back to a line"


@pytest.mark.parametrize(
    ("missing", "flaw", "meaning"),
    [
        (
            range(10),
            "the kernels of the first 10 of 50 kernel launches are missing",
            "the GPU seems idle, but may not have been",
        ),
        (
            range(45, 50),
            "the kernels of the last 5 of 50 kernel launches are missing",
            "they ran, and no figure includes them",
        ),
        (
            range(20, 30),
            "no kernel is recorded for 10 of 50 kernel launches",
            "records of the GPU were lost, and its work is understated",
        ),
    ],
)
def test_missing_kernels_are_reported_by_where_they_are_missing(missing, flaw, meaning):
    (note,) = notes_of(*launched(50, without=missing))
    assert note.startswith(f"{flaw}: ")
    assert note.endswith(meaning)


def test_less_than_a_hundredth_of_the_kernels_may_be_missing_silently():
    assert notes_of(*launched(101, without=range(1)), lasting=30_000) == ()
    assert notes_of(*launched(101, without=range(50, 51)), lasting=30_000) == ()
    assert len(notes_of(*launched(100, without=range(50, 51)), lasting=30_000)) == 1


def test_launches_captured_into_a_graph_need_no_kernels():
    capture = [runtime("cudaStreamBeginCapture_v10000", 2001, 1), runtime("cudaStreamEndCapture", 2990, 1)]
    assert notes_of(*launched(50, without=range(21, 30)), *capture) == ()
    assert len(notes_of(*launched(50, without=range(21, 31)), *capture)) == 1


def test_launches_without_correlation_ids_are_not_checked():
    events = [runtime("cudaLaunchKernel", 10 * n, 5) for n in range(9)]
    assert notes_of(*events, kernel("k", 10, 50)) == notes_of(kernel("k", 10, 50))


def test_launches_of_rocm_count_like_those_of_cuda():
    events = [
        {**event, "name": event["name"].replace("cudaLaunchKernel", "hipExtModuleLaunchKernel")}
        for event in launched(50, without=range(10))
    ]
    assert notes_of(*events)[0].startswith("the kernels of the first 10 of 50 kernel launches are missing")


def test_a_kernel_that_outlasts_the_next_one_of_its_stream_is_reported():
    (note,) = notes_of(
        *launched(40), kernel("long", 11, 3000, correlation=900), runtime("cudaLaunchKernel", 6, 1, correlation=900)
    )
    assert note.startswith("1 GPU event cannot have lasted as long as recorded, by up to 2.90 ms: the GPU")


def test_kernels_of_one_graph_launch_or_of_different_streams_may_overlap():
    graph = [
        runtime("cudaGraphLaunch", 0, 5, correlation=1),
        kernel("a", 10, 5000, correlation=1),
        kernel("b", 20, 5000, correlation=1),
    ]
    assert notes_of(*graph) == ()
    streams = [
        *launched(40),
        runtime("cudaLaunchKernel", 6, 1, correlation=900),
        kernel("long", 11, 3000, correlation=900, stream=9),
    ]
    assert notes_of(*streams) == ()


def test_a_small_overlap_of_successive_kernels_is_no_flaw():
    events = [
        event
        for n in range(9)
        for event in (
            runtime("cudaLaunchKernel", 100 * n, 1, correlation=n + 1),
            kernel("k", 100 * n + 10, 110, correlation=n + 1),
        )
    ]
    assert notes_of(*events) == ()
