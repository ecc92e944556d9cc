"""How tensors lie in memory: the strides of views, and the copies that put them in order.

Each operator that returns a view of other sizes, such as `transpose` or `unbind`, ends in `as_strided`. The profiler
writes its arguments: the sizes and the strides of the view.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.operators.operators import parse_types
from profkit.patterns.calls import distinct_calls
from profkit.patterns.program import named_operators, program_operators
from profkit.patterns.shapes import parse_numbers
from profkit.trace.events import NONE, Bools, Int64s, Rows

Sizes = tuple[int, ...]
_IN_ORDER = "0"
"""`torch.contiguous_format` as the profiler writes it: its number in ``c10/core/MemoryFormat.h``."""
_MOST_INPUTS = 4
"""Of an operator that are looked at. Attention takes three tensors, a product with a sum too."""


class Layout(Struct, frozen=True):
    """A tensor's sizes and strides, in elements."""

    sizes: Sizes
    strides: Sizes

    @property
    def is_in_order(self) -> bool:
        """Whether it is contiguous."""
        needed = 1
        for size, stride in zip(reversed(self.sizes), reversed(self.strides), strict=True):
            if size != 1 and stride != needed:
                return False
            needed *= size
        return True

    @property
    def is_repeated(self) -> bool:
        """Whether elements of the view lie at one place, as `expand` lets them."""
        return any(size > 1 and stride == 0 for size, stride in zip(self.sizes, self.strides, strict=True))

    def turned(self, order: Sequence[int]) -> Layout:
        """The same with its dimensions in another order."""
        return Layout(tuple(self.sizes[at] for at in order), tuple(self.strides[at] for at in order))

    def part(self) -> Layout:
        """One of the tensors along the first dimension."""
        return Layout(self.sizes[1:], self.strides[1:])


class Ordering(Struct, frozen=True):
    """Copies that put a view in order, by their place ``at`` among the program's operators, in time order: the row, and
    the ``number`` of the view's layout in ``layouts``."""

    at: Int64s
    rows: Rows
    number: Int64s
    layouts: tuple[Layout, ...]

    def __len__(self) -> int:
        return len(self.at)


class Inputs(Struct, frozen=True):
    """The sizes of tensors as numbers: ``known`` are the sizes, ``of`` has a row for each of the program's operators
    and a column for each input, `NONE` where there is none."""

    known: dict[Sizes, int]
    of: np.ndarray[tuple[int, int], np.dtype[np.int64]]

    def number(self, sizes: Sizes) -> int:
        """`NONE` if no operator takes a tensor of these sizes."""
        return self.known.get(sizes, NONE)


def inputs_of(facts: Facts, rows: Rows) -> Inputs:
    """What these operators take."""
    calls, number = distinct_calls(facts, rows)
    known: dict[Sizes, int] = {}
    table = np.full((len(calls), _MOST_INPUTS), NONE, dtype=np.int64)
    for at, call in enumerate(calls):
        for column, shape in enumerate(call.shapes[:_MOST_INPUTS]):
            if shape:
                table[at, column] = known.setdefault(tuple(shape), len(known))
    return Inputs(known, table[number])


@derived_once
def ordering_copies(facts: Facts) -> Ordering:
    """The copies of the measured steps, by `contiguous()` or `clone`, of views whose strides are known."""
    called = program_operators(facts)
    at = np.flatnonzero(_copies(facts, called))
    calls, number = distinct_calls(facts, called[at])
    sizes = [tuple(next(iter(call.shapes), ())) for call in calls]
    layouts, of = _last_layouts(facts, called[at], sizes, number)
    chosen = of >= 0
    return Ordering(at[chosen], called[at[chosen]], of[chosen], layouts)


def _copies(facts: Facts, called: Rows) -> Bools:
    """`contiguous()` that found the tensor out of order, and `clone` that is told to put it in order."""
    moves = facts.tree.holding(named_operators(facts, "aten::copy_"))[called]
    contiguous = named_operators(facts, "aten::contiguous")[called]
    clones = np.flatnonzero(named_operators(facts, "aten::clone")[called])
    calls, number = distinct_calls(facts, called[clones])
    ordered = np.array([call.argument(1) == _IN_ORDER for call in calls], dtype=bool)[number]
    contiguous[clones[ordered]] = True
    return moves & contiguous


def _last_layouts(facts: Facts, copies: Rows, sizes: list[Sizes], number: Int64s) -> tuple[tuple[Layout, ...], Int64s]:
    """The layouts of the views in the measured steps, and for each copy the number of that of the last view of its
    sizes made before, `NONE` if there is none. The copies' sizes are listed, and ``number`` says which each has."""
    events, found = facts.trace.events, np.full(len(copies), NONE, dtype=np.int64)
    if not len(copies):
        return (), found
    views = named_operators(facts, "aten::as_strided") & (events.lane == facts.steps.main_lane)
    rows = np.flatnonzero(views & facts.measured)
    calls, view = distinct_calls(facts, rows)
    layouts = tuple(_layout(call.values) for call in calls)
    known = {one: at for at, one in enumerate({*sizes} - {()})}
    of_view = np.array([known.get(layout.sizes, NONE) for layout in layouts], dtype=np.int64)[view]
    of_copy = np.array([known.get(one, NONE) for one in sizes], dtype=np.int64)[number]
    order = np.lexsort((events.start_ns[rows], of_view))
    begin, end = (np.searchsorted(of_view[order], range(len(known)), side=side) for side in ("left", "right"))
    for one in known.values():
        mine, alike = of_copy == one, order[begin[one] : end[one]]
        last = np.searchsorted(events.start_ns[rows[alike]], events.start_ns[copies[mine]]) - 1
        found[mine] = np.append(view[alike], NONE)[last]
    return layouts, found


def _layout(values: str) -> Layout:
    """By the arguments of `as_strided`; without dimensions if they do not tell."""
    _, sizes, strides, *_ = [*parse_types(values), "", "", ""]
    told = parse_numbers(sizes), parse_numbers(strides)
    return Layout(*told) if len(told[0]) == len(told[1]) else Layout((), ())
