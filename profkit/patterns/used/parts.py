"""Results of which only a part is read: operators that work element by element on whole tensors, or multiply matrices,
before a slice or a diagonal.

The trace does not say which tensor an operator takes, but its shape. So a result counts as read whole if anything but a
slice takes a tensor of that shape before the next one is made: that may be another tensor, and then nothing is found.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise, takewhile
from operator import itemgetter
from typing import TypeVar

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.families import ELEMENTWISE, base_name, writes_in_place
from profkit.patterns.attribution import busiest_site
from profkit.patterns.calls import Call, call_of
from profkit.patterns.frequency import in_most_steps
from profkit.patterns.named_lines import Places, costliest_lines
from profkit.patterns.step_calls import COPIES, PRODUCTS, Shape, StepCalls, repeated_in_measured, step_calls
from profkit.patterns.used.before import LAYERS, Before, all_results, parts_before, partwise_making
from profkit.patterns.used.blocks import own_blocks
from profkit.patterns.used.picked import picked_shares
from profkit.trace.events import Rows

_LEAST_ELEMENTS = 1 << 16
"""Working on fewer takes as long as the call."""
_MOST_USED = 0.5
"""Of a larger part, cutting first gives back less than the price is uncertain by."""
_MOST_SHAPES = 50
"""Distinct shapes that are looked at, the largest first."""
_RANDOM = frozenset(("dropout", "feature_dropout", "native_dropout", "rrelu"))
"""Of a smaller tensor they would draw other numbers."""
DIAGONALS = frozenset(("diag", "diagonal", "trace"))
CUTS = DIAGONALS | frozenset(("narrow", "select", "slice"))
_LOSING_A_DIMENSION = DIAGONALS | {"select"}


_SORTS = frozenset(("argsort", "msort", "sort"))
_QUANTILES = frozenset(("nanquantile", "quantile"))
_LEAST_SORTED = 1 << 12
"""Elements: sorting fewer takes as long as the call, a tenth of a millisecond."""


class UsedPart(Struct, frozen=True):
    """``rows`` are operators of the step that was looked at, each of which works on a tensor of the ``shape``, of which
    the share ``used`` is read; ``cuts`` are the slices that read it, and ``last`` those whose result they slice:
    these ``rows``, or those that take what the rows make."""

    rows: Rows
    cuts: Rows
    shape: Shape
    used: float
    last: Rows
    is_block: bool = False
    """Whether samples read their own blocks of a table of all."""

    @property
    def is_before(self) -> bool:
        """Whether what it makes goes into another operator before it is sliced."""
        return bool(self.rows[-1] != self.last[-1])


class SortedHead(Struct, frozen=True):
    """``rows`` are operators that sort ``length`` elements in a row, of which the first or last ``used`` are read by
    the ``cuts``."""

    rows: Rows
    cuts: Rows
    length: int
    used: int

    @property
    def last(self) -> Rows:
        return self.rows


_Cut = TypeVar("_Cut", UsedPart, SortedHead)


def cut_by_line(facts: Facts, found: Iterable[_Cut]) -> Iterator[tuple[list[_Cut], Rows]]:
    """Those cut from what one line makes, with their operators in the measured steps; lines of most steps only."""
    by_line: dict[int, list[_Cut]] = {}
    for cut in found:
        by_line.setdefault(busiest_site(facts, cut.last), []).append(cut)
    for cuts in by_line.values():
        rows = repeated_in_measured(facts, np.concatenate([cut.rows for cut in cuts]))
        if in_most_steps(facts, rows):
            yield cuts, rows


def rows_of_cuts(facts: Facts, found: Sequence[_Cut]) -> Rows:
    """What reads only a part, in the measured steps."""
    return repeated_in_measured(facts, np.concatenate([cut.cuts for cut in found]))


def makers_and_cuts(facts: Facts, rows: Rows, cuts: Rows) -> Places:
    """The lines that make something, and then those that read a part of it."""
    return Places.of([*costliest_lines(facts, rows).all(), *costliest_lines(facts, cuts).all()])


def weights_of(facts: Facts, row: int) -> int:
    """How many numbers a layer reads besides its input; 0 for what is none."""
    call = call_of(facts, row)
    return math.prod(call.shapes[1]) if base_name(call.name) in LAYERS and len(call.shapes) > 1 else 0


def mostly_unused(facts: Facts) -> list[UsedPart]:
    """Tensors of which at most half is read, each with the operators that make it."""
    step = step_calls(facts)
    picked = {place: share for place, share in picked_shares(facts, step).items() if share <= _MOST_USED}
    cut = {given[0] for call, given in zip(step.calls, step.shapes, strict=True) if given and _cuts_much(call, given)}
    cut |= {whole for at in picked if math.prod(whole := step.shapes[step.number[at]][0]) >= _LEAST_ELEMENTS}
    looked_at = sorted(cut, key=math.prod, reverse=True)[:_MOST_SHAPES]
    results = all_results(step) if looked_at else []
    found = [part for shape in looked_at for part in _parts_of(shape, step, results, picked)]
    return [*found, *_blocks(step)]


def _blocks(step: StepCalls) -> Iterator[UsedPart]:
    """Tables of which each sample reads its own block."""
    for found in own_blocks(step):
        make = step.rows[found.make]
        yield UsedPart(make, step.rows[found.read], found.shape, 1 / found.samples, make[-1:], is_block=True)


def sorted_heads(facts: Facts) -> list[SortedHead]:
    """Sorts of which only the first or last few elements are read, all of them by slices and selections along the
    sorted dimension."""
    step, found = step_calls(facts), list[SortedHead]()
    sorting = [base_name(call.name) in _SORTS for call in step.calls]
    for at in np.flatnonzero(np.array(sorting, dtype=bool)[step.number]).tolist() if sorting else ():
        call, given = step.calls[step.number[at]], step.shapes[step.number[at]]
        dimension = _sorted_dimension(call, given)
        if dimension is None:
            continue
        whole = given[0]
        makers, takes = step.making(whole), step.taking(whole)
        until = min([*makers[makers > at].tolist()[:1], int(step.over[np.searchsorted(step.over, at, side="right")])])
        taken_by = takes[slice(*np.searchsorted(takes, [at + 1, until]))].tolist()
        used = [_used_head(step.calls[step.number[place]], whole, dimension) for place in taken_by]
        read = [one for one in used if one != whole[dimension]]  # a slice of all is followed by others
        if read and all(read):
            found.append(SortedHead(step.rows[[at]], step.rows[taken_by], whole[dimension], max(read)))
    return found


def quantiles(facts: Facts) -> list[SortedHead]:
    """Quantiles of many elements, which PyTorch sorts to find so many as ``used`` of each row."""
    step, found = step_calls(facts), list[SortedHead]()
    named = np.array([base_name(call.name) in _QUANTILES for call in step.calls], dtype=bool)
    for at in np.flatnonzero(named[step.number]).tolist() if len(named) else ():
        call, given = step.calls[step.number[at]], step.shapes[step.number[at]]
        if not given or math.prod(given[0]) < _LEAST_SORTED:
            continue
        dimension, wanted = call.argument(2), math.prod(given[1]) if len(given) > 1 else 1
        length = given[0][int(dimension)] if dimension.lstrip("-").isdigit() else math.prod(given[0])
        found.append(SortedHead(step.rows[[at]], step.rows[[at]], length, wanted))
    return found


def _sorted_dimension(call: Call, given: Sequence[Shape]) -> int | None:
    """None if it sorts too few elements, or the dimension is not known."""
    arguments = [text for text in call.arguments[1:] if text]
    if not given or math.prod(given[0]) < _LEAST_SORTED:
        return None
    numbers = [text for text in arguments if text.lstrip("-").isdigit()]
    if arguments and not numbers:
        return None
    dimension = int(numbers[0]) if numbers else -1
    return dimension % len(given[0]) if -len(given[0]) <= dimension < len(given[0]) else None


def _used_head(call: Call, whole: Shape, dimension: int) -> int:
    """How many elements from the nearer end on a slice reads; 0 if it is none along this dimension."""
    if base_name(call.name) not in CUTS - DIAGONALS or not (left := left_by_cut(call, whole)):
        return 0
    if left == whole:
        return whole[dimension]
    along, *given = (int(text) for text in call.arguments[1:] if text)
    if along % len(whole) != dimension:
        return 0
    length, begin = whole[dimension], given[0] % whole[dimension] if given else 0
    return min(begin + left[dimension], length - begin)


@lru_cache(maxsize=1 << 12)
def _commutes(call: Call) -> bool:
    """Whether cutting before the operator would give the same part. A product's rows and columns are those of what is
    multiplied, and its diagonal is a sum of products of rows."""
    is_in_place = writes_in_place(call.name)  # what it writes to may be read later
    return not is_in_place and base_name(call.name) in (ELEMENTWISE | COPIES | PRODUCTS) - _RANDOM


def _cuts_much(call: Call, given: Sequence[Shape]) -> bool:
    whole = given[0] if given else ()
    return math.prod(whole) >= _LEAST_ELEMENTS and base_name(call.name) in CUTS and bool(left_by_cut(call, whole))


@lru_cache(maxsize=1 << 12)  # the same few calls come thousands of times
def left_by_cut(call: Call, whole: Shape) -> Shape:
    """The shape of what a slice or a selection leaves of a tensor; nothing if its arguments are not known."""
    try:
        given = [int(text) for text in call.arguments[1:] if text]
    except ValueError:
        return ()
    if base_name(call.name) in DIAGONALS:
        return _diagonal_of(whole, given)
    dimension = given[0] + (len(whole) if given[0] < 0 else 0) if given else -1
    if not 0 <= dimension < len(whole):
        return ()
    length, name = whole[dimension], base_name(call.name)
    if name == "select":
        left = 1
    elif name == "narrow" and len(given) > 2:
        left = given[2]
    elif name == "slice" and len(given) > 2:
        begin, end = (min(length, at + length if at < 0 else at) for at in given[1:3])
        left = math.ceil((end - begin) / max(given[3] if len(given) > 3 else 1, 1))
    else:
        return ()
    return (*whole[:dimension], left, *whole[dimension + 1 :]) if 0 < left <= length else ()


def _diagonal_of(whole: Shape, given: Sequence[int]) -> Shape:
    """The shape of the main diagonal, of two of the dimensions; nothing for another or for what has none."""
    if len(whole) < 2 or (given and given[0]):
        return ()
    dimensions = [at % len(whole) for at in given[1:3]] or [0, 1]
    if len(set(dimensions)) < 2:
        return ()
    others = [length for at, length in enumerate(whole) if at not in dimensions]
    return (*others, min(whole[at] for at in dimensions))


def _parts_of(
    shape: Shape, step: StepCalls, results: Sequence[Shape], picked: Mapping[int, float]
) -> Iterator[UsedPart]:
    """Walk from one operator that makes a tensor of this shape to the next in its step. Those whose result only the
    next one takes form a chain; it ends with what only slices take. What goes into the chain needs a like part."""
    rows, over, takes = step.rows, step.over.tolist(), step.taking(shape).tolist()
    works = [at for at in step.making(shape).tolist() if _commutes(step.calls[step.number[at]])]
    makes = sorted({*works, *partwise_making(shape, step, results).tolist()})
    chain: list[int] = []
    taking = set(takes)
    for maker, following in pairwise([*makes, len(rows)]):
        chain = [*chain, maker] if chain and maker in taking else [maker]
        until = min(following + 1, over[bisect_right(over, maker)])
        taken_by = takes[bisect_right(takes, maker) : bisect_left(takes, until)]
        if taken_by == [following]:
            continue  # the next one takes it, and nothing else does
        cuts = list(takewhile(itemgetter(0), (_read_by(at, shape, step, picked) for at in taken_by)))
        used = sum(share for share, _ in cuts)
        if cuts and len(cuts) == len(taken_by) and used <= _MOST_USED:
            along = frozenset[int]().union(*(dimensions for _, dimensions in cuts))
            one_position = along == {len(shape) - 2} and used * shape[-2] <= 1  # is found by `discarded-logits`
            kept = _from_last_product(chain, step) if _reads_diagonal(taken_by, step) else chain
            if own := [
                at for at in kept if not (one_position and base_name(step.calls[step.number[at]].name) == "linear")
            ]:
                yield UsedPart(rows[own], rows[taken_by], shape, used, rows[chain])
            for before in () if kept != chain else parts_before(Before(chain[0], shape, used), along, step, results):
                yield UsedPart(rows[[before.place]], rows[taken_by], before.shape, before.used, rows[chain])
        chain = []


def _reads_diagonal(places: Iterable[int], step: StepCalls) -> bool:
    return any(base_name(step.calls[step.number[at]].name) in DIAGONALS for at in places)


def _from_last_product(chain: list[int], step: StepCalls) -> list[int]:
    """The diagonal of a product takes whole rows and columns of its factors, so what makes these has to stay."""
    products = [n for n, at in enumerate(chain) if base_name(step.calls[step.number[at]].name) in PRODUCTS]
    return chain[products[-1] :] if products else chain


def _read_by(at: int, shape: Shape, step: StepCalls, picked: Mapping[int, float]) -> tuple[float, frozenset[int]]:
    """The share of the tensor that the slice at this place, and those that directly follow it, leave, and the
    dimensions along which they cut; 0 if it is none or not known. What is picked by index may lie along all of them."""
    if at in picked:
        return picked[at], frozenset(range(len(shape)))
    left = shape
    for number in (step.number[place] for place in range(at, len(step.number))):
        call, given = step.calls[number], step.shapes[number]
        is_next = base_name(call.name) in CUTS and given and given[0] == left
        if not is_next:
            break
        left = left_by_cut(call, left)
        if not left:
            return 0.0, frozenset()
        if base_name(call.name) in _LOSING_A_DIMENSION:
            break  # the result has a dimension less
    is_diagonal = len(left) != len(shape)
    along = frozenset(at for at, length in enumerate(shape) if is_diagonal or left[at] != length)
    return (math.prod(left) / math.prod(shape) if left != shape else 0.0), along
