"""Whether the account of a whole run is true, and what it costs.

    python -m tests.benchmarks.bench_run [STYLE …] [--pairs 3]

Each style of `run_phases.py`, and `late_phases.py`, runs under ``profkit watch``, which tells its phases; the program
notes the truth. Then it runs bare and watched by turns: their CPU time with all children (`os.wait4`), and the time on
the wall. What profkit's own start and report take is left out by watching with an account that is not read.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from profkit.patterns.whole_run.phases import account_for, label_stacks
from profkit.run.whole_run import load_account
from tests.benchmarks.bench_budget import Taken, run
from tests.benchmarks.run_phases import STYLES

_PROGRAM, _LATE = Path(__file__).with_name("run_phases.py"), Path(__file__).with_name("late_phases.py")
LATE = "late"
"""The style that has a file of its own."""
_ENTRY = "profkit.collect.launch.entry"


_WHOLE = "the whole process"


def compare(style: str, directory: Path) -> list[tuple[str, float, float]]:
    """Each phase with its seconds in truth and as told; the last is the time from the start of the process to its
    end, without what profkit writes after its last look."""
    watched = [sys.executable, "-m", _ENTRY, f"--directory={directory}", "--watch-only", "--", *_program(style)]
    directory.mkdir()
    begun = time.time()
    ended = subprocess.run(watched, capture_output=True, text=True, check=True)
    truth = json.loads(ended.stdout.splitlines()[-1])
    account = load_account(directory)
    whole = account_for(account, label_stacks(account))
    told = {phase.label: phase.time_ns / 1e9 for phase in whole.phases}
    lasted = account.until_ns / 1e9 - begun
    rows = [(phase, seconds, told.get(phase, 0.0)) for phase, seconds in truth.items()]
    return [*rows, (_WHOLE, lasted, sum(told.values()))]


def measure(style: str, pairs: int, directory: Path) -> tuple[Taken, Taken]:
    """Medians of the bare runs and of the watched ones, by turns."""
    bare, watched = [], []
    for number in range(pairs):
        bare.append(run([sys.executable, *_program(style)]))
        place = directory / f"{style}-{number}"
        place.mkdir()
        command = [sys.executable, "-m", _ENTRY, f"--directory={place}", "--watch-only", "--", *_program(style)]
        watched.append(run(command))
    return _median(bare), _median(watched)


def _program(style: str) -> list[str]:
    return [str(_LATE)] if style == LATE else [str(_PROGRAM), style]


def _median(taken: list[Taken]) -> Taken:
    return Taken(
        statistics.median(one.wall_s for one in taken),
        statistics.median(one.cpu_s for one in taken),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("styles", nargs="*", choices=[*STYLES, LATE, []], default=[])
    parser.add_argument("--pairs", type=int, default=3, help="0 leaves out the cost")
    options = parser.parse_args()
    print("| style | phase | truth | told | difference |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as root:
        for name in options.styles or [*STYLES, LATE]:
            for phase, truth, told in compare(name, Path(root, name)):
                print(f"| {name} | {phase} | {truth:.2f} s | {told:.2f} s | {(told - truth) / truth:+.1%} |")
        if not options.pairs:
            sys.exit()
        print("\n| style | bare | watched | more CPU | more wall |\n|---|---|---|---|---|")
        for name in options.styles or [*STYLES, LATE]:
            bare, watched = measure(name, options.pairs, Path(root))
            more = watched.cpu_s / bare.cpu_s - 1, watched.wall_s / bare.wall_s - 1
            print(f"| {name} | {bare.wall_s:.2f} s | {watched.wall_s:.2f} s | {more[0]:+.1%} | {more[1]:+.1%} |")
