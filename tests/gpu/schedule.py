"""Who works when: each part has a first turn, and what it has not done by then goes on after the others."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from tests.gpu.archives import Archives
from tests.gpu.machine import Machine
from tests.gpu.results import Results
from tests.gpu.rows import COULD_NOT, FAILED, Part, Row

_PACKING_S = 10.0
"""Kept at the end, for the recordings that wait."""
_LAST_S = 1.0
"""What fails with less than that left was ended, and did not fail by itself."""


@dataclass
class _Turn:
    """A part that is under way."""

    part: Part
    rows: Iterator[Row]
    is_over: bool = False


def run(
    parts: Sequence[Part],
    machine: Machine,
    results: Results,
    archives: Archives,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Let the parts work for that many seconds. False if one of them failed."""
    end = clock() + seconds - min(_PACKING_S, seconds / 10)

    def left_s() -> float:
        return max(0.0, end - clock())

    try:
        with ExitStack() as stack, _ending_in_order():
            turns = [_Turn(part, stack.enter_context(closing(part.rows(machine, left_s)))) for part in parts]  # type: ignore[type-var]
            succeeded = True
            for is_last in (False, True):
                for turn in turns:
                    until = end if is_last else min(end, clock() + turn.part.share * seconds)
                    succeeded &= _let_work(turn, results, archives, until, left_s, clock)
            results.log("all parts are done" if all(turn.is_over for turn in turns) else "the time is over")
    finally:
        left_out = archives.add_waiting()
        results.add(Row("the run", "recordings", "some found no room" if left_out else "all packed"), left_out)
    return succeeded


def _let_work(
    turn: _Turn,
    results: Results,
    archives: Archives,
    until: float,
    left_s: Callable[[], float],
    clock: Callable[[], float],
) -> bool:
    """Take rows of a part until the time comes or it has no more. False if it failed."""
    part = turn.part.name
    while not turn.is_over and clock() < until:
        begun = clock()
        try:
            row = next(turn.rows, None)
        except Exception as error:
            row, turn.is_over = Row(part, "the part itself", f"{FAILED}{type(error).__name__}: {error}"), True
        if row is None:
            turn.is_over = True
            break
        if row.outcome.startswith(FAILED) and left_s() < _LAST_S:
            row = replace(row, outcome=f"{COULD_NOT}the time was over")
        left_out = tuple(name for name, path in row.recordings.items() if not _packed(archives, name, path, results))
        results.add(replace(row, figures={**row.figures, "took s": round(clock() - begun, 1)}), left_out)
        if turn.is_over and row.outcome.startswith(FAILED):
            return False
    return True


def _packed(archives: Archives, name: str, path: Path, results: Results) -> bool:
    """Whether a recording is in an archive, or waits; what cannot be read is told."""
    try:
        return archives.add(name, path)
    except Exception as error:
        results.log(f"{name}: cannot be packed: {type(error).__name__}: {error}")
        return False


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """A request to end takes the processes along that work for this one."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    previous = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
