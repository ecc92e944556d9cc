"""A tensor grows by concatenation in a loop, which copies everything gathered so far each time round.

What it detects
`torch.cat` (or `hstack`, `vstack`, ...) on one line, where one input of each call is as large as the result of the call
before, eight times or more in a step or on and on over the steps. A tensor that the loop works on between two calls
(the sequence of a language model, the features of a DenseNet) needs to be whole each time and is not reported.

Why is this bad?
It looks like `list.append`, but a tensor cannot grow in place: each call allocates a longer one and copies the old one
into it. Gathering n pieces so moves n/2 times the bytes of the result.

Example
    path = start
    for _ in range(steps):
        position = step(position)
        path = torch.cat([path, position])

Use instead
    pieces = [start]
    for _ in range(steps):
        position = step(position)
        pieces.append(position)
    path = torch.cat(pieces)

How the saving is estimated
Of each call the share is kept that the smaller inputs, its new pieces, have of all it copies: one concatenation at the
end, or a tensor allocated beforehand, moves each piece once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from profkit.derive.facts import Facts
from profkit.derive.families import VIEW, operators_of
from profkit.derive.operators.operators import parse_dims
from profkit.evidence.attribution import by_line
from profkit.evidence.frequency import in_most_steps, times_per_step
from profkit.evidence.program import program_operators
from profkit.findings import Kind
from profkit.rules.base import Need, Suspicion, rule
from profkit.ruling.pricing import scale_operators
from profkit.trace.events import NONE, Bools, Int64s, Rows
from profkit.trace.values import among, distinct, distinct_rows
from profkit.units import format_bytes, format_count

_MIN_CALLS = 8
"""Eight pieces are copied 4.5 times over; skip connections and heads of a network join fewer."""
_MIN_STEPS = 3
"""A result that takes a piece in each of three steps and is never used meanwhile is being gathered."""
_MIN_BYTES = 64 << 10
"""At several bytes a nanosecond, copying less than this in all takes microseconds."""
_UNCERTAINTY = 0.15
"""A call has a fixed cost besides its copy, and larger copies leave the cache."""
_PICKING = frozenset(("index", "index_select", "gather", "take", "take_along_dim"))
"""A store from which samples are drawn is read in part, and need not be one tensor that grows."""
_JOINING = frozenset(("cat", "concat", "concatenate", "hstack", "vstack", "dstack", "column_stack", "row_stack"))


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES)
def growing_concatenation(facts: Facts) -> Iterator[Suspicion]:
    """Follow the concatenations of each line from one call to the next."""
    called = program_operators(facts)
    inputs = _InputSizes(facts)
    using = called[~operators_of(facts.trace, VIEW, _JOINING)[called]]
    picking = operators_of(facts.trace, _PICKING)[using]
    for rows in by_line(facts, called[operators_of(facts.trace, _JOINING)[called]]):
        runs = [run for run in _growing_runs(facts, rows, inputs) if not _is_used(run, using, picking, inputs)]
        calls = np.concatenate([*runs, rows[:0]])
        moved_bytes = int(np.maximum(facts.operators.input_bytes[calls], inputs.allocated[calls]).sum())
        if moved_bytes < _MIN_BYTES or not in_most_steps(facts, calls):
            continue
        new = np.array([1 - max(inputs.of(row)) / max(sum(inputs.of(row)), 1) for row in calls])
        per_step_bytes = moved_bytes // facts.steps.measured_count
        yield Suspicion(
            message=f"A tensor grows by {format_count(times_per_step(facts, calls), 'concatenation')} a step, "
            f"each of which copies all that is there already: {format_bytes(per_step_bytes)} a step in all.",
            fix="Append the pieces to a Python list and concatenate once after the loop, or write them into a tensor "
            "that was allocated beforehand (`out[i] = piece`).",
            rows=calls,
            edit=scale_operators(facts, calls, new, _UNCERTAINTY),
            evidence={"copied_bytes_per_step": per_step_bytes, "longest_run": max(len(run) for run in runs)},
        )


class _InputSizes:
    """The elements of each input tensor of an operator, told once per distinct shapes.

    Of one that repeats an operator of the located step, but allocates more or less, the shapes are not known. There the
    largest input is taken to have made the difference.
    """

    def __init__(self, facts: Facts) -> None:
        self._trace, self._origin = facts.trace, facts.repeats.row
        self.allocated = facts.allocated_bytes
        self._known: dict[int, tuple[int, ...]] = {}

    def kinds(self, rows: Rows) -> tuple[Int64s, ...]:
        """Columns that are alike for operators of the same sizes."""
        dims, origin = self._trace.events.dims_code, self._origin[rows]
        return dims[rows].astype(np.int64), np.where(origin >= 0, dims[origin], NONE), self.allocated[rows]

    def of(self, row: int) -> tuple[int, ...]:
        if self._trace.events.dims_code[row] < 0 <= self._origin[row]:
            return self._grown(row, int(self._origin[row]))
        return self._recorded(row)

    def _grown(self, row: int, origin: int) -> tuple[int, ...]:
        sizes, was = sorted(self._recorded(origin)), int(self.allocated[origin])
        total = round(int(self.allocated[row]) * sum(sizes) / was) if was else 0
        return (total - sum(sizes[:-1]), *sizes[:-1]) if total > sum(sizes[:-1]) else (0,)

    def _recorded(self, row: int) -> tuple[int, ...]:
        code = int(self._trace.events.dims_code[row])
        if code not in self._known:
            shapes = parse_dims(self._trace.text_of(code))
            self._known[code] = tuple(math.prod(shape) for shape in shapes if shape) or (0,)
        return self._known[code]


def _growing_runs(facts: Facts, rows: Rows, inputs: _InputSizes) -> Iterator[Rows]:
    """Calls of one line whose result is each time larger and an input of a later call, long enough to be a loop. A line
    may let several tensors grow by turns, as a comprehension does."""
    runs: list[list[int]] = []
    waiting: dict[int, list[list[int]]] = {}
    """By the elements gathered so far the runs that go on where a call takes so many, the oldest first."""
    for row in rows.tolist():
        taken = inputs.of(row)
        total = sum(taken)
        before = next((size for size in taken if size < total and waiting.get(size)), None)
        if before is None:
            runs.append(run := [])
        else:
            run = waiting[before].pop(0)
        run.append(row)
        waiting.setdefault(total, []).append(run)
    for found in map(np.array, runs):
        step = facts.step_of(found)
        if len(found) >= _MIN_CALLS or len(distinct(step)) >= _MIN_STEPS:
            yield found


def _picks_a_part(sizes: tuple[int, ...], gathered: int) -> bool:
    """Whether few elements are picked out of what is gathered; the indices of a lookup may be gathered themselves."""
    return max(sizes) == gathered and 2 * (sum(sizes) - gathered) <= gathered


def _is_used(run: Rows, using: Rows, picking: Bools, inputs: _InputSizes) -> bool:
    """Whether, between most calls, an operator takes a tensor of the size gathered so far, other than a view of it and
    what picks a part. There are many operators and few kinds of them, and few tensors of those sizes."""
    between = slice(*np.searchsorted(using, [run[0], run[-1]]))
    rows, picks = using[between], picking[between]
    first, kind = distinct_rows(picks, *inputs.kinds(rows))
    sizes, size_of_call = np.unique([sum(inputs.of(row)) for row in run.tolist()], return_inverse=True)
    number_of = {size: number for number, size in enumerate(sizes.tolist())}
    taking = [
        number * len(sizes) + number_of[size]
        for number, (row, is_pick) in enumerate(zip(rows[first].tolist(), picks[first].tolist(), strict=True))
        for size in set(inputs.of(row))
        if size in number_of and not (is_pick and _picks_a_part(inputs.of(row), size))
    ]
    call = np.searchsorted(run, rows) - 1
    using_it = among(kind * len(sizes) + size_of_call[call], np.array(taking, dtype=np.int64))
    return len(distinct(call[using_it])) >= 0.5 * (len(run) - 1)
