"""``python -m tests.beside``: adversarial programs, each bare and under profkit; what differs is profkit's."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path

from tests.beside.comparing import Difference, compared
from tests.beside.declared import Program, programs
from tests.beside.documented import why
from tests.beside.modes import BARE, BARE_DRIVER, MODES
from tests.beside.running import Outcome, load, outcome
from tests.beside.table import Result, Row, render, sums, write

BUSY = 4


def main() -> None:
    _as_in_a_terminal()
    options = _options()
    known = {program.name: program for program in programs()}
    chosen = [known[name] for name in options.names or known]
    rows = []
    with tempfile.TemporaryDirectory(prefix="beside-") as temporary, load(BUSY) if options.load else nullcontext():
        for program in chosen:
            rows.append(run(program, options.modes, (options.work or Path(temporary)).resolve(), options.limit))
            print(render(rows[-1]), flush=True)
    print(sums(rows))
    if options.write:
        condition = "Beside four busy processes" if options.load else "On a quiet machine"
        write(rows, condition, _machine(), replaces_all=not options.names)
    sys.exit(any(row.broken or any(result.word == "DIFFERS" for result in row.results) for row in rows))


def _as_in_a_terminal() -> None:
    """Undo what a shell's background job or `nohup` makes all its children ignore."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def run(program: Program, modes: Sequence[str], work: Path, limit_s: float) -> Row:
    if absence := program.absence():
        return Row(program, tuple(Result(mode, skipped=absence) for mode in modes))
    at = work / program.name
    try:
        bare = outcome(program, BARE, at, limit_s)
        if bare.status != program.status:
            return Row(program, (), f"bare it ends with {bare.status}: {bare.stderr.strip()[-300:]!r}")
        return Row(program, tuple(_result(program, mode, bare, at, limit_s) for mode in modes))
    except PermissionError as problem:
        return Row(program, tuple(Result(mode, skipped=str(problem)) for mode in modes))
    except Unrepeatable as problem:
        return Row(program, (), str(problem))


class Unrepeatable(Exception):
    """Two bare runs differ, so that nothing can be said about profkit."""


def _result(program: Program, mode: str, bare: Outcome, at: Path, limit_s: float) -> Result:
    if mode in program.skips:
        return Result(mode, skipped=program.skips[mode])
    watched = outcome(program, mode, at, limit_s)
    differences = compared(bare, watched, mode, program.masks)
    if differences:
        like = BARE_DRIVER if mode == "profile" else BARE
        again = outcome(program, like, at, limit_s)
        if like == BARE and (flaky := compared(bare, again, "profile", program.masks)):
            raise Unrepeatable(f"two bare runs of it differ: {flaky[0].kind}: {flaky[0].text}")
        differences = compared(again, watched, mode, program.masks)
    return Result(mode, "", tuple((one, why(program.name, mode, one)) for one in differences), watched.seconds)


def _machine() -> str:
    return (
        f"{os.cpu_count()} CPUs, {platform.system()}, Python {platform.python_version()}, PyTorch {version('torch')}."
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.beside", description=__doc__)
    parser.add_argument("names", nargs="*", help="programs; by default all")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES, help="default: all")
    parser.add_argument("--load", action="store_true", help=f"with {BUSY} busy processes beside")
    parser.add_argument(
        "--limit", type=float, default=120, metavar="S", help="a longer run hangs. Default: %(default)s"
    )
    parser.add_argument("--work", type=Path, help="keep what the last run of each program left here")
    parser.add_argument(
        "--write", action="store_true", help="write tests/beside/RESULTS.md; of named programs, their rows"
    )
    return parser.parse_args()


__all__ = ["Difference", "main", "run"]

if __name__ == "__main__":
    main()
