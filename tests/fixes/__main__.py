"""``python -m tests.fixes [FOLDER…]``: fix each program with a known fix by `fix --all`, and print how far that comes.

Without a folder the scenarios that run here are fixed. A folder holds programs as ``NAME/fault.py`` and
``NAME/fix.py``, or as packages ``NAME/fault`` and ``NAME/fix``. With ``--labelled`` each of the ordinary programs is
tried on the rule of its fault alone, and says in how many a change was offered and held. A program takes minutes:
``--only`` chooses some, and each row is printed as soon as it is known.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.fixes.cases import labelled, programs, scenarios
from tests.fixes.judging import judge
from tests.fixes.table import HEAD, figures, reasons, render


def main() -> None:
    """Print a row for each program, then the figures."""
    options = _options()
    cases = [case for folder in options.folders for case in programs(folder)]
    cases = cases or (labelled() if options.labelled else scenarios())
    chosen = [case for case in cases if not options.only or case.name in options.only]
    print(HEAD, flush=True)
    rows = []
    with tempfile.TemporaryDirectory(prefix="profkit-fixes-") as temporary:
        for case in chosen:
            rows.append(judge(case, Path(temporary).resolve(), options.pairs, options.most_seconds, options.unsafe))
            print(render(rows[-1]), flush=True)
            if options.json:
                options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    print("\n".join(["", figures(rows), "", "not held:", *reasons(rows)]))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fixes", description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--labelled", action="store_true", help="the ordinary programs of tests/programs")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument(
        "--pairs",
        type=int,
        default=3,
        help="runs of each version at the end, at least; up to ten while noise leaves a doubt",
    )
    parser.add_argument("--most-seconds", type=float, default=300.0, help="for all runs of one change")
    parser.add_argument("--unsafe", action="store_true", help="also changes that may alter numbers")
    parser.add_argument("--json", type=Path, help="also write the rows there")
    return parser.parse_args()


if __name__ == "__main__":
    main()
