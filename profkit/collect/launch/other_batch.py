"""``python -m profkit.collect.launch.other_batch OPTIONS -- ARGS`` runs a user's program with batches that are
``--times`` as large, until it has taken some steps, and then ends it at once.

`profkit diagnose --try-batch` runs a copy of the program in this way. The file ``--result`` then holds when each step
ended, how many samples it took and how long the main thread had waited for a CPU by then; the sizes that batches had
before, and what kept some from being changed. A step ends with an optimizer's step that got samples; in a program
without an optimizer, with each batch. Nothing of the program runs after the last step: no checkpoint, no upload.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from profkit.collect.launch.main_module import split_command
from profkit.collect.launch.turn import device_peak_bytes, peak_bytes
from profkit.collect.launch.unrecorded import run_unrecorded
from profkit.collect.machine.page_faults import count_crowded_ns
from profkit.collect.program.clocks import time
from profkit.collect.program.outside_writes import OutsideWrites

_MOST_STEPS = 60
_MOST_S = 20.0
"""From the first step on. Four steps of 5 s tell as much as 60 of 50 ms."""
_LEAST_STEPS = 8
"""Of steps of seconds, unless `_MOST_PATIENCE_S` are over."""
_MOST_PATIENCE_S = 60.0
_BATCHES_FOR_A_STEP = 256
"""Without an optimizer's step in so many batches the program has none: it evaluates or infers."""
_A_LAP = 8
"""Steps between two waits for the device: the host runs ahead of it, and a wait at each step would hold both up."""


class OtherBatch:
    """What is seen of one run."""

    def __init__(self, result: Path, times: int, writes: OutsideWrites) -> None:
        self._result, self._times, self._writes = result, times, writes
        self._process = os.getpid()
        self._batches: Any = None
        self._samples = self._taken = self._saved = 0
        self._steps: list[tuple[int, int, int]] = []
        self._of_batches: list[tuple[int, int, int]] = []
        self._is_over = False

    def begin(self) -> None:
        """PyTorch was imported."""
        import torch
        from torch.optim import optimizer

        from profkit.collect.loaders.larger_batches import LargerBatches

        self._batches = LargerBatches(self._times, self._on_samples)
        self._batches.install()
        optimizer.register_optimizer_step_post_hook(self._after_step)
        torch.save = self._checked(torch.save)

    def end(self, stopped: str = "") -> None:
        """Write what was seen, once; a fork of the program writes nothing."""
        if os.getpid() != self._process or self._is_over or self._batches is None:
            return
        self._is_over = True
        content = {
            "steps": self._steps or self._of_batches,
            "of_optimizer": bool(self._steps),
            "sizes": self._batches.sizes,
            "fixed": self._batches.fixed,
            "stopped": stopped,
            "saved": self._saved,
            "lap": _A_LAP if device_peak_bytes() else 1,
            "peak_bytes": peak_bytes(),
            "device_peak_bytes": device_peak_bytes(),
        }
        self._result.write_text(json.dumps(content), encoding="utf-8")

    def refuse(self, path: str) -> None:
        """The program is about to write outside of its copy."""
        if os.getpid() != self._process:
            raise PermissionError(f"profkit: a trial does not write to {path}")
        if not self._is_over:
            self.end(path)
            os._exit(0)

    def _checked(self, save: Any) -> Any:
        @functools.wraps(save)
        def save_inside(*arguments: Any, **options: Any) -> Any:
            to = options.get("f", *arguments[1:2])
            if self._writes.has(to):
                self.refuse(os.fsdecode(to))
            self._saved += 1
            return save(*arguments, **options)

        return save_inside

    def _on_samples(self, samples: int) -> None:
        if self._steps:
            self._samples += samples
            self._taken += 1
            return
        self._samples, self._taken = samples, 1  # the first step is only the start, whatever went before it
        passed_s = self._note(self._of_batches, samples)
        if len(self._of_batches) >= _BATCHES_FOR_A_STEP or passed_s > _MOST_PATIENCE_S:
            self._finish()

    def _after_step(self, *_: Any) -> None:
        if os.getpid() != self._process or not self._taken:
            return
        passed_s = self._note(self._steps, self._samples)
        self._samples = self._taken = 0
        steps = len(self._steps)
        is_enough = passed_s > _MOST_S and steps > _LEAST_STEPS
        if steps > _MOST_STEPS or is_enough or passed_s > _MOST_PATIENCE_S:
            self._finish()

    def _note(self, steps: list[tuple[int, int, int]], samples: int) -> float:
        """A step is over, or a batch begins. Return the seconds since the first."""
        if len(steps) % _A_LAP == 0:
            _wait_for_device()
        steps.append((time.perf_counter_ns(), samples, count_crowded_ns() or 0))
        return (steps[-1][0] - steps[0][0]) / 1e9

    def _finish(self) -> None:
        self.end()
        os._exit(0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program that the command line names until enough steps were seen."""
    options = _parse(sys.argv[1:] if arguments is None else list(arguments))
    writes = OutsideWrites(Path(options.inside), Path(options.kept))
    seen = OtherBatch(Path(options.result).absolute(), options.times, writes)
    writes.install(seen.refuse)
    try:
        run_unrecorded(options.target, options.arguments, seen.begin, is_module=options.module)
    finally:
        seen.end()


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m profkit.collect.launch.other_batch")
    parser.add_argument("--result", required=True)
    parser.add_argument("--times", type=int, required=True)
    parser.add_argument("--inside", required=True)
    parser.add_argument("--kept", required=True)
    parser.add_argument("--module", action="store_true")
    return split_command(parser, arguments)


def _wait_for_device() -> None:
    cuda = sys.modules["torch"].cuda
    if cuda.is_initialized():
        cuda.synchronize()


if __name__ == "__main__":
    main()
