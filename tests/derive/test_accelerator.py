"""Which accelerator a program used, found on the host's side even if its work was not recorded."""

from __future__ import annotations

import pytest

from profkit.derive.device.accelerator import Accelerator
from tests.traces import Json, facts_of, kernel, memory, op, runtime, step

STEP = [step(0, 0, 100), op("aten::mul", 0, 50)]


def found(*events: Json) -> Accelerator | None:
    return facts_of([*STEP, *events]).accelerator


def test_a_cpu_program_used_no_accelerator():
    assert found() is None
    assert found(memory(5, 64, 1)) is None
    assert found(memory(5, 64, 1, device_type=-1)) is None
    assert found(op("aten::_scaled_dot_product_flash_attention_for_cpu", 5, 1)) is None


@pytest.mark.parametrize(
    "name",
    [
        "aten::cudnn_is_acceptable",
        "aten::_fused_adamw_",
        "aten::mkldnn_convolution",
        "cudaGetDeviceCount",
        "aten::_foreach_add_",
    ],
)
def test_operators_that_also_run_on_a_cpu_show_no_accelerator(name):
    assert found(op(name, 5, 1)) is None


def test_runtime_calls_that_launch_nothing_show_no_accelerator():
    assert found(runtime("cudaGetDeviceCount", 5, 1), runtime("cudaStreamIsCapturing", 7, 1)) is None


def test_an_accelerator_with_kernels_was_recorded():
    work = (runtime("cudaLaunchKernel", 5, 1, correlation=1), kernel("k", 8, 9, correlation=1))
    assert found(*work) == Accelerator("GPU", is_recorded=True)
    assert found(*work, memory(5, 64, 1, device_type=6)) == Accelerator("HIP", is_recorded=True)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(1, "CUDA"), (6, "HIP"), (9, "XLA"), (12, "XPU"), (13, "MPS"), (15, "HPU"), (19, "MTIA"), (20, "PrivateUse1")],
)
def test_memory_on_a_device_shows_the_accelerator(kind, name):
    accelerator = found(memory(5, 64, 1), memory(6, 64, 2, device_type=kind))
    assert accelerator == Accelerator(name, False, "memory was allocated there")


@pytest.mark.parametrize("kind", [2, 5, 14, 17, 127])
def test_memory_without_a_device_shows_no_accelerator(kind):
    assert found(memory(6, 64, 2, device_type=kind)) is None


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("cudaLaunchKernel", "CUDA"),
        ("cuLaunchKernelEx", "CUDA"),
        ("hipExtModuleLaunchKernel", "HIP"),
        ("urEnqueueKernelLaunch", "XPU"),
        ("tpuKernelLaunch", "GPU"),
    ],
)
def test_launches_without_kernels_show_the_accelerator(call, name):
    assert found(runtime(call, 5, 1)) == Accelerator(name, False, "1 kernel launch but no kernels")


@pytest.mark.parametrize(
    ("operator", "name"),
    [
        ("aten::_mps_convolution", "MPS"),
        ("aten::mps_convolution_backward", "MPS"),
        ("aten::_lstm_mps", "MPS"),
        ("aten::_scaled_dot_product_attention_math_for_mps", "MPS"),
        ("aten::miopen_batch_norm", "HIP"),
        ("aten::cudnn_convolution", "CUDA"),
        ("aten::_cudnn_rnn", "CUDA"),
        ("aten::_flash_attention_forward", "CUDA"),
        ("aten::_scaled_dot_product_efficient_attention", "CUDA"),
        ("aten::_thnn_fused_lstm_cell", "CUDA"),
    ],
)
def test_operators_of_one_kind_of_device_show_the_accelerator(operator, name):
    assert found(op(operator, 5, 1)) == Accelerator(name, False, f"{operator} runs on no other")


@pytest.mark.parametrize(
    ("category", "name"),
    [
        ("mtia_ccp_events", "MTIA"),
        ("mtia_workloadd", "MTIA"),
        ("hpu_op", "HPU"),
        ("glow_runtime", "Glow"),
        ("mlu_memcpy", "MLU"),
        ("GCU_MEMCPY", "GCU"),
    ],
)
def test_events_of_an_unknown_accelerator_show_that_there_is_one(category, name):
    accelerator = found({**op("work", 5, 1), "cat": category}, {**op("more", 7, 1), "cat": category})
    assert accelerator == Accelerator(name, False, f"2 events of kinds that profkit cannot read: {category}")


def test_an_xpu_with_kernels_was_recorded():
    calls = {**runtime("urEnqueueKernelLaunch", 5, 1, correlation=1), "cat": "xpu_runtime"}
    assert found(calls, kernel("k", 8, 9, correlation=1)) == Accelerator("GPU", is_recorded=True)


@pytest.mark.parametrize(
    ("name", "label"),
    [("CUDA", "a CUDA device"), ("MPS", "an MPS device"), ("GPU", "a GPU"), ("HIP", "a HIP device"), ("XPU", "an XPU")],
)
def test_an_accelerator_is_named_as_people_name_it(name, label):
    assert Accelerator(name, False).label == label
