"""A tensor is converted to another type and straight back, with nothing computed in between.

What it detects
Casts of a large tensor from one type to another followed by the cast back, with only views in between: `x.double()` at
the end of one function, `x.float()` at the start of the next. Both types are floating-point, or both integers. Not
reported: a cast around a computation (a norm in float32 of a bfloat16 model), which is there for its precision, and
casts in an optimizer's step. If the type in between is narrower, the round trip rounds the numbers, so leaving it out
changes them a little: that is an opportunity.

Why is this bad?
Each cast reads the whole tensor and writes another one, and so does its backward. Two casts in a row move the data
twice to end where they began.

Example
    for block in blocks:
        x = block(x.float()).double()

Use instead
    x = x.float()
    for block in blocks:
        x = block(x)
    x = x.double()

How the saving is estimated
Both casts and their backward nodes vanish. In a longer row of alternating casts, one stays if their number is odd.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.operators.operators import item_bytes
from profkit.patterns import (
    Call,
    by_call,
    each_step,
    in_most_steps,
    name_lines,
    named_operators,
    program_elementwise,
    program_operators,
    sites_by_time,
    times_per_step,
)
from profkit.rules.base import Facts, Kind, Need, Suspicion, Suspicions, format_bytes, rule
from profkit.savings import scale_with_backward
from profkit.trace import NONE, Bools, Int64s, Rows, distinct_rows

_MIN_ELEMENTS = 4096
"""On fewer, a cast's time is that of its dispatch: counters, losses and metrics change their type for good reasons."""
_UNCERTAINTY = 0.15
"""Nothing is modelled. Later operators may find less of their input in the cache."""
_CASTS = ("aten::_to_copy", "aten::to", "aten::type_as")
_TYPES = {
    "0": "unsigned char",
    "1": "signed char",
    "2": "short",
    "3": "int",
    "4": "long int",
    "5": "c10::Half",
    "6": "float",
    "7": "double",
    "15": "c10::BFloat16",
}
"""Types as the profiler writes them in arguments (their number in ``c10/core/ScalarType.h``) and for inputs."""
_NAMES = tuple(_TYPES.values())
_FLOATING = ("c10::BFloat16", "c10::Half", "float", "double")
_SHORT = {
    "signed char": "int8",
    "unsigned char": "uint8",
    "short": "int16",
    "int": "int32",
    "long int": "int64",
    "c10::Half": "float16",
    "float": "float32",
    "double": "float64",
    "c10::BFloat16": "bfloat16",
}


class _Casts(Struct, frozen=True):
    """Columns over the casts of the program in time order: type before and after as indices into `_NAMES`, and whether
    the next operator that is no view is the cast back."""

    rows: Rows
    source: Int64s
    target: Int64s
    returns: Bools


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES)
def dtype_round_trip(facts: Facts) -> Suspicions:
    """Group the round trips by the line that begins them and by the types."""
    casts = _find_casts(facts)
    first = _first_of_each_trip(casts)
    columns = facts.lines.site[casts.rows[first]], casts.source[first], casts.target[first]
    leading, number = distinct_rows(*columns)
    for kind, at in enumerate(leading.tolist()):
        mine = first[number == kind]
        begin, back = casts.rows[mine], casts.rows[mine + 1]
        rows = np.concatenate([begin, back])
        if not in_most_steps(facts, rows):
            continue
        source, target = (_NAMES[int(column[at])] for column in columns[1:])
        trips, sizes = times_per_step(facts, mine), [item_bytes(source), item_bytes(target)]
        moved = int(facts.operators.elements[rows].sum()) * sum(sizes) // facts.steps.measured_count
        exact = sizes[1] > sizes[0]
        yield Suspicion(
            message=f"{each_step(trips, 'tensor', 'is', 'are')} cast from {_SHORT[source]} to {_SHORT[target]} and "
            f"straight back, which moves {format_bytes(moved)}.",
            fix=f"Let what computes in {_SHORT[source]} pass on {_SHORT[source]}, and cast once, at the end, where "
            f"{_SHORT[target]} is needed.",
            rows=rows,
            edit=scale_with_backward(facts, rows, 0.0, _UNCERTAINTY, launch_kept=0.0),
            confidence=0.9 if exact else 0.7,
            count=trips,
            kind=Kind.FAULT if exact else Kind.OPPORTUNITY,
            places=name_lines(facts, [int(columns[0][at]), *sites_by_time(facts, back)]),
            evidence={"round_trips_per_step": trips, "moved_bytes_per_step": moved},
        )


def _find_casts(facts: Facts) -> _Casts:
    """The casts that change the type of a large tensor, and which of them the next operator reverses."""
    called = program_operators(facts)
    source, target = _types_of(facts, called)
    step, elements = facts.step_of(called), facts.operators.elements[called]
    casts = (source != target) & (elements >= _MIN_ELEMENTS)
    at = np.flatnonzero(casts | ~program_elementwise(facts)[1])
    here, after = at[:-1], at[1:]
    back = casts[here] & casts[after] & (source[here] == target[after]) & (target[here] == source[after])
    back &= (elements[here] == elements[after]) & (step[here] == step[after])
    back &= ~_launched_between(facts, called[here], called[after])
    chosen, returns = at[casts[at]], np.zeros(len(called), dtype=bool)
    returns[here] = back
    return _Casts(called[chosen], source[chosen], target[chosen], returns[chosen])


def _types_of(facts: Facts, called: Rows) -> tuple[Int64s, Int64s]:
    """For each operator the type of its input and of its result, `NONE` both if it is no cast within one family.

    `to` takes its type in many ways; the `_to_copy` inside always has it as its second argument.
    """
    copies = np.flatnonzero(named_operators(facts, "aten::_to_copy"))
    wanted = facts.trace.mask_of(called[named_operators(facts, *_CASTS)[called]])
    owner = facts.tree.nearest_ancestor(wanted, include_self=True, of=copies)
    types = np.full((2, len(facts.trace.events)), NONE, dtype=np.int64)
    types[:, owner[owner >= 0]] = by_call(facts, copies[owner >= 0], _cast, int).reshape(-1, 2).T
    return types[0, called], types[1, called]


def _cast(call: Call) -> tuple[int, int]:
    """The types before and after as indices into `_NAMES`; `NONE` both if they are of different families."""
    before = next(iter(call.types), "")
    after = _TYPES.get(next(iter(call.arguments[1:2]), ""), "")
    if before not in _NAMES or after not in _NAMES or (before in _FLOATING) != (after in _FLOATING):
        return NONE, NONE
    return _NAMES.index(before), _NAMES.index(after)


def _launched_between(facts: Facts, here: Rows, after: Rows) -> Bools:
    """Whether the program itself launched work on the device between the operators, as a hand-written kernel does."""
    launches = facts.launches
    own = np.sort(facts.trace.events.start_ns[launches.call[(launches.call >= 0) & (launches.operator < 0)]])
    end, start = facts.tree.end_ns[here], facts.trace.events.start_ns[after]
    return np.searchsorted(own, start) > np.searchsorted(own, end)


def _first_of_each_trip(casts: _Casts) -> Rows:
    """The casts that begin a round trip: in a row of casts every second one, of an odd number those that widen."""
    returns, index = casts.returns, np.arange(len(casts.rows))
    size = np.array([item_bytes(name) for name in _NAMES])
    begins = returns & ~np.append(False, returns)[:-1]
    start = np.maximum.accumulate(np.where(begins, index, 0))
    end = np.minimum.accumulate(np.where(~returns, index, len(index))[::-1])[::-1]
    skipped = ((end - start) % 2 == 0) & (size[casts.target[start]] < size[casts.source[start]])
    return np.flatnonzero(returns & ((index - start - skipped) % 2 == 0))
