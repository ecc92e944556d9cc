"""What recording adds to programs of different kinds, and whether it keeps its promise: 5 s or a tenth of their time.

    python -m tests.benchmarks.bench_budget [PROGRAM …] [--load 4] [--repeats 1] [--scale 1] [--diagnose]

Each program runs bare and under ``profkit record`` by turns, in processes of their own with one thread, for about half
a minute with the ``--scale`` of 1. Counted is the CPU time of the process with all its children (`os.wait4`), which
other work on the machine changes little; the time on the wall is printed beside it. With ``--load`` so many busy
processes run beside. A watch that ended early is named: the same ones should end alone and under load. With
``--diagnose`` reading and judging the recording counts too, which the promise leaves out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from profkit.run.directory import load_run

LEAST_S, SHARE = 5.0, 0.1
_HERE = Path(__file__).parent
_SMALL = _HERE / "budget_programs.py"
PROGRAMS: dict[str, tuple[Path, tuple[str, ...], int]] = {
    "perceptron": (_SMALL, ("perceptron",), 60_000),
    "six_layers": (_SMALL, ("six_layers",), 400),
    "loader": (_SMALL, ("loader",), 50),
    "objects": (_SMALL, ("objects",), 4_000),
    "calls_20k": (_SMALL, ("calls_20k",), 400),
    "calls_200k": (_SMALL, ("calls_200k",), 70),
    "long_steps": (_SMALL, ("long_steps",), 20),
    "small_operators": (_HERE / "long_steps" / "small_operators.py", (), 10),
    "vector_environment": (_HERE / "long_steps" / "vector_environment.py", (), 100),
    "lbfgs_cells": (_HERE / "long_steps" / "lbfgs_cells.py", (), 4),
    "decoder_loop": (_HERE / "long_steps" / "decoder_loop.py", (), 50),
}
"""The file of each, its arguments, and the rounds that take about half a minute."""


class Taken(Struct, frozen=True):
    """Seconds on the wall, and of all processors."""

    wall_s: float
    cpu_s: float


class Pair(Struct, frozen=True):
    """A program bare and recorded, and the watches that ended early."""

    bare: Taken
    recorded: Taken
    ended: tuple[str, ...]


def run(command: list[str]) -> Taken:
    """Run our own ``command``. Children that it waited for count too."""
    begun = time.perf_counter()
    # compiled once and not at each start, as where it is installed
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Taken(time.perf_counter() - begun, usage.ru_utime + usage.ru_stime)


def measure(name: str, scale: float, action: str, directory: Path) -> Pair:
    file, arguments, rounds = PROGRAMS[name]
    given = [*arguments, str(max(1, round(rounds * scale)))]
    bare = run([sys.executable, str(file), *given])
    recorded = run([sys.executable, "-m", "profkit", action, str(file), "--output", str(directory), "--", *given])
    return Pair(bare, recorded, tuple(f"{one.watch}: {one.reason}" for one in load_run(directory).unwatched))


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes beside that do nothing but compute."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


def row(name: str, pairs: list[Pair]) -> str:
    bare, recorded = (statistics.median(getattr(pair, side).cpu_s for pair in pairs) for side in ("bare", "recorded"))
    walls = [statistics.median(getattr(pair, side).wall_s for pair in pairs) for side in ("bare", "recorded")]
    allowed = max(LEAST_S, SHARE * bare)
    kept = "kept" if recorded - bare <= allowed else "broken"
    ended = "; ".join(dict.fromkeys(one for pair in pairs for one in pair.ended)) or "none"
    wall = f"{walls[0]:.1f} → {walls[1]:.1f} s"
    return (
        f"| {name} | {bare:.1f} s | {recorded:.1f} s | {recorded - bare:+.1f} s | {allowed:.1f} s | {kept} | {wall} "
        f"| {ended} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(PROGRAMS))
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--diagnose", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.programs) - set(PROGRAMS):
        parser.error(f"no such program: {', '.join(sorted(unknown))}")
    action = "diagnose" if options.diagnose else "record"
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs, {options.load} busy processes beside\n")
    print(f"| program | CPU, bare | {action} | added | allowed | promise | wall | watches that ended early |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.programs or PROGRAMS:
        with tempfile.TemporaryDirectory() as temporary, busy(options.load):
            outputs = [Path(temporary) / str(number) for number in range(options.repeats)]
            pairs = [measure(name, options.scale, action, output) for output in outputs]
        print(row(name, pairs), flush=True)


if __name__ == "__main__":
    main()
