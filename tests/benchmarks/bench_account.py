"""What the account of a whole run costs a program, by turns in one process.

    python tests/benchmarks/bench_account.py [PROGRAM …] [--turns 40] [--turn-s 1] [--early]

Each program trains bare and under what ``profkit watch`` puts into it: the thread that looks at the main thread, and
the hooks that note the ends of steps. A pair of turns is a ratio, the order changes from pair to pair, and a turn is so
short that the machine is the same in both. Printed are the median of the pairs' ratios and its 95 % interval by
bootstrap: of the CPU time of the process per step, which other programs change little, and of the time on the wall. The
last column is the CPU time of other threads than the main one, which with a watch is the looking thread's, as a share
of all. The row "bare twice" is the noise of the method. One watch goes on from turn to turn, and writes its account as
it does in any run. With ``--early`` looks come as often as in a run's first seconds.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from bench_overhead import interval
from msgspec import Struct
from small_programs import Step, programs, training
from torch import nn

from profkit.collect.recorder.change_watch import ChangeWatch
from profkit.collect.whole_run.step_times import StepTimes
from profkit.collect.whole_run.watch import RunWatch

_UNTIL_SETTLED = 5
"""Steps of a turn that do not count: the first ones meet caches that the other turn filled."""
_LATE_NS = 60 * 10**9
"""Looks come twenty times a second then, and ten times in the end."""
_FIRST_S = 3.0
"""After which a watch knows how short steps are, and takes some together."""


class Turn(Struct, frozen=True):
    """Seconds per step; ``others_s`` is CPU time of other threads than the main one."""

    cpu_s: float
    wall_s: float
    others_s: float


def all_programs() -> Iterator[tuple[str, Step]]:
    """Small ones first; the second takes about 10 ms on a common processor."""
    yield "ten_ms", training(nn.Sequential(*(nn.Linear(512, 512) for _ in range(6))), torch.randn(128, 512))
    yield from ((name.replace(" ", "_"), step) for name, step in programs("cpu"))


def turn(step: Step, seconds: float) -> Turn:
    for _ in range(_UNTIL_SETTLED):
        step()
    steps, begun, cpu, own = 0, time.perf_counter(), time.process_time(), time.thread_time()
    while time.perf_counter() - begun < seconds:
        step()
        steps += 1
    cpu, own = time.process_time() - cpu, time.thread_time() - own
    return Turn(cpu / steps, (time.perf_counter() - begun) / steps, (cpu - own) / steps)


class Watched:
    """Turns of a step under a watch that goes on where the last turn ended."""

    def __init__(self, step: Step, seconds: float, folder: Path, *, early: bool) -> None:
        self._step, self._seconds, self._early = step, seconds, early
        times = StepTimes()
        self._ends = ChangeWatch(lambda *_: None, times)
        self._looks = RunWatch(lambda: folder, (Path(__file__).parent,), steps=times)
        if not early:
            self._looks._looked_ns = _LATE_NS
            self._looks._due_ns += _LATE_NS
            self._looks._origin_ns -= _LATE_NS
        self._looks.start()
        self._looks._suspend()
        self.turn(_FIRST_S)

    def turn(self, seconds: float = 0.0) -> Turn:
        if self._early:
            self._looks._looked_ns, self._looks._origin_ns = 0, time.monotonic_ns()
        self._looks._resume()
        self._ends.install()
        try:
            return turn(self._step, seconds or self._seconds)
        finally:
            self._ends.remove()
            self._looks._suspend()


def compare(step: Step, turns: int, seconds: float, *, early: bool) -> dict[str, list[tuple[float, float, float]]]:
    """The ratios of CPU time and of wall time of each pair, watched over bare and bare over bare, and the share of
    other threads."""
    found: dict[str, list[tuple[float, float, float]]] = {"watched": [], "bare twice": []}
    order = ["bare", "watched", "bare twice"]
    with tempfile.TemporaryDirectory() as folder:
        under_watch = Watched(step, seconds, Path(folder), early=early)
        for number in range(turns):
            names = order[:: 1 if number % 2 else -1]
            taken = {name: under_watch.turn() if name == "watched" else turn(step, seconds) for name in names}
            for name, ratios in found.items():
                this, bare = taken[name], taken["bare"]
                ratios.append((this.cpu_s / bare.cpu_s, this.wall_s / bare.wall_s, this.others_s / this.cpu_s))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--turn-s", type=float, default=1.0)
    parser.add_argument("--early", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    seed = random.Random(0)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs, {options.turns} pairs of {options.turn_s:g} s\n")
    print("| program | a step | turns | CPU | 95 % interval | wall | 95 % interval | others |")
    print("|---|---|---|---|---|---|---|---|")
    for name, step in all_programs():
        if options.programs and name not in options.programs:
            continue
        wall_ms = turn(step, options.turn_s).wall_s * 1e3
        for what, ratios in compare(step, options.turns, options.turn_s, early=options.early).items():
            cells = [_cell([pair[at] for pair in ratios], seed) for at in range(2)]
            others = statistics.median(pair[2] for pair in ratios)
            print(f"| {name} | {wall_ms:.2f} ms | {what} | {' | '.join(cells)} | {others:.2%} |", flush=True)


def _cell(ratios: list[float], seed: random.Random) -> str:
    low, high = interval(ratios, seed)
    return f"{sorted(ratios)[len(ratios) // 2]:.4f}x | {low:.4f} to {high:.4f}"


if __name__ == "__main__":
    main()
