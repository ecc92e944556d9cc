"""Whether `unfused-pointwise` predicts what a fused formula gives back on this CPU, and what functions take in it.

    python tests/benchmarks/bench_pointwise.py [--threads 1] [--rounds 12] [--functions]

Each formula runs forward and backward, recorded as a chain of operators; then the chain and the operator that PyTorch
has for it, or the compiled chain, take turns and nothing is recorded. Printed are the predicted and the measured share
of the step, the quartiles of the rounds, and whether the measured one lies inside the predicted interval. With
``--functions``: what each function takes as an operator and in a compiled kernel, the least of many calls.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

import torch
from torch import Tensor
from torch.nn import functional

import profkit

Form = Callable[[Tensor], Tensor]
SIZES = (1 << 16, 1 << 18, 1 << 20, 1 << 22)
FUNCTIONS = (
    "tanh",
    "exp",
    "sigmoid",
    "erf",
    "erfc",
    "log",
    "log2",
    "log1p",
    "sin",
    "cos",
    "tan",
    "acos",
    "asin",
    "atan",
    "sinh",
    "cosh",
    "exp2",
    "expm1",
)


def gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def exact_gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0)))


def scaled_silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x) * 1.0


def polynomial(x: Tensor) -> Tensor:
    return (2.0 * x + 1.0).clamp(0.0) * x - 1.0


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--rounds", type=int, default=12)
    options.add_argument("--functions", action="store_true")
    chosen = options.parse_args()
    torch.set_num_threads(chosen.threads)
    if chosen.functions:
        show_functions()
        return
    ready: dict[Form, Form] = {
        gelu: lambda x: functional.gelu(x, approximate="tanh"),
        exact_gelu: functional.gelu,
        scaled_silu: functional.silu,
        polynomial: torch.compile(polynomial),
    }
    print(f"{'formula':14}{'elements':>10}{'predicted':>28}{'measured':>28}  inside")
    for chain, fused in ready.items():
        for elements in SIZES:
            show(chain, fused, elements, chosen.rounds)


def show(chain: Form, fused: Form, elements: int, rounds: int) -> None:
    given = torch.randn(elements, requires_grad=True)
    gradient = torch.randn(elements)
    optimizer = torch.optim.SGD([given], lr=0.0)

    def step(form: Form) -> None:
        optimizer.zero_grad()
        form(given).backward(gradient)
        optimizer.step()

    def timed(form: Form) -> float:
        took = []
        for _ in range(5):
            start = time.perf_counter()
            step(form)
            took.append(time.perf_counter() - start)
        return median(took[1:])

    with TemporaryDirectory() as directory:
        with profkit.profile(Path(directory) / "run") as profile:
            for _ in range(40):
                step(chain)
        found = [one.saving for one in profile.diagnosis.findings if one.rule == "unfused-pointwise" and one.saving]
    timed(chain), timed(fused)
    low, middle, high = quantiles(sorted(1 - timed(fused) / timed(chain) for _ in range(rounds)), n=4)
    measured = f"{middle:.1%} ({low:.1%} to {high:.1%})"
    predicted, held = "none", ""
    if found:
        predicted = f"{found[0].fraction:.1%} ({found[0].low:.1%} to {found[0].high:.1%})"
        held = "yes" if found[0].low <= middle <= found[0].high else "no"
    print(f"{chain.__name__:14}{elements:10}{predicted:>28}{measured:>28}  {held}", flush=True)


def show_functions() -> None:
    given = torch.rand(1 << 16) * 0.8 + 0.1
    around = best_s(torch.compile(lambda x: x * 2.0), given) - best_s(lambda x: x * 2.0, given)
    print(f"{'function':10}{'operator':>12}{'fused':>12}   (a compiled call's own {around * 1e6:.1f} µs taken off)")
    for name in FUNCTIONS:
        alone = getattr(torch, name)
        torch._dynamo.reset()
        fused = torch.compile(lambda x, alone=alone: alone(x) * 2.0)
        print(
            f"{name:10}{best_s(alone, given) * 1e6:9.1f} µs{(best_s(fused, given) - around) * 1e6:9.1f} µs", flush=True
        )


def best_s(call: Form, given: Tensor) -> float:
    call(given)
    best = math.inf
    for _ in range(150):
        start = time.perf_counter()
        call(given)
        best = min(best, time.perf_counter() - start)
    return best


if __name__ == "__main__":
    main()
