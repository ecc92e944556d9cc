"""Numbers are added up at places that an index names, and the device spends its time on order instead of on adding.

What it detects
`scatter_add`, `index_add`, `scatter_reduce`, `index_put` with `accumulate`, and the gradients of `x[index]`, `gather`
and embeddings, that take 200 µs or more and reach less than 5 % of what the memory could move, if the step would be 3 %
shorter at 15 %. The finding says how many numbers go to how many places, and whether the indices are sorted first: the
gradients of `x[index]` and of embeddings do so, and all of them with deterministic algorithms. It is an opportunity:
another order of sums changes the last digits.

Why is this bad?
Sums for one place have to wait for each other. Atomic additions wait in the memory, one for each number, so a million
for one place take as long as if one thread added them. The other way is to sort all indices in every step, and then one
thread adds up each run of equal ones, however long it is.

Example
    table = weights[index]                       # its gradient is index_put with accumulate: a sort in every step
    sums = torch.zeros(8, 64).index_add(0, group, rows)         # a million rows for eight places

Use instead
    table = F.embedding(index, weights)          # or index_select: their gradients wait less
    sums = F.one_hot(group, 8).to(rows.dtype).T @ rows          # few places: a product; many: segment_reduce of sorted

How the saving is estimated
Each such call takes what its numbers take to be read, added and written once at 15 % of the memory's rate. Scattering
single numbers to random places reaches 17 to 19 % on an H20 (FlagGems' benchmark of PyTorch's scatter_add, 2026), the
gradient of an embedding 26 % on an H100 (recorded), and whole rows up to half (PyTorch's pull request 183479, GB200).
Without a sort, index_put with equal indices was 10 to 100 times as fast (pull request 171381). Nothing else changes.
"""

from __future__ import annotations

import math
import re

from profkit.derive.device.kernel_families import Family
from profkit.rules.base import (
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_count,
    format_share,
    format_time,
    known_roofline,
    nothing_below,
    pick_form,
    rule,
)
from profkit.savings.roofline.below import at_share, gather, points_below
from profkit.savings.roofline.calls import Call
from profkit.savings.roofline.launches import Point
from profkit.savings.roofline.moving import is_added_up

_SLOW, _REACHED = 0.05, 0.15
"""Shares of the memory's rate: what scatters reach as they are, and less than a third of it."""
_LARGE_NS = 200_000
"""The sort before the gradient of an embedding takes 140 µs for 8,192 indices on an H200: a dozen kernels."""
_SORTS = re.compile(r"[Ss]ort|indexing_backward")
"""In the names of the kernels, if indices are sorted."""
_CROWDED = 16
"""Numbers for one place, on average: as many wait for each other. With fewer it is others that hold them up."""
_FEW_PLACES = 1024
"""A product with a matrix of as many rows takes no longer than reading the numbers."""
_MIN_FRACTION = 0.03
"""Of the step: nobody rewrites a sum for less."""
_UNCERTAINTY = 0.5
"""The recording does not say which places the indices name."""
_ADDING = re.compile(r"aten::(?:scatter_add_?|index_add_?|scatter_reduce_?|index_reduce_?|embedding_dense_backward)")
_PUTTING = re.compile(r"aten::_?index_put(?:_impl)?_?")
_EMBEDDING = "aten::embedding_dense_backward"
_PADDING = 3
"""The argument of the gradient of an embedding that names the row without one."""


@rule(Kind.OPPORTUNITY, Need.DEVICE, Need.OPERATORS, Need.SHAPES)
def slow_scatter(facts: Facts) -> Suspicions:
    """One finding for all of them, at the line that spends most in them."""
    roofline = known_roofline(facts)
    families = (Family.INDEXING, Family.EMBEDDING)
    slow = gather(facts, roofline, points_below(roofline, families, _is_slow))
    if slow is None:
        return nothing_below(roofline, *families)
    sorted_first, (numbers, places) = _is_sorted(facts, slow.worst), _crowd(slow.worst.call)
    yield Suspicion(
        message=f"{format_count(slow.count, 'scattered sum')} a step {pick_form(slow.count, 'takes', 'take')} "
        f"{format_time(slow.taken_ns)} at {format_share(slow.share)} of the memory's rate. {numbers:,} numbers are "
        f"added up in {format_count(places, 'place')}, and "
        + (
            "the indices are sorted first in every step."
            if sorted_first
            else "those for one place wait for each other."
        )
        + slow.note,
        fix=_fix(facts, slow.worst, sorted_first),
        rows=slow.rows,
        edit=at_share(facts, slow, lambda _: _REACHED, _UNCERTAINTY),
        worth=_MIN_FRACTION,
        confidence=0.6,
        count=slow.count,
        spent_ns=slow.taken_ns,
        places=slow.places,
        evidence={
            "scatters_per_step": slow.count,
            "share_of_possible": round(slow.share, 4),
            "numbers": numbers,
            "places": places,
        },
    )


def _is_slow(point: Point) -> bool:
    is_slow = point.of_possible < _SLOW and point.each_ns >= _LARGE_NS
    return is_slow and _adds_up(point.call) and min(_crowd(point.call)) > 0


def _adds_up(call: Call) -> bool:
    return _ADDING.fullmatch(call.name) is not None or (_PUTTING.fullmatch(call.name) is not None and is_added_up(call))


def _is_sorted(facts: Facts, point: Point) -> bool:
    return any(_SORTS.search(facts.trace.name_of(row)) for row in point.work.tolist())


def _crowd(call: Call) -> tuple[int, int]:
    """How many numbers are added up, and in how many places."""
    if call.name == _EMBEDDING:
        return call.elements(0), (call.numbers(2) or (0,))[0] * call.shape(0)[-1]
    source = 2 if _PUTTING.fullmatch(call.name) else 3
    return call.elements(source), math.prod(call.shape(0))


def _fix(facts: Facts, point: Point, sorted_first: bool) -> str:
    numbers, places = _crowd(point.call)
    text = ""
    if facts.run.flags.get("deterministic_algorithms") is True:
        text = (
            "Deterministic algorithms are on and sort: leave `torch.use_deterministic_algorithms` off where runs need "
            "not be equal. "
        )
    if point.call.name == _EMBEDDING:
        if point.call.value(_PADDING) in ("-1", ""):
            text += "Set `padding_idx`, if one index is padding: its rows then cost nothing. "
        return (
            text + "Look each index up once (`unique` with its inverse), or multiply a one-hot matrix if they are few."
        )
    if sorted_first:
        return text + (
            "If this is the gradient of `x[index]`, use `torch.index_select` or `gather`, whose gradients do not sort. "
            "If the index stays the same, sort it once and sum runs with `torch.segment_reduce`."
        )
    if numbers >= _CROWDED * places and point.call.shape(0)[:1] <= (_FEW_PLACES,):
        return text + "With so few places a product with a one-hot matrix adds them up without waiting."
    return text + (
        "Sort the index once, if it stays the same, and sum runs with `torch.segment_reduce` (or torch_scatter's "
        "`segment_csr`). Or add up parts of each place first, or keep padding out of the index."
    )
