"""The peak of real training steps, independent of the plan: ``measured.py MODEL BATCH OPTIMIZER [PRECISION] [cuda]``.

On a CPU it is of the profiler's memory events, on a GPU ``torch.cuda.max_memory_allocated()``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from tests.memory_plans import models

_TRAINING = "training"
_STEPS = 2
_OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, 0.01),
    "sgd-momentum": lambda parameters: torch.optim.SGD(parameters, 0.01, momentum=0.9),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adamw-foreach": lambda parameters: torch.optim.AdamW(parameters, foreach=True),
    "adamw-fused": lambda parameters: torch.optim.AdamW(parameters, fused=True),
    "adagrad": torch.optim.Adagrad,
}


_AUTOCAST = {"bf16-amp": torch.bfloat16, "fp16-amp": torch.float16}


def measure(name: str, batch: int, optimizer_name: str, precision: str = "fp32") -> int:
    """Bytes at the peak of two training steps. Temporary memory of the constructor does not count."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        model, make_inputs, *rest = getattr(models, name)()
        inputs = make_inputs(batch)
        with record_function(_TRAINING):
            _train(model.train(), inputs, rest, _OPTIMIZERS[optimizer_name], "cpu", _AUTOCAST.get(precision))
    return _peak(profiler)


def measure_on_gpu(name: str, batch: int, optimizer_name: str, precision: str = "fp32") -> dict[str, int]:
    """Bytes that PyTorch's allocator gave away and had reserved at the most. The model is made on the CPU."""
    model, make_inputs, *rest = getattr(models, name)()
    inputs = make_inputs(batch)
    inputs = {key: value.cuda() for key, value in inputs.items()} if isinstance(inputs, dict) else inputs.cuda()
    losses = [_on_gpu(loss) for loss in rest]
    _train(model.train().cuda(), inputs, losses, _OPTIMIZERS[optimizer_name], "cuda", _AUTOCAST.get(precision))
    torch.cuda.synchronize()
    return {"peak": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}


def _on_gpu(loss: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A loss that makes its labels on the GPU. Not so the optimizer's counters, which belong on the CPU."""

    def on_gpu(output: Any) -> Any:
        with torch.device("cuda"):
            return loss(output)

    return on_gpu


def _train(
    model: Any, inputs: Any, rest: list[Any], make_optimizer: Any, device: str, precision: torch.dtype | None
) -> None:
    optimizer = make_optimizer(model.parameters())
    for _ in range(_STEPS):
        optimizer.zero_grad()
        with torch.autocast(device, precision or torch.bfloat16, enabled=precision is not None):
            if isinstance(inputs, dict):
                loss = model(**inputs).loss
            elif rest:
                loss = rest[0](model(inputs))
            else:
                loss = model(inputs).mean()
        loss.backward()
        optimizer.step()


def _peak(profiler: profile) -> int:
    events = profiler.profiler.kineto_results.events()
    began = next(event.start_ns() for event in events if event.name() == _TRAINING)
    total = peak = 0
    for event in sorted((one for one in events if one.name() == "[memory]"), key=lambda one: one.start_ns()):
        total += event.nbytes()
        if event.start_ns() >= began:
            peak = max(peak, total)
    return peak


if __name__ == "__main__":
    _name, _batch, _optimizer, *_more = sys.argv[1:]
    if _more[1:] == ["cuda"]:
        print(json.dumps(measure_on_gpu(_name, int(_batch), _optimizer, _more[0])))
    else:
        print(json.dumps({"peak": measure(_name, int(_batch), _optimizer, *_more)}))
