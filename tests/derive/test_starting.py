"""What comes once: captures by the runtime's calls, tuning and warming up by names."""

from __future__ import annotations

import pytest

from tests.traces import annotation, facts_of, op, python, runtime, step


def _pairs(intervals):
    return [(s // 1000, e // 1000) for s, e in zip(intervals.start_ns.tolist(), intervals.end_ns.tolist(), strict=True)]


def _starting(*events):
    return facts_of([op("aten::mm", 0, 1000), *events]).starting


def test_a_capture_lasts_from_its_begin_to_its_end():
    found = _starting(
        runtime("cudaStreamBeginCapture", 100, 5),
        runtime("cudaStreamEndCapture", 300, 5),
        runtime("hipStreamBeginCapture", 500, 5),
        runtime("hipStreamEndCapture", 600, 5),
        runtime("cudaStreamIsCapturing", 700, 5),
    )
    assert _pairs(found.capturing) == [(100, 300), (500, 600)]


def test_a_capture_of_another_thread_holds_up_no_step():
    begin, end = (runtime(f"cudaStream{which}Capture", at, 5, tid=9) for which, at in (("Begin", 100), ("End", 300)))
    assert _pairs(_starting(begin, end).any) == []


@pytest.mark.parametrize(
    "name",
    [
        "triton/runtime/autotuner.py(153): _bench",
        "triton/testing.py(96): do_bench",
        "torch/_inductor/runtime/triton_heuristics.py(600): benchmark_all_configs",
        "torch/_inductor/select_algorithm.py(1200): autotune",
        "flashinfer/autotuner.py(400): _profile_single_kernel",
        "deep_gemm/jit_kernels/tuner.py(20): compile_and_tune",
    ],
)
def test_functions_that_time_kernels_are_tuning(name):
    assert _pairs(_starting(python(name, 100, 300)).tuning) == [(100, 400)]


@pytest.mark.parametrize(
    "name",
    [
        "vllm/v1/worker/gpu_worker.py(522): compile_or_warm_up_model",
        "vllm/v1/worker/gpu_model_runner.py(4712): _dummy_run",
        "vllm/v1/worker/gpu_model_runner.py(5362): capture_model",
        "sglang/srt/model_executor/cuda_graph_runner.py(1201): capture_one_batch_size",
        "runner_models/base_model.py(713): _run_compile_warmup",
        "train.py(12): warm_up",
        "train.py(12): warmup_model",
    ],
)
def test_functions_named_after_warming_up_are_start_up(name):
    assert _pairs(_starting(python(name, 100, 300)).warming) == [(100, 400)]


@pytest.mark.parametrize("name", ["warmup", "Warm-up 3", "[param|alex_net|0|0|warmup|forward]", "capture_32_DECODE"])
def test_so_are_ranges(name):
    assert _pairs(_starting(annotation(name, 100, 300)).warming) == [(100, 400)]


@pytest.mark.parametrize(
    "event",
    [
        python("torch/optim/lr_scheduler.py(400): get_lr_with_warmup", 100, 300),
        python("train.py(9): linear_warmup", 100, 300),
        python("train.py(9): warmup_lambda", 100, 300),
        python("torch/_inductor/cudagraph_trees.py(2322): in_warmup", 100, 300),
        python("aiter/tuned_gemm.py(552): mm", 100, 300),
        python("triton/runtime/autotuner.py(200): run", 100, 300),
        python("torch/_inductor/runtime/autotune_cache.py(487): end_compile", 100, 300),
        python("benchmark.py(20): benchmark_step", 100, 300),
        python("camera.py(9): capture", 100, 300),
        python("torch/cuda/graphs.py(98): capture_begin", 100, 300),
        annotation("lr_warmup_step", 100, 300),
        annotation("capture the image", 100, 300),
        annotation("measure|forward", 100, 300),
    ],
)
def test_names_that_are_alike_are_not(event):
    assert _pairs(_starting(event).any) == []


def _steps_with(*extra):
    """Four steps of 1 ms."""
    events = [one for n in range(4) for one in (step(n, 1000 * n, 1000), op("aten::mm", 1000 * n + 10, 900))]
    return facts_of([*events, *extra]).steps.measured.tolist()


@pytest.mark.parametrize(("lasts", "left_in"), [(9, True), (11, False)])
def test_a_step_in_which_a_graph_is_captured_is_left_out(lasts, left_in):
    begin, end = runtime("cudaStreamBeginCapture", 1100, 1), runtime("cudaStreamEndCapture", 1100 + lasts, 1)
    assert _steps_with(begin, end) == [True, left_in, True, True]


@pytest.mark.parametrize(("lasts", "left_in"), [(490, True), (510, False)])
def test_a_step_that_mostly_warms_up_is_left_out(lasts, left_in):
    assert _steps_with(python("train.py(3): warmup", 1100, lasts)) == [True, left_in, True, True]
