"""profkit beside other readers of the same traces, whole processes in one session, as a Markdown table.

    python tests/benchmarks/bench_readers.py TRACE [TRACE ...] [--sizes 50,200] [--others PYTHON] [--tracelens SOURCE]
        [--runs N] [--profkit PYTHON] [--only hta,floor]

Each TRACE is repeated in time up to each of the sizes, in megabytes of uncompressed JSON, and read RUNS times (5; 3
from 200 MB on, 1 from 1 GB on) by each tool in turn: ``profkit diagnose`` without its cached columns, with them, the
floor (`decode_only`), and with PYTHON (see `other_readers`) the other tools. ``--profkit`` is a Python in which profkit
is installed, with its templates compiled; ``--only`` leaves other tools than these and profkit out. Shown are medians
of wall and CPU time, the greatest peak memory, and how often the wall time of profkit without cached columns each
takes: the median of the turns, and their range.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from bench_diagnose import Measured, decoding, diagnosing, measure

_LARGE_MB, _HUGE_MB = 200, 1000
_PROFKIT, _AGAIN, _FLOOR = "profkit diagnose", "the same again, columns cached", "floor: decode and throw away"
_OWN = {"again": _AGAIN, "floor": _FLOOR}
_OTHERS = {"hta": "HolisticTraceAnalysis", "tensorboard": "torch-tb-profiler", "tracelens": "TraceLens"}
Commands = dict[str, tuple[list[str], dict[str, str]]]
"""Of each tool the command and what it needs of the environment."""
Results = dict[str, list[Measured] | None]


def commands_for(trace: Path, turn: int, options: argparse.Namespace, megabytes: float) -> Commands:
    """profkit first: the others are compared with it. It wants a new directory each time."""
    directory, python = trace.parent, str(options.profkit or sys.executable)
    commands: Commands = {
        _PROFKIT: ([python, *diagnosing(trace, directory / f"new-{turn}")[1:]], {"PROFKIT_CACHE": "0"}),
        _AGAIN: ([python, *diagnosing(trace, directory / f"again-{turn}")[1:]], {}),
        _FLOOR: (decoding(trace), {}),
    }
    if options.others and megabytes <= options.others_up_to:
        script = str(Path(__file__).with_name("other_readers.py"))
        for key, name in _OTHERS.items():
            if key != "tracelens" or options.tracelens:
                source = {"PYTHONPATH": str(options.tracelens)} if key == "tracelens" else {}
                commands[name] = ([str(options.others), script, key, str(trace)], source)
    chosen = {_PROFKIT, *(name for key, name in (_OWN | _OTHERS).items() if key in options.only.split(","))}
    return {name: one for name, one in commands.items() if name in chosen or not options.only}


def measure_all(trace: Path, options: argparse.Namespace, megabytes: float) -> Results:
    """By turns, after a run of each that does not count, unless it takes minutes; None for what failed."""
    runs = options.runs or (1 if megabytes >= _HUGE_MB else 3 if megabytes >= _LARGE_MB else 5)
    results: Results = {}
    for turn in range(runs + 1):
        for name, (command, environment) in commands_for(trace, turn, options, megabytes).items():
            found = results.setdefault(name, [])
            if found is None or (turn == 0 and megabytes >= _HUGE_MB and name in _OTHERS.values()):
                continue
            try:
                measured = measure(command, environment)
            except SystemExit as error:
                print(error, file=sys.stderr)
                results[name] = None
            else:
                found.extend([measured] if turn else [])
    return results


def print_rows(label: str, megabytes: float, results: Results) -> None:
    reference = [run[0] for run in results.get(_PROFKIT) or ()]
    for name, runs in results.items():
        if not runs:
            print(f"| {label} | {megabytes:g} MB | {name} | failed | | | |", flush=True)
            continue
        wall, cpu = (statistics.median(run[i] for run in runs) for i in (0, 1))
        ratios = [run[0] / own for run, own in zip(runs, reference, strict=False)]
        compared = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else ""
        peak = max(run[2] for run in runs)
        print(
            f"| {label} | {megabytes:g} MB | {name} | {wall:.2f} s | {cpu:.2f} s | {peak:.0f} MB | {compared} |",
            flush=True,
        )


def describe_machine() -> str:
    model = platform.processor() or platform.machine()
    with Path("/proc/cpuinfo").open(encoding="utf-8") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    packages = ", ".join(f"{name} {version(name)}" for name in ("msgspec", "numpy", "isal"))
    load = os.getloadavg()[0]
    return f"{model}, {os.cpu_count()} CPUs (load {load:.1f}), Python {platform.python_version()}, {packages}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--sizes", default="50,200")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--others", type=Path, metavar="PYTHON")
    parser.add_argument("--others-up-to", type=float, default=_LARGE_MB, metavar="MEGABYTES")
    parser.add_argument("--tracelens", type=Path, metavar="SOURCE")
    parser.add_argument("--profkit", type=Path, metavar="PYTHON")
    parser.add_argument("--only", default="", metavar="TOOLS")
    options = parser.parse_args()
    print(f"{describe_machine()}\n")
    print("| trace | size | what | wall | CPU | peak memory | wall, profkit = 1 |\n|---|---|---|---|---|---|---|")
    for megabytes in map(float, options.sizes.split(",")):
        for source in options.traces:
            with tempfile.TemporaryDirectory() as directory:
                trace = Path(directory) / "large.json.gz"
                repeating = [sys.executable, str(Path(__file__).with_name("repeat_trace.py")), str(source), str(trace)]
                measure([*repeating, str(megabytes)])
                results = measure_all(trace, options, megabytes)
            print_rows(source.name.split(".")[0], megabytes, results)


if __name__ == "__main__":
    main()
