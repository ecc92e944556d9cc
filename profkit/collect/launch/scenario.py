"""Runs one variant of a scenario file, step by step, recorded or not.

A scenario is one Python file with ``setup(device)`` and the generator functions ``pitfall(state)`` and ``fix(state)``,
which yield a result at the end of each step. It may set ``steps``, the number of steps when it runs unrecorded,
``needs_gpu``, ``recorded_cold``, if its fault is what a process does for the first time, and ``processes = 2``: then it
runs in two processes at once, joined by `torch.distributed`, and this one is rank 0.
"""

from __future__ import annotations

import gc
import importlib.util
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import torch
from torch import distributed

from profkit.collect.recorder.profiler import profile
from profkit.collect.recorder.recorder import Progress
from profkit.core.errors import UnreadableInput, UsageError
from profkit.run.directory import create_directory
from profkit.run.plan import ACTIVE_STEPS, WAIT_STEPS, WARMUP_STEPS, Plan, Subject

VARIANTS = ("pitfall", "fix")
_STEPS = 8
"""Steps whose results are compared, where nothing is recorded: a few more than a recording measures."""
_WARM_WAIT = 5
"""Steps timed without a profiler. `verify` compares variants by their times, so there are more than `WAIT_STEPS`."""
_PREFIX = "_profkit_scenario_"
_PARTNER = "profkit.collect.launch.partner"
_TIMEOUT = timedelta(seconds=120)


def run_scenario(
    path: Path,
    variant: str,
    device: str,
    directory: Path | None = None,
    *,
    wait: int = WAIT_STEPS,
    warmup: int = WARMUP_STEPS,
    active: int = ACTIVE_STEPS,
    on_progress: Progress | None = None,
) -> tuple[Any, ...]:
    """Run ``variant`` on ``device`` and return the result of each step, on the CPU and free of any graph.

    With a ``directory`` the steps are recorded into it: ``wait + warmup + active`` of them, more if workers load ahead,
    and ``wait`` more that are only timed.

    Raises `UnreadableInput` for a file that is no scenario and `UsageError` if a GPU is needed but absent. Errors of
    the scenario itself pass through.
    """
    module = load_scenario(path, variant)
    if getattr(module, "needs_gpu", False) and device == "cpu":
        raise UsageError(f"{path.stem}: this scenario needs a GPU")
    with beginning(module, variant, device) as steps:
        if directory is None:
            count = getattr(module, "steps", _STEPS)
            return tuple(_detach(result) for _, result in zip(range(count), steps, strict=False))
        plan = Plan(wait=wait, warmup=warmup, active=active, after=wait, prologue=False)
        subject = Subject(
            command=("profkit", "diagnose", path.stem.replace("_", "-"), f"--variant={variant}", f"--device={device}"),
            target=path.stem.replace("_", "-"),
            variant=variant,
            roots=(str(path.resolve().parent),),
            generators=lambda: (steps,),
        )
        return _record(steps, profile.planned(directory, plan, subject, on_progress))


@contextmanager
def beginning(module: ModuleType, variant: str, device: str) -> Iterator[Iterator[Any]]:
    """The steps of a variant, none of which has begun; leaving the context ends its other process, if any."""
    seed()
    pair = getattr(module, "processes", 1) > 1
    with with_partner(Path(str(module.__file__)), variant, device) if pair else nullcontext():
        yield getattr(module, variant)(module.setup(device))


@contextmanager
def with_partner(path: Path, variant: str, device: str) -> Iterator[None]:
    """Run the variant in a second process as well, as rank 1 of a `torch.distributed` group with this one.

    The second process ends with this one: it is killed here, or its connection breaks if this process dies first.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as torchrun does for several processes on one machine
    with TemporaryDirectory() as directory:
        meeting = Path(directory, "meeting").as_uri()
        command = [sys.executable, "-m", _PARTNER, str(path), variant, device, meeting]
        other = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: S603  # profkit itself
        try:
            join(0, meeting)
            yield
        finally:
            other.kill()
            other.wait()
            if distributed.is_initialized():
                distributed.destroy_process_group()
            torch.set_num_threads(threads)


def join(rank: int, meeting: str) -> None:
    """Wait for the other process at the file with the address ``meeting``."""
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=_TIMEOUT)


def _record(steps: Iterator[Any], recording: profile) -> tuple[Any, ...]:
    results: list[Any] = []
    with recording:
        for result in steps:
            recording.step_with(lambda result=result: results.append(_detach(result)))  # type: ignore[misc]  # bound now
            del result  # so that only the scenario itself keeps its graph alive
            if recording.is_over:
                break
    return tuple(results)


def load_scenario(path: Path, variant: str) -> ModuleType:
    """Import the file as a module under a private name, as the user may have a package `scenarios`."""
    if variant not in VARIANTS:
        raise UsageError(f"{variant!r} is not a variant: choose from {', '.join(VARIANTS)}")
    name = _PREFIX + path.stem
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None or not path.is_file():
        raise UnreadableInput(path, "is not a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    missing = [name for name in ("setup", *VARIANTS) if not callable(getattr(module, name, None))]
    if missing:
        raise UnreadableInput(path, f"is not a scenario: it has no {missing[0]}()")
    return module


def seed() -> None:
    random.seed(0)
    torch.manual_seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)


def _detach(result: Any) -> Any:
    """A copy of a step's result that no later step can change and that keeps no graph alive."""
    if isinstance(result, torch.Tensor):
        return result.detach().to("cpu", copy=True)
    if isinstance(result, (tuple, list)):
        return tuple(_detach(element) for element in result)
    return result


def main(path: str, variant: str, device: str, directory: str, waits: str = "") -> None:
    """Record one variant in its own process, after a warm-up run: the first steps touch memory for the first time. A
    scenario that is ``recorded_cold`` has none. With a fifth argument it waits for a line on stdin, with PyTorch
    imported and the device at hand."""
    if waits:
        torch.ones(1, device=device)
        sys.stdin.readline()
    if not getattr(load_scenario(Path(path), variant), "recorded_cold", False):
        run_scenario(Path(path), variant, device)
        gc.collect()
    run_scenario(Path(path), variant, device, create_directory(Path(directory)), wait=_WARM_WAIT)


if __name__ == "__main__":
    main(*sys.argv[1:6])
