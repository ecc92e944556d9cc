"""Whether both sides are recordings of one program, so that a change of its step time says something.

One program: two variants of a scenario; scripts of one name whose operators are mostly of the same kinds; scripts of
two names, where one is a copy of the other with most of its lines. Elsewhere nothing but the operators is known. A
fix exchanges few of the kinds of operators that a program calls: among the scenarios' pairs, two thirds and more
remain, among pairs of different scenarios less than a third in the median.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from pathlib import Path

from profkit.comparing.recorded import Recorded
from profkit.errors import UsageError
from profkit.run import Run
from profkit.units import format_count

_MOST = 0.5
"""Half and more are most."""
_LEAST = 4
"""Of fewer lines or kinds of operators, one change may exchange half."""


def refuse_same_recording(before: list[Path], after: list[Path]) -> None:
    """Raises `UsageError` if a recording is on both sides, whatever the paths that lead to it."""
    sides = [{path.resolve(): path for path in side} for side in (before, after)]
    for real in sides[0].keys() & sides[1].keys():
        one, other = (side[real] for side in sides)
        both = f"{one} is the same recording" if one == other else f"{one} and {other} are the same recording"
        raise UsageError(f"{both} before and after: there is nothing to compare")


def refuse_different_programs(before: Recorded, after: Recorded) -> None:
    """Raises `UsageError` if the sides are recordings of different programs."""
    differ = _why_different(before, after)
    if differ:
        one, other = (f"{side.path}{_called(side.run)}" for side in (before, after))
        raise UsageError(f"different programs, {one} and {other}: {differ}; --force compares them nevertheless")


def program_name(run: Run) -> str | None:
    """The name of the script, module or scenario; None if the recording does not say."""
    return Path(run.target).name if run.target else None


def _called(run: Run) -> str:
    name = program_name(run)
    return f" ({name})" if name else ""


def _why_different(before: Recorded, after: Recorded) -> str:
    """Empty if they are the same program, or nothing shows that they are not."""
    one, other = (program_name(side.run) for side in (before, after))
    if one and one == other and before.run.variant and after.run.variant:
        return ""
    if one and other and one != other:
        texts = [{(function, source) for _, function, source in side.lines if source} for side in (before, after)]
        if all(texts):
            return _unlike(texts[0] & texts[1], texts[0] | texts[1], "line", "that call operators are the same")
    common = before.kinds & after.kinds
    return _unlike(common, min(before.kinds, after.kinds, key=len), "kind", "of operators are called by both")


def _unlike(common: AbstractSet[object], whole: AbstractSet[object], noun: str, what: str) -> str:
    """``2 of 9 lines that call operators are the same``; empty if most are, or there are too few to say."""
    if len(whole) < _LEAST or len(common) >= _MOST * len(whole):
        return ""
    return f"{len(common)} of {format_count(len(whole), noun)} {what}"
