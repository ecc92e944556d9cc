"""Whether a whole run gets as much shorter as profkit says.

    python -m tests.field_studies.savings [PROGRAM …] [--pairs 3]

Each program is diagnosed once. Then it runs as it is and repaired by turns, bare. The table has the seconds that the
rule tells beside those that were won, the median of the pairs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.field_studies import PROGRAMS

_LONGEST_S = 300


@dataclass(frozen=True)
class Repair:
    """What repairs a program's fault: texts that stand in it once, and what takes their place."""

    rule: str
    program: str
    changes: tuple[tuple[str, str], ...]

    def repaired(self) -> str:
        text = (PROGRAMS / self.program).read_text(encoding="utf-8")
        for old, new in self.changes:
            text = text.replace(old, new)
        return text


_ROWS = "    rows = [tokenize(text) for text in TEXT]\n"
_EPOCHS = "for _ in range(12):\n"
REPAIRS = (
    Repair("checkpoint-stops-training", "checkpoints.py", (("    torch.save(", "torch.save("),)),
    Repair("late-release", "unreleased.py", (("time.sleep(5)\n", ""),)),
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
    ),
    Repair("blocked-upload", "interactive.py", (('    answer = input("go on? ")\n', ""),)),
    Repair("slow-start", "installation.py", (("subprocess.run(install, check=True)\n", ""),)),
    Repair("slow-start", "external_data.py", (("urlopen(address).read()", "bytes(256)"),)),
    Repair("repeated-epoch-work", "preprocessing.py", ((_EPOCHS + _ROWS, _ROWS.strip() + "\n" + _EPOCHS),)),
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


def told_s(repair: Repair) -> tuple[float, float, float] | None:
    """The seconds of the run that the rule says a repair wins, with the likely range; None if it says nothing."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        command = [sys.executable, "-m", "profkit", "diagnose", "--output", str(run), str(PROGRAMS / repair.program)]
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LONGEST_S, check=True)
        findings = json.loads((run / "diagnosis.json").read_text())["findings"]
    savings = [one["saving"] for one in findings if one["rule"] == repair.rule and one["saving"]]
    if not savings:
        return None
    told = sum(one["run_ns"] for one in savings) / 1e9
    low, high = (sum(one["run_ns"] * one[end] / one["fraction"] for one in savings) / 1e9 for end in ("low", "high"))
    return told, low, high


def won_s(repair: Repair, pairs: int) -> float:
    """The median of how much shorter the repaired program ran, in seconds."""
    won = []
    with tempfile.TemporaryDirectory() as folder:
        programs = Path(folder, "programs")
        shutil.copytree(PROGRAMS, programs)
        (programs / "repaired.py").write_text(repair.repaired(), encoding="utf-8")
        names = (repair.program, "repaired.py")
        for pair in range(pairs):
            lasted = {name: _run_s(programs / name) for name in (names if pair % 2 else names[::-1])}
            won.append(lasted[names[0]] - lasted[names[1]])
    return statistics.median(won)


def _run_s(program: Path) -> float:
    begun = time.monotonic()
    subprocess.run(
        [sys.executable, str(program)], stdin=subprocess.DEVNULL, capture_output=True, timeout=_LONGEST_S, check=True
    )
    return time.monotonic() - begun


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", nargs="*", default=[])
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    errors = []
    print("| rule | program | told | likely | won | off by |\n|---|---|---|---|---|---|")
    for repair in REPAIRS:
        if options.programs and repair.program not in options.programs:
            continue
        told, won = told_s(repair), won_s(repair, options.pairs)
        row = f"| {repair.rule} | {repair.program} |"
        if told is None:
            print(f"{row} nothing | | {won:.2f} s | |", flush=True)
            continue
        errors.append(abs(told[0] / won - 1))
        print(
            f"{row} {told[0]:.2f} s | {told[1]:.2f} to {told[2]:.2f} | {won:.2f} s | {told[0] / won - 1:+.0%} |",
            flush=True,
        )
    if errors:
        print(f"\nmedian error {statistics.median(errors):.0%}, largest {max(errors):.0%}")


if __name__ == "__main__":
    main()
