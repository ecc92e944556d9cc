"""How long ``profkit diagnose`` takes on a large trace, as a whole process.

    python tests/benchmarks/bench_diagnose.py TRACE [MEGABYTES] [RUNS]

TRACE is repeated in time up to MEGABYTES of uncompressed JSON (default 50) and diagnosed RUNS times (default 5) by a
process of its own, without cached columns, after one run that does not count. Printed are the median, the least and
the greatest wall time, the median CPU time and the peak memory; and the ratio to the floor, a process that decodes the
same bytes into the same typed structs and throws them away (see `decode_only`).
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path


def diagnosing(trace: Path, output: Path) -> list[str]:
    return [sys.executable, "-m", "profkit", "diagnose", str(trace), "--output", str(output)]


def decoding(trace: Path) -> list[str]:
    return [sys.executable, str(Path(__file__).with_name("decode_only.py")), str(trace)]


Measured = tuple[float, float, float]
"""Wall seconds, CPU seconds and peak megabytes."""


def measure(command: list[str], environment: dict[str, str] | None = None) -> Measured:
    """One whole process, with these additions to its environment."""
    started = time.perf_counter()
    # compiled once and not at each start, as where it is installed
    variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **(environment or {})}
    process = os.posix_spawn(command[0], command, variables, file_actions=_quiet())
    _, status, usage = os.wait4(process, 0)
    wall = time.perf_counter() - started
    if status:
        raise SystemExit(f"{command} ended with status {status}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3


def _quiet() -> list[tuple[int, int, str, int, int]]:
    return [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]


def main(source: Path, megabytes: float = 50, runs: int = 5) -> None:
    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory) / "large.json.gz"
        # in a process of its own: what this one held would count as its children's peak memory
        repeating = [sys.executable, str(Path(__file__).with_name("repeat_trace.py")), str(source), str(trace)]
        measure([*repeating, str(megabytes)])
        uncached = {"PROFKIT_CACHE": "0"}
        measure(diagnosing(trace, Path(directory) / "warm-up"), uncached)
        results = [measure(diagnosing(trace, Path(directory) / f"run-{i}"), uncached) for i in range(runs)]
        floor = statistics.median(measure(decoding(trace))[0] for _ in range(runs))
    wall, cpu, peak = zip(*results, strict=True)
    print(f"{source.name} repeated to {megabytes:.0f} MB, {runs} runs")
    print(f"wall  median {statistics.median(wall):.2f} s, {min(wall):.2f} to {max(wall):.2f} s")
    print(f"CPU   median {statistics.median(cpu):.2f} s")
    print(f"peak  {max(peak):.0f} MB")
    print(f"floor median {floor:.2f} s, ratio {statistics.median(wall) / floor:.1f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(float(sys.argv[2]),) if len(sys.argv) > 2 else (), *map(int, sys.argv[3:]))
