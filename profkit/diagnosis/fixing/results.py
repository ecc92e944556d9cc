"""Whether the program computes the same after a change: what it prints, writes, and trains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from profkit.core.units import format_count
from profkit.diagnosis.fixing.arrays import Arrays, Values
from profkit.diagnosis.fixing.comparison import Comparison
from profkit.diagnosis.fixing.courses import compare_courses, compare_draws
from profkit.diagnosis.fixing.texts import RELATIVE, compare_errors, compare_texts
from profkit.diagnosis.fixing.trained import compare_parameters
from profkit.diagnosis.fixing.trees import Written
from profkit.diagnosis.fixing.turns import Run
from profkit.trace.events import Float64s


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


def have_same_bits(before: Sequence[Run], after: Sequence[Run]) -> bool:
    """Whether what was trained, written and printed is the same to the last bit, as far as it was so before."""
    same = _are_equal_arrays([run.parameters for run in (*before, *after)])
    for kept in ((lambda run: run.output), (lambda run: {name: one.digest for name, one in run.written.items()})):
        steady = [kept(run) for run in before]
        same &= any(one != steady[0] for one in steady) or all(kept(run) == steady[0] for run in after)
    return same


def _are_equal_arrays(runs: Sequence[Mapping[str, Float64s]]) -> bool:
    first = runs[0]
    return all(
        run.keys() == first.keys()
        and all(np.array_equal(value, run[name], equal_nan=True) for name, value in first.items())
        for run in runs[1:]
    )


def _compare_parts(before: Sequence[Run], after: Sequence[Run]) -> Iterator[Comparison]:
    yield _compare_seeds(before)
    yield compare_parameters([run.parameters for run in before], [run.parameters for run in after])
    yield compare_courses([run.seen for run in before], [run.seen for run in after])
    yield compare_texts([run.output for run in before], [run.output for run in after], "standard output")
    yield compare_errors([run.errors for run in before], [run.errors for run in after])
    yield from _compare_files([run.written for run in before], [run.written for run in after])
    yield compare_draws([run.seen for run in before], [run.seen for run in after])


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
        return compare_texts(known[: len(before)], known[len(before) :], name)
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
    rest = compare_texts([one.text for one in before], [one.text for one in after], name)
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
