"""Whether CUPTI stays in the program after a recording, and what that costs: steps before and after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

from tests.gpu.children import Child
from tests.gpu.machine import Machine
from tests.gpu.rows import FAILED, Part, PartFailed, Row

_NAME = "after the window"
_PROGRAM = "tests.gpu.programs.after_window"
_MODES = ("nothing", "torch.profiler", "torch.profiler, TEARDOWN_CUPTI=1", "profkit")
_PASSES, _LIMIT_S = 2, 60.0


def rows(machine: Machine, left_s: Callable[[], float]) -> Iterator[Row]:
    """The processes of a pass import PyTorch together and then measure one after another."""
    stand_in = "a CPU's recording: no CUPTI" if machine.device == "cpu" else None
    for turn in range(_PASSES):
        with ExitStack() as stack:
            started = {mode: stack.enter_context(_child(machine, mode, turn)) for mode in _MODES}
            for mode, child in started.items():
                name = f"{mode} ({turn + 1})"
                try:
                    answer = child.ask("measure", min(_LIMIT_S, left_s()))
                except PartFailed as error:
                    yield Row(_NAME, name, f"{FAILED}{error}")
                    continue
                figures = {
                    "before ms": answer["before_ms"],
                    "after ms": answer["after_ms"],
                    "ratio": answer["after_ms"] / answer["before_ms"],
                    "stand-in": stand_in,
                }
                yield Row(_NAME, name, figures=figures)


def _child(machine: Machine, mode: str, turn: int) -> Child:
    return Child(mode, _PROGRAM, mode, machine.device, str(machine.work / f"after-{turn}-{mode.partition(',')[0]}"))


PART = Part(_NAME, "how long steps take after a recording: nothing, torch.profiler, profkit", 0.08, rows)
