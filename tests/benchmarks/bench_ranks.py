"""How long it takes to diagnose a launch of many ranks, and how much memory, as whole trees of processes.

    python tests/benchmarks/bench_ranks.py TRACE [--ranks 8 32 128] [--megabytes 50] [--hta PYTHON] [--ray 1 2 4]

The launches are made of TRACE (see `make_ranks`) in the temporary folder, one after the other. Printed are wall time,
CPU time and peak memory (proportional set size, so that shared pages count once) of ``profkit diagnose``; with --hta of
HolisticTraceAnalysis in the environment of that PYTHON, which loads the same files and computes the temporal breakdown
and the overlap of communication; and with --ray of ``profkit diagnose --on ray`` on a local cluster of so many workers.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).parent))

from make_ranks import make_ranks

_PERIOD_S = 0.2
_HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_dir=sys.argv[1])
analysis.get_temporal_breakdown(visualize=False)
analysis.get_comm_comp_overlap(visualize=False)
"""


class Cost(NamedTuple):
    wall_s: float
    cpu_s: float
    peak_bytes: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 32, 128])
    parser.add_argument("--megabytes", type=float, default=50)
    parser.add_argument("--hta", metavar="PYTHON")
    parser.add_argument("--most-hta", type=int, default=32, help="do not ask HTA for more ranks")
    parser.add_argument("--ray", type=int, nargs="*", default=[])
    given = parser.parse_args()
    os.environ["PROFKIT_CACHE"] = "0"  # a cluster's processes have it too
    print("| ranks | what | wall | a rank | CPU | peak memory | a rank |\n|---|---|---|---|---|---|---|")
    for ranks in given.ranks:
        with tempfile.TemporaryDirectory() as folder:
            launch = Path(folder) / "launch"
            make_ranks(given.trace, launch, ranks, int(given.megabytes * 1e6), 10, [1])
            _print(ranks, "profkit diagnose", measure(_diagnosing(launch, Path(folder) / "here")))
            for workers in given.ray:
                with _cluster(workers) as environment:
                    command = [*_diagnosing(launch, Path(folder) / f"ray{workers}"), "--on", "ray"]
                    label = f"profkit diagnose --on ray, workers: {workers}"
                    _print(ranks, label, measure(command, environment))
            if given.hta and ranks <= given.most_hta:
                _print(ranks, "HolisticTraceAnalysis", measure([given.hta, "-c", _HTA, str(launch)]))


def measure(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Cost:
    """What the command costs, and all processes below this one while it runs; what each does in its last fifth of a
    second is not seen."""
    begun, peak_bytes = time.monotonic(), 0
    spent_s: dict[tuple[int, float], tuple[float, float]] = {}
    """Of each process the CPU time when it was first seen, and last."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, **(environment or {})}) as running:
        while running.poll() is None:
            peak_bytes = max(peak_bytes, _look(spent_s))
            with suppress(subprocess.TimeoutExpired):
                running.wait(_PERIOD_S)
    if running.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {running.returncode}")
    return Cost(time.monotonic() - begun, sum(last - first for first, last in spent_s.values()), peak_bytes)


def _look(spent_s: dict[tuple[int, float], tuple[float, float]]) -> int:
    """The memory of all processes below this one; their CPU times are noted."""
    held = 0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            held += process.memory_full_info().pss
            times, key = process.cpu_times(), (process.pid, process.create_time())
            now = times.user + times.system
            spent_s[key] = spent_s.get(key, (0.0 if now < 1 else now, now))[0], now
    return held


def _diagnosing(launch: Path, output: Path) -> list[str]:
    return [sys.executable, "-m", "profkit", "diagnose", str(launch), "--output", str(output)]


@contextmanager
def _cluster(workers: int) -> Iterator[dict[str, str]]:
    """A Ray cluster on this machine, and how it is told to a process."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": workers, "include_dashboard": False})
    try:
        yield {"RAY_ADDRESS": cluster.address}
    finally:
        cluster.shutdown()


def _print(ranks: int, what: str, cost: Cost) -> None:
    wall, memory = f"{cost.wall_s:.1f} s | {cost.wall_s / ranks:.2f} s", cost.peak_bytes / 1e6
    print(f"| {ranks} | {what} | {wall} | {cost.cpu_s:.1f} s | {memory:.0f} MB | {memory / ranks:.1f} MB |", flush=True)


if __name__ == "__main__":
    main()
