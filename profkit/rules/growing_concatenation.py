"""A tensor grows by concatenation in a loop, which copies everything gathered so far each time round.

What it detects
`torch.cat` (or `hstack`, `vstack`, ...) on one line, if one input of each call is as large as the result of the call
before, eight times or more in a step or on and on over the steps. Three to seven times in a row are enough where it
takes 3 % of the step. A tensor that the loop works on between two calls has to be whole each time. Such a tensor is
reported only if products of batches take it, as attention takes a cache of keys and values, no gradient is computed
through it, and its copies are at least one per cent of the step: a product reads part of a longer tensor just as fast.
Others, such as the sequence of a language model or the features of a DenseNet, are not reported.

Why is this bad?
It looks like `list.append`, but a tensor cannot grow in place: each call allocates a longer one and copies the old one
into it. Gathering n pieces this way moves n/2 times the bytes of the result.

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

If each round needs the whole tensor, allocate it at its greatest length, write in place and read through a view:

    keys = torch.empty(batch, heads, longest, width)
    for n in range(longest):
        keys[:, :, n : n + 1] = key
        mixed = scaled_dot_product_attention(query, keys[:, :, : n + 1], values[:, :, : n + 1])

How the saving is estimated
Each call keeps the share that its new pieces, the smaller inputs, have of what it copies: one concatenation at the end,
or a tensor allocated beforehand, moves each piece once. Writing a piece in place takes at least as long as the cheapest
operator, or on a device the cheapest kernel. A view costs nothing. Where no step was recorded without its lines, copies
on a host took longer than they do, and the least that is likely is what they take at the memory's rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from profkit.derive.families import ELEMENTWISE, VIEW, operators_of
from profkit.derive.operators.operators import parse_dims
from profkit.patterns import (
    Shapes,
    backward_of,
    by_line,
    by_shapes,
    in_most_steps,
    program_operators,
    runs_inside_a_call,
    spent_ns,
    times_per_step,
    with_shapes,
)
from profkit.rules.base import MEDIUM_FROM, Facts, Kind, Need, Suspicion, Suspicions, format_bytes, format_count, rule
from profkit.savings import call_ns, computing_ns, memory_bytes_per_ns, take_less
from profkit.trace import NONE, Bools, Category, Int64s, Rows, among, distinct, distinct_rows
from profkit.trace.statistics import quantile

_MIN_CALLS = 8
"""Eight pieces are copied 4.5 times over. Skip connections and heads of a network join fewer."""
_FEW_CALLS = 3
"""Where nothing reads what is gathered so far, and the gain is of medium severity: three copy a piece two times."""
_MIN_STEPS = 3
"""A result that takes a piece in each of three steps and is never used in between is being gathered."""
_MIN_BYTES = 64 << 10
"""At several bytes a nanosecond, copying less than this in all takes microseconds."""
_UNCERTAINTY = 0.15
"""A call has a fixed cost besides its copy, and larger copies leave the cache."""
_PICKING = frozenset(("index", "index_select", "gather", "take", "take_along_dim"))
"""A store from which samples are drawn is read in part and need not be one tensor that grows."""
_JOINING = frozenset(("cat", "concat", "concatenate", "hstack", "vstack", "dstack", "column_stack", "row_stack"))
_BROADCASTS = frozenset(("expand", "expand_as", "broadcast_to"))
"""Views of a tensor that is then used whole: several heads of queries share keys and values."""
_PRODUCTS = frozenset(("matmul", "bmm", "baddbmm", "einsum"))
_ATTENTION = frozenset(("scaled_dot_product_attention",))
_READING_BY_STRIDES = _PRODUCTS | _ATTENTION | _BROADCASTS | ELEMENTWISE | frozenset(("clone", "repeat_interleave"))
"""These take part of a longer tensor as it lies. Convolutions, recurrent and linear layers want it in one piece."""
_BATCH_DIMENSIONS = 3
"""A product with a matrix of fewer takes all rows of a batch as one matrix, for which part of a tensor is copied."""
_MOST_HEADS = 64
"""Heads of queries per head of keys and values."""
_MIN_SHARE = 0.01
"""Of the step. Allocating beforehand requires knowing the greatest length; less than this is not worth it."""
_CHEAPEST = 0.05
"""The quantile of all kernel times that stands for the smallest kernel."""
_MOST_ELEMENTS = 1 << 62
"""Of a tensor. A file from anybody may tell of more than fit into a column."""
_TO_A_LIST = (
    "Append the pieces to a Python list and concatenate once after the loop, or write them into a tensor "
    "that was allocated beforehand (`out[i] = piece`)."
)
_IN_PLACE = (
    "Allocate it once at its greatest length, and write each piece in place (`cache[:, :, n : n + 1] = piece`). "
    "Pass on a view of the filled part (`cache[:, :, : n + 1]`), which copies nothing."
)
_OF_A_LIBRARY = (
    "The cache grows inside what this line calls. Ask there for a preallocated one, if it exists "
    '(`cache_implementation="static"` in transformers).'
)


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES)
def growing_concatenation(facts: Facts) -> Suspicions:
    """Follow the concatenations of each line from one call to the next."""
    called = program_operators(facts)
    inputs = _InputSizes(facts)
    uses = _Uses(facts, inputs)
    for rows in by_line(facts, called[operators_of(facts.trace, _JOINING)[called]]):
        runs = list(_growing_runs(facts, rows, inputs))
        if not (runs and _copies_much(facts, np.concatenate(runs), inputs)):
            continue
        are_used = [uses.is_used(run) for run in runs]
        gathered = [run for run, is_used in zip(runs, are_used, strict=True) if not is_used]
        in_loops = [run for run in gathered if _is_of_a_loop(facts, run)]
        attended = [
            run
            for run, is_used in zip(runs, are_used, strict=True)
            if is_used and _is_of_a_loop(facts, run) and uses.is_attended(run)
        ]
        yield from _report(facts, in_loops or gathered, inputs, is_read=False)
        yield from _report(facts, attended, inputs, is_read=True)


def _report(facts: Facts, runs: list[Rows], inputs: _InputSizes, *, is_read: bool) -> Suspicions:
    """The runs of one line, if they copy enough in most steps. If each round reads the tensor, an operator writes each
    piece in place; in a library that takes another cache, with limits of its own."""
    if not runs:
        return
    calls = np.concatenate(runs)
    if not _copies_much(facts, calls, inputs):
        return
    moved_bytes = _moved_bytes(facts, calls, inputs)
    kept = np.array([1 - max(inputs.of(row)) / max(sum(inputs.of(row)), 1) for row in calls])
    if is_read:
        kept = np.maximum(kept, _least_ns(facts) / computing_ns(facts, calls).clip(min=1)).clip(max=1.0)
    is_inside = is_read and runs_inside_a_call(facts, calls)
    per_step_bytes = moved_bytes // facts.steps.measured_count
    yield Suspicion(
        message=f"{format_bytes(per_step_bytes)} a step is copied to grow a tensor by "
        f"{format_count(times_per_step(facts, calls), 'concatenation')}: each copies everything gathered before.",
        fix=_OF_A_LIBRARY if is_inside else _IN_PLACE if is_read else _TO_A_LIST,
        rows=calls,
        edit=take_less(facts, calls, kept, _uncertainty(facts, calls, moved_bytes)),
        worth=_MIN_SHARE if is_read else 0.0 if any(_is_of_a_loop(facts, run) for run in runs) else MEDIUM_FROM,
        kind=Kind.OPPORTUNITY if is_inside else None,
        evidence={"copied_bytes_per_step": per_step_bytes, "longest_run": max(len(run) for run in runs)},
    )


def _uncertainty(facts: Facts, calls: Rows, moved_bytes: int) -> float:
    """Where every step was recorded with shapes, each result lies in fresh memory, and a copy takes longer: it may need
    no more than what the memory's rate allows. Of 19 % that were told so, 5 % could be had."""
    if facts.device.present or not facts.steps.measured_are_marked:
        return _UNCERTAINTY
    least_ns = 2 * moved_bytes / memory_bytes_per_ns(facts)
    return max(_UNCERTAINTY, 1 - least_ns / max(int(spent_ns(facts, calls).sum()), 1))


def _copies_much(facts: Facts, calls: Rows, inputs: _InputSizes) -> bool:
    """Whether the calls copy enough, in most steps, to be worth a report; if not, no part of them does."""
    return _moved_bytes(facts, calls, inputs) >= _MIN_BYTES and in_most_steps(facts, calls)


def _moved_bytes(facts: Facts, calls: Rows, inputs: _InputSizes) -> int:
    return int(np.maximum(facts.operators.input_bytes[calls], inputs.allocated[calls]).sum())


def _least_ns(facts: Facts) -> float:
    """What writing a piece takes, however small it is."""
    if not facts.device.present:
        return call_ns(facts)
    kernels = facts.trace.events.category == Category.KERNEL
    return quantile(facts.trace.events.duration_ns[kernels], _CHEAPEST) if kernels.any() else 0.0


class _InputSizes:
    """The elements of each input tensor of an operator.

    If an operator repeats one of the located step but allocates more or less, its shapes are not known. The largest
    input is then taken to make the difference.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts, self._origin, self._dims = facts, facts.repeats.row, facts.trace.events.dims_code
        self.allocated = facts.allocated_bytes
        self._known: dict[int, tuple[int, ...]] = {}

    def kinds(self, rows: Rows) -> tuple[Int64s, ...]:
        """Columns that are equal for operators of equal sizes."""
        dims, origin = self._dims, self._origin[rows]
        return dims[rows].astype(np.int64), np.where(origin >= 0, dims[origin], NONE), self.allocated[rows]

    def of(self, row: int) -> tuple[int, ...]:
        origin = int(self._origin[row])
        if self._dims[row] >= 0 or origin < 0:
            return self._recorded(row)
        sizes, was = sorted(self._recorded(origin)), int(self.allocated[origin])
        largest = (round(int(self.allocated[row]) * sum(sizes) / was) if was else 0) - sum(sizes[:-1])
        return (largest, *sizes[:-1]) if largest > 0 else (0,)

    def located(self, row: int) -> tuple[int, ...]:
        """What it takes in the located step, if its own shapes were not recorded."""
        return self._recorded(row if self._dims[row] >= 0 else int(self._origin[row]))

    def are_recorded(self, *rows: Rows) -> bool:
        """Whether the shapes of all these operators were recorded: then `of` and `located` agree."""
        return all((self._dims[one] >= 0).all() for one in rows)

    def _recorded(self, row: int) -> tuple[int, ...]:
        code = int(self._dims[row]) if row >= 0 else NONE
        if code not in self._known:
            shapes = parse_dims(self._facts.trace.text_of(code))
            self._known[code] = tuple(math.prod(shape) for shape in shapes if shape) or (0,)
        return self._known[code]


def _growing_runs(facts: Facts, rows: Rows, inputs: _InputSizes) -> Iterator[Rows]:
    """Calls of one line whose result is larger each time and an input of a later call, if there are some in a row.
    Several tensors may grow by turns on one line, as in a comprehension."""
    runs: list[list[int]] = []
    waiting: dict[int, list[list[int]]] = {}
    """By the elements gathered so far: the runs that continue with a call that takes so many, the oldest first."""
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
        is_of_one_step = len(distinct(facts.step_of(found))) == 1
        if _is_of_a_loop(facts, found) or (len(found) >= _FEW_CALLS and is_of_one_step):
            yield found


def _is_of_a_loop(facts: Facts, run: Rows) -> bool:
    """Whether the calls are enough for any share of the step: others may join the parts of a model."""
    return len(run) >= _MIN_CALLS or len(distinct(facts.step_of(run))) >= _MIN_STEPS


class _Uses:
    """What the program does with a growing tensor between one concatenation and the next. The tensor is known by its
    size."""

    def __init__(self, facts: Facts, inputs: _InputSizes) -> None:
        self._facts, self._inputs = facts, inputs
        called = program_operators(facts)
        rows = self._rows = called[~operators_of(facts.trace, VIEW - _BROADCASTS, _JOINING)[called]]
        self._picking = operators_of(facts.trace, _PICKING)[rows]
        products = operators_of(facts.trace, _PRODUCTS)[rows]
        shaped = with_shapes(facts, rows)
        in_batches = by_shapes(facts, shaped, _are_batches) & (shaped >= 0)
        self._attending = operators_of(facts.trace, _ATTENTION)[rows] | products & in_batches
        self._by_strides = operators_of(facts.trace, _READING_BY_STRIDES)[rows] & ~products | self._attending
        self._first, self._kind = distinct_rows(self._picking, self._attending, *inputs.kinds(rows))
        self._known: dict[str, _Taken] = {}

    def is_used(self, run: Rows) -> bool:
        """Whether, between most calls, an operator takes a tensor of the size gathered so far. Views and operators that
        pick a part of it do not count."""
        return self._is_taken(run, np.ones(len(self._rows), dtype=bool))

    def is_attended(self, run: Rows) -> bool:
        """Whether products of batches take it between most calls, nothing there needs it in one piece, and no backward
        pass needs its earlier content, which is gone once it is written in place."""
        return (
            self._is_taken(run, self._attending)
            and not self._is_taken(run, ~self._by_strides)
            and not backward_of(self._facts, run).size
        )

    def _is_taken(self, run: Rows, chosen: Bools) -> bool:
        """Whether one of the chosen operators takes it between most calls."""
        between = slice(*np.searchsorted(self._rows, [run[0], run[-1]]))
        at = np.flatnonzero(chosen[between]) + between.start
        rows, kind = self._rows[at], self._kind[at]
        call, present = np.searchsorted(run, rows) - 1, distinct(kind)
        using_it = np.zeros(len(rows), dtype=bool)
        ways = (self._inputs.of, self._inputs.located)
        for of in ways[: 1 if self._inputs.are_recorded(run, rows) else 2]:
            sizes, size_of_call = np.unique([sum(of(row)) for row in run.tolist()], return_inverse=True)
            place, taken = {size: at for at, size in enumerate(sizes.tolist())}, self._taken(of)
            may_take = present[(taken.of_a_size(sizes) | self._attending[self._first])[present]]
            taking = [
                number * len(sizes) + at
                for number, one in zip(may_take.tolist(), self._first[may_take].tolist(), strict=True)
                for at in _which_taken(
                    taken.of_kind[number], place, bool(self._picking[one]), bool(self._attending[one])
                )
            ]
            using_it |= among(kind * len(sizes) + size_of_call[call], np.array(taking, dtype=np.int64))
        return len(distinct(call[using_it])) >= 0.5 * (len(run) - 1)

    def _taken(self, of: Callable[[int], tuple[int, ...]]) -> _Taken:
        """What operators of each kind take, worked out once for all runs."""
        if of.__name__ not in self._known:
            self._known[of.__name__] = _Taken([of(row) for row in self._rows[self._first].tolist()])
        return self._known[of.__name__]


class _Taken:
    """The sizes that operators of each kind take."""

    def __init__(self, of_kind: list[tuple[int, ...]]) -> None:
        self.of_kind = of_kind
        self._kind = np.repeat(np.arange(len(of_kind)), [len(sizes) for sizes in of_kind])
        self._size = np.array([min(size, _MOST_ELEMENTS) for sizes in of_kind for size in sizes], dtype=np.int64)

    def of_a_size(self, gathered: Int64s) -> Bools:
        """By kind: whether its operators take a tensor of one of these sizes."""
        found = np.zeros(len(self.of_kind), dtype=bool)
        found[self._kind[np.isin(self._size, gathered)]] = True
        return found


def _are_batches(shapes: Shapes) -> bool:
    return min((len(shape) for shape in shapes if shape), default=0) >= _BATCH_DIMENSIONS


def _which_taken(taken: tuple[int, ...], gathered: Mapping[int, int], picks: bool, attends: bool) -> Iterable[int]:
    """The numbers of the gathered sizes that an operator takes. Attention takes half of a tensor that holds both keys
    and values, and takes it several times if heads share it."""
    if not attends and gathered.keys().isdisjoint(taken):
        return ()
    sizes = [size for size in set(taken) if not (picks and _picks_a_part(taken, size))]
    if not attends:
        return [gathered[size] for size in sizes if size in gathered]
    return {
        at
        for whole, at in gathered.items()
        for size in sizes
        if 2 * size % max(whole, 1) == 0 and 1 <= 2 * size // max(whole, 1) <= 2 * _MOST_HEADS
    }


def _picks_a_part(sizes: tuple[int, ...], gathered: int) -> bool:
    """Whether few elements are picked out of what is gathered. The indices of a lookup may be gathered themselves."""
    return max(sizes) == gathered and 2 * (sum(sizes) - gathered) <= gathered
