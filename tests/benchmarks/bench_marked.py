"""What prices are worth where every recorded step has its lines marked, as in a program of long steps.

    python -m tests.benchmarks.bench_marked RUN [RUN ...]

Each RUN is a run directory of a program on a CPU that has plain steps and one whose lines were marked, such as those
that the end-to-end tests keep. It is diagnosed as it is, and again as if only the marked steps had been recorded. Shown
is by how many times the prices of the same findings differ. Prices that come from samples or from the whole run are
the same either way and are left out.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import profkit
from profkit.derive.steps import boundaries
from profkit.findings.values import Diagnosis
from profkit.trace.events import Bools, Int64s

_LEAST = 0.001
"""Of a step: a price of nothing counts as this."""
_SHOWN = 0.02
"""Of a step, either way: smaller ones change nothing for anybody."""
_choose = boundaries._measured
Key = tuple[str, str, int]


def only_marked(duration_ns: Int64s, located: Bools, *others: Bools) -> Bools:
    """In place of the plain steps those whose lines were marked, if there are both."""
    return located.copy() if located.any() and not located.all() else _choose(duration_ns, located, *others)


def prices(found: Diagnosis) -> dict[Key, float]:
    """The price of each finding, as a share of the step, by rule and line."""
    return {
        (one.rule, one.location.file, one.location.line): one.saving.fraction
        for one in found.findings
        if one.location is not None and one.saving is not None and not one.saving.run_ns
    }


def differences(run: Path) -> Iterator[tuple[Key, float, float]]:
    """What the same finding is worth by the plain steps and by the marked ones."""
    plain = prices(profkit.diagnose(run))
    with patch.object(boundaries, "_measured", only_marked):
        marked = prices(profkit.diagnose(run))
    for key in sorted(plain.keys() & marked.keys()):
        if plain[key] != marked[key] and max(plain[key], marked[key]) >= _SHOWN:
            yield key, plain[key], marked[key]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Prices by marked steps beside those by plain ones.")
    parser.add_argument("runs", nargs="+", type=Path)
    apart = []
    for run in parser.parse_args(arguments).runs:
        for (rule, file, line), plain, marked in differences(run):
            apart.append(abs(math.log(max(marked, _LEAST) / max(plain, _LEAST))))
            print(f"{rule:32} {Path(file).name}:{line} {100 * plain:6.1f} % {100 * marked:6.1f} %", flush=True)
    if len(apart) > 1:
        quarters = [math.exp(one) for one in statistics.quantiles(apart, n=20)]
        print(f"{len(apart)} prices: half within {quarters[9]:.2f} times, three quarters {quarters[14]:.2f}, ", end="")
        print(f"nine of ten {quarters[17]:.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
