"""Plans of memory beside what training takes: `torch.cuda.max_memory_allocated` on a GPU.

A few models at a time plan and train at once: neither is a measurement of time.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

from tests.gpu.machine import CHECKOUT, Machine
from tests.gpu.rows import COULD_NOT, DONE, FAILED, Part, PartFailed, Row

_NAME = "memory plans"
_MODELS = CHECKOUT / "tests" / "memory_plans" / "models.py"
_MEASURED = "tests.memory_plans.measured"
_AT_ONCE, _LIMIT_S = 4, 120.0
_CLOSE = 0.05
_HOPPER = (9, 0)


class _Case(NamedTuple):
    model: str
    batch: int
    optimizer: str
    precision: str = "fp32"
    library: str = "torch"


_ON_GPU = (
    _Case("tower", 8192, "adam"),
    _Case("gpt2_of_eight_layers", 16, "adamw", library="transformers"),
    _Case("resnet50_of_100_classes", 64, "sgd-momentum", "fp16-amp", "torchvision"),
    _Case("unet", 64, "adam"),
    _Case("lstm", 64, "adam"),
    _Case("vit_b_16", 32, "adamw-fused", "bf16-amp", "torchvision"),
    _Case("llama", 16, "adamw", "bf16-amp", "transformers"),
    _Case("bert", 32, "adamw-foreach", "bf16-amp", "transformers"),
    _Case("convnext_tiny", 32, "adamw", library="timm"),
    _Case("mobilenet_v2", 64, "sgd-momentum", library="torchvision"),
    _Case("swin_tiny", 32, "adamw", "bf16-amp", "timm"),
    _Case("vgg16", 16, "sgd-momentum", library="torchvision"),
)
_ON_CPU = (_Case("tower", 64, "adam"), _Case("lstm", 2, "adam"), _Case("unet", 2, "adam"))


def rows(machine: Machine, left_s: Callable[[], float]) -> Iterator[Row]:
    cases = list(_ON_GPU if machine.device == "cuda" else _ON_CPU)
    for case in cases:
        if importlib.util.find_spec(case.library) is None:
            yield Row(_NAME, _name(case), f"{COULD_NOT}{case.library} is not installed")
    cases = [case for case in cases if importlib.util.find_spec(case.library) is not None]
    at_once = min(_AT_ONCE, max(1, machine.cpus // 3))
    for first in range(0, len(cases), at_once):
        yield from _together(cases[first : first + at_once], machine, left_s)


def _together(cases: list[_Case], machine: Machine, left_s: Callable[[], float]) -> list[Row]:
    end_s = time.monotonic() + min(_LIMIT_S, left_s())
    with ExitStack() as stack:
        running = [
            (case, *(stack.enter_context(_Ran(command)) for command in _commands(case, machine))) for case in cases
        ]
        return [_compared(case, plan, training, machine, end_s) for case, plan, training in running]


def _commands(case: _Case, machine: Machine) -> tuple[list[str], list[str]]:
    rules = machine.device if machine.device == "cpu" or (machine.capability or ()) < _HOPPER else "hopper"
    batch = ["--batch", str(case.batch)]
    wishes = ["--optimizer", case.optimizer, "--precision", case.precision, "--device", rules]
    plan = ["profkit", "memory-plan", f"{_MODELS}:{case.model}", *batch, *wishes, "--peak-only", "--format", "json"]
    training = [_MEASURED, case.model, str(case.batch), case.optimizer, case.precision, machine.device]
    return plan, training[:-1] if machine.device == "cpu" else training


def _compared(case: _Case, plan: _Ran, training: _Ran, machine: Machine, end_s: float) -> Row:
    try:
        planned, measured = plan.told(end_s)["usage"], training.told(end_s)
    except PartFailed as error:
        return Row(_NAME, _name(case), f"{FAILED}{error}")
    off = planned["peak_bytes"] / measured["peak"] - 1
    figures = {
        "planned": planned["peak_bytes"],
        "measured": measured["peak"],
        "off by": round(off, 4),
        "reserved planned": planned["reserved_bytes"] or None,
        "reserved measured": measured.get("reserved"),
        "peak in": planned["when"],
        "stand-in": "a CPU's memory events" if machine.device == "cpu" else None,
    }
    return Row(_NAME, _name(case), DONE if abs(off) <= _CLOSE else f"off by more than {_CLOSE:.0%}", figures)


def _name(case: _Case) -> str:
    return f"{case.model}, {case.batch}, {case.optimizer}, {case.precision}"


class _Ran:
    """A process that prints JSON."""

    def __init__(self, command: list[str]) -> None:
        self._name = f"{command[0]} {command[1]}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
        )

    def __enter__(self) -> _Ran:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()

    def told(self, end_s: float) -> dict[str, Any]:
        try:
            out, errors = self._process.communicate(timeout=max(1.0, end_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise PartFailed(f"{self._name} did not end in time") from None
        with suppress(ValueError):
            told: dict[str, Any] = json.loads(out[out.index("{") :])
            return told
        raise PartFailed(f"{self._name}: {(errors.strip().splitlines() or ['it said nothing'])[-1]}")


PART = Part(_NAME, "memory-plan beside torch.cuda.max_memory_allocated", 0.15, rows)
