"""Whether both sides are recordings of one program: only then does a change of the step time mean anything.

One program means two variants of a scenario; scripts of the same name that call mostly the same kinds of operators; or
scripts of different names that share most of their lines. Of other recordings only the operators are known. A fix
replaces few kinds of operators: between the variants of a scenario two thirds and more remain, between different
scenarios less than a third in the median.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from pathlib import Path

from profkit.core.errors import UsageError
from profkit.core.units import format_count
from profkit.diagnosis.compare.recorded import Recorded
from profkit.run.directory import Run

_MOST = 0.5
"""From this share on, it is "most"."""
_LEAST = 4
"""With fewer lines or kinds of operators, a single change may replace half."""


def refuse_same_recording(before: list[Path], after: list[Path]) -> None:
    """Raises `UsageError` if a recording is on both sides, by whatever path."""
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
        raise UsageError(f"different programs, {one} and {other}: {differ}; --force compares them anyway")


def program_name(run: Run) -> str | None:
    """The name of the script, module or scenario; None if the recording does not say."""
    return Path(run.target).name if run.target else None


def _called(run: Run) -> str:
    name = program_name(run)
    return f" ({name})" if name else ""


def _why_different(before: Recorded, after: Recorded) -> str:
    """Empty if they are the same program, or if nothing shows otherwise."""
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
