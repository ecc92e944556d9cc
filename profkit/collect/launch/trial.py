"""Runs one variant of a scenario unrecorded, step by step, at the request of another process.

Each line of stdin is a number of steps; the answer is a line of JSON on stdout. For each step it holds ``ns``, how long
the step took, ``peak_bytes``, the peak memory beyond what was held before the first step, and ``number``, the step's
number since the variant last began, from 1. The scenario's own output goes to stderr.

On a GPU the host runs ahead, and synchronizing at each step would hide the cost of waits within steps. So this process
synchronizes only before the first and after the last requested step, and divides the time equally. The memory is then
the device's.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

import psutil  # type: ignore[import-untyped]  # its types are a package of their own
import torch

from profkit.collect.launch.scenario import beginning, load_scenario
from profkit.collect.loaders.account import read_memory

_RESET_PEAK = "5"
"""Written to ``clear_refs``, it makes the kernel forget the peak so far (``proc(5)``)."""


class Trial:
    """One variant, which begins again whenever its steps are used up.

    Workers' memory counts only if memory is compared: reading it takes milliseconds in which workers go on, so the next
    step would find its batch ready.
    """

    def __init__(
        self, module: ModuleType, variant: str, device: str, effect: str = "time", cuda: Any = torch.cuda
    ) -> None:
        self._module, self._variant, self._device, self._cuda = module, variant, device, cuda
        self._counts_workers = effect == "memory"
        self._steps: Iterator[Any] = iter(())
        self._round = ExitStack()
        self._base_bytes = self._base_device_bytes = self._number = 0

    def run(self, count: int) -> dict[str, list[int]]:
        """The time and memory of that many steps."""
        done = [self._step() for _ in range(count)] if self._device == "cpu" else self._run_on_device(count)
        return dict(zip(("ns", "peak_bytes", "number"), map(list, zip(*done, strict=True)), strict=True))

    def close(self) -> None:
        """End the variant's other process, if any."""
        self._round.close()

    def _step(self) -> tuple[int, int, int]:
        took = self._advance()
        if took is None:
            self._begin()
            took = self._advance()
        self._number += 1
        of_workers = workers_bytes() if self._counts_workers else 0
        return took or 0, max(0, peak_rss_bytes() - self._base_bytes) + of_workers, self._number

    def _run_on_device(self, count: int) -> list[tuple[int, int, int]]:
        took_ns, numbers = 0, list[int]()
        self._cuda.reset_peak_memory_stats()
        reset_peak()
        while len(numbers) < count:
            self._cuda.synchronize()
            start = time.perf_counter_ns()
            passed = sum(1 for _ in islice(self._steps, count - len(numbers)))
            self._cuda.synchronize()
            took_ns += time.perf_counter_ns() - start
            numbers += range(self._number + 1, self._number + passed + 1)
            self._number += passed
            if len(numbers) < count:
                self._begin()
        peak_bytes = self._peak_of_device()
        return [(took_ns // count, peak_bytes, number) for number in numbers]

    def _peak_of_device(self) -> int:
        """The peak beyond what was held at the start; the host's if the variant holds nothing on the device."""
        peak_bytes: int = self._cuda.max_memory_allocated()
        return max(0, peak_bytes - self._base_device_bytes if peak_bytes else peak_rss_bytes() - self._base_bytes)

    def _begin(self) -> None:
        self._steps = iter(())
        self.close()
        gc.collect()  # memory left by the last round must not count as this one's base
        self._steps = self._round.enter_context(beginning(self._module, self._variant, self._device))
        self._number = 0
        self._base_bytes = psutil.Process().memory_info().rss
        if self._device != "cpu":
            self._base_device_bytes = self._cuda.memory_allocated()

    def _advance(self) -> int | None:
        """Run the next step and return its nanoseconds; None if there is none."""
        reset_peak()
        start = time.perf_counter_ns()
        try:
            next(self._steps)
        except StopIteration:
            return None
        return time.perf_counter_ns() - start


def reset_peak() -> None:
    """Reset the peak memory, if the system can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK, encoding="ascii")


def peak_rss_bytes() -> int:
    """The peak memory since `reset_peak`; on systems other than Linux, the memory held now."""
    with suppress(OSError, ValueError, IndexError):
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.split("VmHWM:")[1].split()[0]) << 10
    return int(psutil.Process().memory_info().rss)


def workers_bytes() -> int:
    """The memory that only the process's children hold, which are the workers of a DataLoader."""
    children = multiprocessing.active_children()
    return sum(read_memory(str(child.pid)).get("private_bytes", 0) for child in children)


def _answers() -> TextIO:
    """The real stdout, with stderr in its place for everything else."""
    sys.stdout.flush()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def main(path: str, variant: str, device: str, effect: str) -> None:
    """Answer until stdin ends. PyTorch begins with a GPU before the first request, as it takes seconds."""
    answers = _answers()
    if device != "cpu":
        torch.ones(1, device=device)
    with closing(Trial(load_scenario(Path(path), variant), variant, device, effect)) as trial:
        for line in sys.stdin:
            print(json.dumps(trial.run(int(line))), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:5])
