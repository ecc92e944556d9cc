"""Lines that ran several times in the located step with the same operators, on tensors of different sizes: one graph,
sentence or set of points after the other.

Such calls can be one if the smaller ones are padded. Padding costs, so at least half of the numbers must be the
program's own. If a fourth of the calls would be left by putting those of one size together, that is what `equal_calls`
tells.
"""

from __future__ import annotations

import math
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
        own, padded = np.array([_sizes(facts, column) for column in shapes.T], dtype=np.float64).sum(axis=0)
        filled = float(own / padded) if 0 < padded < np.inf else 1.0
        if _LEAST_FILLED <= filled < 1:
            yield EqualCalls(site, marks[numbers], operators, filled)


def _sizes(facts: Facts, codes: Int32s) -> tuple[float, float]:
    """Of an operator's inputs that differ in size between several runs: how many numbers they have, and would have if
    all were padded to the largest. Infinitely many if no padding makes them alike."""
    known, times = np.unique(codes, return_counts=True)
    given = [parse_dims(facts.trace.text_of(code)) for code in known.tolist()]
    own = padded = 0.0
    if len({len(shapes) for shapes in given}) != 1:
        return own, math.inf
    for shapes in zip(*given, strict=True):
        if len({len(shape) for shape in shapes}) != 1:
            return own, math.inf
        sizes = np.array(shapes, dtype=np.float64).reshape(len(known), -1)
        if (sizes != sizes[0]).any():
            own += float((sizes.prod(axis=1) * times).sum())
            padded += float(sizes.max(axis=0).prod() * times.sum())
    return own, padded
