"""``python -m tests.new_rule NAME`` makes the three files of a rule in this checkout."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.new_rule import Refused, make_rule

_CHECKOUT = Path(__file__).parents[2]


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python -m tests.new_rule NAME", file=sys.stderr)
        return 2
    try:
        paths = make_rule(sys.argv[1], _CHECKOUT)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 2
    print(*(path.relative_to(_CHECKOUT) for path in paths), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
