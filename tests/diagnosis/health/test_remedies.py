"""The advice for PyTorch's common errors, and none for others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from profkit.diagnosis.health import check_recording
from profkit.diagnosis.health.remedies import remedy_for
from profkit.diagnosis.pipeline import diagnose
from profkit.run.directory import FAILED, Run
from tests.traces import facts_of, op, step

NUMPY = (
    "TypeError: can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory "
    "first. (at train.py:12)"
)


def without_parameters() -> None:
    torch.ones(3).sum().backward()


def graph_of_the_step_before() -> None:
    loss = torch.ones(3, requires_grad=True).exp().sum()
    loss.backward()
    loss.backward()


def overwritten() -> None:
    x = torch.ones(3, requires_grad=True).exp()
    y = x * x
    x += 1
    y.sum().backward()


def not_on_the_processor() -> None:
    torch.ones(3, device="meta").numpy()


def on_two_devices() -> None:
    torch.add(torch.ones(3), torch.ones(3, device="meta"))


@pytest.mark.parametrize(
    ("fail", "advice"),
    [
        (not_on_the_processor, "`x.detach().cpu().numpy()`"),
        (on_two_devices, "`x = x.to(device)`"),
        (without_parameters, "depends on no trainable parameter"),
        (graph_of_the_step_before, "detach it"),
        (overwritten, "Write a new tensor"),
    ],
)
def test_errors_of_the_installed_pytorch_are_recognised(fail: Callable[[], None], advice: str) -> None:
    with pytest.raises((RuntimeError, TypeError)) as caught:
        fail()
    assert advice in remedy_for(f"{caught.type.__name__}: {caught.value}")


@pytest.mark.parametrize(
    ("failure", "advice"),
    [
        (NUMPY, "`x.detach().cpu().numpy()`"),
        ("RuntimeError: Expected all tensors to be on the same device, but found cuda:0!", "`x = x.to(device)`"),
        ("RuntimeError: Expected all tensors to be on the same device, but got mat1 is on cpu", "`x = x.to(device)`"),
        (
            "RuntimeError: Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same",
            "`x = x.to(device)`",
        ),
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "smaller batches"),
        ("AssertionError: Torch not compiled with CUDA enabled", "device-agnostic"),
        ("RuntimeError: Cannot re-initialize CUDA in forked subprocess.", "used by workers"),
    ],
)
def test_errors_that_need_a_gpu_are_recognised_by_their_text(failure: str, advice: str) -> None:
    assert advice in remedy_for(failure)


@pytest.mark.parametrize(
    "failure",
    [
        "ValueError: no more",
        "TypeError: can't convert np.ndarray of type numpy.object_.",
        "RuntimeError: Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.",
        "RuntimeError: Input type (float) and bias type (double) should be the same",
        "RuntimeError: element 0 of the list is empty",
        "MemoryError: ",
    ],
)
def test_other_failures_get_no_advice(failure: str) -> None:
    assert remedy_for(failure) == ""


def test_before_any_recorded_step_the_verdict_holds_the_advice() -> None:
    facts = facts_of([op("aten::mul", 0, 50)], run=Run(torch="2.13", notes=(FAILED + NUMPY,), exit_status=1))
    verdict = diagnose(facts).verdict
    assert verdict is not None
    assert f"before any step of it was recorded: {NUMPY}. NumPy sees the CPU's memory only" in verdict.text
    assert check_recording(facts)[0] == FAILED + NUMPY, "the advice stands in one place only"


def test_after_recorded_steps_the_note_holds_the_advice() -> None:
    run = Run(torch="2.13", notes=(FAILED + NUMPY, "another note"), exit_status=1, step_signal="optimizer")
    events = [step(0, 0, 100), step(1, 100, 100), op("aten::mul", 0, 50)]
    first, second, *_ = check_recording(facts_of(events, run=run))
    assert first.startswith(f"{FAILED}{NUMPY}. NumPy sees the CPU's memory only")
    assert second == "another note"
