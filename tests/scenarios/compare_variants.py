"""Run both variants of the scenario in the file named by the first argument and compare what their steps yield.

Prints the number of steps. Fails where the results differ by more than float32 arithmetic explains: 0.1 % each.
"""

from __future__ import annotations

import gc
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"scenario_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(scenario: ModuleType, variant: str, device: str) -> list[Any]:
    return list(getattr(scenario, variant)(scenario.setup(device)))


def compare(path: Path) -> int:
    scenario = load(path)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pitfall, fix = run(scenario, "pitfall", device), run(scenario, "fix", device)
    assert len(pitfall) == len(fix), f"{len(pitfall)} steps against {len(fix)}"
    for step, results in enumerate(zip(pitfall, fix, strict=True)):
        first, second = (torch.as_tensor(result) for result in results)
        assert not first.requires_grad, f"step {step} of the pitfall yields an undetached tensor"
        assert not second.requires_grad, f"step {step} of the fix yields an undetached tensor"
        torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-4, check_dtype=False)
    return len(pitfall)


def main() -> None:
    gc.freeze()  # collections need not look through PyTorch's own objects: no result depends on them
    print(compare(Path(sys.argv[1])))
