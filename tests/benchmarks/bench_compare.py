"""How often ``profkit compare`` calls noise a change, and how often it finds a planted change of 5 %.

    python tests/benchmarks/bench_compare.py [--pairs 200] [--runs 60] [--pool DIR] [--change 0.05] [--threads 1]

Each run is a training program of `training_program.py`, recorded by ``profkit.profile`` in a process of its own; half
of the runs carry real extra work, calibrated to the change. Programs and variants are recorded in random order, so that
the machine's load falls on all alike. Pairs are drawn at random from the runs of one program: two unchanged ones (A/A),
or an unchanged one before a changed one. Printed are the shares of each verdict, for one run a side and for five; with
``--pool`` runs are kept and used again. How much two unchanged runs differ says how noisy the machine was.

The extra work is operators, whose calls ``compare`` counts where the times leave the verdict open. Such verdicts have a
row of their own: of a change that no operator shows only the others are found.

malloc is kept from giving large blocks back to the system, as ``profkit compare`` advises: else two runs of the
convolutions differ by up to 60 %, according to where its moving limit came to rest.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from profkit.diagnosis.compare import compare
from profkit.diagnosis.compare.recorded import Recorded, read_recording

PROGRAM = Path(__file__).parent / "training_program.py"
KINDS = ("perceptron", "convolutions", "attention")
GROUP = 5
"""Runs a side in the second part; an A/A pair needs twice as many unchanged runs of each program."""
STEADY_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
Runs = dict[tuple[str, bool], list[Recorded]]


def run_program(*arguments: str) -> str:
    environment = {**os.environ, **STEADY_MALLOC}
    command = [sys.executable, str(PROGRAM), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return result.stdout.strip()


def record_pool(pool: Path, runs: int, change: float, threads: int, seed: random.Random) -> None:
    """Record what is missing up to ``runs`` runs, half of them changed, spread over the programs."""
    extra_file = pool / "extra.json"
    if not extra_file.exists():
        extra = {kind: calibrated(kind, change, threads) for kind in KINDS}
        pool.mkdir(parents=True, exist_ok=True)
        extra_file.write_text(json.dumps(extra))
    extra = json.loads(extra_file.read_text())
    wanted = [
        f"{kind}-{variant}-{i:03}"
        for i in range(-(-runs // (2 * len(KINDS))))
        for kind in KINDS
        for variant in ("unchanged", "changed")
    ]
    missing = [name for name in wanted if not (pool / name / "run.json").exists()]
    seed.shuffle(missing)
    for i, name in enumerate(missing, 1):
        kind, variant, _ = name.split("-")
        run_program(kind, str(pool / name), str(extra[kind] if variant == "changed" else 0), str(threads))
        print(f"\rrecorded {i} of {len(missing)} runs", end="", file=sys.stderr, flush=True)


def calibrated(kind: str, change: float, threads: int) -> int:
    return int(statistics.median(int(run_program(kind, "calibrate", str(change), str(threads))) for _ in range(3)))


def read_pool(pool: Path) -> Runs:
    runs: Runs = {}
    for path in sorted(pool.glob("*-*-*")):
        kind, variant, _ = path.name.split("-")
        runs.setdefault((kind, variant == "changed"), []).append(read_recording(path))
    return runs


def draw(
    runs: Runs, changed: bool, pairs: int, group: int, seed: random.Random
) -> Iterator[tuple[list[Recorded], list[Recorded]]]:
    """Pairs of groups of runs: no run stands on both sides."""
    for i in range(pairs):
        kind = KINDS[i % len(KINDS)]
        if changed:
            yield seed.sample(runs[kind, False], group), seed.sample(runs[kind, True], group)
        else:
            both = seed.sample(runs[kind, False], 2 * group)
            yield both[:group], both[group:]


def judge(runs: Runs, pairs: int, group: int, seed: random.Random) -> None:
    for changed in (False, True):
        verdicts: Counter[str] = Counter()
        estimates, widths = [], []
        for before, after in draw(runs, changed, pairs, group, seed):
            step_time = compare(before, after).step_time
            assert step_time.low is not None
            assert step_time.high is not None
            by = " (calls counted)" if step_time.is_counted else ""
            verdicts[f"{step_time.verdict.value}{by}"] += 1
            estimates.append(step_time.change)
            widths.append((step_time.high - step_time.low) / 2)
        title = "changed" if changed else "A/A"
        print(f"\n{title}, {group} run(s) a side, {pairs} pairs")
        for verdict, count in verdicts.most_common():
            print(f"  {verdict:<24}{count:>5}  {count / pairs:6.1%}")
        spread = statistics.quantiles(estimates, n=20)
        median = statistics.median(estimates)
        print(f"  estimate: median {median:+.1%}, 5 to 95 %: {spread[0]:+.1%} to {spread[-1]:+.1%}")
        print(f"  interval: median half width {statistics.median(widths):.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--pool", type=Path)
    parser.add_argument("--change", type=float, default=0.05)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        pool, seed = options.pool or Path(temporary), random.Random(options.seed)
        record_pool(pool, options.runs, options.change, options.threads, seed)
        runs = read_pool(pool)
        print(f"{sum(map(len, runs.values()))} runs, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
        for group in (1, GROUP):
            if all(len(found) >= (group if changed else 2 * group) for (_, changed), found in runs.items()):
                judge(runs, options.pairs, group, seed)


if __name__ == "__main__":
    main()
