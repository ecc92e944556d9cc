"""``python -m tests.fuzzing KIND --count N``: makes and reads that many inputs of a kind, or of ``all`` kinds."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from importlib import import_module
from pathlib import Path

from tests.fuzzing.results import save
from tests.fuzzing.running import MOST_BYTES, Kind, Tally, lay_out, run, run_here

NAMES = ("traces", "nsys", "snapshots", "ranks", "caches", "run_directories", "diagnoses", "settings")


def kind_of(name: str) -> Kind:
    kind: Kind = import_module(f"tests.fuzzing.{name}").KIND
    return kind


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__)
    parser.add_argument("kind", choices=(*NAMES, "all"))
    parser.add_argument("--count", type=int, help="how many; by default as many as results.md is to show")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--only", type=int, help="this number alone: its files are written to --into, and read")
    parser.add_argument("--into", type=Path, default=Path("fuzzing-input"))
    options = parser.parse_args()
    kinds = [kind_of(name) for name in (NAMES if options.kind == "all" else (options.kind,))]
    if options.only is not None:
        lay_out(kinds[0].input(options.only, options.seed), options.into)
        tally = run_here(kinds[0], [options.only], options.seed)
        print(*(failure.trace for failure in tally.failures) if tally.failures else ("nothing broke",), sep="\n")
        return int(bool(tally.failures))
    return max(_run_all(kind, options.first, options.count or kind.count, options.seed) for kind in kinds)


def _run_all(kind: Kind, first: int, count: int, seed: int) -> int:
    whole, began, known = Tally(), time.monotonic(), 0.0
    for part in run(kind, range(first, first + count), seed):
        whole.add(part)
        for failure in part.failures:
            print(f"{kind.name} {failure.number}: {failure.what:.120} at {failure.place}", file=sys.stderr)
        if sys.stdout.isatty() or time.monotonic() - known > 60:
            known = time.monotonic()
            done = f"{kind.name}: {whole.inputs:,} of {count:,}, {len(whole.failures)} broken"
            print(f"{done}, {time.monotonic() - began:.0f} s", file=sys.stderr)
    _tell(kind, whole)
    if first == 0 and count >= kind.count:
        save(kind, whole)
    return int(bool(whole.failures) or whole.grown_bytes > MOST_BYTES)


def _tell(kind: Kind, tally: Tally) -> None:
    print(
        f"{kind.name}: {tally.inputs:,} inputs in {tally.seconds:.0f} s: {tally.read:,} read, {tally.refused:,} "
        f"refused, {tally.judged:,} judged, {tally.rendered:,} with all reports; slowest {tally.slowest_seconds:.2f} s "
        f"({tally.slowest}), {tally.grown_bytes / 1e6:.0f} MB at most, {len(tally.failures)} broken"
    )
    places = Counter((each.place, each.what.partition(":")[0]) for each in tally.failures)
    for (place, what), count in places.most_common():
        example = next(each for each in tally.failures if (each.place, each.what.partition(":")[0]) == (place, what))
        numbers = [each.number for each in tally.failures if each.place == place][:8]
        print(f"\n{count} x {example.what} at {place}, numbers {numbers}\n{example.trace}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
