"""How long the others wait for a late rank: what profkit says beside what the program's own clock says.

    python tests/benchmarks/bench_lateness.py [--kinds loader sleep …] [--ranks 4] [--milliseconds 60] [--launches 3]

`late_program.py` runs under ``profkit diagnose --nproc``, and its first fourteen steps are left out: until then a
worker's prefetched batches hide that it is slow. In each step the late rank is ready for the step's first
collective some time after the last of the others; that is what the others wait for it, and the program logs it itself.
Compared is the mean over the steps that profkit recorded, which it numbers from the end of the first.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from late_program import KINDS

PROGRAM = Path(__file__).with_name("late_program.py")


def true_lateness_ms(log: Path, late: int, steps: list[int]) -> float:
    """By how much the late rank is ready after the last of the others, in the mean of these steps."""
    ready = [[moments[2] for moments in json.loads(path.read_text())] for path in sorted(log.glob("rank*.json"))]
    others = [of_rank for rank, of_rank in enumerate(ready) if rank != late]
    return statistics.mean(max(ready[late][at] - max(one[at] for one in others), 0) for at in steps) / 1e6


def measure(kind: str, ranks: int, milliseconds: float) -> tuple[float, float, str]:
    """The true lateness, what profkit says, and whom and what it names."""
    late = ranks - 1
    with tempfile.TemporaryDirectory() as folder:
        log, run = Path(folder, "log"), Path(folder, "run")
        log.mkdir()
        command = [
            sys.executable,
            "-m",
            "profkit",
            "diagnose",
            "--nproc",
            str(ranks),
            "--wait",
            "14",
            "--output",
            str(run),
            str(PROGRAM),
            "--",
            str(log),
            kind,
            str(late),
            str(milliseconds),
        ]
        subprocess.run(command, check=True, capture_output=True)
        launch = json.loads((run / "diagnosis.json").read_text())["launch"]
        reported = launch["ranks"][late]
        steps = [step["number"] + 1 for step in reported["details"]["steps"]]
        place = reported["location"]
        named = [rank["rank"] for rank in launch["ranks"] if rank["late_steps"] and not rank["is_by_chance"]]
        line = f"{Path(place['file']).name}:{place['line']}" if place else "no line"
        cause = reported["cause"]
        return true_lateness_ms(log, late, steps), reported["caused_ns"] / 1e6, f"late {named}, {cause}, {line}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--milliseconds", type=float, default=60)
    parser.add_argument("--launches", type=int, default=3)
    options = parser.parse_args()
    for kind in options.kinds:
        for _ in range(options.launches):
            true, reported, named = measure(kind, options.ranks, options.milliseconds)
            error = f"{reported / true - 1:+.1%}" if true else "nobody waited"
            figures = f"true {true:6.1f} ms, reported {reported:6.1f} ms ({error})"
            print(f"{kind:14} {options.ranks} ranks: {figures}; {named}", flush=True)


if __name__ == "__main__":
    main()
