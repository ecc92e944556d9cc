"""Lines whose products or decompositions take matrices of a simple form, in each call of the step that was looked
at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from profkit.derive.facts import Facts
from profkit.findings.values import Location
from profkit.patterns.loops.located import call_marks, marks_around
from profkit.patterns.named_lines import location_at
from profkit.patterns.program import repeating_below
from profkit.run.directory import Form, MatrixForm
from profkit.trace.events import Rows


def calls_of_form(facts: Facts, known: Iterable[MatrixForm], *wanted: Form) -> dict[Location, dict[int, MatrixForm]]:
    """For each line the calls of the ``wanted`` forms, by the marks of their events. Where the same call of the line,
    the first or the second one of a run, has another form in another run, it is left out: a recursion often begins with
    the identity."""
    marks, around, rank = call_marks(facts), marks_around(facts), Counter[int]()
    by_place = dict[tuple[Location, tuple[int, ...], int], dict[int, MatrixForm]]()
    for one in known:
        mark = int(marks[one.call]) if 0 <= one.call < len(marks) else -1
        line = int(around[mark]) if mark >= 0 else -1
        where = location_at(facts, line)
        if where is not None:
            by_place.setdefault((where, one.shape, rank[line]), {})[mark] = one
            rank[line] += 1
    found = dict[Location, dict[int, MatrixForm]]()
    for (where, *_), calls in by_place.items():
        forms = {one.form for one in calls.values()}
        if len(forms) == 1 and forms.issubset(wanted):
            found.setdefault(where, {}).update(calls)
    return found


def separable_kernels(facts: Facts, known: Iterable[MatrixForm]) -> Iterator[tuple[Location, Rows, tuple[int, int]]]:
    """The lines that convolve each channel with a column times a row, with their convolutions in the measured steps,
    and the height and width of the largest kernel."""
    for where, calls in calls_of_form(facts, known, Form.SEPARABLE).items():
        rows, _ = repeating_below(facts, facts.trace.mask_of(np.array(sorted(calls))))
        high, wide = max(call.shape[-2:] for call in calls.values())
        if rows.size:
            yield where, rows, (high, wide)
