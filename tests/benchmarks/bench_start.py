"""How long profkit takes to begin: ``profkit --help``, what a shell asks at the press of its completion key, and
``profkit diagnose`` of a small trace, as whole processes.

    python tests/benchmarks/bench_start.py TRACE [RUNS]

Each is run RUNS times (default 20), by turns, after a run that does not count. Printed are the median, the least and
the greatest wall time.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from bench_diagnose import diagnosing, measure


def main(trace: Path, runs: int = 20) -> None:
    names = ("profkit --help", "completion of `profkit diagnose `", f"profkit diagnose {trace.name}")
    walls: dict[str, list[float]] = {name: [] for name in names}
    profkit = [sys.executable, "-m", "profkit"]
    asked = ["/usr/bin/env", "_PROFKIT_COMPLETE=bash_complete", "COMP_WORDS=profkit diagnose ", "COMP_CWORD=2"]
    with tempfile.TemporaryDirectory() as directory:
        for turn in range(runs + 1):
            commands = ([*profkit, "--help"], [*asked, *profkit], diagnosing(trace, Path(directory) / f"run-{turn}"))
            for of_command, command in zip(walls.values(), commands, strict=True):
                of_command.append(measure(command)[0])
    for name, found in walls.items():
        counted = found[1:]
        print(f"{name}: {statistics.median(counted):.3f} s, {min(counted):.3f} to {max(counted):.3f} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
