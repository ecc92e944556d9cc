"""What recording costs, a comparison per request: ``overhead.py DEVICE DIRECTORY``.

A request is the name of a program and of a comparison; the answer is the ratios of some rounds, or milliseconds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tests.gpu.children import answer_requests, first_touch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import bench_overhead  # a folder of scripts
import small_programs

ROUNDS = 2


def main(device: str, directory: str) -> None:
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    torch.set_num_threads(1)
    place, steps = Path(directory), dict(small_programs.programs(device))
    warm = set[str]()

    def compare(request: str) -> Mapping[str, Any]:
        program, _, comparison = request.partition("|")
        step = steps[program]
        if program not in warm:
            warm.add(program)
            for _ in range(20):
                step()
        pauses: list[int] = []
        first, second = {
            "recorded": (lambda: bench_overhead.by_profkit(step, place, pauses), lambda: bench_overhead.by_torch(step)),
            "before": (lambda: bench_overhead.before_the_window(step, place), lambda: bench_overhead.unprofiled(step)),
            "after": (lambda: bench_overhead.after_the_window(step, place), lambda: bench_overhead.unprofiled(step)),
            "noise": (lambda: bench_overhead.unprofiled(step), lambda: bench_overhead.unprofiled(step)),
        }[comparison]
        ratios = bench_overhead.ratios(ROUNDS, first, second)
        return {"ratios": ratios, "pauses_ms": [pause / 1e6 for pause in pauses], "step_ms": _step_ms(step)}

    first_touch(device)
    answer_requests(compare)


def _step_ms(step: small_programs.Step) -> float:
    return min(bench_overhead.timed(step) for _ in range(5)) / 1e6


if __name__ == "__main__":
    main(*sys.argv[1:3])
