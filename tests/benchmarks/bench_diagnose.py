"""How long ``profkit diagnose`` takes on a large trace, as a whole process.

    python tests/benchmarks/bench_diagnose.py TRACE [MEGABYTES] [RUNS]

TRACE is repeated in time up to MEGABYTES of uncompressed JSON (default 50) and diagnosed RUNS times (default 5) by a
process of its own, after one run that does not count. Printed are the median, the least and the greatest wall time, the
median CPU time and the peak memory.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from repeat_trace import repeat


def measure(trace: Path, output: Path) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak megabytes of one whole process."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "profkit", "diagnose", str(trace), "--output", str(output)]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # as installed: compiled once, not at each start
    process = os.posix_spawn(sys.executable, command, environment, file_actions=_quiet())
    _, status, usage = os.wait4(process, 0)
    wall = time.perf_counter() - started
    if status:
        raise SystemExit(f"profkit ended with status {status}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3


def _quiet() -> list[tuple[int, int, str, int, int]]:
    return [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]


def main(source: Path, megabytes: float = 50, runs: int = 5) -> None:
    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory) / "large.json.gz"
        repeat(source, trace, int(megabytes * 1e6))
        measure(trace, Path(directory) / "warm-up")
        results = [measure(trace, Path(directory) / f"run-{i}") for i in range(runs)]
    wall, cpu, peak = zip(*results, strict=True)
    print(f"{source.name} repeated to {megabytes:.0f} MB, {runs} runs")
    print(f"wall  median {statistics.median(wall):.2f} s, {min(wall):.2f} to {max(wall):.2f} s")
    print(f"CPU   median {statistics.median(cpu):.2f} s")
    print(f"peak  {max(peak):.0f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(float(sys.argv[2]),) if len(sys.argv) > 2 else (), *map(int, sys.argv[3:]))
