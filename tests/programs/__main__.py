"""``python -m tests.programs [NAME…]``: diagnose the programs one after the other and print how each one fared."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.end_to_end.programs import all_programs, judge, render
from tests.forks import Forks
from tests.recordings import Recordings


def main() -> int:
    """Exit status 0 when all is as it should be."""
    verdicts = []
    chosen = [one for one in all_programs() if not sys.argv[1:] or one.path.stem in sys.argv[1:]]
    with Forks() as forks, tempfile.TemporaryDirectory() as directory:
        recordings = Recordings(Path(directory), forks)
        for number, program in enumerate(chosen, 1):
            if program.missing:
                lacking = ", ".join(program.missing)
                print(f"{program.path.stem} is left out: {lacking} is not installed", file=sys.stderr)
                continue
            print(f"{number} of {len(chosen)}: {program.path.stem}", file=sys.stderr)
            verdicts.append(judge(program, recordings)[0])
    print(render(verdicts))
    return 0 if all(verdict.as_it_should_be for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
