"""Whether `single-tensor-optimizer` predicts what ``fused=True`` gives back on this CPU.

    python tests/benchmarks/bench_fused_optimizer.py [--threads 1 2] [--rounds 12] [--optimizers AdamW SGD …]

For each optimizer, number of tensors and size: a step is the optimizer's and a pass over 64 MB before it, so that its
data comes from memory. profkit records the loop that PyTorch chooses by itself. Then one optimizer takes turns, a few
steps as a loop and a few with ``fused`` set, on the same parameters and state, and nothing is recorded. Printed are the
predicted and the measured share of the step, the quartiles of the rounds, and whether the measured one lies inside the
predicted interval; at the end how many do.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

GRID = ((64, 64), (256, 256), (64, 4096), (64, 1 << 14), (32, 1 << 16), (16, 1 << 18), (6, 1 << 20), (4, 1 << 22))
"""Tensors, and elements of each."""
OPTIMIZERS = ("AdamW", "SGD", "Adagrad")
STEPS = 5
"""Of one form in a round, of which the first does not count."""


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options.add_argument("--optimizers", nargs="+", default=OPTIMIZERS)
    options.add_argument("--rounds", type=int, default=12)
    options.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.one:
        print(json.dumps(run_one(*chosen.one[:1], *map(int, chosen.one[1:]), rounds=chosen.rounds)))
        return
    print(f"{'optimizer':10}{'threads':>8}{'tensors':>9}{'elements':>10}{'predicted':>28}{'measured':>28}  inside")
    inside = []
    for threads in chosen.threads:
        for name in chosen.optimizers:
            for count, elements in GRID:
                inside.append(show(name, count, elements, threads, chosen.rounds))
    known = [one for one in inside if one is not None]
    print(f"{sum(known)} of {len(known)} inside; {len(inside) - len(known)} not reported")


def show(name: str, count: int, elements: int, threads: int, rounds: int) -> bool | None:
    """Measure in a process of its own; whether the prediction held, None where there is none."""
    case = [name, str(count), str(elements), str(threads)]
    command = [sys.executable, __file__, "--rounds", str(rounds), "--one", *case]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    low, middle, high = found["measured"]
    measured = f"{middle:.1%} ({low:.1%} to {high:.1%})"
    head = f"{name:10}{threads:8}{count:9}{elements:10}"
    if found["predicted"] is None:
        print(f"{head}{'none':>28}{measured:>28}", flush=True)
        return None
    least, likely, most = found["predicted"]
    held = bool(least <= middle <= most)
    predicted = f"{likely:.1%} ({least:.1%} to {most:.1%})"
    print(f"{head}{predicted:>28}{measured:>28}  {'yes' if held else 'no'}", flush=True)
    return held


def run_one(name: str, count: int, elements: int, threads: int, rounds: int) -> dict[str, list[float] | None]:
    """The saving as profkit predicts it, and as it is."""
    import torch

    import profkit

    torch.set_num_threads(threads)
    parameters = [torch.nn.Parameter(torch.randn(elements)) for _ in range(count)]
    for parameter in parameters:
        parameter.grad = torch.randn(elements) * 1e-2
    settings = {"lr": 1e-3, "momentum": 0.9} if name == "SGD" else {"lr": 1e-3}
    optimizer = getattr(torch.optim, name)(parameters, **settings)
    passed = torch.zeros(16 << 20)

    def step() -> None:
        passed.add_(1)
        optimizer.step()

    def timed(fused: bool) -> float:
        for group in optimizer.param_groups:
            group["fused"] = fused or None
        took = []
        for _ in range(STEPS):
            start = time.perf_counter()
            step()
            took.append(time.perf_counter() - start)
        return median(took[1:])

    with TemporaryDirectory() as directory:
        with profkit.profile(Path(directory) / "run") as profile:
            for _ in range(40):
                step()
        found = [one for one in profile.diagnosis.findings if one.rule == "single-tensor-optimizer" and one.saving]
    timed(False), timed(True)
    gains = sorted(1 - timed(True) / timed(False) for _ in range(rounds))
    low, middle, high = quantiles(gains, n=4)
    saving = found[0].saving if found else None
    predicted = [saving.low, saving.fraction, saving.high] if saving else None
    return {"predicted": predicted, "measured": [low, middle, high]}


if __name__ == "__main__":
    main()
