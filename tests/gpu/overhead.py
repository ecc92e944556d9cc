"""What recording adds, inside its window and outside, beside bare torch.profiler and beside nothing.

Passes over all comparisons of two rounds each; the rows of a later pass replace those of an earlier one.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from tests.gpu.children import Child
from tests.gpu.machine import Machine
from tests.gpu.rows import FAILED, Part, PartFailed, Row

_NAME = "overhead"
_PROGRAM = "tests.gpu.programs.overhead"
_PROGRAMS = ("perceptron", "convolutions", "transformer", "six layers")
_COMPARISONS = {"recorded": 1.03, "before": 1.01, "after": 1.01, "noise": None}
"""And the most that is aimed at: recorded steps beside torch.profiler's, the others beside unprofiled ones."""
_PASSES, _LIMIT_S, _RESAMPLES = 8, 120.0, 2000


def rows(machine: Machine, left_s: Callable[[], float]) -> Iterator[Row]:
    """A process for each program: one that fails does not end the others."""
    found: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        children = {
            program: stack.enter_context(
                Child(program, _PROGRAM, machine.device, str(machine.work / program.replace(" ", "-")))
            )
            for program in _PROGRAMS
        }
        for _ in range(_PASSES):
            for program in tuple(children):
                for comparison in _COMPARISONS:
                    try:
                        answer = children[program].ask(f"{program}|{comparison}", min(_LIMIT_S, left_s()))
                    except PartFailed as error:
                        yield Row(_NAME, f"{program}, {comparison}", f"{FAILED}{error}")
                        del children[program]
                        break
                    yield _row(program, comparison, found.setdefault((program, comparison), []), answer)


def _row(program: str, comparison: str, ratios: list[float], answer: Mapping[str, Any]) -> Row:
    """Of all passes so far, whose ratios join ``ratios``."""
    ratios += answer["ratios"]
    low, high = interval(ratios)
    pauses = answer["pauses_ms"]
    figures = {
        "step ms": answer["step_ms"],
        "ratio": statistics.median(ratios),
        "at least": low,
        "at most": high,
        "rounds": len(ratios),
        "goal": _COMPARISONS[comparison],
        "pause ms": statistics.median(pauses) if pauses else None,
    }
    return Row(_NAME, f"{program}, {comparison}", figures=figures)


def interval(ratios: list[float], seed: int = 0) -> tuple[float, float]:
    """The middle 95 % of the medians of resampled ratios."""
    generator = random.Random(seed)
    medians = sorted(statistics.median(generator.choices(ratios, k=len(ratios))) for _ in range(_RESAMPLES))
    return medians[round(0.025 * _RESAMPLES)], medians[round(0.975 * _RESAMPLES) - 1]


PART = Part(_NAME, "recording in and outside its window, beside bare torch.profiler", 0.15, rows)
