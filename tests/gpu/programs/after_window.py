"""How long steps take after a recording that has ended: ``after_window.py MODE DEVICE DIRECTORY``.

The step is many small launches, so what slows a launch slows it. It is timed in blocks, each waited for as a whole.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.profiler import ProfilerActivity

from tests.gpu.children import answer_requests, first_touch

NOTHING, TORCH, TORCH_TEARDOWN, PROFKIT = "nothing", "torch.profiler", "torch.profiler, TEARDOWN_CUPTI=1", "profkit"
MODES = (NOTHING, TORCH, TORCH_TEARDOWN, PROFKIT)
_LAYERS, _BLOCKS, _BLOCK_S, _RECORDED = 60, 9, 0.15, 4


def main(mode: str, device: str, directory: str) -> None:
    torch.set_num_threads(1)
    first_touch(device)
    layers = nn.Sequential(*(nn.Linear(16, 16) for _ in range(_LAYERS))).to(device)
    data = torch.rand(4, 16, device=device)

    def step() -> None:
        layers(data).sum().backward()

    def measure(_: str) -> dict[str, float]:
        for _ in range(30):
            step()
        before = _blocks_ms(step, device)
        _record(mode, step, device, directory)
        return {"before_ms": before, "after_ms": _blocks_ms(step, device)}

    answer_requests(measure)


def _blocks_ms(step: Callable[[], None], device: str) -> float:
    count = max(1, int(_BLOCK_S / _block_s(step, 5, device)))
    return 1e3 * statistics.median(_block_s(step, count, device) for _ in range(_BLOCKS))


def _block_s(step: Callable[[], None], count: int, device: str) -> float:
    _wait(device)
    begun = time.perf_counter()
    for _ in range(count):
        step()
    _wait(device)
    return (time.perf_counter() - begun) / count


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def _record(mode: str, step: Callable[[], None], device: str, directory: str) -> None:
    if mode == PROFKIT:
        import profkit

        with profkit.profile(directory, active=_RECORDED) as recording:
            while not recording.is_over:
                step()
                recording.step()
    elif mode != NOTHING:
        if mode == TORCH_TEARDOWN:
            os.environ["TEARDOWN_CUPTI"] = "1"
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device != "cpu" else [])]
        with torch.profiler.profile(activities=activities):
            for _ in range(_RECORDED):
                step()
                _wait(device)


if __name__ == "__main__":
    main(*sys.argv[1:4])
