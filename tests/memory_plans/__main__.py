"""``python -m tests.memory_plans [MODEL…]``: the planned peak beside the measured one, as a Markdown table.

On this machine's CPU each model trains two real steps in a process of its own (`tests.memory_plans.measured`). Models
whose library is not installed are left out. What an H100 measured stands below; it is not measured again.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from typing import NamedTuple

from profkit.memory_planner.parent import make_plan
from profkit.memory_planner.plan import PlanRequest

_MODELS = "tests.memory_plans.models"


class Case(NamedTuple):
    model: str
    batch: int
    optimizer: str
    library: str = "torch"
    precision: str = "fp32"
    device: str = "cpu"
    measured: int = 0


CASES = (
    Case("alexnet", 8, "sgd", "torchvision"),
    Case("vgg16", 2, "sgd-momentum", "torchvision"),
    Case("resnet18", 4, "adam", "torchvision"),
    Case("resnet50", 2, "sgd-momentum", "torchvision"),
    Case("mobilenet_v2", 4, "sgd-momentum", "torchvision"),
    Case("mobilenet_v2", 4, "adamw", "torchvision", "bf16-amp"),
    Case("vit_b_16", 2, "adamw", "torchvision"),
    Case("convnext_tiny", 2, "adamw", "timm"),
    Case("swin_tiny", 2, "adamw", "timm"),
    Case("gpt2", 1, "adamw-foreach", "transformers"),
    Case("bert", 2, "adamw", "transformers", "bf16-amp"),
    Case("llama", 2, "adamw", "transformers"),
    Case("x_transformer", 4, "adamw", "x_transformers"),
    Case("lstm", 4, "adam"),
    Case("unet", 4, "adam"),
    # PyTorch 2.11, CUDA 13: the allocator's own peak, and the largest `Total Allocated` of a profiler's recording.
    Case("tower", 8192, "adam", device="hopper", measured=3_541_538_304),
    Case("gpt2_of_eight_layers", 16, "adamw", "transformers", device="hopper", measured=12_363_961_856),
    Case("resnet50_of_100_classes", 64, "sgd-momentum", "torchvision", "fp16-amp", "hopper", 3_233_029_120),
)


def main() -> int:
    """Exit status 1 if a plan is more than five per cent off."""
    parser = argparse.ArgumentParser(prog="python -m tests.memory_plans", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    wanted = parser.parse_args().models
    print("| model | batch | optimizer | precision | on | planned | measured | off by | peak in |")
    print("|---|--:|---|---|---|--:|--:|--:|---|")
    worst = 0.0
    for case in CASES:
        if importlib.util.find_spec(case.library) is not None and (not wanted or case.model in wanted):
            worst = max(worst, abs(_show(case)))
    return int(worst > 0.05)


def _show(case: Case) -> float:
    request = PlanRequest(
        f"{_MODELS}:{case.model}",
        case.batch,
        optimizer=case.optimizer,
        precision=case.precision,
        device=case.device,
        changes=False,
    )
    answer = make_plan(request)
    assert answer.plan is not None, answer
    planned, measured = answer.plan.usage.peak_bytes, case.measured or _measure(case)
    off = planned / measured - 1
    where = "H100" if case.device == "hopper" else "CPU"
    print(
        f"| {case.model} | {case.batch:,} | {case.optimizer} | {case.precision} | {where} | {planned:,} "
        f"| {measured:,} | {off:+.1%} | {answer.plan.usage.when} |",
        flush=True,
    )
    return off


def _measure(case: Case) -> int:
    wish = (case.model, str(case.batch), case.optimizer, case.precision)
    command = [sys.executable, "-m", "tests.memory_plans.measured", *wish]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    peak: int = json.loads(ran.stdout.splitlines()[-1])["peak"]
    return peak


if __name__ == "__main__":
    sys.exit(main())
