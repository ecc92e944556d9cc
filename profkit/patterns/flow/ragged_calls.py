"""Lines that ran several times in the located step with the same operators, on tensors of different sizes: one graph,
sentence or set of points after the other.

Such calls can be one if the smaller ones are padded. Padding costs, so at least half of the numbers must be the
program's own. If a fourth of the calls would be left by putting those of one size together, that is what `equal_calls`
tells.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit.derive.facts import Facts
from profkit.derive.operators.operators import parse_dims
from profkit.patterns.flow.equal_calls import EqualCalls, apart, runs_of_lines
from profkit.trace.events import Int32s

_LEAST_FILLED = 0.5
"""Of the numbers of a padded tensor. With less, the arithmetic more than doubles; levels of a pyramid of pictures, each
a quarter of the one before, fill less."""


def ragged_calls(facts: Facts, least: int) -> Iterator[EqualCalls]:
    """Those of at least so many runs, the ones with most operators first."""
    events, groups = facts.trace.events, dict[tuple[int, bytes], list[int]]()
    marks, runs = runs_of_lines(facts)
    for number, (site, rows) in enumerate(zip(events.site[marks].tolist(), runs, strict=True)):
        groups.setdefault((site, events.name_code[rows].tobytes()), []).append(number)
    often = [(key[0], numbers) for key, numbers in groups.items() if len(numbers) >= least]
    for site, every in sorted(often, key=lambda one: -len(one[1]) * len(runs[one[1][0]])):
        numbers = apart(every, runs)
        if len(numbers) < least:
            continue
        operators = np.stack([runs[number] for number in numbers])
        shapes = events.dims_code[operators]
        if len(np.unique(shapes, axis=0)) * least <= len(numbers) or (shapes < 0).any():
            continue
        filled = min((_filled(facts, column) for column in shapes.T), default=0.0)
        if _LEAST_FILLED <= filled < 1:
            yield EqualCalls(site, marks[numbers], operators, filled)


def _filled(facts: Facts, codes: Int32s) -> float:
    """Of an operator's inputs in several runs: the least share of a padded one that the program's own numbers are. 0 if
    no padding makes them alike."""
    known, times = np.unique(codes, return_counts=True)
    given = [parse_dims(facts.trace.text_of(code)) for code in known.tolist()]
    if len({len(shapes) for shapes in given}) != 1:
        return 0.0
    least = 1.0
    for shapes in zip(*given, strict=True):
        if len({len(shape) for shape in shapes}) != 1:
            return 0.0
        sizes = np.array(shapes, dtype=np.float64).reshape(len(known), -1)
        most = sizes.max(axis=0).prod()
        least = min(least, float(np.average(sizes.prod(axis=1), weights=times) / most) if most else 1.0)
    return least
