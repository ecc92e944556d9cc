"""What watching costs a program outside the recorded steps: their processor time, and their peak memory.

    python tests/benchmarks/bench_outside.py [PROGRAM …] [--rounds 6] [--steps 120] [--device cpu]

The programs run bare and under ``profkit diagnose`` by turns, in processes of their own with one thread, and tell what
each of their steps took of the processors and the most that was resident while it ran (Linux tells it since it was
last reset). **before** is the step between the prologue and the first that is recorded, **timed** are those behind the
recorded ones, which profkit times, and **after** all later ones. A round's ratio is that of two lower quartiles of the
time, as other work on the machine only adds to it, or of two medians of the memory; printed are the median of the
rounds' ratios and their range. The end of a step is within it, with all that profkit does there. Steps of a millisecond
need some thousands (``--steps``): the first hundred pass while profkit's other process still starts.

Behind the recorded steps the process holds what they made it import and what could not be given back: **whole run** is
the peak, recorded steps and their stop included.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from small_programs import Step, programs, training
from torch import Tensor, nn

PARTS = {"before": slice(1, 2), "timed": slice(10, 39), "after": slice(40, None)}
"""The prologue ends with the first step; then two wait, one is located, one settles, four are measured and thirty
timed. The end of the third is where the first recording begins. Nothing of profkit is imported here, so that the bare
program is without."""
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
Figures = list[tuple[int, int]]
"""Of each step, ns of the processors and the peak in kB."""


def all_programs(device: str) -> Iterator[tuple[str, Step]]:
    yield from programs(device)
    yield "large results", large_results()


def large_results() -> Step:
    """Micro-batches whose results glibc gives new places while they are recorded."""
    blocks = (layer for _ in range(4) for layer in (nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)))
    model, batch = nn.Sequential(*blocks), torch.rand(300, 256)
    accumulate = training(model, batch)

    def step() -> Tensor:
        for _ in range(4):
            model(batch).square().mean().backward()
        return accumulate()

    return step


def peak_kb() -> int:
    (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1])


def run_program(name: str, steps: int, device: str, output: Path) -> None:
    torch.set_num_threads(1)
    step = next(step for each, step in all_programs(device) if each == name)
    figures: Figures = []
    for _ in range(steps):
        RESET.write_text("5")
        begun = time.process_time_ns()
        step()
        figures.append((time.process_time_ns() - begun, peak_kb()))
    output.write_text(json.dumps(figures))


def measure(name: str, steps: int, device: str, directory: Path, is_watched: bool) -> Figures:
    figures = directory / "results.json"
    own = [__file__, "--results", str(figures), "--steps", str(steps), "--device", device, name]
    profkit = ["-m", "profkit", "diagnose", __file__, "--output", str(directory / "run"), "--", *own[1:]]
    command = [sys.executable, *(profkit if is_watched else own)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # our own
    read: Figures = json.loads(figures.read_text())
    return read


def print_rows(name: str, rounds: list[tuple[Figures, Figures]]) -> None:
    """``rounds`` are pairs, bare and watched."""
    for part, steps in PARTS.items():
        for column, what in enumerate(("time", "peak memory")):
            print_row(name, part, what, [[typical(one[steps], column) for one in pair] for pair in rounds])
    print_row(name, "whole run", "peak memory", [[max(step[1] for step in one) for one in pair] for pair in rounds])


def typical(figures: Figures, column: int) -> float:
    ordered = sorted(step[column] for step in figures)
    return ordered[len(ordered) // (4 if column == 0 else 2)]


def print_row(name: str, part: str, what: str, pairs: list[list[float]]) -> None:
    bare, unit = statistics.median(pair[0] for pair in pairs), "ms" if what == "time" else "MB"
    scale = 1e6 if what == "time" else 1e3
    shown, difference = bare / scale, statistics.median(watched - bare for bare, watched in pairs) / scale
    ratios = sorted(watched / bare for bare, watched in pairs)
    spread = f"{ratios[0]:.3f} to {ratios[-1]:.3f}"
    ratio = f"{statistics.median(ratios):.3f}x | {spread} | {difference:+.1f} {unit}"
    print(f"| {name} | {part} | {what} | {shown:.1f} {unit} | {ratio} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--results", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    names = options.programs or [name for name, _ in all_programs("cpu")]
    if options.results:
        run_program(names[0], options.steps, options.device, options.results)
        return
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs, torch {torch.__version__}\n")
    print("| program | steps | what | bare | ratio | range | difference |")
    print("|---|---|---|---|---|---|---|")
    for name in names:
        rounds = []
        for number in range(options.rounds):
            with tempfile.TemporaryDirectory() as directory:
                turns = [number % 2 == 1, number % 2 == 0]  # whether each is watched: which goes first changes
                figures = {turn: measure(name, options.steps, options.device, Path(directory), turn) for turn in turns}
            rounds.append((figures[False], figures[True]))
        print_rows(name, rounds)


if __name__ == "__main__":
    main()
