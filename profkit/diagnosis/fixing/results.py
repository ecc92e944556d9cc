"""Whether the program computes the same after a change: what it prints, writes, and trains."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profkit.core.units import format_count
from profkit.diagnosis.fixing.arrays import Arrays, Values
from profkit.diagnosis.fixing.comparison import Comparison
from profkit.diagnosis.fixing.trained import compare_parameters
from profkit.diagnosis.fixing.trees import Written
from profkit.diagnosis.fixing.turns import Run

RELATIVE = 1e-4
"""What rounding adds up to in a loss over some hundred steps of float32."""
_COARSE = 1e-3
"""If the last printed digit is more than this share of a number, it must be equal too: 0.5 and 0.6 are not alike."""
_NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?|\b(?:nan|inf)\b")
_SHOWN = 60
"""Characters of a line that are quoted."""


@dataclass(frozen=True, slots=True)
class _Numbers:
    """A text as the words between its numbers, and the numbers."""

    words: tuple[str, ...]
    numbers: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> _Numbers:
        return cls(tuple(_NUMBER.split(text)), tuple(_NUMBER.findall(text)))


def compare_results(before: Sequence[Run], after: Sequence[Run]) -> Comparison:
    """Compare runs of the program as it was with runs of the changed one. What differs between the first from run to
    run says nothing."""
    if not all(run.seen.run_ns for run in before):
        return Comparison(unknown="the program ends without Python's own exit, so what it trained was not seen")
    if not all(run.seen.run_ns for run in after):
        return Comparison(differs="the changed program ends without Python's own exit")
    parts = [*_compare_parts(before, after)]
    differs = next((part.differs for part in parts if part.differs), "")
    unknown = next((part.unknown for part in parts if part.unknown), "")
    compared = tuple(what for part in parts for what in part.compared)
    left_out = tuple(what for part in parts for what in part.left_out)
    if not differs and not unknown and not compared:
        unknown = "the program prints no number, writes no file and trains nothing that could be compared"
    return Comparison(differs, unknown, compared, left_out)


def _compare_parts(before: Sequence[Run], after: Sequence[Run]) -> Iterator[Comparison]:
    yield _compare_seeds(before)
    yield compare_parameters([run.parameters for run in before], [run.parameters for run in after])
    yield _compare_texts([run.output for run in before], [run.output for run in after], "standard output")
    yield from _compare_files([run.written for run in before], [run.written for run in after])


def _compare_seeds(before: Sequence[Run]) -> Comparison:
    """Random numbers that no seed fixes make any two runs incomparable."""
    if places := [place for place in before[0].seen.unseeded if all(place in run.seen.unseeded for run in before)]:
        others = f" and {len(places) - 1} more" if len(places) > 1 else ""
        return Comparison(
            unknown=f"the random numbers made at {places[0]}{others} have no seed, and differ from run to run: "
            "set one, or give --seed 0"
        )
    drawn = [name for name in before[0].seen.drawn if all(name in run.seen.drawn for run in before)]
    free = [name for name in drawn if len({run.seen.random_states.get(name) for run in before}) > 1]
    if not free:
        return Comparison()
    makers = " and ".join(f"`{name}`" for name in free)
    return Comparison(unknown=f"random numbers of {makers} differ from run to run: set a seed, or give --seed 0")


def _compare_files(
    before: Sequence[Mapping[str, Written]], after: Sequence[Mapping[str, Written]]
) -> Iterator[Comparison]:
    names = sorted(set.intersection(*(set(run) for run in before)))
    if any(len(run) != len(names) for run in before):
        yield Comparison(left_out=("the files that it writes, which have other names from run to run",))
    elif any(sorted(run) != names for run in after):
        yield Comparison(differs="the program writes other files")
        return
    for name in names:
        if all(name in run for run in after):
            yield _compare_file(name, [run[name] for run in before], [run[name] for run in after])
        else:
            yield Comparison(differs=f"the program no longer writes {name}")


def _compare_file(name: str, before: Sequence[Written], after: Sequence[Written]) -> Comparison:
    both = [*before, *after]
    if len({one.digest for one in both}) == 1:
        return Comparison(compared=(f"{name} (byte for byte)",))
    texts, arrays = [one.text for one in both], [one.arrays for one in both]
    if all(text is not None for text in texts):
        known = [text or "" for text in texts]
        return _compare_texts(known[: len(before)], known[len(before) :], name)
    read = [one for one in arrays if one is not None]
    if len(read) == len(both):
        return _compare_arrays(name, read[: len(before)], read[len(before) :])
    if len({one.digest for one in before}) == 1:
        return Comparison(unknown=f"{name} has other bytes than before, and what they mean is not known")
    return Comparison(left_out=(f"{name}, whose bytes differ",))


def _compare_arrays(name: str, before: Sequence[Arrays], after: Sequence[Arrays]) -> Comparison:
    """Number for number, as far as those before the change are alike."""
    if not all(_are_close(before[0], one) for one in before):
        return Comparison(left_out=(f"{name}, whose numbers differ from run to run",))
    if any(not _are_close(before[0], one) for one in after):
        return Comparison(differs=f"the arrays in {name} are others")
    rest = _compare_texts([one.text for one in before], [one.text for one in after], name)
    count = format_count(sum(array.size for array in before[0].arrays.values()), "number")
    return Comparison(rest.differs, rest.unknown, (f"{count} of arrays in {name}",), rest.left_out)


def _are_close(one: Arrays, other: Arrays) -> bool:
    return one.arrays.keys() == other.arrays.keys() and all(
        _is_close(array, other.arrays[name]) for name, array in one.arrays.items()
    )


def _is_close(one: Values, other: Values) -> bool:
    """Whether two arrays are the same but for rounding, by the size of their numbers. Others than floats are equal."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype.kind not in "fc" or one.size == 0:
        return bool(np.array_equal(one, other))
    with np.errstate(over="ignore", invalid="ignore"):
        size = float(np.sqrt(np.nanmean(np.abs(one).astype(np.float64) ** 2))) if not np.isnan(one).all() else 0.0
        return bool(np.allclose(one, other, rtol=0.0, atol=RELATIVE * size, equal_nan=True))


def _compare_texts(before: Sequence[str], after: Sequence[str], name: str) -> Comparison:
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
    left_out = (f"{format_count(loose, 'number')} in {name} that differ from run to run",) if loose else ()
    return Comparison(compared=compared, left_out=left_out)


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
