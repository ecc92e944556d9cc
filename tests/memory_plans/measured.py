"""The peak of real training steps, from the profiler's memory events and independent of the plan."""

from __future__ import annotations

import json
import sys
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


def measure(name: str, batch: int, optimizer_name: str, amp: bool = False) -> int:
    """Bytes at the peak of two training steps. Temporary memory of the constructor does not count."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        model, make_inputs, *rest = getattr(models, name)()
        inputs = make_inputs(batch)
        with record_function(_TRAINING):
            _train(model.train(), inputs, rest, _OPTIMIZERS[optimizer_name], amp)
    return _peak(profiler)


def _train(model: Any, inputs: Any, rest: list[Any], make_optimizer: Any, amp: bool) -> None:
    optimizer = make_optimizer(model.parameters())
    for _ in range(_STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=amp):
            if isinstance(inputs, dict):
                loss = model(**inputs).loss
            else:
                loss = rest[0](model(inputs))
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
    print(json.dumps({"peak": measure(sys.argv[1], int(sys.argv[2]), sys.argv[3], len(sys.argv) > 4)}))
