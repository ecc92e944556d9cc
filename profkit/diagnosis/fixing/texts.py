"""Whether two versions of a program print the same: word for word, and numbers but for rounding.

Times say nothing about a result: a change is meant to alter them. ``took 3 s`` may be steady by chance before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from profkit.core.units import format_count
from profkit.diagnosis.fixing.comparison import Comparison

RELATIVE = 1e-4
"""What rounding adds up to in a loss over some hundred steps of float32."""
_COARSE = 1e-3
"""If the last printed digit is more than this share of a number, it must be equal too: 0.5 and 0.6 are not alike."""
_NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?|\b(?:nan|inf)\b")
_TIMES = re.compile(
    r"\b\d{4}-\d\d-\d\d\b"
    r"|\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?\b"
    r"|\b\d+(?:\.\d*)?(?= ?(?:(?:[mu\u00b5n]?s|secs?|seconds?|minutes?|hours?)\b(?!/)|[a-z]+/s(?:ec(?:ond)?)?\b))"
    r"|\b(?:time|took|elapsed|duration)[ :=]{1,3}\d+(?:\.\d*)?\b",
    re.IGNORECASE,
)
"""A date, a time of day, and how long something took or how fast it was."""
_ASIDE = re.compile(
    r"^.*Warning: .*\n(?:(?:  .*|.*Triggered internally.*)(?:\n|\Z))*"
    r"|^\[W\d.*(?:\n|\Z)"
    r"|^.*\d%\|.*(?:\n|\Z)",
    re.MULTILINE,
)
"""What Python and PyTorch warn of, with the line of the program that it quotes: a change may be made to end that. And
bars of progress."""
_SHOWN = 60
"""Characters of a line that are quoted."""


@dataclass(frozen=True, slots=True)
class _Numbers:
    """A text as the words between its numbers, and the numbers. Times are words that are alike."""

    words: tuple[str, ...]
    numbers: tuple[str, ...]
    times: int

    @classmethod
    def of(cls, text: str) -> _Numbers:
        timeless, times = _TIMES.subn(" TIME", text)
        return cls(tuple(_NUMBER.split(timeless)), tuple(_NUMBER.findall(timeless)), times)


def compare_errors(before: Sequence[str], after: Sequence[str]) -> Comparison:
    """The numbers that a program logs: they go to standard error. Other words there may be another warning."""
    old, new = ([_ASIDE.sub("", text) for text in texts] for texts in (before, after))
    if not any(map(_NUMBER.search, old)):
        return Comparison()
    words = {_Numbers.of(text).words for text in (*old, *new)}
    if len(words) > 1:
        return Comparison(left_out=("standard error, whose words differ",))
    return compare_texts(old, new, "standard error")


def compare_texts(before: Sequence[str], after: Sequence[str], name: str) -> Comparison:
    """Word for word, and numbers within the tolerance. Numbers that differ before the change are left out."""
    old, new = list(map(_Numbers.of, before)), list(map(_Numbers.of, after))
    if any(text.words != old[0].words for text in old):
        return Comparison(left_out=(f"the words of {name}, which differ from run to run",))
    for text, whole in zip(new, after, strict=True):
        if text.words != old[0].words:
            return Comparison(differs=f"{name} has other words: {_first_difference(before[0], whole)}")
    steady = [all(_alike(old[0].numbers[at], text.numbers[at]) for text in old) for at in range(len(old[0].numbers))]
    for at in (at for at, is_steady in enumerate(steady) if is_steady):
        other = next((text.numbers[at] for text in new if not _alike(old[0].numbers[at], text.numbers[at])), None)
        if other is not None:
            return Comparison(differs=f"{name} says {other} instead of {old[0].numbers[at]}")
    loose = len(steady) - sum(steady)
    compared = (f"{format_count(sum(steady), 'number')} in {name}",) if any(steady) else ()
    left_out = [f"{format_count(loose, 'number')} in {name} that differ from run to run"] if loose else []
    left_out += [f"{format_count(old[0].times, 'time')} in {name}"] if old[0].times else []
    return Comparison(compared=compared, left_out=tuple(left_out))


def _first_difference(before: str, after: str) -> str:
    """The first line that is another one."""
    lines = before.splitlines(), after.splitlines()
    pairs = zip(*lines, strict=False)
    at = next((at for at, (one, other) in enumerate(pairs) if _Numbers.of(one).words != _Numbers.of(other).words), -1)
    if at < 0:
        counts = [len(one) for one in lines]
        return f"{counts[1]} lines instead of {counts[0]}" if counts[0] != counts[1] else "its white space differs"
    return f"`{lines[1][at][:_SHOWN]}` instead of `{lines[0][at][:_SHOWN]}`"


def _alike(one: str, other: str) -> bool:
    """Whether two printed numbers are the same but for rounding. Integers must be equal."""
    if one == other:
        return True
    if one.lstrip("+-").isdigit() and other.lstrip("+-").isdigit():
        return False
    first, second = float(one), float(other)
    size, last_digit = max(abs(first), abs(second)), max(_last_digit(one), _last_digit(other))
    rounding = 1.01 * last_digit if last_digit <= _COARSE * size else 0.0  # 0.1234 and 0.1235 may be as close as that
    return abs(first - second) <= RELATIVE * size + rounding


def _last_digit(number: str) -> float:
    """What one more in the last printed digit adds: 0.001 for 1.234."""
    mantissa, _, exponent = number.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return (
        float(10.0 ** (int(exponent or 0) - decimals)) if mantissa.strip("+-")[:1].isdigit() or "." in mantissa else 0.0
    )
