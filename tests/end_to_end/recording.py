"""What runs in the recording processes: the command line, or a variant of a scenario with the results of its steps."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.forks import ForkedProgram, know_that_objects_are_frozen

RUN = "run"
"""The run directory, in the directory that the process is given."""
RESULTS = "results.npz"
"""An array for each step of a scenario's variant, in their order."""


def main() -> None:
    """The command line, which starts programs as forks."""
    from profkit import cli
    from profkit.collect.launch import parent

    setattr(parent, "subprocess", SimpleNamespace(Popen=ForkedProgram))  # noqa: B010  # for this process
    cli.main()


def record_variant() -> None:
    """The variant of the scenario file given on the command line. If it needs a GPU, it runs unrecorded."""
    import numpy as np

    from profkit.collect.launch import scenario
    from profkit.run.directory import create_directory

    path, variant = Path(sys.argv[1]), sys.argv[2]
    setattr(scenario, "_detach", _keep)  # noqa: B010  # for this process
    setattr(scenario, "subprocess", SimpleNamespace(Popen=ForkedProgram, DEVNULL=subprocess.DEVNULL))  # noqa: B010
    module = scenario.load_scenario(path, variant)
    if hasattr(module, "gc"):  # what the collector takes is what it is about
        gc.unfreeze()
        know_that_objects_are_frozen(False)
    if getattr(module, "needs_gpu", False):
        results = _run_unrecorded(module, variant)
    else:
        results = list(scenario.run_scenario(path, variant, "cpu", create_directory(Path(RUN))))
    np.savez(RESULTS, *results)


def _run_unrecorded(module: ModuleType, variant: str) -> list[Any]:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    return [_keep(result) for result in getattr(module, variant)(module.setup(device))]


def _keep(result: Any) -> Any:
    """A copy of what a step yields, which must be detached."""
    import torch

    result = torch.as_tensor(result)
    assert not result.requires_grad, "a step yields an undetached tensor"
    return result.to("cpu", torch.float64, copy=True).numpy()
