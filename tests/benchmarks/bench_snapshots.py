"""How long it takes to read a large memory snapshot, and how much memory, as a whole process.

    python tests/benchmarks/bench_snapshots.py SNAPSHOT [--megabytes 1000] [--runs 3] [--diagnose]

The history of SNAPSHOT, which must be yours as it is unpickled, is repeated up to MEGABYTES (see `repeat_snapshot`),
with its stacks and without: then an entry takes half of the bytes, and a file holds the most of them. Printed are
the medians of wall and CPU time and the greatest peak memory of `read_snapshot`, or of ``profkit diagnose``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from bench_diagnose import diagnosing, measure

_READ = """
import sys
from pathlib import Path
from profkit.core.memory_reuse import reuse_memory_for_columns
reuse_memory_for_columns()
from profkit.trace.snapshot.reader import read_snapshot
read_snapshot(Path(sys.argv[1]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("snapshot", type=Path)
    parser.add_argument("--megabytes", type=float, default=1000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--diagnose", action="store_true")
    options = parser.parse_args()
    print("| what | size | wall | CPU | peak memory |\n|---|---|---|---|---|")
    for label, flags in (("with stacks", []), ("without stacks", ["--without-stacks"])):
        with tempfile.TemporaryDirectory() as directory:
            large = Path(directory) / "large.pickle"
            repeating = [sys.executable, str(Path(__file__).with_name("repeat_snapshot.py"))]
            measure([*repeating, str(options.snapshot), str(large), str(options.megabytes), *flags])
            results = []
            for run in range(options.runs):
                reading = [sys.executable, "-c", _READ, str(large)]
                command = diagnosing(large, Path(directory) / f"run-{run}") if options.diagnose else reading
                results.append(measure(command))
            wall, cpu, peak = zip(*results, strict=True)
            size = f"{large.stat().st_size / 1e6:.0f} MB"
            times = f"{statistics.median(wall):.1f} s | {statistics.median(cpu):.1f} s"
            print(f"| {label} | {size} | {times} | {max(peak):.0f} MB |", flush=True)


if __name__ == "__main__":
    main()
