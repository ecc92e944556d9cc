"""Whether a whole run gets as much shorter as profkit says.

    python -m tests.field_studies.savings [PROGRAM …] [--rounds 3]

In each round a program is diagnosed, and runs as it is and repaired, bare, in changing order. The table has the medians
of the rounds: the seconds that the rule tells, and those that were won on the wall, with the least and the most, and in
CPU time. Beside other programs the wall time of a pair differs by seconds, so the waits that a program plants are there
as well: of these it is known what a repair wins. The error is that against the planted waits, or else against the wall.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.bench_budget import Taken, run
from tests.field_studies import PROGRAMS


@dataclass(frozen=True)
class Repair:
    """What repairs a program's fault: texts that stand in it once, and what takes their place. ``planted_s`` are the
    waits that are gone then."""

    rule: str
    program: str
    changes: tuple[tuple[str, str], ...]
    planted_s: float = 0.0

    def repaired(self) -> str:
        text = (PROGRAMS / self.program).read_text(encoding="utf-8")
        for old, new in self.changes:
            assert text.count(old) == 1, (self.program, old)
            text = text.replace(old, new)
        return text


_ROWS = "    rows = [tokenize(text) for text in TEXT]\n"
_EPOCHS = "for _ in range(12):\n"
REPAIRS = (
    Repair("checkpoint-stops-training", "checkpoints.py", (("    torch.save(", "torch.save("),)),
    Repair("late-release", "unreleased.py", (("time.sleep(5)\n", ""),), planted_s=5.0),
    Repair(
        "blocked-upload",
        "uploads.py",
        (
            ("import urllib.request\n", "import threading\nimport urllib.request\n"),
            (
                "    urllib.request.urlopen(request).read()\n",
                "    threading.Thread(target=urllib.request.urlopen, args=(request,)).start()\n",
            ),
        ),
        planted_s=3.2,
    ),
    Repair("blocked-upload", "interactive.py", (('    answer = input("go on? ")\n', ""),), planted_s=5.0),
    Repair("slow-start", "installation.py", (("subprocess.run(install, check=True)\n", ""),), planted_s=10.0),
    Repair("slow-start", "external_data.py", (("urlopen(address).read()", "bytes(256)"),), planted_s=5.0),
    Repair(
        "repeated-epoch-work",
        "preprocessing.py",
        ((_EPOCHS + _ROWS, _ROWS.strip() + "\n" + _EPOCHS),),
    ),
    Repair(
        "growing-step-time",
        "growing_steps.py",
        (
            ("losses = []\n", "total, steps = 0.0, 0\n"),
            ("    losses.append(loss.item())\n", "    total, steps = total + loss.item(), steps + 1\n"),
            ("    average = statistics.mean(losses)\n", "    average = total / steps\n"),
        ),
    ),
)
"""Rules about devices need a GPU, and `growing-host-memory` and, on a CPU, `batch-too-small` promise no time."""


@dataclass(frozen=True)
class Round:
    """The seconds of the run that the rule tells, with the likely range, None if it tells nothing; and the program as
    it is and repaired."""

    told: tuple[float, float, float] | None
    bare: Taken
    repaired: Taken

    @property
    def won_s(self) -> float:
        return self.bare.wall_s - self.repaired.wall_s

    @property
    def won_cpu_s(self) -> float:
        return self.bare.cpu_s - self.repaired.cpu_s


def measure(repair: Repair, number: int) -> Round:
    with tempfile.TemporaryDirectory() as folder:
        programs = Path(folder, "programs")
        shutil.copytree(PROGRAMS, programs)
        (programs / "repaired.py").write_text(repair.repaired(), encoding="utf-8")
        names = (repair.program, "repaired.py")
        taken = {name: run([sys.executable, str(programs / name)]) for name in names[:: 1 if number % 2 else -1]}
        return Round(_told_s(repair, Path(folder, "run")), taken[names[0]], taken[names[1]])


def _told_s(repair: Repair, directory: Path) -> tuple[float, float, float] | None:
    run([sys.executable, "-m", "profkit", "diagnose", "--output", str(directory), str(PROGRAMS / repair.program)])
    findings = json.loads((directory / "diagnosis.json").read_text())["findings"]
    savings = [one["saving"] for one in findings if one["rule"] == repair.rule and one["saving"]]
    if not savings:
        return None
    told = sum(one["run_ns"] for one in savings) / 1e9
    low, high = (sum(one["run_ns"] * one[end] / one["fraction"] for one in savings) / 1e9 for end in ("low", "high"))
    return told, low, high


def row(repair: Repair, rounds: Sequence[Round]) -> tuple[str, float | None]:
    """The line of the table, and the error; None if no round told anything."""
    won, won_cpu_s = [one.won_s for one in rounds], statistics.median(one.won_cpu_s for one in rounds)
    planted = f"{repair.planted_s:.1f} s" if repair.planted_s else ""
    truth_s = repair.planted_s or statistics.median(won)
    told = [one.told for one in rounds if one.told is not None]
    wins = f"{statistics.median(won):.2f} s ({min(won):.2f} to {max(won):.2f}) | {won_cpu_s:.2f} s | {planted}"
    if not told:
        return f"| {repair.rule} | {repair.program} | nothing | | {wins} | |", None
    median, low, high = (statistics.median(values) for values in zip(*told, strict=True))
    error = median / truth_s - 1
    said = f"{median:.2f} s, {len(told)} of {len(rounds)} | {low:.2f} to {high:.2f}"
    return f"| {repair.rule} | {repair.program} | {said} | {wins} | {error:+.0%} |", abs(error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs, {options.rounds} rounds\n")
    print("| rule | program | told | likely | won | in CPU | planted | off by |\n|---|---|---|---|---|---|---|---|")
    errors = []
    for repair in REPAIRS:
        if not options.programs or repair.program in options.programs:
            text, error = row(repair, [measure(repair, number) for number in range(options.rounds)])
            errors += [] if error is None else [error]
            print(text, flush=True)
    if errors:
        print(f"\nmedian error {statistics.median(errors):.0%}, largest {max(errors):.0%}")


if __name__ == "__main__":
    main()
