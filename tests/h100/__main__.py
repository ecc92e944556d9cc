"""``python -m tests.h100 [--corpus DIR] [--format text|json]``: what profkit says, compared with measurements."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path

from tests.h100.sums import sum_up
from tests.h100.survey import survey
from tests.h100.table import render

_BESIDE_THE_CHECKOUT = Path(__file__).parents[3] / "shared" / "corpus"


def main() -> None:
    corpus = Path(os.environ.get("PROFKIT_CORPUS") or _BESIDE_THE_CHECKOUT) / "h100"
    parser = argparse.ArgumentParser(prog="python -m tests.h100", description=__doc__)
    parser.add_argument("--corpus", type=Path, default=corpus, metavar="DIR", help="Default: %(default)s")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    if not (options.corpus / "truth.json").is_file():
        parser.error(f"{options.corpus} holds no truth.json")
    os.environ.setdefault("PROFKIT_STRICT", "1")  # what breaks is the row's error, not a line of its notes
    rows = survey(options.corpus)
    if options.format == "text":
        print(render(rows))
    else:
        value = {"rows": [asdict(row) for row in rows], "sums": asdict(sum_up(rows))}
        print(json.dumps(value, indent=1, default=str))


if __name__ == "__main__":
    main()
