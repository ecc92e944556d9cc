"""What ``profkit diagnose`` adds to programs of long or crowded steps: recording, reading and judging, all of it.

    python tests/benchmarks/bench_budget.py [PROGRAM …] [--rounds N] [--repeats 1]

The programs lie in ``long_steps``. Each runs bare and under profkit by turns, in processes of their own with one
thread, for about a minute with the rounds that it has by default. Printed are the times on the wall and of the
processors, and whether the difference is within the budget: a tenth of the program's time or 5 s, whichever is more. On
a machine that others use only the processors' time says anything. With ``--rounds`` a program ends sooner: the budget
is 5 s then.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LEAST_S, SHARE = 5.0, 0.1
PROGRAMS = Path(__file__).parent / "long_steps"
Taken = tuple[float, float]
"""Seconds on the wall, and of all processors."""


def run(command: list[str]) -> Taken:
    begun, before = time.perf_counter(), os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # our own
    wall_s, after = time.perf_counter() - begun, os.times()
    used_s = after.children_user + after.children_system - before.children_user - before.children_system
    return wall_s, used_s


def measure(program: Path, rounds: list[str], directory: Path) -> tuple[Taken, Taken]:
    bare = run([sys.executable, str(program), *rounds])
    command = ["-m", "profkit", "diagnose", str(program), "--output", str(directory), "--", *rounds]
    return bare, run([sys.executable, *command])


def print_row(name: str, bare: list[Taken], recorded: list[Taken]) -> None:
    before = [statistics.median(column) for column in zip(*bare, strict=True)]
    after = [statistics.median(column) for column in zip(*recorded, strict=True)]
    for what, bare_s, recorded_s in zip(("wall", "processors"), before, after, strict=True):
        added_s = recorded_s - bare_s
        holds = "yes" if added_s <= max(LEAST_S, SHARE * bare_s) else "no"
        print(f"| {name} | {what} | {bare_s:.1f} s | {recorded_s:.1f} s | {added_s:+.1f} s | {holds} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", default=sorted(path.stem for path in PROGRAMS.glob("*.py")))
    parser.add_argument("--rounds")
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    rounds = [] if options.rounds is None else [options.rounds]
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs\n")
    print("| program | time | bare | profkit diagnose | added | within the budget |")
    print("|---|---|---|---|---|---|")
    for name in options.programs:
        with tempfile.TemporaryDirectory() as temporary:
            outputs = [Path(temporary) / str(number) for number in range(options.repeats)]
            pairs = [measure(PROGRAMS / f"{name}.py", rounds, output) for output in outputs]
        print_row(name, [bare for bare, _ in pairs], [recorded for _, recorded in pairs])


if __name__ == "__main__":
    main()
