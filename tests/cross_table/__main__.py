"""``python -m tests.cross_table [PATTERN…]``: every rule on every recording at hand, or on those whose names match."""

from __future__ import annotations

import argparse
import os
import sys
from fnmatch import fnmatchcase
from pathlib import Path

from tests.cross_table.recordings import find_all
from tests.cross_table.table import judge, read_reasons, render
from tests.recordings import default_root

_BESIDE_THE_CHECKOUT = Path(__file__).parents[3] / "shared" / "corpus"


def main() -> int:
    """Exit status 0 if every unexpected finding has a reason."""
    corpus = Path(os.environ.get("PROFKIT_CORPUS") or _BESIDE_THE_CHECKOUT)
    parser = argparse.ArgumentParser(prog="python -m tests.cross_table", description=__doc__)
    parser.add_argument("patterns", nargs="*", default=["*"], metavar="PATTERN", help="such as 'kineto/*'")
    parser.add_argument("--kept", type=Path, default=default_root(), metavar="DIR", help="Default: %(default)s")
    parser.add_argument("--corpus", type=Path, default=corpus, metavar="DIR", help="Default: %(default)s")
    options = parser.parse_args()
    os.environ.setdefault("PROFKIT_STRICT", "1")  # what breaks is the row's error
    reasons = read_reasons()
    chosen = [
        one
        for one in find_all(options.kept, options.corpus)
        if any(fnmatchcase(one.name, pattern) for pattern in options.patterns)
    ]
    rows = [judge(one, reasons) for one in chosen]
    print(render(rows, reasons))
    return int(any(row.error or any(hit.reason is None for hit in row.hits) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
