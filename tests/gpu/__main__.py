"""``python -m tests.gpu``: what only a GPU shows, within minutes; ``--list`` tells the parts."""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

from profkit.diagnosis.catalogue import find_scenario
from tests.gpu import after_window, overhead, plans, scenarios, snapshots
from tests.gpu.archives import Archives
from tests.gpu.machine import look_at_machine
from tests.gpu.results import Results
from tests.gpu.rows import COULD_NOT, Part
from tests.gpu.schedule import run

PARTS = {
    "scenarios": scenarios.PART,
    "overhead": overhead.PART,
    "after-window": after_window.PART,
    "memory": snapshots.PART,
    "memory-plans": plans.PART,
}
"""The most valuable first."""


def main(arguments: list[str] | None = None) -> int:
    """Exit status 1 if a part failed."""
    options = _options(arguments)
    if options.list:
        for name, part in PARTS.items():
            print(f"{name:14}{part.share:4.0%}  {part.about}")
        return 0
    os.environ["PROFKIT_CACHE"] = "0"  # no file beside a recording that is brought back
    options.output.mkdir(parents=True, exist_ok=True)
    if any(options.output.iterdir()):
        sys.exit(f"{options.output} is not empty: its results would be lost")
    with tempfile.TemporaryDirectory(prefix="profkit-gpu-") as temporary:
        machine = look_at_machine(options.device, Path(temporary).resolve())
        results = Results(options.output, machine.described())
        archives = Archives(options.output, machine.rewritten(), socket.gethostname())
        succeeded = run(_chosen(options), machine, results, archives, 60 * options.minutes)
    return int(not succeeded)


def _chosen(options: argparse.Namespace) -> list[Part]:
    """The parts, of which that of the scenarios knows the ones to run."""
    known = _known(options.without) if options.without else []
    chosen = [find_scenario(name) for name in options.scenarios] or None
    narrowed = replace(scenarios.PART, rows=partial(scenarios.rows, chosen=chosen, known=known))
    return [narrowed if name == "scenarios" else PARTS[name] for name in options.parts]


def _known(results: Path) -> list[str]:
    """Scenarios with a result in an earlier run."""
    told = json.loads(results.read_text(encoding="utf-8"))["rows"]
    unsettled = ("failed", COULD_NOT)
    mine = [row for row in told if row["part"] == scenarios.PART.name]
    return [row["name"] for row in mine if not row["outcome"].startswith(unsettled)]


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--list", action="store_true", help="list the parts, with their shares of the time")
    parser.add_argument(
        "--parts", type=_names, default=list(PARTS), metavar="A,B", help="default: all, in the order of the list"
    )
    parser.add_argument(
        "--scenarios", type=lambda text: text.split(","), default=[], metavar="A,B", help="only these scenarios"
    )
    parser.add_argument(
        "--without", type=Path, metavar="FILE", help="skip scenarios with a result in this results.json"
    )
    parser.add_argument("--minutes", type=float, default=8.0, help="for everything. Default: %(default)s")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(os.environ.get("OUT") or "gpu-results"),
        metavar="DIR",
        help="an empty folder. Default: the variable OUT, or %(default)s",
    )
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    return parser.parse_args(arguments)


def _names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in PARTS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]} is none of {', '.join(PARTS)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
